//! The proposer's side: phase 1 for all open slots, then phase 2 slot by slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use convoke::NodeId;

use super::ballot::{Ballot, Life, Lives, Slot, Value};
use super::message::Accepted;
use super::replica::Token;
use crate::mutant::{self, Mutant};

/// A node's part in leading.
#[derive(Debug)]
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

/// Promises so far.
#[derive(Debug)]
pub(super) struct Preparing {
    pub(super) ballot: Ballot,
    /// The lives of those who have promised, and told all they had accepted.
    pub(super) promised: BTreeMap<NodeId, Life>,
    /// Per slot what was accepted in the latest ballot.
    pub(super) accepted: BTreeMap<Slot, (Ballot, Value)>,
    /// This one knows all up to here to be chosen, and told nothing of it.
    pub(super) known: (Slot, NodeId),
}

/// Reason why promises are not enough yet, or never will be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotYet {
    /// More promises are needed.
    Promises,
    /// Others know a log of which this node knows not even the first value.
    Stranger,
    /// The cluster was formed with another ledger of this node.
    OtherLife,
}

impl Preparing {
    pub(super) fn new(ballot: Ballot, me: NodeId) -> Self {
        let (promised, accepted) = (BTreeMap::new(), BTreeMap::new());
        Self { ballot, promised, accepted, known: (Slot::default(), me) }
    }

    /// Takes a part of what a node has accepted, and up to where it knows what is chosen.
    pub(super) fn add(&mut self, from: NodeId, reported: &[Accepted], chosen: Slot) {
        self.known = self.known.max((chosen, from));
        for Accepted { slot, ballot, value } in reported {
            let latest = self.accepted.entry(*slot).or_insert_with(|| (*ballot, value.clone()));
            let is_later = *ballot > latest.0;
            if is_later != mutant::is(Mutant::TakesEarliestValue) {
                *latest = (*ballot, value.clone());
            }
        }
    }

    /// The lives that count, once enough nodes have promised.
    ///
    /// # Errors
    /// [`NotYet`].
    pub(super) fn quorum(
        &self,
        voters: &BTreeSet<NodeId>,
        formed: Option<&Lives>,
        me: (NodeId, Life),
    ) -> Result<Lives, NotYet> {
        let accepted = match self.accepted.get(&Slot::FIRST) {
            Some((_, Value::Formation(lives))) => Some(lives),
            _ => None,
        };
        match formed.or(accepted) {
            // Of a slot that some know to be chosen others may have accepted another value.
            _ if formed.is_none() && self.known.0 >= Slot::FIRST => Err(NotYet::Stranger),
            Some(lives) if !counts(lives, me.0, me.1) => Err(NotYet::OtherLife),
            Some(lives) => {
                let is_counted = |(node, life): &(&NodeId, &Life)| counts(lives, **node, **life);
                let count = self.promised.iter().filter(is_counted).count();
                if count >= majority(voters.len()) {
                    Ok(lives.clone())
                } else {
                    Err(NotYet::Promises)
                }
            }
            // Nobody that is here has heard of a formation. That nobody has takes all of them.
            None if voters.iter().all(|node| self.promised.contains_key(node)) => {
                Ok(self.promised.clone())
            }
            None => Err(NotYet::Promises),
        }
    }
}

/// True when what this ledger of a node says counts.
pub(super) fn counts(lives: &Lives, node: NodeId, life: Life) -> bool {
    lives.get(&node) == Some(&life) || mutant::is(Mutant::WipedNodeVotes)
}

/// Nodes of which any two sets share one.
pub(super) fn majority(voters: usize) -> usize {
    if mutant::is(Mutant::HalfIsEnough) { (voters / 2).max(1) } else { voters / 2 + 1 }
}

/// A slot that is proposed.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) value: Value,
    pub(super) votes: BTreeSet<NodeId>,
    pub(super) is_chosen: bool,
    /// When it was asked about last.
    pub(super) asked: Option<Duration>,
}

/// A read that waits for its round.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) token: Token,
    /// A majority has to answer this round or a later one.
    pub(super) beat: u64,
    /// The log has to be known up to here.
    pub(super) index: Slot,
}

/// A follower as its leader knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follower {
    /// The latest round it has answered.
    pub(super) beat: u64,
    /// When it did.
    pub(super) heard: Duration,
    /// Its log is known up to here.
    pub(super) chosen: Slot,
}

/// A ballot that leads.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) ballot: Ballot,
    pub(super) lives: Lives,
    /// The slot of the first of `pending`.
    pub(super) first: Slot,
    pub(super) pending: VecDeque<Pending>,
    /// Values of earlier ballots that phase 1 has found and that are not proposed again yet.
    found: BTreeMap<Slot, Value>,
    /// Others know all up to here to be chosen, and have told nothing of it.
    known: Slot,
    /// All that may have been chosen in earlier ballots is up to here.
    inherited: Slot,
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
    pub(super) fn new(done: Preparing, lives: Lives, chosen: Slot, now: Duration) -> Self {
        let (known, _) = done.known;
        let found: BTreeMap<Slot, Value> = done
            .accepted
            .into_iter()
            .filter(|(slot, _)| *slot > known.max(chosen))
            .map(|(slot, (_, value))| (slot, value))
            .collect();
        let last = found.keys().next_back().copied().unwrap_or_default();
        Self {
            ballot: done.ballot,
            lives,
            first: chosen.next(),
            pending: VecDeque::new(),
            found,
            known,
            inherited: known.max(last).max(Slot::FIRST),
            beat: 0,
            round: None,
            reads: Vec::new(),
            followers: BTreeMap::new(),
            next_beat: now,
            since: now,
        }
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
    /// earlier ballots may be chosen and is not known: what new values mean, and from membership
    /// changes on who votes for them, rests on it.
    pub(super) fn room(&self, chosen: Slot, window: usize) -> usize {
        let has_caught_up = chosen >= self.inherited || mutant::is(Mutant::ProposesBehind);
        if has_caught_up { window.saturating_sub(self.pending.len()) } else { 0 }
    }

    /// Proposes again what phase 1 has found, gaps as no-ops, once all is known that others know
    /// to be chosen: as much as the window has room for.
    pub(super) fn propose_found(&mut self, chosen: Slot, window: usize) {
        while chosen >= self.known && self.pending.len() < window && !self.found.is_empty() {
            let found = match self.found.remove(&self.proposed().next()) {
                None if mutant::is(Mutant::GapsCloseUp) => self.found.pop_first().map(|of| of.1),
                found => found,
            };
            self.propose(found.unwrap_or(Value::Noop));
        }
    }

    /// Puts a value into the next slot. Nobody is asked about it yet.
    pub(super) fn propose(&mut self, value: Value) -> Slot {
        let votes = BTreeSet::new();
        self.pending.push_back(Pending { value, votes, is_chosen: false, asked: None });
        self.proposed()
    }

    /// Counts a node for the slots from `first` to `last`.
    pub(super) fn vote(&mut self, node: NodeId, first: Slot, last: Slot, needed: usize) {
        let start = first.since(self.first);
        let end = last.0.saturating_add(1).saturating_sub(self.first.0);
        let (start, end) = (index(start), index(end).min(self.pending.len()));
        for pending in self.pending.range_mut(start.min(end)..end) {
            pending.votes.insert(node);
            pending.is_chosen |= pending.votes.len() >= needed;
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

    /// Lets go of slots that were learned from others.
    pub(super) fn forget_upto(&mut self, chosen: Slot) {
        while self.first <= chosen && self.pending.pop_front().is_some() {
            self.first = self.first.next();
        }
        self.first = self.first.max(chosen.next());
        self.found = self.found.split_off(&self.first);
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

    /// True when so many others have answered a round since then.
    pub(super) fn is_heard_by(&self, others: usize, since: Duration) -> bool {
        self.followers.values().filter(|follower| follower.heard >= since).count() >= others
    }

    /// Reads whose round so many others have answered, and whose index is known.
    pub(super) fn take_ready(&mut self, others: usize, chosen: Slot) -> Vec<Token> {
        let followers = &self.followers;
        let is_confirmed = |beat| {
            let answered = followers.values().filter(|follower| follower.beat >= beat).count();
            answered >= others || mutant::is(Mutant::ReadUnconfirmed)
        };
        if self.round.is_some_and(is_confirmed) {
            self.round = None;
        }
        let is_ready = |read: &Read| read.index <= chosen && is_confirmed(read.beat);
        self.reads.extract_if(.., |read| is_ready(read)).map(|read| read.token).collect()
    }
}

fn index(slots: u64) -> usize {
    usize::try_from(slots).unwrap_or(usize::MAX)
}
