//! The proposer's side: phase 2 slot by slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use convoke::NodeId;

use super::ballot::{Ballot, Life, Slot, Value};
use super::membership::{Members, Membership};
use super::preparing::Preparing;
use super::replica::Token;
use crate::mutant::{self, Mutant};

/// A node's part in leading.
#[derive(Clone, Debug, Hash)]
pub(super) enum Role {
    /// It follows, or waits for somebody to lead.
    Following,
    /// It asks if it may try.
    Canvassing { ballot: Ballot, supporters: BTreeSet<NodeId> },
    /// Phase 1.
    Preparing(Preparing),
    /// Phase 2.
    Leading(Box<Leading>),
}

/// A slot that is proposed.
#[derive(Clone, Debug, Hash)]
pub(super) struct Pending {
    pub(super) value: Value,
    votes: BTreeSet<NodeId>,
    is_chosen: bool,
    /// When it was asked about last.
    asked: Option<Duration>,
}

/// A read that waits for its round.
#[derive(Clone, Debug, Hash)]
pub(super) struct Read {
    pub(super) token: Token,
    /// A majority has to answer this round or a later one.
    pub(super) beat: u64,
    /// The log has to be known up to here.
    pub(super) index: Slot,
}

/// Another member as its leader knows it.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Follower {
    /// The number of its ledger.
    pub(super) life: Life,
    /// The latest round it has answered.
    pub(super) beat: u64,
    /// When it did.
    pub(super) heard: Duration,
    /// Its log is known up to here.
    pub(super) chosen: Slot,
}

/// A ballot that leads.
#[derive(Clone, Debug, Hash)]
pub(super) struct Leading {
    /// This node, and the number of its ledger.
    me: (NodeId, Life),
    pub(super) prepared: Preparing,
    /// Members of the formation, until that is chosen.
    pub(super) formation: Membership,
    /// The slot of the first of `pending`.
    first: Slot,
    pub(super) pending: VecDeque<Pending>,
    /// All that may have been chosen in earlier ballots is up to here.
    inherited: Slot,
    /// The ledger of this node has it that all up to here is chosen.
    pub(super) durable: Slot,
    /// Rounds so far.
    pub(super) beat: u64,
    /// The round that reads wait for.
    pub(super) round: Option<u64>,
    pub(super) reads: Vec<Read>,
    pub(super) followers: BTreeMap<NodeId, Follower>,
    pub(super) next_beat: Duration,
    pub(super) since: Duration,
}

impl Leading {
    /// Leads behind what this node knows to be chosen, with what phase 1 has found.
    pub(super) fn new(
        me: (NodeId, Life),
        prepared: Preparing,
        formation: Membership,
        chosen: Slot,
        now: Duration,
    ) -> Self {
        let mut leading = Self {
            me,
            prepared,
            formation,
            first: chosen.next(),
            pending: VecDeque::new(),
            inherited: Slot::FIRST,
            durable: Slot::default(),
            beat: 0,
            round: None,
            reads: Vec::new(),
            followers: BTreeMap::new(),
            next_beat: now,
            since: now,
        };
        leading.inherit();
        leading
    }

    /// Takes what promises have told since: of slots that are neither proposed here nor known to be
    /// chosen elsewhere.
    pub(super) fn inherit(&mut self) {
        let (known, _) = self.prepared.known();
        self.prepared.forget_upto(known.max(self.proposed()));
        let last = self.prepared.last().unwrap_or_default();
        self.inherited = self.inherited.max(known).max(last);
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.prepared.ballot
    }

    /// The last slot that was proposed.
    pub(super) fn proposed(&self) -> Slot {
        Slot(self.first.0 - 1).plus(self.pending.len())
    }

    /// The last slot that may be chosen: it was proposed, in this ballot or an earlier one.
    pub(super) fn last(&self) -> Slot {
        self.proposed().max(self.inherited)
    }

    /// Slots that may be proposed now, with all up to `chosen` known. None while something of
    /// earlier ballots may be chosen and is not known: what new values mean, and who votes for
    /// them, rests on it.
    pub(super) fn room(&self, chosen: Slot, membership: Option<&Membership>) -> usize {
        let has_caught_up = chosen >= self.inherited || mutant::is(Mutant::ProposesBehind);
        if !has_caught_up {
            return 0;
        }
        index(self.open_upto(chosen, membership).since(self.proposed()))
    }

    /// The last slot that may be open, with all up to `chosen` known: so far it is known who votes,
    /// and a majority of them has promised.
    fn open_upto(&self, chosen: Slot, membership: Option<&Membership>) -> Slot {
        let Some(membership) = membership else { return Slot::FIRST };
        if !self.prepared.is_prepared(&membership.now) && !mutant::is(Mutant::NextUnprepared) {
            return chosen;
        }
        let windows = if mutant::is(Mutant::OpensBeyondWindow) { 4 } else { 1 };
        let open = Slot(chosen.0.saturating_add(windows * membership.window));
        match &membership.next {
            Some((first, members)) if !self.prepared.is_prepared(members) => {
                if mutant::is(Mutant::NextUnprepared) { open } else { open.min(first.before()) }
            }
            _ => open,
        }
    }

    /// Proposes again what phase 1 has found, gaps as no-ops, once all is known that others know
    /// to be chosen: as far as slots may be open. A part of a late promise may tell of slots that
    /// are proposed already: nothing is filled up for those.
    pub(super) fn propose_found(&mut self, chosen: Slot, membership: Option<&Membership>) {
        let open = self.open_upto(chosen, membership);
        let (known, _) = self.prepared.known();
        while chosen >= known
            && self.proposed() < open
            && self.prepared.last().is_some_and(|last| last > self.proposed())
        {
            let found = self.prepared.take(self.proposed().next());
            self.propose(found.unwrap_or(Value::Noop));
        }
    }

    /// Puts a value into the next slot. Nobody is asked about it yet.
    pub(super) fn propose(&mut self, value: Value) -> Slot {
        let votes = BTreeSet::new();
        self.pending.push_back(Pending { value, votes, is_chosen: false, asked: None });
        self.proposed()
    }

    /// True when a change of members is proposed and not chosen yet.
    pub(super) fn is_changing(&self) -> bool {
        self.pending.iter().any(|pending| matches!(pending.value, Value::Change(_)))
    }

    /// Counts a node for the slots from `first` to `last`, in each where it is a voter of that one.
    pub(super) fn vote(
        &mut self,
        (node, life): (NodeId, Life),
        (first, last): (Slot, Slot),
        membership: Option<&Membership>,
    ) {
        let membership = membership.unwrap_or(&self.formation);
        let start = first.since(self.first);
        let end = last.0.saturating_add(1).saturating_sub(self.first.0);
        let (start, end) = (index(start), index(end).min(self.pending.len()));
        let slots = (self.first.plus(start).0..).map(Slot);
        for (slot, pending) in slots.zip(self.pending.range_mut(start.min(end)..end)) {
            let members = membership.at(slot);
            if members.counts(node, life) {
                pending.votes.insert(node);
                pending.is_chosen |= members.is_majority(|node, _| pending.votes.contains(&node));
            }
        }
    }

    /// The next value of the log, if it is known up to `chosen` and that one is chosen.
    pub(super) fn take_chosen(&mut self, chosen: Slot) -> Option<Value> {
        if self.first != chosen.next() || !self.pending.front()?.is_chosen {
            return None;
        }
        self.first = self.first.next();
        Some(self.pending.pop_front()?.value)
    }

    /// True when what was proposed here of the next values of the log, which others know to be
    /// chosen, are the same values.
    pub(super) fn agrees(&self, next: &[Value]) -> bool {
        self.pending.iter().zip(next).all(|(pending, value)| pending.value == *value)
    }

    /// Lets go of slots that were learned from others.
    pub(super) fn forget_upto(&mut self, chosen: Slot) {
        while self.first <= chosen && self.pending.pop_front().is_some() {
            self.first = self.first.next();
        }
        self.first = self.first.max(chosen.next());
        self.prepared.forget_upto(chosen);
    }

    /// A run of slots that nobody was asked about since `since`, at most `now`, and whose votes are
    /// missing: of up to `bytes`, at least one.
    pub(super) fn take_unasked(
        &mut self,
        since: Duration,
        now: Duration,
        bytes: usize,
    ) -> Option<(Slot, Vec<Value>)> {
        let is_due = |pending: &Pending| {
            !pending.is_chosen && pending.asked.is_none_or(|asked| asked < since)
        };
        let start = self.pending.iter().position(is_due)?;
        let mut room = bytes;
        let mut values = Vec::new();
        for pending in self.pending.range_mut(start..) {
            if !is_due(pending) || (pending.value.size() > room && !values.is_empty()) {
                break;
            }
            room = room.saturating_sub(pending.value.size());
            pending.asked = Some(now);
            values.push(pending.value.clone());
        }
        Some((self.first.plus(start), values))
    }

    /// Voters of the slot behind the last that is chosen.
    pub(super) fn members<'a>(&'a self, membership: Option<&'a Membership>) -> &'a Members {
        &membership.unwrap_or(&self.formation).now
    }

    /// True when a majority of the voters is this node, or followers of which `has` is true.
    pub(super) fn is_majority(
        &self,
        membership: Option<&Membership>,
        has: impl Fn(&Follower) -> bool,
    ) -> bool {
        self.members(membership).is_majority(|node, life| self.is_one((node, life), &has))
    }

    /// True when a voter is this node, or a follower of which `has` is true.
    pub(super) fn is_one(
        &self,
        (node, life): (NodeId, Life),
        has: impl Fn(&Follower) -> bool,
    ) -> bool {
        let is_it = |follower: &Follower| follower.life == life && has(follower);
        (node, life) == self.me || self.followers.get(&node).is_some_and(is_it)
    }

    /// True when a majority of the voters has in its ledgers that all up to a slot is chosen.
    pub(super) fn is_known_upto(&self, slot: Slot, membership: &Membership) -> bool {
        membership.now.is_majority(|node, life| match self.followers.get(&node) {
            Some(follower) => follower.life == life && follower.chosen >= slot,
            None => (node, life) == self.me && self.durable >= slot,
        })
    }

    /// Reads whose round a majority has answered, and whose index is known. Voters that have not
    /// promised may have chosen what this leader has not heard of: they are waited for.
    pub(super) fn take_ready(
        &mut self,
        membership: Option<&Membership>,
        chosen: Slot,
    ) -> Vec<Token> {
        let is_confirmed = |leading: &Self, beat| {
            let is_answered = leading.is_majority(membership, |follower| follower.beat >= beat);
            is_answered || mutant::is(Mutant::ReadUnconfirmed)
        };
        if self.round.is_some_and(|beat| is_confirmed(self, beat)) {
            self.round = None;
        }
        let reads = std::mem::take(&mut self.reads).into_iter();
        let is_current =
            chosen >= self.inherited && self.prepared.is_prepared(self.members(membership));
        let is_ready =
            |read: &Read| is_current && read.index <= chosen && is_confirmed(self, read.beat);
        let (ready, reads): (Vec<_>, _) = reads.partition(is_ready);
        self.reads = reads;
        ready.into_iter().map(|read| read.token).collect()
    }
}

fn index(slots: u64) -> usize {
    usize::try_from(slots).unwrap_or(usize::MAX)
}
