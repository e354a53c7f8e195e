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

    /// Takes one who waits; `is_member` when it is a replica that asks.
    pub(super) fn insert(&mut self, waiter: Waiter, is_member: bool) {
        let Waiter { client, number, asker, task } = waiter;
        let known = self.places.contains_key(&(client, asker));
        if !known && !is_member && self.askers(client) >= ASKERS_MAX {
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

    fn askers(&self, client: ClientId) -> usize {
        self.of(client).count()
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
    Status::new(Code::ResourceExhausted, "too many wait for this client").without_effect()
}
