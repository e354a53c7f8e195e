//! A node as its callers name it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use convoke_proto::id::NodeId;

use crate::transport::{Address, AddressError, ToAddresses};

/// A node that can be asked. Cheap to clone; see [`Endpoint::connect`](crate::Endpoint::connect)
/// and [`Endpoint::peer`](crate::Endpoint::peer).
///
/// Two of the same node are equal, whatever their epochs.
#[derive(Clone, Copy)]
pub struct Peer {
    node: NodeId,
    epoch: u64,
}

impl Peer {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, epoch: 0 }
    }

    /// Its stable name.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The node as a member of a configuration of this epoch: the epoch travels with every request
    /// and cast to it, and a node that was told of a later one by its endpoint refuses them.
    #[must_use]
    pub fn at_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// The epoch of its configuration; 0, the default, is none.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl Eq for Peer {}

impl PartialOrd for Peer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Peer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.node.cmp(&other.node)
    }
}

impl Hash for Peer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.hash(state);
    }
}

/// The node of this name. Its endpoint must know where it can be dialled, by
/// [`EndpointBuilder::peer`](crate::EndpointBuilder::peer) or a connection.
impl From<NodeId> for Peer {
    fn from(node: NodeId) -> Self {
        Self::new(node)
    }
}

impl From<&NodeId> for Peer {
    fn from(node: &NodeId) -> Self {
        Self::new(*node)
    }
}

impl From<&Self> for Peer {
    fn from(peer: &Self) -> Self {
        *peer
    }
}

/// Nodes and where each can be dialled: pairs of a [`NodeId`] and its [addresses](ToAddresses), or
/// the members of a configuration. Taken by
/// [`EndpointBuilder::peers`](crate::EndpointBuilder::peers).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which nodes there are, and where",
    label = "neither pairs of a node and its addresses nor a configuration",
    note = "pairs are such as `[(NodeId::new(1), \"tcp://host:7000\")]`",
    note = "a configuration is taken by reference: `.peers(&configuration)`"
)]
pub trait ToPeers {
    /// The nodes, each with its addresses.
    ///
    /// # Errors
    /// [`AddressError`] when a text is not an address.
    fn to_peers(self) -> Result<Vec<(NodeId, Vec<Address>)>, AddressError>;
}

impl<I: IntoIterator<Item = (NodeId, A)>, A: ToAddresses> ToPeers for I {
    fn to_peers(self) -> Result<Vec<(NodeId, Vec<Address>)>, AddressError> {
        self.into_iter().map(|(node, addresses)| Ok((node, addresses.to_addresses()?))).collect()
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.node, f)
    }
}
