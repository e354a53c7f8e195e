//! Calls of a stream as they are, for its node, its simulator and tests.

use crate::call::{Call, End};
use crate::flat::Flat;
use crate::id::{CallId, LinkId, NodeId};

use super::Initiator;

/// Calls of one node looked through when they are counted: a node with more is busy enough.
const OPEN_AT_MAX: usize = 1_024;

impl Initiator {
    /// Calls that have not ended.
    pub fn open_count(&self) -> usize {
        let full = self.calls.values().filter(|armed| !armed.call.has_ended()).count();
        full + self.flat.iter().filter(|(_, flat)| flat.end().is_none()).count()
    }

    /// Branches and calls of this node that wait for another, which new frames reach by `link`:
    /// young calls count for each branch, others once. Of many it is only said that they are many.
    pub(crate) fn open_at(&self, node: NodeId, link: Option<LinkId>) -> usize {
        let flat = link.and_then(|link| self.flat_at.get(link.index())).map_or(0, |count| *count);
        let there = self.at_node.range((node, 0)..=(node, u64::MAX)).take(OPEN_AT_MAX);
        let full = there
            .filter(|(_, seq)| self.calls.get(seq).is_some_and(|armed| !armed.call.has_ended()));
        flat + full.count()
    }

    /// True when a call is open, or ended and not let go.
    pub fn is_kept(&self, call: CallId) -> bool {
        self.of(call).is_some()
            && (self.flat.get(call.seq).is_some() || self.calls.contains_key(&call.seq))
    }

    /// The end of a call that is kept, if it has ended.
    pub fn end(&self, call: CallId) -> Option<End> {
        match self.of(call)?.flat.get(call.seq) {
            Some(flat) => flat.end(),
            None => self.call(call)?.end(),
        }
    }

    /// A call that is not flat, for inspection.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.of(call)?.calls.get(&call.seq).map(|armed| &*armed.call)
    }

    /// True when a call of this stream is settled: nothing of it can be in flight any more, or do
    /// harm if it is.
    #[inline]
    pub fn is_settled(&self, call: CallId) -> bool {
        self.of(call).is_some()
            && call.seq < self.next_seq
            && !self.unsettled.contains(&call.seq)
            && self.flat.get(call.seq).is_none_or(Flat::is_complete)
    }

    /// All that is known of a call that is kept, as text: to see whether something changed it.
    pub fn snapshot(&self, call: CallId) -> String {
        match self.of(call).and_then(|of| of.flat.get(call.seq)) {
            Some(flat) => format!("{flat:?}"),
            None => format!("{:?}", self.call(call)),
        }
    }

    /// Calls that are open, or ended and not read to their end.
    pub fn call_count(&self) -> usize {
        self.calls.len() - self.winding.len() + self.flat.len()
    }

    /// True when another call can be opened.
    pub fn has_room(&self) -> bool {
        self.call_count() < self.limits.calls_max
    }

    /// Calls of which something may still be in flight, open ones included.
    pub fn unsettled_count(&self) -> usize {
        self.unsettled.len() + self.flat.iter().filter(|(_, flat)| !flat.is_complete()).count()
    }

    /// Ended calls that nobody reads any more and of which something may still be in flight.
    pub fn winding_count(&self) -> usize {
        self.winding.len()
    }

    /// Ended calls that were settled for lack of room, before all their tasks had said that they
    /// are over.
    pub fn settled_early_count(&self) -> usize {
        self.settled_early
    }

    /// Calls that [`poll_ready`](crate::node::Node::poll_ready) has not named yet.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Timers that are set, void ones too: at most twice the calls and a few.
    pub fn timer_count(&self) -> usize {
        self.timers.len()
    }
}
