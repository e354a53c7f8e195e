//! Replicas as processes of their own on this machine: started, told of each other, stopped.
//!
//! A child prints its address, reads the cluster from its standard input, prints `ready`, and runs until
//! that input ends: so it also ends when its parent does.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::NodeId;
use convoke::quorum::Configuration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::Client;
use crate::cluster::{Cluster, ReplicaAddress};
use crate::replica::Fate;
use crate::serve::Server;

/// Ends the cluster on a child's standard input.
const END_OF_CLUSTER: &str = "# end of cluster";

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program.
    pub program: PathBuf,
    /// How many replicas, with the ids from 1 on.
    pub replicas: u64,
    /// The ids of those that crash on the first write.
    pub crashing: BTreeSet<u64>,
}

impl Setup {
    /// This program, and so many replicas that do not crash.
    ///
    /// # Errors
    /// When the system does not say where this program is.
    pub fn new(replicas: u64) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Self { program, replicas, crashing: BTreeSet::new() })
    }
}

/// Replica processes and a client of them. Dropping it kills them.
#[derive(Debug)]
pub struct Processes {
    children: Vec<Replica>,
    client: Client,
}

#[derive(Debug)]
struct Replica {
    id: u64,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    /// Starts the replicas, connected to each other, and connects to them.
    ///
    /// # Errors
    /// When a process cannot be started, or says why it cannot serve.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let mut children = Vec::new();
        let mut cluster = Cluster { replicas: Vec::new() };
        for id in 1..=setup.replicas {
            let mut replica = Replica::spawn(setup, id)?;
            let listen = replica.line("an address").await?;
            cluster.replicas.push(ReplicaAddress { id, listen, advertise: None });
            children.push(replica);
        }
        let text = cluster.to_text();
        for replica in &mut children {
            replica.input.write_all(format!("{text}{END_OF_CLUSTER}\n").as_bytes()).await?;
        }
        for replica in &mut children {
            replica.line("ready").await?;
        }
        let endpoint = convoke::endpoint().start().await?;
        let members = cluster.members()?;
        members.introduce(&endpoint)?;
        for peer in &members {
            endpoint.warm_up(peer).await?;
        }
        Ok(Self { children, client: Client::new(&endpoint, members) })
    }

    /// A client with a connection to each.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until a replica has crashed as it was told to.
    ///
    /// # Errors
    /// When there is none, or it cannot be waited for.
    pub async fn crashed(&mut self, id: u64) -> Result<ExitStatus> {
        Ok(self.replica(id)?.child.wait().await?)
    }

    /// Sends a signal to a replica, by the name that the `kill` program has for it.
    ///
    /// # Errors
    /// When the replica has ended, or there is no such program.
    #[cfg(unix)]
    pub async fn signal(&mut self, id: u64, name: &str) -> Result<()> {
        let process = self.replica(id)?.child.id().context("the replica has ended")?;
        let mut kill = Command::new("kill");
        let status = kill.arg(format!("-{name}")).arg(process.to_string()).status();
        let status = status.await.context("cannot run `kill`")?;
        if !status.success() {
            bail!("`kill -{name} {process}` failed: {status}");
        }
        Ok(())
    }

    fn replica(&mut self, id: u64) -> Result<&mut Replica> {
        let replica = self.children.iter_mut().find(|replica| replica.id == id);
        replica.with_context(|| format!("there is no replica {id}"))
    }

    /// Stops all, each in good order.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub async fn stop(self) -> Result<()> {
        for Replica { mut child, input, output, .. } in self.children {
            drop(input);
            let stopped = tokio::time::timeout(Duration::from_secs(5), child.wait()).await;
            drop(output);
            if stopped.is_err() {
                child.kill().await?;
            }
        }
        self.client.endpoint().clone().shutdown(Duration::from_secs(1)).await;
        Ok(())
    }
}

impl Replica {
    fn spawn(setup: &Setup, id: u64) -> Result<Self> {
        let mut command = Command::new(&setup.program);
        command.arg("replica").args(["--id", &id.to_string()]);
        command.args(["--replicas", &setup.replicas.to_string()]);
        if setup.crashing.contains(&id) {
            command.arg("--crash");
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", setup.program.display()))?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        Ok(Self { id, child, input, output: BufReader::new(output).lines() })
    }

    /// The next line it prints. Without one it has failed, and said why on its standard error.
    async fn line(&mut self, what: &str) -> Result<String> {
        match self.output.next_line().await? {
            Some(line) => Ok(line),
            None => bail!(
                "a replica process ended before it printed {what}: {}",
                self.child.wait().await?
            ),
        }
    }
}

/// What a child does: the other side of [`Processes::start`].
///
/// # Errors
/// When the replica cannot be served.
pub async fn run_child(id: u64, replicas: u64, fate: Fate) -> Result<()> {
    let at = ReplicaAddress { id, listen: "tcp://127.0.0.1:0".to_owned(), advertise: None };
    // Where the others are it learns later.
    let members = Configuration::new((1..=replicas).filter_map(NodeId::new))?;
    let server = Server::start(&at, &members, fate).await?;
    println!("{}", server.address());
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let mut text = String::new();
    loop {
        match input.next_line().await? {
            Some(line) if line == END_OF_CLUSTER => break,
            Some(line) => text = text + &line + "\n",
            None => return Ok(()), // The parent is gone.
        }
    }
    let cluster = Cluster::parse(&text)?;
    let mut membership = server.join(&cluster)?;
    let all = |connected: &Configuration| connected.len() == cluster.replicas.len();
    membership.wait_until(all).await?;
    println!("ready");
    while input.next_line().await?.is_some() {}
    drop(membership);
    server.stop().await;
    Ok(())
}
