//! Shards as processes of their own on this machine: started, told of each other, stopped.
//!
//! `node_kit::processes` says what parent and child say to each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::say;
use convoke::Endpoint;
use convoke::transport::Address;
use node_kit::processes::{Group, Parent};
use tokio::process::Command;

use crate::cluster::{self, Cluster, ShardNode, shard_node};
use crate::forms::Client;
use crate::generate::Recipe;
use crate::serve::{Server, Source, transport};
use crate::store::Sharding;

/// Cluster to run.
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
    /// Source of the graph.
    pub fn source(&self) -> Source<'_> {
        self.data.as_deref().map_or(Source::Generated(self.recipe), Source::Folder)
    }
}

/// Shard processes and a client of them. Dropping it kills them.
#[derive(Debug)]
pub struct Processes {
    children: Group,
    client: Client,
}

impl Processes {
    /// Starts the shards and connects to them.
    ///
    /// # Errors
    /// When a process cannot be started, or says why it cannot serve.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let commands = (0..setup.sharding.shards()).map(|index| setup.command(index));
        let (mut children, listen) = Group::spawn(commands, LOADED_WITHIN).await?;
        let listen = listen.iter().map(|text| text.parse()).collect::<Result<Vec<Address>, _>>()?;
        let cluster = Cluster::of_children("graph", listen)?;
        children.tell(&cluster.to_text(), CONNECTED_WITHIN).await?;
        let endpoint = Endpoint::builder().transport(transport(setup.delay)).start().await?;
        let peers = cluster::peers(&cluster, &endpoint)?;
        for peer in &peers {
            endpoint.warm_up(peer).await?;
        }
        let client = Client::new(&endpoint, CLUSTER, peers, setup.sharding);
        Ok(Self { children, client })
    }

    /// A client with a connection to each.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Kills one shard.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        Ok(self.children.members()[index].kill().await?)
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

/// Limit for the shards to have their data: each reads all files of a folder.
const LOADED_WITHIN: Duration = Duration::from_secs(1_800);

/// Limit for the shards to connect to each other: much more than that takes on a busy machine.
const CONNECTED_WITHIN: Duration = Duration::from_secs(60);

impl Setup {
    fn command(&self, index: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("shard").args(["--index", &index.to_string()]);
        command.args(["--shards", &self.sharding.shards().to_string()]);
        command.args(["--delay-us", &self.delay.as_micros().to_string()]);
        match &self.data {
            Some(data) => command.arg("--data").arg(data),
            None => command
                .args(["--persons", &self.recipe.persons.to_string()])
                .args(["--seed", &self.recipe.seed.to_string()]),
        };
        command
    }
}

/// Runs a child: the other side of [`Processes::start`].
///
/// # Errors
/// When the shard cannot be served.
pub async fn run_child(
    source: Source<'_>,
    index: usize,
    sharding: Sharding,
    delay: Duration,
) -> Result<()> {
    let listen: Address = "tcp://127.0.0.1:0".parse()?;
    let at = ShardNode::new(shard_node(index), listen, "");
    let server = Server::start(source, &at, CLUSTER, sharding, delay).await?;
    say(server.address())?;
    let Some((text, parent)) = Parent::cluster().await? else { return Ok(()) };
    let cluster = Cluster::parse(&text)?;
    server.join(&cluster)?;
    server.warm_up(&cluster).await?;
    say("ready")?;
    parent.wait_for_end().await?;
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
