//! A call whose branches reply once each, which most calls are, kept flat.
//!
//! It knows what a [`Call`](super::call::Call) knows right after its requests have left, and one
//! thing more: the replies that complete it. Whatever else happens to it (any other frame, worry, a
//! lost connection, a cancel) makes a full call of it first, which takes what happened as it would
//! have from the start; so a flat call decides nothing of its own.
//!
//! ```text
//!  open ──the sole reply of each branch──▶ complete ──let go──▶ gone
//!    │                                        │
//!    └────anything else, age──────────────────┴──▶ a full call
//! ```
//!
//! Flat calls lie in a ring by number. All are given the same time before they become full calls,
//! so the oldest is always the next one due, and one timer serves them all.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::id::{CallId, Incarnation, LinkId, NodeId, TaskKey};
use crate::key::Secret;
use crate::time::Timestamp;
use crate::wire::{Reply, ReplyKind, Status};

use super::call::{CallOptions, Delivered, End, root_path};
use super::mutant::{self, Mutant};
use super::{Arrival, Outbound};

/// The most branches of a flat call: what it holds is bounded by what they may send without being
/// asked.
pub(crate) const FLAT_BRANCHES_MAX: usize = 64;

/// The call.
#[derive(Debug)]
pub(crate) struct Flat {
    pub(crate) opened_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) options: CallOptions,
    /// Its branches, by index. Most have one.
    pub(crate) legs: SmallVec<[Leg; 1]>,
    /// Number of replies that came, and when the last of them did.
    pub(crate) heard: u32,
    pub(crate) heard_at: Timestamp,
    /// Number of them that were read.
    pub(crate) read: u32,
    /// For how many unread replies its reader waits.
    pub(crate) wake_after: usize,
    /// Its caller has enough; what still comes only settles it.
    pub(crate) is_decided: bool,
}

/// One branch: where its request went, by which connection and to which life of the node.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) to: NodeId,
    pub(crate) link: LinkId,
    pub(crate) life: Option<Incarnation>,
    /// When this branch ends, whatever becomes of the others.
    pub(crate) deadline: Timestamp,
    pub(crate) answer: Option<Answer>,
}

/// The sole reply of a branch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Place of the reply among those of the call, in order of arrival.
    pub(crate) nth: u32,
    pub(crate) by: Arrival,
    /// Tail transfers until it was given.
    pub(crate) hop: u32,
    /// Gone once it was read.
    pub(crate) payload: Bytes,
}

impl Flat {
    /// A call without branches, which is to have so many.
    #[inline]
    pub(crate) fn new(
        opened_at: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        legs: usize,
    ) -> Self {
        Self {
            opened_at,
            deadline,
            options,
            legs: SmallVec::with_capacity(legs),
            heard: 0,
            heard_at: opened_at,
            read: 0,
            wake_after: options.wake_after.max(1) as usize,
            is_decided: false,
        }
    }

    /// True when a frame counts, as [`Call::admits`](super::call::Call::admits) has it.
    pub(crate) fn admits(
        &self,
        by: &Arrival,
        (call, task): (CallId, &TaskKey),
        secret: &Secret,
    ) -> bool {
        match by.key {
            Some(key) => secret.branch(call, &task.path) == Some(key),
            None => {
                let index = task.path.root_index().filter(|_| task.hop == 0);
                let mut leg = index.and_then(|index| self.legs.get(index as usize));
                if mutant::is(Mutant::AnyAskedSpeaksForRoots) {
                    leg = self.legs.iter().find(|leg| leg.link == by.link);
                }
                !by.is_relayed() && leg.is_some_and(|leg| leg.link == by.link)
            }
        }
    }

    /// True when a STATUS counts, as [`Call::admits_any`](super::call::Call::admits_any) has it.
    pub(crate) fn admits_any(&self, call: CallId, status: &Status, secret: &Secret) -> bool {
        status.tasks.iter().any(|(asked, _)| secret.is_answer(call, asked))
    }

    /// Takes the sole reply of a branch, which counts. False when it is anything else: the call
    /// must then be a full one before it hears of it.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        reply: &mut Reply,
        whole_bytes_max: u64,
    ) -> bool {
        let Some(index) = task.path.root_index() else { return false };
        let Some(leg) = self.legs.get_mut(index as usize) else { return false };
        if leg.answer.is_some() || by.is_relayed() || !is_sole(reply, whole_bytes_max) {
            return false;
        }
        let payload =
            if self.is_decided { Bytes::new() } else { std::mem::take(&mut reply.payload) };
        leg.answer = Some(Answer { nth: self.heard, by, hop: task.hop, payload });
        self.heard += 1;
        self.heard_at = now;
        true
    }

    /// The next reply, unless its caller has enough.
    pub(crate) fn poll_reply(&mut self) -> Option<Delivered> {
        if self.is_decided { None } else { self.next_reply() }
    }

    /// All replies that come next, in `ahead`: at most one of each branch, none larger than what
    /// may be sent without being asked for. So nothing is granted anew.
    pub(crate) fn poll_ahead(&mut self, ahead: &mut VecDeque<Delivered>) {
        let unread = (self.heard - self.read) as usize;
        ahead.reserve(unread);
        ahead.extend(std::iter::from_fn(|| self.next_reply()).take(unread));
    }

    fn next_reply(&mut self) -> Option<Delivered> {
        let read = self.read;
        let (index, answer) = (0..).zip(&mut self.legs).find_map(|(index, leg)| {
            leg.answer.as_mut().filter(|answer| answer.nth == read).map(|answer| (index, answer))
        })?;
        self.read += 1;
        self.wake_after = 1;
        let payload = std::mem::take(&mut answer.payload);
        Some(Delivered::sole(root_path(index), answer.by, payload))
    }

    /// Lets go of what this node itself has answered, and nobody has read: an owner of the message
    /// may be called as it is dropped.
    pub(crate) fn let_go(&mut self, out: &mut VecDeque<Outbound>) {
        let own = self.legs.iter_mut().filter(|leg| leg.link == LinkId::LOCAL);
        let unread = own.filter_map(|leg| leg.answer.as_mut());
        out.extend(unread.filter_map(|it| Outbound::spent(std::mem::take(&mut it.payload))));
    }

    /// Nobody reads it any more, and what is still to come is not called back.
    pub(crate) fn decide(&mut self) {
        self.is_decided = true;
        self.read = self.heard;
        for answer in self.legs.iter_mut().filter_map(|leg| leg.answer.as_mut()) {
            answer.payload = Bytes::new();
        }
    }

    /// True when every branch has replied.
    pub(crate) fn is_complete(&self) -> bool {
        self.heard as usize == self.legs.len()
    }

    /// True when its reader knows all but the end.
    pub(crate) fn is_told(&self) -> bool {
        self.is_complete() && self.read == self.heard
    }

    /// The end that it came to, once it has.
    pub(crate) fn end(&self) -> Option<End> {
        if self.is_decided {
            return Some(End::Decided);
        }
        self.is_complete().then_some(End::Complete)
    }

    /// True when its reader waits for no more than what is there.
    pub(crate) fn is_worth_waking(&self) -> bool {
        let unread = (self.heard - self.read) as usize;
        !self.is_decided && (unread >= self.wake_after || self.is_complete())
    }
}

/// True when a reply is all that its task says, and came whole without being asked for.
fn is_sole(reply: &Reply, whole_bytes_max: u64) -> bool {
    reply.is_final
        && reply.index == 0
        && reply.kind == ReplyKind::Message
        && reply.part.is_none()
        && reply.payload.len() as u64 <= whole_bytes_max
        && reply.own_entry.is_none()
        && reply.inherited.is_empty()
        && reply.extensions.is_empty()
}

#[cfg(test)]
mod tests;
