//! Calls whose branches reply once each, which most calls are, kept flat.
//!
//! A slot knows what a [`Call`](super::call::Call) knows right after its requests have left and it was
//! sealed, and one thing more: the replies that complete it. Whatever else happens to it (any other frame,
//! worry, a lost connection, a cancel) makes a full call of it first, which takes what happened as it
//! would have from the start; so a slot decides nothing of its own.
//!
//! ```text
//!  Open ──the sole reply of each branch──▶ Answered ──taken──▶ Vacant
//!    │                                        │
//!    └────anything else, age──────────────────┴──▶ a full call
//! ```
//!
//! An `Errand` has one branch, and its caller waits for nothing but the end. A `Fan` has several, or
//! a caller that reads replies one by one.
//!
//! Slots lie in a ring by call number. All are given the same time before they become full calls, so the
//! oldest is always the next one due, and one timer serves them all.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::id::{Incarnation, LinkNonce, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::Reply;

use super::Arrival;

mod fan;

pub(crate) use fan::{Fan, Leg, Read, Reading};

/// The calls that are still flat.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The call number of the first slot in the ring.
    first: u64,
    ring: VecDeque<Slot>,
    in_use: usize,
    age_max: Duration,
}

/// What is under a number.
#[derive(Debug)]
pub(crate) enum Slot {
    Vacant,
    One(Errand),
    Several(Box<Fan>),
}

/// One flat call.
#[derive(Debug)]
pub(crate) struct Errand {
    /// Where its request went, by which connection and to which life of the node.
    pub(crate) to: NodeId,
    pub(crate) link: LinkNonce,
    pub(crate) life: Option<Incarnation>,
    pub(crate) opened_at: Timestamp,
    pub(crate) deadline: Timestamp,
    /// Who waits for it.
    pub(crate) waker: Option<Waker>,
    pub(crate) answer: Option<Answer>,
}

/// The sole reply of a flat call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) by: Arrival,
    /// Tail transfers until it was given.
    pub(crate) hop: u32,
    pub(crate) payload: Bytes,
}

impl Slots {
    /// Slots that become full calls when they are `age_max` old.
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { first: 0, ring: VecDeque::new(), in_use: 0, age_max }
    }

    /// Whether a call with this much time can begin flat: one that is due earlier than its slot would be
    /// needs a timer of its own.
    pub(crate) fn suits(&self, budget: Duration) -> bool {
        budget > self.age_max
    }

    /// Keeps a call whose number is above all before it.
    pub(crate) fn open(&mut self, seq: u64, errand: Errand) {
        self.push(seq, Slot::One(errand));
    }

    /// Keeps a call of several branches, whose number is above all before it.
    pub(crate) fn open_fan(&mut self, seq: u64, fan: Fan) {
        self.push(seq, Slot::Several(Box::new(fan)));
    }

    fn push(&mut self, seq: u64, slot: Slot) {
        if self.ring.is_empty() {
            self.first = seq;
        }
        // Numbers between were given to calls that began full.
        while self.first + (self.ring.len() as u64) < seq {
            self.ring.push_back(Slot::Vacant);
        }
        self.ring.push_back(slot);
        self.in_use += 1;
    }

    pub(crate) fn get(&mut self, seq: u64) -> Option<&mut Slot> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.ring.get_mut(index).filter(|slot| !matches!(slot, Slot::Vacant))
    }

    pub(crate) fn errand(&mut self, seq: u64) -> Option<&mut Errand> {
        match self.get(seq)? {
            Slot::One(errand) => Some(errand),
            _ => None,
        }
    }

    pub(crate) fn fan(&mut self, seq: u64) -> Option<&mut Fan> {
        match self.get(seq)? {
            Slot::Several(fan) => Some(fan),
            _ => None,
        }
    }

    pub(crate) fn peek_fan(&self, seq: u64) -> Option<&Fan> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        match self.ring.get(index)? {
            Slot::Several(fan) => Some(fan),
            _ => None,
        }
    }

    /// Takes a call out. What was there is never [`Slot::Vacant`].
    pub(crate) fn remove(&mut self, seq: u64) -> Option<Slot> {
        let slot = std::mem::replace(self.get(seq)?, Slot::Vacant);
        self.in_use -= 1;
        while matches!(self.ring.front(), Some(Slot::Vacant)) {
            self.ring.pop_front();
            self.first += 1;
        }
        Some(slot)
    }

    /// The oldest call, if it is too old to stay flat.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<u64> {
        self.next_timeout().filter(|at| *at <= now).map(|_| self.first)
    }

    /// When the oldest call is too old.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let opened_at = match self.ring.front()? {
            Slot::One(errand) => errand.opened_at,
            Slot::Several(fan) => fan.opened_at,
            Slot::Vacant => return None,
        };
        Some(opened_at + self.age_max)
    }

    /// The number of the oldest call.
    pub(crate) fn oldest(&self) -> Option<u64> {
        (!self.ring.is_empty()).then_some(self.first)
    }

    /// The calls of which a request went to `node`.
    pub(crate) fn sent_to(&self, node: NodeId) -> Vec<u64> {
        let sent = (self.first..).zip(&self.ring).filter(|(_, slot)| slot.was_sent_to(node));
        sent.map(|(seq, _)| seq).collect()
    }

    /// How many calls there are.
    pub(crate) fn len(&self) -> usize {
        self.in_use
    }

    /// How many wait for their reply.
    pub(crate) fn unanswered(&self) -> usize {
        self.ring.iter().filter(|slot| slot.is_unanswered()).count()
    }
}

impl Slot {
    fn was_sent_to(&self, node: NodeId) -> bool {
        match self {
            Self::Vacant => false,
            Self::One(errand) => errand.to == node,
            Self::Several(fan) => fan.legs.iter().any(|leg| leg.to == node),
        }
    }

    fn is_unanswered(&self) -> bool {
        match self {
            Self::Vacant => false,
            Self::One(errand) => errand.answer.is_none(),
            Self::Several(fan) => fan.reading != Reading::Decided && !fan.is_complete(),
        }
    }
}

impl Errand {
    /// Takes the reply that completes the call. False when it is anything else: the call must then be a
    /// full one before it hears of it.
    pub(crate) fn answer(
        &mut self,
        by: Arrival,
        task: &TaskKey,
        reply: &mut Reply,
        unscheduled_bytes: u64,
    ) -> bool {
        let is_of_root = task.path.as_wire() == FIRST_BRANCH;
        let is_sole = fan::is_sole(reply, unscheduled_bytes);
        if self.answer.is_some() || !is_of_root || !is_sole || !fan::is_admitted(by, task, self.to)
        {
            return false;
        }
        let payload = std::mem::take(&mut reply.payload);
        self.answer = Some(Answer { by, hop: task.hop, payload });
        true
    }
}

/// The path of the only branch.
const FIRST_BRANCH: &[u8] = &[0];

#[cfg(test)]
mod tests;
