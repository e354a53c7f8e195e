//! A flat call of several branches, or one whose replies are read one by one.

use std::task::Waker;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::id::{Incarnation, LinkNonce, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Reply, ReplyKind};

use super::super::Arrival;
use super::super::call::CallOptions;
use super::Answer;

/// The call.
#[derive(Debug)]
pub(crate) struct Fan {
    pub(crate) opened_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) options: CallOptions,
    /// The branches, by index.
    pub(crate) legs: SmallVec<[Leg; 4]>,
    /// What came, in order, and of which branch. The payload of what was read is gone.
    pub(crate) answers: SmallVec<[(u32, Answer); 4]>,
    /// When the last of it came.
    pub(crate) heard_at: Timestamp,
    pub(crate) read: usize,
    /// Who waits for it, and for how many unread replies.
    pub(crate) waker: Option<Waker>,
    pub(crate) wake_after: usize,
    pub(crate) reading: Reading,
}

/// How far the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It reads replies.
    Replies,
    /// It has read them all, and the end.
    Ended,
    /// It has enough; what still comes only settles the call.
    Decided,
}

/// One branch: where its request went, by which connection and to which life of the node.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) to: NodeId,
    /// `None` to this node itself.
    pub(crate) link: Option<LinkNonce>,
    pub(crate) life: Option<Incarnation>,
    pub(crate) is_answered: bool,
}

/// What a fan has for its reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Nothing,
    Reply { index: u32, by: Arrival, payload: Bytes },
    End,
}

impl Fan {
    pub(crate) fn new(
        opened_at: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        legs: impl Iterator<Item = Leg>,
    ) -> Self {
        Self {
            opened_at,
            deadline,
            options,
            legs: legs.collect(),
            answers: SmallVec::new(),
            heard_at: opened_at,
            read: 0,
            waker: None,
            wake_after: 1,
            reading: Reading::Replies,
        }
    }

    /// Takes the sole reply of a branch. False when it is anything else: the call must then be a full one
    /// before it hears of it.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        reply: &mut Reply,
        unscheduled_bytes: u64,
    ) -> bool {
        let mut indices = task.path.indices();
        let (Some(index), None) = (indices.next(), indices.next()) else { return false };
        let Some(leg) = self.legs.get_mut(index as usize) else { return false };
        if leg.is_answered || !is_sole(reply, unscheduled_bytes) || !is_admitted(by, task, leg.to) {
            return false;
        }
        leg.is_answered = true;
        self.heard_at = now;
        let mut payload = std::mem::take(&mut reply.payload);
        if self.reading == Reading::Decided {
            payload = Bytes::new();
        }
        self.answers.push((index, Answer { by, hop: task.hop, payload }));
        true
    }

    /// The next reply, or the end.
    pub(crate) fn read(&mut self) -> Read {
        if self.reading != Reading::Replies {
            return Read::Nothing;
        }
        if let Some((index, answer)) = self.answers.get_mut(self.read) {
            self.read += 1;
            self.wake_after = 1;
            let payload = std::mem::take(&mut answer.payload);
            return Read::Reply { index: *index, by: answer.by, payload };
        }
        if self.is_complete() {
            self.reading = Reading::Ended;
            return Read::End;
        }
        Read::Nothing
    }

    /// Nobody reads it any more, and what is still to come is not called back.
    pub(crate) fn decide(&mut self) {
        self.reading = Reading::Decided;
        self.read = self.answers.len();
        for (_, answer) in &mut self.answers {
            answer.payload = Bytes::new();
        }
    }

    /// Whether every branch has replied.
    pub(crate) fn is_complete(&self) -> bool {
        self.answers.len() == self.legs.len()
    }

    /// Whether its reader waits for no more than what is there.
    pub(crate) fn is_worth_waking(&self) -> bool {
        let unread = self.answers.len() - self.read;
        self.reading == Reading::Replies && (unread >= self.wake_after || self.is_complete())
    }
}

/// Whether a reply is all that its task says, and came whole without being asked for.
pub(super) fn is_sole(reply: &Reply, unscheduled_bytes: u64) -> bool {
    reply.is_final
        && reply.index == 0
        && reply.kind == ReplyKind::Message
        && reply.part.is_none()
        && reply.payload.len() as u64 <= unscheduled_bytes
        && reply.own_entry.is_none()
        && reply.inherited.is_empty()
}

/// Whether a reply came from who may speak for a root branch, as `admission` has it: the branch speaks for
/// itself; who serves a tail of it is first heard of now.
pub(super) fn is_admitted(by: Arrival, task: &TaskKey, holder: NodeId) -> bool {
    by.via == by.from && (task.hop > 0 || by.from == holder)
}

#[cfg(test)]
mod tests;
