//! A replica that learns what is chosen, from its leader's word and from others' logs.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use convoke::NodeId;

use super::super::ballot::{Ballot, Slot, Value};
use super::super::leader::{Leading, Role};
use super::super::membership::Membership;
use super::super::message::{Ask, Record};
use super::{Effect, Replica, Unsaved};
use crate::mutant::{self, Mutant};

/// Values that others know and this node does not.
#[derive(Clone, Debug, Hash)]
pub(super) struct Behind {
    /// Up to here they are chosen.
    target: Slot,
    /// The node that is asked.
    source: NodeId,
    /// When somebody else is asked; `None` while a snapshot is fetched.
    due: Option<Duration>,
    /// Questions without an answer since there was progress.
    in_vain: u32,
    /// The node whose snapshot was installed: it keeps what is behind.
    holder: Option<NodeId>,
}

impl Behind {
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }
}

impl Replica {
    /// The next value of the log is known.
    pub(super) fn learn(&mut self, value: Value) {
        self.log.push(value.clone());
        let slot = self.log.chosen();
        self.acceptor.forget_upto(slot);
        let has_next = self.membership.as_ref().is_some_and(|membership| membership.next.is_some());
        let has_changed = Membership::learn(&mut self.membership, slot, &value);
        self.effects.push_back(Effect::Apply { slot, value });
        if has_changed && has_next {
            self.ask_round(); // those who leave hear of it, unless that is lost
        }
        if has_changed {
            self.members_changed();
        }
    }

    /// All up to `upto` is chosen, says the leader of a ballot: so that is what was accepted of it,
    /// since it proposes one value for a slot, and leads no more once it knows another to be
    /// chosen there.
    pub(super) fn learn_accepted(&mut self, ballot: Ballot, upto: Slot) {
        let before = self.log.chosen();
        while self.log.chosen() < upto {
            let next = self.log.chosen().next();
            let Some(value) = self.acceptor.accepted_in(ballot, next).cloned() else { break };
            self.learn(value);
        }
        if self.log.chosen() > before {
            self.append(Record::Chosen { ballot, upto: self.log.chosen() });
        }
    }

    /// Takes chosen values of a log that begins at `first`.
    pub(super) fn learn_values(&mut self, first: Slot, values: Vec<Value>) {
        for (slot, value) in (first.0..).map(Slot).zip(values) {
            if slot == self.log.chosen().next() {
                self.learn(value);
            }
        }
    }

    /// Others know the log up to `target`: asks one of them.
    pub(super) fn is_behind(&mut self, now: Duration, source: NodeId, target: Slot) {
        if let Some(behind) = &mut self.behind {
            behind.target = behind.target.max(target);
            return;
        }
        self.behind = Some(Behind { target, source, due: None, in_vain: 0, holder: None });
        self.ask_values(now);
    }

    /// True while it is so far behind that it accepts nothing new, or fetches a snapshot.
    pub fn is_far_behind(&self) -> bool {
        let behind = self.behind.as_ref();
        behind.is_some_and(|behind| behind.due.is_none() || !self.is_near(behind.target.next()))
    }

    /// True while a snapshot of another node is fetched.
    pub(super) fn is_fetching(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.due.is_none())
    }

    fn ask_values(&mut self, now: Duration) {
        let from = self.log.chosen().next();
        let pause = 2 * self.settings.heartbeat;
        let Some(behind) = &mut self.behind else { return };
        behind.due = Some(now + pause);
        let source = behind.source;
        self.ask(source, Ask::CatchUp { from });
    }

    /// Asks somebody else, when nothing came.
    pub(super) fn catch_up_if_due(&mut self, now: Duration) {
        let timeouts = self.settings.election_timeout.as_nanos()
            / (2 * self.settings.heartbeat).as_nanos().max(1);
        let Some(behind) = &mut self.behind else { return };
        if behind.due.is_none_or(|due| due > now) {
            return;
        }
        behind.in_vain += 1;
        let (source, in_vain) = (behind.source, behind.in_vain);
        let Some(next) = self.source_after(source) else {
            self.behind = None;
            return;
        };
        let is_hopeless = u128::from(in_vain) > timeouts;
        if is_hopeless && matches!(self.role, Role::Leading(_)) {
            // The node that knew it is gone: another ballot proposes it again.
            self.behind = None;
            self.step_down();
            return self.defer_election(now);
        }
        if let Some(behind) = &mut self.behind {
            behind.source = next;
        }
        self.ask_values(now);
    }

    /// The node behind another in the ring of those who may know the log. `None` when there is no
    /// other.
    fn source_after(&self, node: NodeId) -> Option<NodeId> {
        let sources = self.sources();
        let behind = sources.range((Bound::Excluded(node), Bound::Unbounded));
        behind.chain(&sources).next().copied()
    }

    /// Others who may know the log: members, as far as this node knows. All it was told of, before
    /// it knows that it is one, and while it looks for a leader in vain: members of before may be
    /// gone, or refuse it as they know of members that it is not among, and only others know later
    /// ones.
    pub(super) fn sources(&self) -> BTreeSet<NodeId> {
        let mut sources = self.others();
        let node = self.settings.node;
        let is_member =
            self.membership.as_ref().is_some_and(|membership| membership.contains(node));
        if !is_member || self.looks_in_vain() {
            sources.extend(&self.settings.peers);
            sources.remove(&node);
        }
        sources
    }

    /// Those that this node was told of, and has not heard of as members: they may be by now.
    pub(super) fn strangers(&self) -> BTreeSet<NodeId> {
        let others = self.others();
        let node = self.settings.node;
        let is_stranger = |peer: &&NodeId| **peer != node && !others.contains(*peer);
        self.settings.peers.iter().filter(is_stranger).copied().collect()
    }

    /// A node that hears of no leader asks one of these after the other what is chosen.
    pub(super) fn look_around(&mut self, sources: BTreeSet<NodeId>) {
        let turn = self.attempts.checked_rem(sources.len() as u64).unwrap_or_default();
        let from = self.log.chosen().next();
        if let Some(source) = sources.into_iter().nth(skip(turn)) {
            self.ask(source, Ask::CatchUp { from });
        }
    }

    pub(super) fn handle_chosen(
        &mut self,
        now: Duration,
        from: NodeId,
        first: Slot,
        values: Vec<Value>,
        chosen: Slot,
    ) {
        let before = self.log.chosen();
        if first <= before.next() && first.plus(values.len()) > before.next() {
            let new: Vec<Value> =
                values.into_iter().skip(skip(before.next().since(first))).collect();
            self.step_down_if_outvoted(now, |leading| leading.agrees(&new));
            self.append(Record::Learned { first: before.next(), values: new.clone() });
            self.learn_values(before.next(), new);
            self.learned_from_others(now);
        }
        let known = self.log.chosen();
        let Some(behind) = &mut self.behind else {
            if chosen > known {
                self.is_behind(now, from, chosen);
            }
            return;
        };
        if known >= behind.target.max(chosen) {
            self.behind = None;
        } else if known > before {
            (behind.in_vain, behind.source) = (0, from);
            self.ask_values(now);
        }
    }

    /// A leader does not go on unless what it proposed `agrees` with what others know to be chosen:
    /// a later ballot has decided a slot. Those who accepted its own value there would take that
    /// for chosen as soon as it said how far the log is known.
    fn step_down_if_outvoted(&mut self, now: Duration, agrees: impl FnOnce(&Leading) -> bool) {
        if let Role::Leading(leading) = &self.role
            && !agrees(leading)
            && !mutant::is(Mutant::LeadsOutvoted)
        {
            self.step_down();
            self.defer_election(now);
        }
    }

    /// A leader's slots may be among what it has learned.
    fn learned_from_others(&mut self, now: Duration) {
        if let Role::Leading(leading) = &mut self.role {
            leading.forget_upto(self.log.chosen());
        }
        self.learn_chosen();
        self.go_on(now);
    }

    pub(super) fn handle_trimmed(&mut self, now: Duration, from: NodeId, trimmed: Slot) {
        let (target, due) = (trimmed, Some(now));
        let fresh = Behind { target, source: from, due, in_vain: 0, holder: None };
        let behind = self.behind.get_or_insert(fresh);
        // Another has what follows the snapshot that was fetched from it, and is only slower.
        let is_held = behind.holder.is_some_and(|holder| holder != from);
        if is_held && behind.in_vain <= HELD_IN_VAIN {
            return;
        }
        // Whoever answered: the one asked last may be slower than its turn is long.
        if behind.due.is_some() && trimmed > self.log.chosen() {
            (behind.due, behind.source) = (None, from);
            self.effects.push_back(Effect::FetchSnapshot { from, upto: trimmed });
        }
    }

    /// A snapshot of another node is what is applied now: all up to `upto`. One that is not ahead
    /// of the log must not be installed. Once this node has written it, or a later one, that is
    /// told by [`Replica::handle_saved`].
    pub fn handle_installed(&mut self, now: Duration, upto: Slot, membership: Membership) {
        if upto <= self.log.chosen() {
            return self.handle_not_installed(now);
        }
        // The snapshot does not say what was chosen in its slots.
        self.step_down_if_outvoted(now, |leading| leading.pending.is_empty());
        let durable = self.durable_chosen();
        self.unsaved = Some(Unsaved { durable, upto });
        self.jump(upto, membership);
        self.learned_from_others(now);
        if self.behind.as_ref().is_some_and(|behind| behind.target <= self.log.chosen()) {
            self.behind = None;
            return;
        }
        if let Some(behind) = &mut self.behind {
            (behind.holder, behind.in_vain) = (Some(behind.source), 0);
        }
        self.ask_values(now);
    }

    /// The ledger of this node has it that all up to here is chosen, or will have once all is
    /// durable that was appended: not what follows a snapshot that may still be lost.
    pub(super) fn durable_chosen(&self) -> Slot {
        self.unsaved.map_or(self.log.chosen(), |unsaved| unsaved.durable)
    }

    /// A snapshot could not be fetched: somebody else is asked.
    pub fn handle_not_installed(&mut self, now: Duration) {
        if let Some(behind) = &mut self.behind {
            behind.due = Some(now);
        }
    }

    /// The log goes on behind a snapshot.
    pub(super) fn jump(&mut self, upto: Slot, membership: Membership) {
        if upto > self.log.chosen() {
            self.log.jump(upto);
            self.acceptor.forget_upto(upto);
            self.membership = Some(membership);
            self.members_changed();
        }
    }
}

/// Questions without an answer after which a node that has missed what follows a snapshot fetches
/// that of another: with a pause of two heartbeats, four election timeouts where these are as by
/// default.
const HELD_IN_VAIN: u32 = 20;

fn skip(slots: u64) -> usize {
    usize::try_from(slots).unwrap_or(usize::MAX)
}
