//! Polls: clients that count votes, and wait for this node's.

use std::collections::BTreeMap;

use convoke::{Code, Deferred, Status};
use node_kit::places::Place;

use crate::core::{Answer, Ballot, Life, Slot};
use crate::proto::{self, Reply, Vote, reply};
use crate::wire;

/// The vote that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Polled {
    pub(super) ballot: Ballot,
    pub(super) slot: Slot,
    /// The ledger whose vote counts.
    pub(super) life: Life,
    /// Those who vote on the slot.
    pub(super) voters: u64,
}

impl Polled {
    fn place(self) -> (Ballot, Slot) {
        (self.ballot, self.slot)
    }

    /// The question after it, within a cluster.
    pub(super) fn question(self, cluster: u64) -> proto::Poll {
        let Self { ballot, slot, life, voters } = self;
        proto::Poll { cluster, slot: slot.0, ballot: Some(ballot.into()), life, voters }
    }

    fn vote(self) -> Reply {
        let Self { ballot, slot, voters, .. } = self;
        reply::Result::Vote(Vote { slot: slot.0, ballot: Some(ballot.into()), voters }).into()
    }
}

impl From<proto::Poll> for Polled {
    fn from(poll: proto::Poll) -> Self {
        let proto::Poll { slot, ballot, life, voters, .. } = poll;
        Self { ballot: wire::ballot(ballot), slot: Slot(slot), life, voters }
    }
}

/// A client that waits for a vote.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) task: Deferred<Reply>,
    /// Room that its request takes, where that came to this node.
    pub(super) _room: Option<Place>,
}

/// Those who wait, in the order of what they wait for.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// It has been said that this node has voted in this ballot for all slots up to this one, or
    /// knows them to be chosen; of slot 0, that it has promised the ballot.
    said: (Ballot, Slot),
    waiting: BTreeMap<(Ballot, Slot), Vec<(Polled, Poll)>>,
    count: usize,
}

impl Polls {
    /// Answers at once, or when this node says that it has voted so. As many as `most` wait.
    pub(super) fn add(&mut self, polled: Polled, poll: Poll, most: usize) {
        if polled.place() <= self.said {
            return self.answer(polled, poll);
        }
        if self.count >= most {
            self.forget_stopped();
        }
        if self.count >= most {
            return poll.task.fail(too_many());
        }
        self.count += 1;
        self.waiting.entry(polled.place()).or_default().push((polled, poll));
    }

    /// This node gives an answer: what it says is durable.
    pub(super) fn said(&mut self, answer: &Answer) {
        let said = match answer {
            Answer::Accepted { ballot, accepted, .. } => (*ballot, *accepted),
            Answer::Promise { ballot, .. } => (*ballot, Slot::default()),
            _ => return,
        };
        self.said = self.said.max(said);
        while let Some(first) = self.waiting.first_entry()
            && *first.key() <= self.said
        {
            for (polled, poll) in first.remove() {
                self.count -= 1;
                self.answer(polled, poll);
            }
        }
    }

    fn answer(&self, polled: Polled, poll: Poll) {
        if polled.ballot == self.said.0 {
            let _ = poll.task.answer(&polled.vote()); // an error: who asked has given up
        } else {
            poll.task.fail(other_ballot());
        }
    }

    /// Lets go of those who have given up.
    fn forget_stopped(&mut self) {
        self.waiting.retain(|_, polls| {
            polls.retain(|(_, poll)| !poll.task.is_stopped());
            !polls.is_empty()
        });
        self.count = self.waiting.values().map(Vec::len).sum();
    }
}

/// The word of a node whose vote would not count.
pub(super) fn other_ledger() -> Status {
    Status::new(Code::Aborted, "the votes of another ledger of this node count")
}

/// The word of a node that has no room for another who waits. What is voted on may run.
fn too_many() -> Status {
    Status::new(Code::Aborted, "too many clients wait for votes here")
}

/// The word of a node that will not vote as was hoped, or has voted otherwise since.
fn other_ballot() -> Status {
    Status::new(Code::Aborted, "a later ballot is under way: the request may run, or not")
}
