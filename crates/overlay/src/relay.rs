//! Relaying: what roots may have queued here, and what they do have.
//!
//! A relay always keeps reading: a frame it may not queue is still taken as its receiver, and only
//! not forwarded. That is what keeps relays that serve each other in a cycle from blocking, and the
//! credit keeps it from happening.

use std::collections::BTreeMap;

use crate::site::Site;
use crate::wire::{Data, Forward};

/// Credit that a frame to be forwarded costs besides its payload.
const FRAME_COST: u64 = 32;

/// Memory that a frame takes here besides its payload, and for each link that it waits for.
const RECORD_BYTES: u64 = 128;
const COPY_BYTES: u64 = 32;

/// Credit that a frame costs: both ends count the same.
pub(crate) fn cost(payload_len: usize) -> u64 {
    payload_len as u64 + FRAME_COST
}

/// The relay's side: frames that wait to be forwarded, and the account of each root.
#[derive(Clone, Debug)]
pub(crate) struct Forwards {
    waiting: BTreeMap<u64, Waiting>,
    next_id: u64,
    accounts: Vec<Account>,
    /// Smaller frames than roots have relayed: they are sent directly.
    small_bytes: usize,
    overruns: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    data: Data,
    copies: usize,
    held: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    session: u32,
    /// Since the session began.
    received: u64,
    queued: u64,
    /// The same, with small frames as the memory that they take.
    held: u64,
    announced: u64,
    /// Bytes that may wait at once.
    max: u64,
}

impl Forwards {
    /// For so many sites; `root_max` bytes of each may wait. Roots are not expected to have frames
    /// of up to `small_bytes` relayed.
    pub(crate) fn new(sites: usize, root_max: usize, small_bytes: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            next_id: 0,
            accounts: vec![Account { max: root_max as u64, ..Account::default() }; sites],
            small_bytes,
            overruns: 0,
        }
    }

    /// So many bytes of a root may wait from now on. What was granted is.
    pub(crate) fn set_max(&mut self, root: Site, bytes: u64) {
        self.accounts[root.index()].max = bytes;
    }

    /// A frame has come that is to be forwarded to so many. The name of it to queue, or none when
    /// its root has more queued than it was granted, twice over: a frame of an earlier session may
    /// come in this one.
    pub(crate) fn take(&mut self, data: &Data, copies: usize) -> Option<u64> {
        let account = &mut self.accounts[data.op.source.index()];
        let cost = cost(data.payload.len());
        account.received += cost;
        if copies == 0 {
            return None;
        }
        // What keeps to its credit is never refused, whatever it takes: so only where no root that
        // does has anything relayed.
        let held = match data.payload.len() <= self.small_bytes {
            true => data.payload.len() as u64 + RECORD_BYTES + COPY_BYTES * copies as u64,
            false => cost,
        };
        if account.held + held > 2 * account.max.max(cost) {
            self.overruns += 1;
            return None;
        }
        account.queued += cost;
        account.held += held;
        let id = self.next_id;
        self.next_id += 1;
        // RELAY ends here, whoever the next receiver is: no frame makes a third hop.
        let data = Data { forward: Forward::Nobody, ..data.clone() };
        self.waiting.insert(id, Waiting { data, copies, held });
        Some(id)
    }

    /// One of the copies leaves, or cannot leave any more.
    pub(crate) fn release(&mut self, id: u64) -> Option<Data> {
        let waiting = self.waiting.get_mut(&id)?;
        waiting.copies -= 1;
        if waiting.copies > 0 {
            return Some(waiting.data.clone());
        }
        let waiting = self.waiting.remove(&id)?;
        let account = &mut self.accounts[waiting.data.op.source.index()];
        account.queued -= cost(waiting.data.payload.len());
        account.held -= waiting.held;
        Some(waiting.data)
    }

    /// A root asks for credit: what it was granted before is void.
    pub(crate) fn open(&mut self, root: Site) {
        let account = &mut self.accounts[root.index()];
        account.session = account.session.wrapping_add(1);
        account.received = 0;
        account.announced = 0;
    }

    /// True when a root that has asked should hear of more credit: a quarter of the most.
    pub(crate) fn is_credit_due(&self, root: Site) -> bool {
        let account = self.accounts[root.index()];
        account.session > 0 && limit(account) >= account.announced + account.max / 4
    }

    /// The session of a root and what it may send in it, in all.
    pub(crate) fn grant(&mut self, root: Site) -> (u32, u64) {
        let account = self.accounts[root.index()];
        let limit = limit(account).max(account.announced);
        self.accounts[root.index()].announced = limit;
        (account.session, limit)
    }

    /// Credit bytes of a root that are queued.
    pub(crate) fn queued(&self, root: Site) -> u64 {
        self.accounts[root.index()].queued
    }

    /// Frames that were not forwarded, since the beginning.
    pub(crate) fn overruns(&self) -> u64 {
        self.overruns
    }
}

fn limit(account: Account) -> u64 {
    (account.received + account.max).saturating_sub(account.queued)
}

/// The root's side: what it may still have queued at a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    /// None before the relay has answered.
    session: Option<u32>,
    sent: u64,
    limit: u64,
}

impl Credit {
    /// The relay granted something. It is not news when it is of an earlier session.
    pub(crate) fn grant(&mut self, session: u32, limit: u64) {
        match self.session {
            Some(known) if known == session => self.limit = self.limit.max(limit),
            // Sessions count up, and are few compared with half of their range.
            Some(known) if session.wrapping_sub(known) > u32::MAX / 2 => {}
            _ => *self = Self { session: Some(session), sent: 0, limit },
        }
    }

    /// True when a frame may be sent.
    pub(crate) fn covers(&self, cost: u64) -> bool {
        self.session.is_some() && self.sent.saturating_add(cost) <= self.limit
    }

    /// A frame is sent, or will be. The session it counts in.
    pub(crate) fn spend(&mut self, cost: u64) -> Option<u32> {
        self.sent = self.sent.saturating_add(cost);
        self.session
    }

    /// It was not sent after all.
    pub(crate) fn refund(&mut self, session: Option<u32>, cost: u64) {
        if session == self.session {
            self.sent = self.sent.saturating_sub(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Life, OpId};
    use bytes::Bytes;

    const ROOT: Site = Site(1);

    fn data(len: usize) -> Data {
        let op = OpId { source: ROOT, life: Life(0), seq: 0 };
        let payload = Bytes::from(vec![0; len]);
        let forward = Forward::AllOthers;
        Data {
            op,
            index: 0,
            count: 1,
            epoch: 0,
            forward,
            is_repair: false,
            is_body: false,
            payload,
        }
    }

    #[test]
    fn a_root_that_keeps_to_its_credit_never_overruns_the_queue() {
        let mut forwards = Forwards::new(3, 10_000, 0);
        let mut credit = Credit::default();
        assert!(!credit.covers(1), "before the relay has answered");
        forwards.open(ROOT);
        assert!(forwards.is_credit_due(ROOT));
        let (session, limit) = forwards.grant(ROOT);
        credit.grant(session, limit);
        let mut queue = Vec::new();
        for round in 0..500 {
            while credit.covers(cost(968)) {
                credit.spend(cost(968));
                queue.push(forwards.take(&data(968), 2).expect("it is within the credit"));
                assert!(forwards.queued(ROOT) <= 10_000);
            }
            let id = queue.remove(round % queue.len());
            assert!(forwards.release(id).is_some() && forwards.release(id).is_some());
            assert!(forwards.release(id).is_none());
            if forwards.is_credit_due(ROOT) {
                let (session, limit) = forwards.grant(ROOT);
                credit.grant(session, limit);
            }
        }
        assert_eq!(forwards.overruns(), 0);
    }

    #[test]
    fn a_root_that_does_not_keep_to_it_is_bounded_and_others_are_not_harmed() {
        let mut forwards = Forwards::new(3, 10_000, 0);
        let taken = (0..100).filter_map(|_| forwards.take(&data(968), 1)).count();
        assert_eq!(taken, 20);
        assert_eq!(forwards.overruns(), 80);
        let other = Data { op: OpId { source: Site(2), ..data(0).op }, ..data(968) };
        assert!(forwards.take(&other, 1).is_some());
    }

    /// Each that waits has a record, and one more on each link that it is to leave by.
    #[test]
    fn frames_without_bytes_count_as_the_memory_that_they_take() {
        let mut forwards = Forwards::new(3, 100_000, 1_024);
        let taken = (0..10_000).filter_map(|_| forwards.take(&data(0), 100)).count();
        assert!(taken > 0 && taken * 100 * size_of::<crate::uplink::Item>() <= 200_000, "{taken}");
    }

    #[test]
    fn what_leaves_a_relay_is_not_to_be_forwarded() {
        let mut forwards = Forwards::new(3, 10_000, 0);
        let id = forwards.take(&data(10), 1).expect("there is room");
        assert_eq!(forwards.release(id).expect("it is there").forward, Forward::Nobody);
    }

    #[test]
    fn credit_of_an_earlier_session_is_no_news() {
        let mut credit = Credit::default();
        credit.grant(4, 100);
        let session = credit.spend(80);
        assert!(!credit.covers(30));
        credit.grant(3, 1_000);
        assert!(!credit.covers(30));
        credit.grant(5, 100);
        assert!(credit.covers(100));
        credit.spend(50);
        credit.refund(session, 80);
        assert!(!credit.covers(51), "what was spent in another session is not given back");
        credit.refund(Some(5), 50);
        assert!(credit.covers(100));
    }
}
