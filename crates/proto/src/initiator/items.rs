//! Items of the requests of calls: taken, granted, and given up.
//!
//! Those that have credit leave as their connection has room. All that is granted to many calls is
//! more than a connection may queue, so a call sends a part in its turn, the oldest first.

use crate::Arrival;
use crate::encoded::Encoded;
use crate::id::{CallId, LinkId, NodeId};
use crate::links::Links;
use crate::task::SendError;
use crate::time::Timestamp;
use crate::wire::Item;

use super::Initiator;

impl Initiator {
    /// True when an item of a call's request can leave now; see
    /// [`Call::poll_items_writable`](crate::call::Call::poll_items_writable).
    pub(crate) fn poll_items_writable(&mut self, call: CallId) -> Result<bool, SendError> {
        let armed = self.calls.get_mut(&call.seq).ok_or(SendError::Ended)?;
        armed.call.poll_items_writable()
    }

    /// Takes an item of a call's request. One that can leave in one frame now is to leave by this
    /// connection, with its message, which is beside it.
    pub(crate) fn send_item(
        &mut self,
        call: CallId,
        payload: &mut Encoded,
    ) -> Result<Option<(LinkId, Item, Encoded)>, SendError> {
        debug_assert!(self.out.is_empty(), "an item overtakes none that waits");
        let armed = self.calls.get_mut(&call.seq).ok_or(SendError::Ended)?;
        let leaves = armed.call.send_item(payload)?;
        if leaves.is_none() {
            self.note_granted(call.seq);
        }
        Ok(leaves)
    }

    pub(crate) fn finish_items(&mut self, call: CallId) {
        if let Some(armed) = self.calls.get_mut(&call.seq) {
            armed.call.finish_items();
            self.note_granted(call.seq);
        }
    }

    pub(crate) fn abandon_items(&mut self, now: Timestamp, call: CallId) {
        self.with(call.seq, |call| call.abandon_items(now));
    }

    /// The node of a task grants items of its request. False when it has no say in them; of a call
    /// that is over none have, and that is normal.
    pub(crate) fn handle_items_credit(&mut self, by: &Arrival, call: CallId, limit: u64) -> bool {
        let Some(armed) = self.calls.get_mut(&call.seq) else { return true };
        let counts = armed.call.handle_items_credit(by.link, limit);
        armed.announce(call.seq, &mut self.ready, &mut self.writable);
        armed.hand_over(&mut self.out);
        self.note_granted(call.seq);
        counts
    }

    /// True when items wait that have credit.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Has the next call send a part of its items, by a connection that has room. False when there
    /// is none.
    pub(crate) fn send_granted(&mut self, links: &Links) -> bool {
        let mut ready = self.granted.iter_mut().filter(|(link, _)| links.has_room(**link));
        let Some((link, calls)) = ready.next() else { return false };
        let (link, seq) = (*link, calls.pop_first());
        if calls.is_empty() {
            self.granted.remove(&link);
        }
        if let Some(seq) = seq
            && let Some(armed) = self.calls.get_mut(&seq)
        {
            armed.call.send_granted_items();
            if armed.call.take_items_news() {
                self.writable.push_back(seq);
            }
            armed.hand_over(&mut self.out);
            self.note_granted(seq);
        }
        true
    }

    /// Notes that items of a call have credit, if any have.
    pub(super) fn note_granted(&mut self, seq: u64) {
        let link = self.calls.get(&seq).and_then(|armed| armed.call.granted_items_link());
        if let Some(link) = link {
            self.granted.entry(link).or_default().insert(seq);
        }
    }

    /// Nothing more of a call's items leaves by the connection that they took.
    pub(super) fn drop_granted(&mut self, link: LinkId, seq: u64) {
        if let Some(calls) = self.granted.get_mut(&link)
            && calls.remove(&seq)
            && calls.is_empty()
        {
            self.granted.remove(&link);
        }
    }

    /// The connection of a call's items does not take one of them.
    pub(crate) fn lose_items(&mut self, call: CallId) {
        self.with(call.seq, |call| call.stop_items(SendError::Lost));
    }

    /// True while items of a call may leave for a node by a connection.
    pub(crate) fn sends_items(&self, node: NodeId, link: LinkId) -> bool {
        let mut there = self.at_node.range((node, 0)..=(node, u64::MAX));
        there.any(|(_, seq)| {
            self.calls.get(seq).is_some_and(|armed| armed.call.needs_for_items(link))
        })
    }

    /// A call whose writer of items waited, and waits no longer.
    pub(crate) fn poll_writable(&mut self) -> Option<CallId> {
        let seq = self.writable.pop_front()?;
        Some(CallId { origin: self.origin, seq })
    }
}
