//! Clients that wait for replies.

use std::collections::BTreeMap;

use convoke::{Code, Deferred, NodeId, Status};

use crate::core::ClientId;
use crate::proto::Answer;

/// Places of one asker for one client: the oldest number gives way.
const NUMBERS_MAX: usize = 32;

/// Askers beside the replicas that wait for one client, at most.
const ASKERS_MAX: usize = 8;

/// One who waits for the reply to a request, asked by `asker` for a client.
///
/// Replicas ask for clients that asked them. So that none of them takes the place of another, each
/// asker has places of its own.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: ClientId,
    pub(super) number: u64,
    pub(super) asker: NodeId,
    pub(super) task: Deferred<Answer>,
}

/// All who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    places: BTreeMap<(ClientId, NodeId), BTreeMap<u64, Deferred<Answer>>>,
    count: usize,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes one who waits. Replicas among those that ask have room beside the others.
    pub(super) fn insert(&mut self, waiter: Waiter, is_member: impl Fn(NodeId) -> bool) {
        let Waiter { client, number, asker, task } = waiter;
        if !self.has_room(client, asker, is_member) {
            return task.fail(no_room());
        }
        let numbers = self.places.entry((client, asker)).or_default();
        self.count += 1;
        let before = numbers.insert(number, task);
        let oldest = (numbers.len() > NUMBERS_MAX).then(|| numbers.pop_first()).flatten();
        for task in before.into_iter().chain(oldest.map(|(_, task)| task)) {
            self.count -= 1;
            task.fail(Status::new(Code::Aborted, "it was asked for again, or is too old"));
        }
    }

    fn has_room(
        &self,
        client: ClientId,
        asker: NodeId,
        is_member: impl Fn(NodeId) -> bool,
    ) -> bool {
        let others = || self.of(client).filter(|(_, asker)| !is_member(*asker)).count();
        let is_known = self.places.contains_key(&(client, asker));
        is_known || is_member(asker) || others() < ASKERS_MAX
    }

    fn of(&self, client: ClientId) -> impl Iterator<Item = (ClientId, NodeId)> + '_ {
        let from = (client, NodeId::new(1));
        let places = self.places.range(from..).map(|(place, _)| *place);
        places.take_while(move |(of, _)| *of == client)
    }

    /// Those who wait for this reply.
    pub(super) fn take(&mut self, client: ClientId, number: u64) -> Vec<Deferred<Answer>> {
        let mut found = Vec::new();
        for place in self.of(client).collect::<Vec<_>>() {
            let Some(numbers) = self.places.get_mut(&place) else { continue };
            found.extend(numbers.remove(&number));
            if numbers.is_empty() {
                self.places.remove(&place);
            }
        }
        self.count -= found.len();
        found
    }

    /// Lets go of those who have given up.
    pub(super) fn sweep(&mut self) {
        self.places.retain(|_, numbers| {
            numbers.retain(|_, task| !task.is_stopped());
            !numbers.is_empty()
        });
        self.count = self.places.values().map(BTreeMap::len).sum();
    }
}

fn no_room() -> Status {
    let text = "too many wait for this client: its request may run, or not";
    Status::new(Code::ResourceExhausted, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten replicas ask for a client, of whom some may lie, and nodes that are none.
    #[test]
    fn replicas_that_ask_for_a_client_leave_it_room() {
        let (client, is_member) = (ClientId(7), |node: NodeId| node.get() <= 10);
        let mut waiters = Waiters::default();
        for asker in (1..=10).chain(100..107).map(NodeId::new) {
            assert!(waiters.has_room(client, asker, is_member), "{asker}");
            waiters.places.entry((client, asker)).or_default();
        }
        assert!(waiters.has_room(client, NodeId::new(200), is_member), "the client itself");
        waiters.places.entry((client, NodeId::new(200))).or_default();
        assert!(!waiters.has_room(client, NodeId::new(201), is_member), "one more than have room");
        assert!(waiters.has_room(client, NodeId::new(200), is_member), "it has its place");
    }
}
