//! The tasks of a node by shard: all of one origin lie in one, chosen by a mix of it (`streams.md`
//! R3).
//!
//! A shard has rings, floors, refusals and timers of its own. Whatever is heard of a call goes to
//! the shard of its origin, also where this node only passes it on.

use std::collections::BTreeMap;

use crate::id::{CallId, Incarnation, LinkId, NodeId, NodeLife, TaskKey};
use crate::key::{Key, Secret};
use crate::limits::Limits;
use crate::links::Links;
use crate::share::{Amounts, PeerIndex};
use crate::time::Timestamp;
use crate::wire::{Settled, Statement};

use super::visits::{TaskRef, VisitEvent, Visits};
use super::{Arrival, Outbound};

/// The tasks of one node.
#[derive(Debug)]
pub struct Shards {
    /// As many as a power of two.
    shards: Vec<Visits>,
}

impl Shards {
    /// So many shards, or the next power of two.
    pub(crate) fn new(me: NodeLife, secret: Secret, limits: &Limits, count: u8) -> Self {
        let count = usize::from(count).next_power_of_two();
        let shards = (0..count).map(|_| Visits::new(me, secret, limits)).collect();
        Self { shards }
    }

    /// The shard of an origin.
    #[inline]
    pub(crate) fn of(&self, origin: Incarnation) -> &Visits {
        &self.shards[self.index(origin)]
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn of_mut(&mut self, origin: Incarnation) -> &mut Visits {
        let index = self.index(origin);
        &mut self.shards[index]
    }

    #[inline]
    fn index(&self, origin: Incarnation) -> usize {
        // The golden ratio spreads what differs in a few bits over the upper half.
        let mixed = origin.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> u32::BITS) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn handle_dial_over(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        self.shards.iter_mut().for_each(|shard| shard.handle_dial_over(now, node, links));
    }

    pub(crate) fn handle_link_lost(
        &mut self,
        now: Timestamp,
        node: NodeId,
        link: LinkId,
        links: &mut Links,
    ) {
        self.shards.iter_mut().for_each(|shard| shard.handle_link_lost(now, node, link, links));
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &mut Links) {
        self.shards.iter_mut().for_each(|shard| shard.handle_timeout(now, links));
    }

    /// The answer to a question: each statement is for the shard of its origin.
    pub(crate) fn handle_settled(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        (number, settled): (u64, &Settled),
        links: &mut Links,
    ) {
        for statement in &settled.statements {
            let Statement { origin, .. } = statement;
            self.of_mut(*origin).handle_statement(now, by, (number, statement), links);
        }
    }

    #[inline]
    pub(crate) fn settle_risen(&mut self, links: &mut Links) {
        self.shards.iter_mut().for_each(|shard| shard.settle_risen(links));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.shards.iter().filter_map(Visits::poll_timeout).min()
    }

    /// Refuses requests from now on.
    pub(crate) fn begin_shutdown(&mut self) {
        self.shards.iter_mut().for_each(Visits::begin_shutdown);
    }

    /// Refuses from now on what is of an older configuration. Epochs do not go back.
    pub(crate) fn raise_epoch(&mut self, epoch: u64) {
        self.shards.iter_mut().for_each(|shard| shard.raise_epoch(epoch));
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.shards[0].epoch()
    }

    pub(crate) fn has_events(&self) -> bool {
        self.shards.iter().any(Visits::has_events)
    }

    pub(crate) fn poll_event(&mut self) -> Option<VisitEvent> {
        self.shards.iter_mut().find_map(Visits::poll_event)
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.shards.iter().any(Visits::has_output)
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.shards.iter_mut().find_map(Visits::poll_outbound)
    }

    /// True when the handler of a task has not ended and has not been stopped.
    pub(crate) fn is_running(&self, task: &TaskRef) -> bool {
        self.of(task.call.origin).is_running(task)
    }

    // Inspection

    /// Compares the shares of all peers with what is kept for them.
    ///
    /// # Errors
    /// The first difference, in words.
    pub(crate) fn audit(&self, links: &Links) -> Result<(), String> {
        let mut counted = BTreeMap::<PeerIndex, Amounts>::new();
        self.shards.iter().try_for_each(|shard| shard.audit(links, &mut counted))?;
        links.shares().compare(&counted)
    }

    /// All that is known of a task, as text: to see whether something changed it.
    pub fn snapshot(&self, call: CallId, task: &TaskKey, key: Key) -> String {
        self.of(call.origin).snapshot(call, task, key)
    }

    /// True when this node takes a call of `node` for settled, and refuses all of it.
    pub fn has_settled(&self, node: NodeId, call: CallId) -> bool {
        self.of(call.origin).has_settled(node, call)
    }

    /// Tasks whose handler runs, or whose replies wait for credit.
    pub fn running_count(&self) -> usize {
        self.total(Visits::running_count)
    }

    /// Finished tasks, fences and cancel marks remembered.
    pub fn remembered_count(&self) -> usize {
        self.total(Visits::remembered_count)
    }

    /// The initiator, the sender and the number of the call of each finished task that is
    /// remembered.
    pub fn remembered(&self) -> impl Iterator<Item = (NodeLife, NodeLife, u64)> + '_ {
        self.shards.iter().flat_map(Visits::remembered)
    }

    /// Finished tasks of which only enough is left to refuse a copy of their request.
    pub fn stub_count(&self) -> usize {
        self.total(Visits::stub_count)
    }

    /// The number of the last question that was asked.
    #[cfg(test)]
    pub(crate) fn last_question(&self) -> u64 {
        self.shards.iter().map(Visits::last_question).max().unwrap_or(0)
    }

    /// Timers that are set, void ones too.
    pub fn timer_count(&self) -> usize {
        self.total(Visits::timer_count)
    }

    /// Initiators of which anything is known, each once for each of its streams.
    pub fn origin_count(&self) -> usize {
        self.total(Visits::origin_count)
    }

    fn total(&self, count: impl Fn(&Visits) -> usize) -> usize {
        self.shards.iter().map(count).sum()
    }
}
