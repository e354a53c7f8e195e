//! Initiators that are being dialled, and what waits for each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{CallId, NodeId};
use crate::time::Timestamp;

use super::Place;
use super::route::Upward;

/// The dials of a node for its tasks, by initiator.
#[derive(Debug, Default)]
pub(super) struct Dials {
    by_node: BTreeMap<NodeId, Dial>,
    /// The same in the order in which they are given up: asked for after each input.
    ends: BTreeSet<(Timestamp, NodeId)>,
    /// Bytes of what waits for all of them.
    bytes: usize,
}

/// One initiator that is dialled.
#[derive(Debug)]
struct Dial {
    give_up_at: Timestamp,
    queue: VecDeque<Waiting>,
    bytes: usize,
}

/// A message that waits, with the task that it is sent for.
type Waiting = (Place, CallId, Upward);

impl Dials {
    pub(super) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    #[inline]
    pub(super) fn contains(&self, node: NodeId) -> bool {
        !self.by_node.is_empty() && self.by_node.contains_key(&node)
    }

    /// True when something of this task waits for an initiator.
    pub(super) fn holds(&self, node: NodeId, place: &Place) -> bool {
        let dial = self.by_node.get(&node);
        dial.is_some_and(|dial| dial.queue.iter().any(|(waiting, _, _)| waiting == place))
    }

    /// Has a message wait for an initiator. True when that was not dialled until now.
    pub(super) fn wait(
        &mut self,
        node: NodeId,
        give_up_at: Timestamp,
        waiting: Waiting,
        bytes: usize,
    ) -> bool {
        let mut is_new = false;
        let dial = self.by_node.entry(node).or_insert_with(|| {
            is_new = true;
            self.ends.insert((give_up_at, node));
            Dial { give_up_at, queue: VecDeque::new(), bytes: 0 }
        });
        dial.queue.push_back(waiting);
        dial.bytes += bytes;
        self.bytes += bytes;
        is_new
    }

    /// Bytes that wait for an initiator, and for all of them.
    pub(super) fn bytes(&self, node: NodeId) -> (usize, usize) {
        (self.by_node.get(&node).map_or(0, |dial| dial.bytes), self.bytes)
    }

    /// The tasks that wait for an initiator.
    pub(super) fn waiting(&self, node: NodeId) -> impl Iterator<Item = &Place> {
        self.by_node.get(&node).into_iter().flat_map(|dial| dial.queue.iter().map(|it| &it.0))
    }

    /// The dial is over: what has waited for it, in order.
    pub(super) fn end(&mut self, node: NodeId) -> VecDeque<Waiting> {
        let Some(Dial { give_up_at, queue, bytes }) = self.by_node.remove(&node) else {
            return VecDeque::new();
        };
        self.ends.remove(&(give_up_at, node));
        self.bytes -= bytes;
        queue
    }

    /// When the next one is to be given up, and whose it is.
    pub(super) fn next_end(&self) -> Option<(Timestamp, NodeId)> {
        self.ends.first().copied()
    }
}
