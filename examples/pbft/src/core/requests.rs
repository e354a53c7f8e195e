//! Requests that are known and not executed: at most so many of each client.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group::ClientId;
use super::message::SignedRequest;

type Key = (ClientId, u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) signed: SignedRequest,
    /// When it was heard of.
    since: Duration,
    /// A batch of this view has it.
    is_proposed: bool,
}

/// Requests in the order in which they came.
///
/// A client has as many places as its session tells requests apart, so none takes those of another.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    each_max: usize,
    arrivals: u64,
    by_arrival: BTreeMap<u64, Waiting>,
    by_key: BTreeMap<Key, u64>,
}

impl Requests {
    pub(super) fn new(each_max: usize) -> Self {
        let (by_arrival, by_key) = (BTreeMap::new(), BTreeMap::new());
        Self { each_max, arrivals: 0, by_arrival, by_key }
    }

    /// Takes a request. True when it is new, and there was room.
    pub(super) fn insert(&mut self, now: Duration, signed: SignedRequest) -> bool {
        let key = (signed.request.client, signed.request.number);
        let of_client = (key.0, 0)..=(key.0, u64::MAX);
        if self.by_key.contains_key(&key) || self.by_key.range(of_client).count() >= self.each_max {
            return false;
        }
        self.by_key.insert(key, self.arrivals);
        let waiting = Waiting { signed, since: now, is_proposed: false };
        self.by_arrival.insert(self.arrivals, waiting);
        self.arrivals += 1;
        true
    }

    /// A batch of this view has it.
    pub(super) fn propose(&mut self, key: Key) {
        let waiting = self.by_key.get(&key).and_then(|at| self.by_arrival.get_mut(at));
        if let Some(waiting) = waiting {
            waiting.is_proposed = true;
        }
    }

    /// Nothing is proposed: a view begins.
    pub(super) fn begin_view(&mut self) {
        self.by_arrival.values_mut().for_each(|waiting| waiting.is_proposed = false);
    }

    /// Forgets a request, and says since when it had waited.
    pub(super) fn remove(&mut self, key: Key) -> Option<Duration> {
        let at = self.by_key.remove(&key)?;
        self.by_arrival.remove(&at).map(|waiting| waiting.since)
    }

    /// Forgets those that are decided.
    pub(super) fn retain(&mut self, is_open: impl Fn(ClientId, u64) -> bool) {
        let decided: Vec<Key> = self
            .by_key
            .keys()
            .filter(|(client, number)| !is_open(*client, *number))
            .copied()
            .collect();
        for key in decided {
            self.remove(key);
        }
    }

    /// Since when the one has waited that waits longest.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.by_arrival.values().next().map(|waiting| waiting.since)
    }

    pub(super) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// The next batch: of those that no batch of this view has the oldest, so many and with so many
    /// bytes at most, and one at least.
    pub(super) fn next_batch(&self, count: usize, bytes: usize) -> Vec<SignedRequest> {
        let mut batch = Vec::new();
        let mut room = bytes;
        for signed in self.unproposed().take(count) {
            let size = signed.request.operation.len();
            if size > room && !batch.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            batch.push(signed.clone());
        }
        batch
    }

    /// Requests that no batch of this view has, the oldest first.
    pub(super) fn unproposed(&self) -> impl Iterator<Item = &SignedRequest> {
        let waiting = self.by_arrival.values().filter(|waiting| !waiting.is_proposed);
        waiting.map(|waiting| &waiting.signed)
    }
}
