//! Requests that are known and not executed: at most so many of each client.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group::{ClientId, Digest};
use super::message::{Request, SignedRequest, Vouch};

/// A client that lies may make several requests by one number, which connections prove: the digest
/// tells them apart. Of signed ones the first counts, and has the lowest digest.
type Key = (ClientId, u64, Digest);

const LOWEST: Digest = Digest([0; 32]);
const HIGHEST: Digest = Digest([u8::MAX; 32]);

fn key(signed: &SignedRequest, vouch: Option<Vouch>) -> Key {
    let Request { client, number, .. } = signed.request;
    (client, number, vouch.map_or(LOWEST, |vouch| vouch.digest))
}

/// A request that waits.
#[derive(Clone, Debug, Hash)]
pub(super) struct Waiting {
    pub(super) signed: SignedRequest,
    digest: Digest,
    /// The word of this node about it, where connections prove requests.
    vouch: Option<Vouch>,
    /// When it was heard of, or backed.
    since: Duration,
    /// So many vouch for it that all will believe it. Signed ones are believed by all.
    is_backed: bool,
    /// A batch of this view has it.
    is_proposed: bool,
}

impl Waiting {
    fn is_unproposed(&self) -> bool {
        self.is_backed && !self.is_proposed
    }
}

/// Requests in the order in which they came.
///
/// A client has as many places as its session tells requests apart, so none takes those of another.
#[derive(Clone, Debug, Hash)]
pub(super) struct Requests {
    each_max: usize,
    arrivals: u64,
    by_arrival: BTreeMap<u64, Waiting>,
    by_key: BTreeMap<Key, u64>,
    by_digest: BTreeMap<Digest, u64>,
    /// Count of those that a batch of this view has.
    proposed: usize,
    /// Arrivals before this one were passed on last time.
    passed: u64,
}

impl Requests {
    pub(super) fn new(each_max: usize) -> Self {
        let (by_arrival, by_key) = (BTreeMap::new(), BTreeMap::new());
        let by_digest = BTreeMap::new();
        Self { each_max, arrivals: 0, by_arrival, by_key, by_digest, proposed: 0, passed: 0 }
    }

    /// Takes a request that is signed. True when it is new, and there was room.
    pub(super) fn insert(&mut self, now: Duration, signed: SignedRequest) -> bool {
        self.put(now, signed, None, self.each_max)
    }

    /// Takes a request that this node vouches for; `is_shared` when others do, of whom one does not
    /// lie. True when it is new, and there was room.
    ///
    /// What this node has vouched for it keeps: others may count on it. So what they believe has
    /// places beside those that a client can fill here alone. Each of n members vouches for as many
    /// by itself, so there are never more.
    pub(super) fn insert_vouched(
        &mut self,
        now: Duration,
        signed: SignedRequest,
        (vouch, is_shared): (Vouch, bool),
        members: usize,
    ) -> bool {
        let places = if is_shared { members + 1 } else { 1 };
        self.put(now, signed, Some(vouch), places * self.each_max)
    }

    fn put(
        &mut self,
        now: Duration,
        signed: SignedRequest,
        vouch: Option<Vouch>,
        room: usize,
    ) -> bool {
        let key = key(&signed, vouch);
        let of_client = (key.0, 0, LOWEST)..=(key.0, u64::MAX, HIGHEST);
        if self.by_key.contains_key(&key) || self.by_key.range(of_client).count() >= room {
            return false;
        }
        self.by_key.insert(key, self.arrivals);
        let (digest, is_backed) = (signed.digest(), vouch.is_none());
        self.by_digest.insert(digest, self.arrivals);
        let waiting = Waiting { signed, digest, vouch, since: now, is_backed, is_proposed: false };
        self.by_arrival.insert(self.arrivals, waiting);
        self.arrivals += 1;
        true
    }

    /// True when this node vouches for it.
    pub(super) fn vouches_for(&self, vouch: Vouch) -> bool {
        self.by_key.contains_key(&(vouch.client, vouch.number, vouch.digest))
    }

    /// The request with this digest.
    pub(super) fn find(&self, digest: &Digest) -> Option<&SignedRequest> {
        let waiting = self.by_arrival.get(self.by_digest.get(digest)?)?;
        Some(&waiting.signed)
    }

    /// Its word about all of them.
    pub(super) fn vouches(&self) -> impl Iterator<Item = Vouch> {
        self.by_arrival.values().filter_map(|waiting| waiting.vouch)
    }

    /// So many vouch for it that all will believe it: its clock runs from now on.
    pub(super) fn back(&mut self, now: Duration, vouch: Vouch) {
        let at = self.by_key.get(&(vouch.client, vouch.number, vouch.digest));
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
        self.next_turn(count, bytes, |waiting| waiting.since <= before)
    }

    /// The same of those that all believe and no batch of this view has, however long they wait.
    pub(super) fn next_unproposed(&mut self, count: usize, bytes: usize) -> Vec<SignedRequest> {
        self.next_turn(count, bytes, Waiting::is_unproposed)
    }

    fn next_turn(
        &mut self,
        count: usize,
        bytes: usize,
        is_meant: impl Fn(&Waiting) -> bool,
    ) -> Vec<SignedRequest> {
        let turn = self.by_arrival.range(self.passed..).chain(self.by_arrival.range(..self.passed));
        let (mut passed, mut room, mut last) = (Vec::new(), bytes, None);
        for (at, waiting) in turn.filter(|(_, waiting)| is_meant(waiting)).take(count) {
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

    /// A batch of this view has it; all requests by its number with it.
    pub(super) fn propose(&mut self, client: ClientId, number: u64) {
        let places = self.by_key.range((client, number, LOWEST)..=(client, number, HIGHEST));
        for (_, at) in places {
            if let Some(waiting) = self.by_arrival.get_mut(at) {
                self.proposed += usize::from(!waiting.is_proposed);
                waiting.is_proposed = true;
            }
        }
    }

    /// Nothing is proposed: a view begins.
    pub(super) fn begin_view(&mut self) {
        self.by_arrival.values_mut().for_each(|waiting| waiting.is_proposed = false);
        self.proposed = 0;
    }

    /// Forgets all requests by a number, and says since when one has waited.
    pub(super) fn remove(&mut self, client: ClientId, number: u64) -> Option<Duration> {
        let places = self.by_key.range((client, number, LOWEST)..=(client, number, HIGHEST));
        let places: Vec<(Key, u64)> = places.map(|(key, at)| (*key, *at)).collect();
        let mut since = None;
        for (key, at) in places {
            self.by_key.remove(&key);
            let Some(waiting) = self.by_arrival.remove(&at) else { continue };
            self.by_digest.remove(&waiting.digest);
            self.proposed -= usize::from(waiting.is_proposed);
            since = since.or(Some(waiting.since));
        }
        since
    }

    /// Forgets those that are decided.
    pub(super) fn retain(&mut self, is_open: impl Fn(ClientId, u64) -> bool) {
        let numbers = self.by_key.keys().map(|(client, number, _)| (*client, *number));
        let decided: Vec<_> =
            numbers.filter(|(client, number)| !is_open(*client, *number)).collect();
        for (client, number) in decided {
            self.remove(client, number);
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

    /// Count of those that a batch of this view has.
    pub(super) fn proposed(&self) -> usize {
        self.proposed
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
        let waiting = self.by_arrival.values().filter(|waiting| waiting.is_unproposed());
        waiting.map(|waiting| &waiting.signed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::signature::Signature;

    fn signed(client: u64, number: u64) -> SignedRequest {
        let request = Request { client: ClientId(client), number, operation: "x".into() };
        SignedRequest { request, signature: Signature([0; 64]) }
    }

    proptest! {
        /// The count of those proposed is theirs whatever comes and goes.
        #[test]
        fn those_proposed_are_counted(
            steps in prop::collection::vec((0..6, 0..4_u64, 0..4_u64), 0..99)
        ) {
            let mut requests = Requests::new(3);
            for (step, client, number) in steps {
                match step {
                    0..3 => drop(requests.insert(Duration::ZERO, signed(client, number))),
                    3 => requests.propose(ClientId(client), number),
                    4 => drop(requests.remove(ClientId(client), number)),
                    _ if number == 0 => requests.begin_view(),
                    _ => requests.retain(|of, at| of.0 != client || at > number),
                }
                let proposed = requests.by_arrival.values().filter(|waiting| waiting.is_proposed);
                prop_assert_eq!(requests.proposed(), proposed.count());
                let unproposed = requests.unproposed().count();
                prop_assert_eq!(requests.len(), requests.proposed() + unproposed);
            }
        }
    }
}
