//! The cluster file: which nodes there are, where, with which keys and settings.
//!
//! ```toml
//! [cluster]
//! id = 4711                  # drawn once: a ledger of another cluster is refused
//! name = "accounts"
//!
//! [[node]]
//! id = 1
//! role = "voter"             # a word of the protocol; may be left out if it has a default
//! addresses = ["tls://10.0.0.1:7000"]
//! listen = ["tls://0.0.0.0:7000"]  # where that differs from `addresses`
//! folder = "node-1"          # its files; relative to this file; "node-ID" if left out
//! keys = "node-1/keys"       # node.pem, node.key and ca.pem, for tls://, quic:// and grpcs://
//! operation = "127.0.0.1:9001"     # metrics and health, on the loopback alone
//!
//! [protocol]                 # whatever the program's own type reads
//! election_timeout_ms = 300
//! ```
//! One file is the same on all hosts. It is read strictly: an unknown key, a wrong type and a
//! missing key are told with line and key, and what contradicts itself with all the places. A
//! [`Cluster`] that exists has none of that.
//!
//! ```
//! use node_kit::cluster::{Cluster, NoProtocol};
//!
//! let text = "[cluster]\nid = 1\nname = 'a'\n\n[[node]]\nid = 1\nadresses = []\nfolder = 'f'\n";
//! let error = Cluster::<NoProtocol>::parse(text).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "line 7: node[1]: unknown key \"adresses\": did you mean \"addresses\"?"
//! );
//! ```
//! With the feature `endpoints` a node and a client have theirs from it, over all transports, and a
//! program's `check-config` command is [`check`].

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use convoke::NodeId;
use convoke::transport::Address;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::contradictions::contradictions;
pub use self::contradictions::undialable;
use self::rows::{Head, Row, Rows};
use crate::ledger;

#[cfg(feature = "endpoints")]
mod authority;
mod contradictions;
#[cfg(feature = "endpoints")]
mod endpoints;
mod error;
#[cfg(feature = "endpoints")]
mod keys;
mod rdma;
mod rows;
#[cfg(feature = "endpoints")]
mod secret;
#[cfg(test)]
mod tests;
mod text;

#[cfg(feature = "endpoints")]
pub use self::authority::{Authority, IssueError};
#[cfg(feature = "endpoints")]
pub use self::endpoints::check;
pub use self::error::{ClusterError, Contradiction};
#[cfg(feature = "endpoints")]
pub use self::keys::{Keys, KeysError};
pub use self::rdma::{Credits, Rdma};
#[cfg(feature = "endpoints")]
pub use self::secret::{read_secret, write_secret};

/// Largest cluster file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Settings of a node's protocol: the table `[protocol]` of a cluster file.
///
/// Keys that the type does not have are refused without an attribute of it; every field without
/// `#[serde(default)]` must be there.
pub trait Protocol: DeserializeOwned + Default + fmt::Debug {
    /// Words for what a node is to the protocol: an enum of units. Its default is that of a node
    /// without the key `role`.
    type Role: DeserializeOwned + Default + Clone + PartialEq + fmt::Debug;

    /// Schemes of addresses beside those that the endpoint of a node speaks.
    const SCHEMES: &'static [&'static str] = &[];

    /// All that contradicts itself or the nodes, each in a sentence that says what and where.
    fn contradictions(&self, nodes: &[Node<Self::Role>]) -> Vec<String> {
        let _ = nodes;
        Vec::new()
    }
}

/// A protocol without settings and roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProtocol {}

impl Protocol for NoProtocol {
    type Role = NoProtocol;
}

/// Place of the records of a node: a word for settings of a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerForm {
    /// Its folder: it comes back with all that it has promised.
    #[default]
    Disk,
    /// Memory alone: once it has stopped it must never be counted again.
    Ram,
}

/// One node of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<R> {
    /// Its name.
    pub id: NodeId,
    /// Its role in the protocol.
    pub role: R,
    /// Addresses at which others dial it.
    pub addresses: Vec<Address>,
    /// Addresses at which it listens; `addresses` where the file does not say.
    pub listen: Vec<Address>,
    /// Folder of its files, the ledger among them.
    pub folder: PathBuf,
    /// Folder of its certificate and key: `node.pem`, `node.key` and `ca.pem`.
    pub keys: Option<PathBuf>,
    /// Address of its metrics and its health, on the loopback.
    pub operation: Option<SocketAddr>,
}

impl<R: Default> Node<R> {
    /// A node with one address, at which it listens, too.
    pub fn new(id: NodeId, address: Address, folder: impl Into<PathBuf>) -> Self {
        Self {
            id,
            role: R::default(),
            addresses: vec![address.clone()],
            listen: vec![address],
            folder: folder.into(),
            keys: None,
            operation: None,
        }
    }
}

/// A cluster without contradictions. See the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster<P: Protocol> {
    id: u64,
    name: String,
    nodes: Vec<Node<P::Role>>,
    protocol: P,
    rdma: Rdma,
}

impl<P: Protocol> Cluster<P> {
    /// A cluster of these nodes.
    ///
    /// # Errors
    /// [`ClusterError::Contradictory`].
    pub fn new(
        id: u64,
        name: impl Into<String>,
        nodes: Vec<Node<P::Role>>,
        protocol: P,
    ) -> Result<Self, ClusterError> {
        let cluster = Self { id, name: name.into(), nodes, protocol, rdma: Rdma::default() };
        cluster.checked(None, &[])
    }

    /// A cluster of nodes of this machine, by number from 1 on, which listen at these addresses:
    /// what a parent tells its [children](crate::processes).
    ///
    /// # Errors
    /// [`ClusterError::Contradictory`].
    pub fn of_children(
        name: impl Into<String>,
        addresses: impl IntoIterator<Item = Address>,
    ) -> Result<Self, ClusterError> {
        let node = |(id, address): (u64, Address)| {
            Node::new(NodeId::new(id), address, format!("node-{id}"))
        };
        let nodes = (1..).zip(addresses).map(node).collect();
        Self::new(1, name, nodes, P::default())
    }

    /// Reads a cluster file. Relative paths of it begin at its folder.
    ///
    /// # Errors
    /// [`ClusterError`], with the file and, where it is one, the line.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ClusterError> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_text(&read_bounded(path)?, Some(path), folder)
    }

    /// Parses the text of a cluster file. Relative paths stay as they are.
    ///
    /// # Errors
    /// [`ClusterError`], with the line.
    pub fn parse(text: &str) -> Result<Self, ClusterError> {
        Self::from_text(text, None, Path::new(""))
    }

    fn from_text(text: &str, file: Option<&Path>, folder: &Path) -> Result<Self, ClusterError> {
        let rows: Rows<P, P::Role> =
            text::read(text).map_err(|defect| ClusterError::malformed(file, text, &defect))?;
        let nodes = rows.nodes.into_iter().map(|row| row.into_node(folder)).collect();
        let Head { id, name } = rows.cluster;
        let rdma = Rdma::default();
        let cluster = Self { id, name, nodes, protocol: rows.protocol, rdma };
        cluster.checked(file, &text::lines_of(text, "node"))
    }

    fn checked(self, file: Option<&Path>, lines: &[usize]) -> Result<Self, ClusterError> {
        let found = contradictions(&self, lines);
        if found.is_empty() {
            return Ok(self);
        }
        Err(ClusterError::Contradictory { file: file.map(Path::to_owned), found })
    }

    /// The same, with other settings of what its endpoints have over `rdma://`.
    #[must_use]
    pub fn over_rdma(self, rdma: Rdma) -> Self {
        Self { rdma, ..self }
    }

    /// Number of the cluster, by which it is told from every other.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Name of the cluster, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The nodes, as the file has them.
    pub fn nodes(&self) -> &[Node<P::Role>] {
        &self.nodes
    }

    /// Settings of the protocol.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The node of this number.
    ///
    /// # Errors
    /// [`ClusterError::NoNode`] names those there are.
    pub fn node(&self, id: u64) -> Result<&Node<P::Role>, ClusterError> {
        let found = self.nodes.iter().find(|node| node.id.get() == id);
        found.ok_or_else(|| ClusterError::NoNode {
            id,
            known: self.nodes.iter().map(|node| node.id.get()).collect(),
        })
    }

    /// The nodes of a role.
    pub fn of(&self, role: &P::Role) -> impl Iterator<Item = &Node<P::Role>> {
        self.nodes.iter().filter(move |node| node.role == *role)
    }

    /// All nodes with the addresses at which they are dialled, as an endpoint takes its peers.
    pub fn peers(&self) -> impl Iterator<Item = (NodeId, &[Address])> {
        self.nodes.iter().map(|node| (node.id, &node.addresses[..]))
    }

    /// The owner of the ledger of a node.
    pub fn ledger_identity(&self, node: NodeId) -> ledger::Identity {
        ledger::Identity { cluster: self.id, node: node.get() }
    }

    /// Nodes prove who they are, by certificates. All of them do, or none.
    pub fn is_secure(&self) -> bool {
        self.schemes().iter().any(|scheme| is_secure(scheme))
    }

    fn schemes(&self) -> BTreeSet<&str> {
        let all = self.nodes.iter().flat_map(|node| node.addresses.iter().chain(&node.listen));
        all.map(Address::scheme).collect()
    }
}

impl<P: Protocol + Serialize> Cluster<P>
where
    P::Role: Serialize,
{
    /// As the text of a cluster file. Relative paths stay as they are.
    ///
    /// # Panics
    /// If the protocol's settings or role are not what TOML has: tables, arrays, words, numbers.
    pub fn to_text(&self) -> String {
        let rows = Rows {
            cluster: Head { id: self.id, name: self.name.clone() },
            nodes: self.nodes.iter().map(Row::from).collect::<Vec<_>>(),
            protocol: &self.protocol,
        };
        toml::to_string(&rows).expect("settings are tables of words and numbers")
    }
}

fn read_bounded(path: &Path) -> Result<String, ClusterError> {
    let unread = |what: String| ClusterError::Read { path: path.to_owned(), what };
    let file = File::open(path).map_err(|error| match std::env::current_dir() {
        Ok(folder) if path.is_relative() && error.kind() == io::ErrorKind::NotFound => {
            unread(format!("{error}; looked for from {}", folder.display()))
        }
        _ => unread(error.to_string()),
    })?;
    let mut text = String::new();
    let taken = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    match taken.map_err(|error| unread(error.to_string()))? as u64 > FILE_BYTES_MAX {
        true => Err(unread(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

/// True for schemes whose nodes prove who they are.
fn is_secure(scheme: &str) -> bool {
    matches!(scheme, "tls" | "quic" | "grpcs")
}
