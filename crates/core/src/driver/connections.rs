//! The connections of an endpoint, by the index that its node knows them by.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_proto::id::{LinkId, LinkNonce, NodeId};
use convoke_proto::parting::LinkName;

use crate::transport::{Connection, Counters};

use super::held::HeldCancels;
use super::promise::Promise;

/// A connection, and what callers that append to it must know.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) connection: Arc<dyn Connection>,
    /// Promise that it will be flushed.
    pub(super) promise: Promise,
    pub(super) held: HeldCancels,
    /// It had no room for a cast; somebody waits until it has, to say so.
    pub(super) is_choked: bool,
}

impl Attached {
    pub(super) fn new(connection: Arc<dyn Connection>) -> Self {
        let (promise, held) = (Promise::default(), HeldCancels::default());
        Self { connection, promise, held, is_choked: false }
    }
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Vec<Option<(LinkId, Attached)>>,
    /// Those that are about to close, whose index the node has given to another.
    closing: BTreeMap<LinkId, Attached>,
    /// Transports know them by their peer and the name that both ends have.
    ids: BTreeMap<(NodeId, LinkNonce), LinkId>,
    /// Traffic of those that were taken out.
    ended: Counters,
}

impl Connections {
    pub(super) fn insert(&mut self, id: LinkId, attached: Attached) {
        let link = attached.connection.link();
        self.ids.insert((link.peer.node, link.nonce), id);
        if id.index() >= self.open.len() {
            self.open.resize_with(id.index() + 1, || None);
        }
        if let Some((id, closing)) = self.open[id.index()].replace((id, attached)) {
            self.closing.insert(id, closing);
        }
    }

    /// Takes out a connection that has closed.
    pub(super) fn remove(&mut self, node: NodeId, nonce: LinkNonce) -> Option<(LinkId, Attached)> {
        let id = self.ids.remove(&(node, nonce))?;
        let place = self.open.get_mut(id.index())?;
        let open = place.take_if(|(there, _)| *there == id);
        let closed = open.or_else(|| Some((id, self.closing.remove(&id)?)))?;
        self.ended = self.ended + closed.1.connection.counters();
        Some(closed)
    }

    /// Traffic of those that were taken out.
    pub(super) fn ended(&self) -> Counters {
        self.ended
    }

    pub(super) fn id(&self, node: NodeId, nonce: LinkNonce) -> Option<LinkId> {
        self.ids.get(&(node, nonce)).copied()
    }

    pub(super) fn get(&self, id: LinkId) -> Option<&Attached> {
        let (there, attached) = self.open.get(id.index())?.as_ref()?;
        (*there == id).then_some(attached)
    }

    /// One that is open, or about to close with its index given to another.
    pub(super) fn carrier(&self, id: LinkId) -> Option<&Attached> {
        self.get(id).or_else(|| self.closing.get(&id))
    }

    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Attached> {
        let (there, attached) = self.open.get_mut(id.index())?.as_mut()?;
        (*there == id).then_some(attached)
    }

    /// Those to a node.
    pub(super) fn of_node(&self, node: NodeId) -> impl Iterator<Item = (LinkId, &Attached)> {
        let of_node = self.ids.range((node, LinkNonce(0))..=(node, LinkNonce(u64::MAX)));
        of_node.filter_map(|(_, id)| Some((*id, self.get(*id)?)))
    }

    /// The names of all.
    pub(super) fn names(&self) -> impl Iterator<Item = LinkName> {
        self.ids.keys().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Attached> {
        self.open.iter().flatten().map(|(_, attached)| attached)
    }

    /// All that carry or have carried something and were not taken out.
    pub(super) fn carriers(&self) -> impl Iterator<Item = &Attached> {
        self.iter().chain(self.closing.values())
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}
