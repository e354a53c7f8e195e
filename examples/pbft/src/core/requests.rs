//! Requests that are known and not executed: at most so many of each client.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group::ClientId;
use super::message::{SignedRequest, Vouch};

type Key = (ClientId, u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) signed: SignedRequest,
    /// The word of this node about it, where connections prove requests.
    vouch: Option<Vouch>,
    /// When it was heard of, or backed.
    since: Duration,
    /// So many vouch for it that all will believe it. Signed ones are believed by all.
    is_backed: bool,
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
    /// Arrivals before this one were passed on last time.
    passed: u64,
}

impl Requests {
    pub(super) fn new(each_max: usize) -> Self {
        let (by_arrival, by_key) = (BTreeMap::new(), BTreeMap::new());
        Self { each_max, arrivals: 0, by_arrival, by_key, passed: 0 }
    }

    /// Takes a request that is signed. True when it is new, and there was room.
    pub(super) fn insert(&mut self, now: Duration, signed: SignedRequest) -> bool {
        self.put(now, signed, None)
    }

    /// Takes a request that this node vouches for. True when it is new, and there was room.
    pub(super) fn insert_vouched(
        &mut self,
        now: Duration,
        signed: SignedRequest,
        vouch: Vouch,
    ) -> bool {
        self.put(now, signed, Some(vouch))
    }

    fn put(&mut self, now: Duration, signed: SignedRequest, vouch: Option<Vouch>) -> bool {
        let key = (signed.request.client, signed.request.number);
        let of_client = (key.0, 0)..=(key.0, u64::MAX);
        if self.by_key.contains_key(&key) || self.by_key.range(of_client).count() >= self.each_max {
            return false;
        }
        self.by_key.insert(key, self.arrivals);
        let is_backed = vouch.is_none();
        let waiting = Waiting { signed, vouch, since: now, is_backed, is_proposed: false };
        self.by_arrival.insert(self.arrivals, waiting);
        self.arrivals += 1;
        true
    }

    /// The word of this node about a request that it vouches for.
    pub(super) fn vouch_of(&self, client: ClientId, number: u64) -> Option<Vouch> {
        let at = self.by_key.get(&(client, number))?;
        self.by_arrival.get(at)?.vouch
    }

    /// Its word about all of them.
    pub(super) fn vouches(&self) -> impl Iterator<Item = Vouch> {
        self.by_arrival.values().filter_map(|waiting| waiting.vouch)
    }

    /// So many vouch for it that all will believe it: its clock runs from now on.
    pub(super) fn back(&mut self, now: Duration, vouch: Vouch) {
        let at = self.by_key.get(&(vouch.client, vouch.number));
        let waiting = at.and_then(|at| self.by_arrival.get_mut(at));
        if let Some(waiting) = waiting.filter(|waiting| !waiting.is_backed) {
            (waiting.is_backed, waiting.since) = (true, now);
        }
    }

    /// Requests that have waited since then, so many and with so many bytes at most, and one at
    /// least. Each time those behind the last ones, so that none is kept from its turn.
    pub(super) fn next_passed(
        &mut self,
        before: Duration,
        count: usize,
        bytes: usize,
    ) -> Vec<SignedRequest> {
        let turn = self.by_arrival.range(self.passed..).chain(self.by_arrival.range(..self.passed));
        let (mut passed, mut room, mut last) = (Vec::new(), bytes, None);
        for (at, waiting) in turn.filter(|(_, waiting)| waiting.since <= before).take(count) {
            let size = waiting.signed.request.operation.len();
            if size > room && !passed.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            last = Some(*at);
            passed.push(waiting.signed.clone());
        }
        self.passed = last.map_or(0, |last| last + 1);
        passed
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

    /// Since when the one has waited that waits longest, of those that all believe.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let backed = self.by_arrival.values().filter(|waiting| waiting.is_backed);
        let mut since = backed.map(|waiting| (waiting.since, waiting.vouch.is_none()));
        let (first, is_signed) = since.next()?;
        // Signed ones stand in the order of their times.
        Some(if is_signed { first } else { since.map(|(at, _)| at).fold(first, Duration::min) })
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

    /// Requests that all believe and no batch of this view has, the oldest first.
    pub(super) fn unproposed(&self) -> impl Iterator<Item = &SignedRequest> {
        let is_open = |waiting: &&Waiting| waiting.is_backed && !waiting.is_proposed;
        let waiting = self.by_arrival.values().filter(is_open);
        waiting.map(|waiting| &waiting.signed)
    }
}
