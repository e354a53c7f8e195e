//! Votes for clients that count them: a leader has the voters asked, and voters answer.

use std::pin::pin;
use std::task::{Context, Poll as Polling, Waker};

use convoke::{NodeId, Request, Task};

use super::Actor;
use crate::core::{Ballot, Slot, majority};
use crate::node::polls::{Poll, Polled, other_ledger};
use crate::node::requests::Waiter;
use crate::proto::{Reply, paxos};

impl Actor {
    /// Lets votes answer clients that count them, where the result is certain: this node's, and
    /// those of as many others as make a majority, at each of which it opens a branch of the
    /// client's call. One for whom there are fewer waits for the result, as others do.
    pub(super) fn ask_votes(&mut self, ballot: Ballot, slot: Slot, is_certain: &[bool]) {
        let Some(voters) = self.replica.electorate(slot) else { return };
        let own = self.options.core.node;
        let of = |life| Polled { ballot, slot, life, voters: voters.len() as u64 };
        let request = |of: Polled| paxos::VOTE.request(of.question(self.options.cluster));
        let others = voters.iter().filter(|(node, _)| *node != own);
        let others: Vec<_> = others.map(|(node, life)| (*node, request(of(*life)))).collect();
        let enough = majority(voters.len()) - 1;
        let is_polled = |waiter: &Waiter| {
            let task = waiter.task.task();
            others.iter().filter(|(node, poll)| open(task, *node, poll)).take(enough).count()
                == enough
        };
        let most = self.options.requests_max;
        for Waiter { task, room, .. } in self.requests.take_polled(slot, is_certain, is_polled) {
            self.polled += 1;
            let poll = Poll { task, _room: Some(room) };
            self.polls.add(of(self.replica.life()), poll, most);
        }
    }

    /// Answers a client once this node has voted, if it is with the ledger that counts.
    pub(super) fn poll(&mut self, polled: Polled, poll: Poll) {
        if polled.life != self.replica.life() {
            return poll.task.fail(other_ledger());
        }
        self.polls.add(polled, poll, self.options.requests_max);
    }
}

/// Opens a branch, if the connection has room now: the actor does not wait for it.
fn open(task: &Task<Reply>, node: NodeId, poll: &Request<Reply>) -> bool {
    let opening = pin!(task.delegate(node, poll.clone()));
    let opened = opening.poll(&mut Context::from_waker(Waker::noop()));
    matches!(opened, Polling::Ready(Ok(())))
}
