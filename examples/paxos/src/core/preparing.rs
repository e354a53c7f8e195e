//! Phase 1: promises, and what those who gave them had accepted.

use std::collections::{BTreeMap, BTreeSet};

use convoke::NodeId;

use super::ballot::{Ballot, Life, Lives, Slot, Value};
use super::membership::{Members, Membership};
use super::message::Accepted;
use crate::mutant::{self, Mutant};

/// Promises of a ballot so far. A node that leads goes on to collect them: it opens slots of a
/// configuration when a majority of its voters has promised.
#[derive(Clone, Debug, Hash)]
pub(super) struct Preparing {
    pub(super) ballot: Ballot,
    /// The lives of those who have promised, and told all they had accepted.
    promised: Lives,
    /// Per slot what was accepted in the latest ballot.
    accepted: BTreeMap<Slot, (Ballot, Value)>,
    /// This one knows all up to here to be chosen, and told nothing of it.
    known: (Slot, NodeId),
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
        let (promised, accepted) = (Lives::new(), BTreeMap::new());
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

    /// A node has promised, and has told all.
    pub(super) fn promise(&mut self, node: NodeId, life: Life) {
        self.promised.insert(node, life);
    }

    /// True when this ledger of a node has promised.
    pub(super) fn has_promised(&self, node: NodeId, life: Life) -> bool {
        self.promised.get(&node) == Some(&life)
    }

    /// True when a majority of these has promised. A ledger that was lost has another number.
    pub(super) fn is_prepared(&self, members: &Members) -> bool {
        members.is_majority(|node, life| {
            let is_any = mutant::is(Mutant::WipedNodeVotes) && self.promised.contains_key(&node);
            is_any || self.has_promised(node, life)
        })
    }

    /// The last slot of which anything is told, and the node that knows it.
    pub(super) fn known(&self) -> (Slot, NodeId) {
        self.known
    }

    /// The last slot in which anything was accepted that is not taken or forgotten.
    pub(super) fn last(&self) -> Option<Slot> {
        self.accepted.keys().next_back().copied()
    }

    /// Takes the value to be proposed again in a slot, if one was accepted there.
    pub(super) fn take(&mut self, slot: Slot) -> Option<Value> {
        match self.accepted.remove(&slot) {
            None if mutant::is(Mutant::GapsCloseUp) => self.accepted.pop_first(),
            found => found.map(|found| (slot, found)),
        }
        .map(|(_, (_, value))| value)
    }

    /// Lets go of what was accepted in slots up to here. They are known, or proposed again.
    pub(super) fn forget_upto(&mut self, slot: Slot) {
        self.accepted = self.accepted.split_off(&slot.next());
    }

    /// Looks whether this ledger of a node may lead, of a cluster whose members it knows, or else
    /// those of its formation.
    ///
    /// # Errors
    /// [`NotYet`].
    pub(super) fn quorum(
        &self,
        founders: &BTreeSet<NodeId>,
        window: usize,
        formed: Option<&Membership>,
        (me, life): (NodeId, Life),
    ) -> Result<Membership, NotYet> {
        let accepted = match self.accepted.get(&Slot::FIRST) {
            Some((_, Value::Formation(formation))) => Some(&**formation),
            _ => None,
        };
        match formed.or(accepted) {
            // Of a slot that some know to be chosen others may have accepted another value.
            _ if formed.is_none() && self.known.0 >= Slot::FIRST => Err(NotYet::Stranger),
            Some(of) if formed.is_none() && !of.now.counts(me, life) => Err(NotYet::OtherLife),
            Some(of) if self.is_prepared(&of.now) => Ok(of.clone()),
            // Nobody that is here has heard of a formation. That nobody has takes all of them.
            None if founders.iter().all(|node| self.promised.contains_key(node)) => {
                let lives = self.promised.iter().filter(|(node, _)| founders.contains(node));
                let lives = lives.map(|(node, life)| (*node, *life)).collect();
                Ok(Membership::new(window, Members::formed(&lives)))
            }
            _ => Err(NotYet::Promises),
        }
    }
}
