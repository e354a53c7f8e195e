//! Servers of a shop by their roles, as a file has them, and how each is started.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use convoke::quorum::Configuration;
use convoke::transport::Transport;
use convoke::{Caller, Endpoint, EndpointBuilder, NodeId};

use crate::catalogue::Shard;
use crate::front::Front;
use crate::keeper::KEEPER;
use crate::ledger::Ledger;
use crate::proto::{CatalogueServer, ShopServer, StockServer, catalogue};
use crate::stock::Replica;

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves `Shop`.
    Front,
    /// Serves `Catalogue`.
    Shard,
    /// Serves `Stock`.
    Replica,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub node: NodeId,
    /// Its role.
    pub role: Role,
    /// Address at which it listens.
    pub address: String,
}

/// All servers of a shop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    /// Of these servers.
    ///
    /// # Errors
    /// When one is there twice, or there is none of a role.
    pub fn new(servers: Vec<Server>) -> Result<Self> {
        let cluster = Self { servers };
        // Names and addresses differ.
        Configuration::new(cluster.servers.iter().map(|of| (of.node, &of.address)))?;
        for role in [Role::Front, Role::Shard, Role::Replica] {
            ensure!(cluster.of(role).next().is_some(), "a shop needs a {role:?}");
        }
        Ok(cluster)
    }

    /// Reads a file with a line for each server, such as `21 replica tls://127.0.0.1:7321`.
    ///
    /// # Errors
    /// With the line that is wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: is the shop up?", path.display()))?;
        text.parse().with_context(|| path.display().to_string())
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn server(&self, node: NodeId) -> Result<&Server> {
        let found = self.servers.iter().find(|server| server.node == node);
        found.with_context(|| format!("{node} is no server of this shop"))
    }

    /// The nodes of a role.
    pub fn of(&self, role: Role) -> impl Iterator<Item = NodeId> {
        self.servers.iter().filter(move |server| server.role == role).map(|server| server.node)
    }

    /// A server, to be started. It keeps what it has to keep in `folder`.
    ///
    /// # Errors
    /// When it is no server of this shop, or its folder cannot be used.
    pub fn endpoint(
        &self,
        node: NodeId,
        transport: impl Transport + 'static,
        folder: &Path,
    ) -> Result<EndpointBuilder> {
        let server = self.server(node)?;
        let fronts: Vec<NodeId> = self.of(Role::Front).collect();
        let builder = Endpoint::builder()
            .transport(transport)
            .node(node)
            .listen(&server.address)
            .authorize(move |caller, method| is_allowed(&fronts, caller, method));
        self.serving(builder, server, folder)
    }

    fn serving(
        &self,
        builder: EndpointBuilder,
        server: &Server,
        folder: &Path,
    ) -> Result<EndpointBuilder> {
        let shards: Vec<NodeId> = self.of(Role::Shard).collect();
        Ok(match server.role {
            Role::Front => {
                let replicas = Configuration::new(self.of(Role::Replica))?;
                let front = Front::new(shards, Ledger::new(server.node, replicas));
                // Orders need a majority at once, so a front is connected before it is asked.
                let behind = self.servers.iter().filter(|other| other.role != Role::Front);
                let behind = behind.map(|other| (other.node, &other.address));
                builder.serve(ShopServer::new(front)).peers(behind).keep_connected()
            }
            Role::Shard => {
                let index = shards.iter().position(|shard| *shard == server.node).unwrap_or(0);
                let shard = Shard::open(folder, index, shards.len())?;
                builder.serve(CatalogueServer::new(shard))
            }
            Role::Replica => builder.serve(StockServer::new(Replica::open(folder)?)),
        })
    }
}

/// Customers ask fronts, and the keeper loads shards; the rest is for fronts alone.
fn is_allowed(fronts: &[NodeId], caller: &Caller, method: &str) -> bool {
    if method == catalogue::LOAD.name() {
        return caller.node() == KEEPER;
    }
    method.starts_with("shop.Shop/") || fronts.contains(&caller.node())
}

impl FromStr for Cluster {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let servers = lines.map(|line| line.parse().with_context(|| format!("in {line:?}")));
        Self::new(servers.collect::<Result<_>>()?)
    }
}

impl FromStr for Server {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [node, role, address] = words[..] else { bail!("expected: node role address") };
        let role = match role {
            "front" => Role::Front,
            "shard" => Role::Shard,
            "replica" => Role::Replica,
            other => bail!("{other} is no role: front, shard or replica"),
        };
        Ok(Self { node: node.parse()?, role, address: address.to_owned() })
    }
}
