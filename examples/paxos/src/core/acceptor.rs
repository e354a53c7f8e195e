//! The acceptor: what a node has promised and accepted, and may not forget.

use std::collections::BTreeMap;

use super::ballot::{Ballot, Slot, Value};
use super::message::Accepted;
use crate::mutant::{self, Mutant};

/// Promises and accepted values above what is known to be chosen.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Acceptor {
    promised: Ballot,
    accepted: BTreeMap<Slot, (Ballot, Value)>,
}

impl Acceptor {
    pub(super) fn promised(&self) -> Ballot {
        self.promised
    }

    /// Promises a ballot that is not earlier than the last one. True when that is new.
    pub(super) fn promise(&mut self, ballot: Ballot) -> bool {
        let is_new = ballot > self.promised;
        self.promised = self.promised.max(ballot);
        is_new
    }

    /// Accepts a value in a ballot that is not earlier than what was promised.
    pub(super) fn accept(&mut self, ballot: Ballot, slot: Slot, value: Value) {
        // "An acceptor can accept a proposal numbered n iff it has not responded to a prepare
        // request having a number greater than n" (Paxos Made Simple, 2.2); accepting n, it has to
        // refuse what is before n as if it had promised it.
        if !mutant::is(Mutant::AcceptPromisesNothing) {
            self.promise(ballot);
        }
        self.accepted.insert(slot, (ballot, value));
    }

    /// The value accepted in a slot, if that was in this ballot.
    pub(super) fn accepted_in(&self, ballot: Ballot, slot: Slot) -> Option<&Value> {
        let (of, value) = self.accepted.get(&slot)?;
        (*of == ballot || mutant::is(Mutant::LearnsAnyBallot)).then_some(value)
    }

    /// The last slot of the run from `after` on that was accepted in this ballot without a gap.
    pub(super) fn run_in(&self, ballot: Ballot, after: Slot) -> Slot {
        let mut last = after;
        for (slot, (of, _)) in self.accepted.range(after.next()..) {
            if *slot != last.next() || *of != ballot {
                break;
            }
            last = *slot;
        }
        last
    }

    /// Slots from `from` on in which something was accepted, up to `bytes` of them, and where the
    /// rest begins. At least one is given, if there is one.
    pub(super) fn report(&self, from: Slot, bytes: usize) -> (Vec<Accepted>, Option<Slot>) {
        let mut reported = Vec::new();
        let mut room = bytes;
        for (slot, (ballot, value)) in self.accepted.range(from..) {
            if value.size() > room && !reported.is_empty() {
                return (reported, Some(*slot));
            }
            room = room.saturating_sub(value.size());
            reported.push(Accepted { slot: *slot, ballot: *ballot, value: value.clone() });
        }
        (reported, None)
    }

    /// Lets go of what is known to be chosen.
    pub(super) fn forget_upto(&mut self, slot: Slot) {
        while let Some(first) = self.accepted.first_entry()
            && *first.key() <= slot
        {
            first.remove();
        }
    }

    /// Accepted slots, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Ballot, &Value)> {
        self.accepted.iter().map(|(slot, (ballot, value))| (*slot, *ballot, value))
    }
}
