//! The calls of a node by call stream: each stream has an [`Initiator`] of its own, with numbers,
//! floor and timers of its own (`streams.md` R1 and R2).
//!
//! A stream is the low byte of the origin in a call's number, so a call lives where it was opened,
//! and the call's frames find it there.

use std::time::Duration;

use crate::id::{CallId, Incarnation, LinkId, NodeId};
use crate::key::Secret;
use crate::limits::Limits;
use crate::time::Timestamp;

use super::Outbound;
use super::call::{Call, End, LinkView};
use super::initiator::{Initiator, OpenError};
use super::mutant::{self, Mutant};

/// The calls of one node.
#[derive(Debug)]
pub struct Initiators {
    life: Incarnation,
    streams: Vec<Initiator>,
    calls_max: usize,
}

impl Initiators {
    /// So many streams of a life.
    pub(crate) fn new(life: Incarnation, secret: Secret, limits: &Limits, streams: u8) -> Self {
        let stream = |stream| Initiator::new(life.of_stream(stream), secret, limits);
        Self { life, streams: (0..streams).map(stream).collect(), calls_max: limits.calls_max }
    }

    /// The place of a call's stream, beyond all there can be for a call of another life.
    #[inline]
    fn index(&self, call: CallId) -> usize {
        if mutant::is(Mutant::LifeWithStream) && self.life != call.origin {
            return usize::MAX;
        }
        // The life has stream 0: what else they differ in are upper bits.
        usize::try_from(self.life.0 ^ call.origin.0).unwrap_or(usize::MAX)
    }

    /// The stream of a call, if it is one of this life's.
    #[inline]
    pub(crate) fn of(&self, call: CallId) -> Option<&Initiator> {
        self.streams.get(self.index(call))
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn of_mut(&mut self, call: CallId) -> Option<&mut Initiator> {
        let index = self.index(call);
        self.streams.get_mut(index)
    }

    /// A name for a new call of so many root branches on a stream. One beyond the last is the
    /// first again.
    ///
    /// # Errors
    /// [`OpenError`] at a bound.
    pub(crate) fn begin(&mut self, stream: u8, branch_count: usize) -> Result<CallId, OpenError> {
        if self.call_count() >= self.calls_max {
            return Err(OpenError::TooManyCalls { limit: self.calls_max });
        }
        let count = self.streams.len();
        self.streams[usize::from(stream) % count].begin(branch_count)
    }

    /// The stream of a call that it has begun.
    #[inline]
    pub(crate) fn begun(&mut self, call: CallId) -> &mut Initiator {
        &mut self.streams[usize::from(call.origin.stream())]
    }

    /// True when a call of so many branches, none of which has less time than this, can begin flat.
    pub(crate) fn suits_flat(&self, budget: Duration, branch_count: usize) -> bool {
        self.streams[0].suits_flat(budget, branch_count)
    }

    pub(crate) fn give_up_all(&mut self, now: Timestamp) {
        self.streams.iter_mut().for_each(|stream| stream.give_up_all(now));
    }

    pub(crate) fn handle_link_down(
        &mut self,
        now: Timestamp,
        down: (NodeId, LinkId),
        links: &dyn LinkView,
    ) {
        self.streams.iter_mut().for_each(|stream| stream.handle_link_down(now, down, links));
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &dyn LinkView) {
        self.streams.iter_mut().for_each(|stream| stream.handle_timeout(now, links));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.streams.iter().filter_map(Initiator::poll_timeout).min()
    }

    /// True when a call may have something for its reader or its writer of items.
    pub(crate) fn has_news(&self) -> bool {
        self.streams.iter().any(Initiator::has_news)
    }

    /// A call whose writer of items waited, and waits no longer.
    pub(crate) fn poll_writable(&mut self) -> Option<CallId> {
        self.streams.iter_mut().find_map(Initiator::poll_writable)
    }

    /// A call that may have something for the application since it was last asked.
    pub(crate) fn poll_ready(&mut self) -> Option<CallId> {
        self.streams.iter_mut().find_map(Initiator::poll_ready)
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.streams.iter().any(Initiator::has_output)
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.streams.iter_mut().find_map(Initiator::poll_outbound)
    }

    /// Branches and calls that wait for another node, which new frames reach by `link`.
    pub(crate) fn open_at(&self, node: NodeId, link: Option<LinkId>) -> usize {
        self.total(|stream| stream.open_at(node, link))
    }

    // Inspection

    /// Calls that have not ended.
    pub fn open_count(&self) -> usize {
        self.total(Initiator::open_count)
    }

    /// Calls that are open, or ended and not read to their end.
    pub fn call_count(&self) -> usize {
        self.total(Initiator::call_count)
    }

    /// Calls of which something may still be in flight, open ones included.
    pub fn unsettled_count(&self) -> usize {
        self.total(Initiator::unsettled_count)
    }

    /// Ended calls that nobody reads any more and of which something may still be in flight.
    pub fn winding_count(&self) -> usize {
        self.total(Initiator::winding_count)
    }

    /// Ended calls that were settled for lack of room, before all their tasks had said that they
    /// are over.
    pub fn settled_early_count(&self) -> usize {
        self.total(Initiator::settled_early_count)
    }

    /// Calls that [`poll_ready`](super::node::Node::poll_ready) has not named yet.
    pub fn ready_count(&self) -> usize {
        self.total(Initiator::ready_count)
    }

    /// Timers that are set, void ones too: at most twice the calls and a few.
    pub fn timer_count(&self) -> usize {
        self.total(Initiator::timer_count)
    }

    /// True when a call is open, or ended and not let go.
    pub fn is_kept(&self, call: CallId) -> bool {
        self.of(call).is_some_and(|stream| stream.is_kept(call))
    }

    /// The end of a call that is kept, if it has ended.
    pub fn end(&self, call: CallId) -> Option<End> {
        self.of(call)?.end(call)
    }

    /// A call that is not flat.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.of(call)?.call(call)
    }

    /// True when a call of this life is settled: nothing of it can be in flight any more, or do
    /// harm if it is.
    pub fn is_settled(&self, call: CallId) -> bool {
        self.of(call).is_some_and(|stream| stream.is_settled(call))
    }

    /// The oldest call of the first stream that is not settled; every older one of it is.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> u64 {
        self.streams[0].floor()
    }

    /// All that is known of a call that is kept, as text: to see whether something changed it.
    pub fn snapshot(&self, call: CallId) -> String {
        self.of(call).map_or_else(String::new, |stream| stream.snapshot(call))
    }

    fn total(&self, count: impl Fn(&Initiator) -> usize) -> usize {
        self.streams.iter().map(count).sum()
    }
}
