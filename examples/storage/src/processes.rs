//! Replicas as processes of their own on this machine: started, told of each other, stopped.
//!
//! `node_kit::processes` says what parent and child say to each other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::say;
use convoke::NodeId;
use convoke::quorum::Configuration;
use convoke::transport::Address;
use node_kit::processes::{Group, Member, Parent};
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::Client;
use crate::cluster::{self, Cluster, ReplicaNode};
use crate::replica::Fate;
use crate::serve::Server;

/// Cluster to run.
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
    /// By id, from 1 on.
    children: Group,
    client: Client,
}

impl Processes {
    /// Starts the replicas, connected to each other, and connects to them.
    ///
    /// # Errors
    /// When a process cannot be started, or says why it cannot serve.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let commands = (1..=setup.replicas).map(|id| setup.command(id));
        let (mut children, listen) = Group::spawn(commands, READY_WITHIN).await?;
        let listen = listen.iter().map(|text| text.parse()).collect::<Result<Vec<Address>, _>>()?;
        let cluster = Cluster::of_children("storage", listen)?;
        children.tell(&cluster.to_text(), READY_WITHIN).await?;
        let members = cluster::members(&cluster)?;
        let endpoint = convoke::endpoint().peers(&members).start().await?;
        for peer in &members {
            endpoint.warm_up(peer).await?;
        }
        Ok(Self { children, client: Client::new(&endpoint, CLUSTER, members) })
    }

    /// A client with a connection to each.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until a replica has crashed as it was told to.
    ///
    /// # Errors
    /// When there is none, it cannot be waited for, or it still runs after ten seconds.
    pub async fn crashed(&mut self, id: u64) -> Result<ExitStatus> {
        let crashed = timeout(CRASHED_WITHIN, self.replica(id)?.wait()).await;
        Ok(crashed.with_context(|| format!("replica {id} was to crash, and runs on"))??)
    }

    /// Lets a replica rest, without its knowing.
    ///
    /// # Errors
    /// When there is none, or it has ended.
    #[cfg(unix)]
    pub fn pause(&mut self, id: u64) -> Result<()> {
        Ok(self.replica(id)?.pause()?)
    }

    /// Lets a replica that rests go on.
    ///
    /// # Errors
    /// When there is none, or it has ended.
    #[cfg(unix)]
    pub fn resume(&mut self, id: u64) -> Result<()> {
        Ok(self.replica(id)?.resume()?)
    }

    fn replica(&mut self, id: u64) -> Result<&mut Member> {
        let index = id.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let replica = index.and_then(|index| self.children.members().get_mut(index));
        replica.with_context(|| format!("there is no replica {id}"))
    }

    /// Stops all, each in good order.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub async fn stop(self) -> Result<()> {
        self.children.stop().await?;
        self.client.endpoint().clone().shutdown(Duration::from_secs(1)).await;
        Ok(())
    }
}

/// Number of the cluster, which parent and children know beforehand.
const CLUSTER: u64 = 1;

/// Limit of a replica for its connections to the others: much more than that takes on a busy
/// machine.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);

/// Limit of a parent for each step of its replicas: they are to complain first.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Limit of a parent for a crash, which is the next thing that its replica does.
const CRASHED_WITHIN: Duration = Duration::from_secs(10);

impl Setup {
    fn command(&self, id: u64) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("replica").args(["--id", &id.to_string()]);
        command.args(["--replicas", &self.replicas.to_string()]);
        if self.crashing.contains(&id) {
            command.arg("--crash");
        }
        command
    }
}

/// Runs a child: the other side of [`Processes::start`].
///
/// # Errors
/// When the replica cannot be served.
pub async fn run_child(id: u64, replicas: u64, fate: Fate) -> Result<()> {
    let listen: Address = "tcp://127.0.0.1:0".parse()?;
    let at = ReplicaNode::new(NodeId::try_from(id)?, listen, "");
    // Where the others are it learns later.
    let members = Configuration::new((1..=replicas).map(NodeId::new))?;
    let server = Server::start(&at, CLUSTER, &members, fate).await?;
    say(server.address())?;
    let Some((text, parent)) = Parent::cluster().await? else { return Ok(()) };
    let cluster = Cluster::parse(&text)?;
    let mut membership = server.join(&cluster)?;
    let all = |connected: &Configuration| connected.len() == cluster.nodes().len();
    let connected = timeout(CONNECTED_WITHIN, membership.wait_until(all)).await;
    connected.with_context(|| format!("replica {id} has no connection to all others"))??;
    say("ready")?;
    parent.wait_for_end().await?;
    drop(membership);
    server.stop().await;
    Ok(())
}
