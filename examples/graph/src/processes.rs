//! Shards as processes of their own on this machine: started, told of each other, stopped.
//!
//! A child prints its address, reads the cluster from its standard input, prints `ready`, and runs until
//! that input ends: so it also ends when its parent does.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::{Endpoint, Peer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::cluster::{Cluster, ShardAddress};
use crate::forms::Client;
use crate::generate::Recipe;
use crate::serve::{Server, Source, transport};
use crate::store::Sharding;

/// Ends the cluster on a child's standard input.
const END_OF_CLUSTER: &str = "# end of cluster";

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program.
    pub program: PathBuf,
    /// The LDBC folder; without one a graph is made up.
    pub data: Option<PathBuf>,
    /// The graph to make up.
    pub recipe: Recipe,
    /// How many shards.
    pub sharding: Sharding,
    /// Every frame takes this long longer.
    pub delay: Duration,
}

impl Setup {
    /// Where the graph is from.
    pub fn source(&self) -> Source<'_> {
        self.data.as_deref().map_or(Source::Generated(self.recipe), Source::Folder)
    }
}

/// Shard processes and a client of them. Dropping it kills them.
#[derive(Debug)]
pub struct Processes {
    children: Vec<Shard>,
    client: Client,
}

#[derive(Debug)]
struct Shard {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    /// Starts the shards and connects to them.
    ///
    /// # Errors
    /// When a process cannot be started, or says why it cannot serve.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let mut children = Vec::new();
        let mut cluster = Cluster { shards: Vec::new() };
        for index in 0..setup.sharding.shards() {
            let mut shard = Shard::spawn(setup, index)?;
            let listen = shard.line("an address").await?;
            cluster.shards.push(ShardAddress { listen, advertise: None });
            children.push(shard);
        }
        let text = cluster.to_text();
        for shard in &mut children {
            shard.input.write_all(format!("{text}{END_OF_CLUSTER}\n").as_bytes()).await?;
        }
        for shard in &mut children {
            shard.line("ready").await?;
        }
        let endpoint = Endpoint::builder().shared_transport(transport(setup.delay)).start().await?;
        let peers: Vec<Peer> = cluster.peers(&endpoint)?;
        for peer in &peers {
            endpoint.warm_up(peer).await?;
        }
        let client = Client::new(&endpoint, peers, setup.sharding);
        Ok(Self { children, client })
    }

    /// A client with a connection to each.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Kills one shard.
    ///
    /// # Errors
    /// When it is not running any more.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        self.children[index].child.kill().await.context("the shard does not run")
    }

    /// Stops all, each in good order.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub async fn stop(self) -> Result<()> {
        for Shard { mut child, input, output } in self.children {
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

impl Shard {
    fn spawn(setup: &Setup, index: usize) -> Result<Self> {
        let mut command = Command::new(&setup.program);
        command.arg("shard").args(["--index", &index.to_string()]);
        command.args(["--shards", &setup.sharding.shards().to_string()]);
        command.args(["--delay-us", &setup.delay.as_micros().to_string()]);
        match &setup.data {
            Some(data) => command.arg("--data").arg(data),
            None => command
                .args(["--persons", &setup.recipe.persons.to_string()])
                .args(["--seed", &setup.recipe.seed.to_string()]),
        };
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", setup.program.display()))?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    /// The next line it prints. Without one it has failed, and said why on its standard error.
    async fn line(&mut self, what: &str) -> Result<String> {
        match self.output.next_line().await? {
            Some(line) => Ok(line),
            None => bail!(
                "a shard process ended before it printed {what}: {}",
                self.child.wait().await?
            ),
        }
    }
}

/// What a child does: the other side of [`Processes::start`].
///
/// # Errors
/// When the shard cannot be served.
pub async fn run_child(
    source: Source<'_>,
    index: usize,
    sharding: Sharding,
    delay: Duration,
) -> Result<()> {
    let listen = "tcp://127.0.0.1:0";
    let server = Server::start(source, index, sharding, listen, None, delay).await?;
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
    server.join(&cluster)?;
    server.warm_up(&cluster).await?;
    println!("ready");
    while input.next_line().await?.is_some() {}
    server.stop().await;
    Ok(())
}

/// This program, which the children run too.
///
/// # Errors
/// When the system does not say.
pub fn this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Path::new(&program).to_owned())
}
