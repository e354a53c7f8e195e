//! The queues of one link, and the order in which what waits there leaves.
//!
//! Small operations leave first and are not paced. The rest is: own chunks and the forwards of each
//! root share what the plan gives the link by deficit round robin, and answers to fetches come
//! last, on a bucket of their own. What the plan gives to other links, and they do not use, a link
//! may borrow: so what is sent again is not held back for the sake of rates that nobody needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::drr::Drr;
use crate::node::Backlog;
use crate::pace::Bucket;
use crate::site::Site;
use crate::wire::OpId;

/// The link to one site.
#[derive(Debug)]
pub(crate) struct Uplink {
    is_up: bool,
    is_blocked: bool,
    /// Nothing that is sent there reaches anybody.
    is_held: bool,
    /// Blocked, when it counts as stuck; none once it does.
    stuck_at: Option<Timestamp>,
    /// Since when it is down; what was owed then has a time.
    pub(crate) down_since: Option<Timestamp>,
    /// When bulk left over it last.
    left_at: Option<Timestamp>,
    /// When it was last seen to have room and nothing to send.
    drained_at: Timestamp,
    small: VecDeque<u64>,
    bulk: Drr<Item>,
    repairs: VecDeque<Repair>,
    /// The same, by operation.
    repaired: BTreeMap<OpId, BTreeSet<u32>>,
    bucket: Bucket,
}

/// Something that waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A chunk of the own stream.
    Own(u64),
    /// A frame of another root, by its name at the relay.
    Forward(u64),
    /// A chunk of the own stream for a site that this link's site is to pass it on to.
    Through(u64, Site),
}

/// A chunk that was fetched from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repair {
    pub(crate) op: OpId,
    pub(crate) index: u32,
}

/// The next thing to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Not paced.
    Small(u64),
    /// Paced.
    Bulk(Item),
    /// Paced twice.
    Repair(Repair),
}

impl Uplink {
    /// Down, since now.
    pub(crate) fn new(now: Timestamp, burst: Duration) -> Self {
        Self {
            is_up: false,
            is_blocked: false,
            is_held: false,
            stuck_at: None,
            down_since: Some(now),
            left_at: None,
            drained_at: now,
            small: VecDeque::new(),
            bulk: Drr::default(),
            repairs: VecDeque::new(),
            repaired: BTreeMap::new(),
            bucket: Bucket::new(now, None, burst),
        }
    }

    /// It is up, with empty queues.
    pub(crate) fn on_up(&mut self) {
        self.is_up = true;
        self.set_writable();
        self.down_since = None;
    }

    /// It is down. What was queued for the bulk of it; all else is forgotten.
    pub(crate) fn on_down(&mut self, now: Timestamp) -> impl Iterator<Item = Item> + use<> {
        self.is_up = false;
        self.down_since = Some(now);
        self.clear()
    }

    /// Empties its queues, as if it were down.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Item> + use<> {
        self.small.clear();
        self.repairs.clear();
        self.repaired.clear();
        self.bulk.drain()
    }

    /// Takes out what its site is to pass on.
    pub(crate) fn take_through(&mut self) -> Vec<Item> {
        self.bulk.extract(|item| matches!(item, Item::Through(..)))
    }

    /// It takes nothing for now. If that lasts until `stuck_at`, nothing of others waits for it any
    /// more.
    pub(crate) fn set_blocked(&mut self, stuck_at: Timestamp) {
        if !self.is_blocked {
            self.is_blocked = true;
            self.stuck_at = Some(stuck_at);
        }
    }

    pub(crate) fn set_writable(&mut self) {
        self.is_blocked = false;
        self.stuck_at = None;
    }

    /// Keeps what waits, for as long as it would reach nobody.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// True when it takes nothing for now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked || self.is_held
    }

    /// Bytes of a class of bulk that wait.
    pub(crate) fn bulk_bytes(&self, class: usize) -> usize {
        self.bulk.bytes(class)
    }

    /// True when it has been blocked for long.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_up && self.is_blocked && self.stuck_at.is_none()
    }

    /// True when it counts as stuck from now on.
    pub(crate) fn note_stuck(&mut self, now: Timestamp) -> bool {
        let is_new = self.is_up && self.stuck_at.is_some_and(|at| at <= now);
        if is_new {
            self.stuck_at = None;
        }
        is_new
    }

    pub(crate) fn set_rate(&mut self, now: Timestamp, rate: Option<u64>) {
        self.bucket.set_rate(now, rate);
    }

    pub(crate) fn push_small(&mut self, seq: u64) {
        self.small.push_back(seq);
    }

    /// Queues a chunk or frame of `bytes` in the class of its root.
    pub(crate) fn push(&mut self, class: usize, item: Item, bytes: usize) {
        self.bulk.push(class, item, bytes);
    }

    /// Takes out what was to be forwarded for a root.
    pub(crate) fn take_forwards(&mut self, root: usize) -> impl Iterator<Item = Item> + use<> {
        self.bulk.remove(root)
    }

    /// Queues the chunks of an operation of `count` that a fetch wants, as far as they are not
    /// queued, and no more are than `max`. Who asks again, asks for what is left.
    pub(crate) fn push_repairs(
        &mut self,
        op: OpId,
        count: u32,
        wanted: impl Iterator<Item = u32>,
        max: usize,
    ) {
        let room = max.saturating_sub(self.repairs.len());
        let queued = self.repaired.get(&op).map_or(0, BTreeSet::len);
        if room == 0 || queued == count as usize {
            return; // Who asks often costs nothing but its frames.
        }
        let queued = self.repaired.entry(op).or_default();
        let new = wanted.filter(|index| queued.insert(*index)).take(room);
        self.repairs.extend(new.map(|index| Repair { op, index }));
        if queued.is_empty() {
            self.repaired.remove(&op);
        }
    }

    fn pop_repair(&mut self) -> Option<Repair> {
        let repair = self.repairs.pop_front()?;
        if let Some(queued) = self.repaired.get_mut(&repair.op) {
            queued.remove(&repair.index);
            if queued.is_empty() {
                self.repaired.remove(&repair.op);
            }
        }
        Some(repair)
    }

    /// The next to leave now. With `may_borrow`, also bulk that the plan does not give this link,
    /// but the site.
    pub(crate) fn pop(
        &mut self,
        now: Timestamp,
        may_borrow: bool,
        may_repair: bool,
    ) -> Option<Next> {
        if !self.is_up || self.is_blocked() {
            return None;
        }
        if let Some(seq) = self.small.pop_front() {
            return Some(Next::Small(seq));
        }
        if self.bulk.is_empty() && self.repairs.is_empty() {
            self.drained_at = now;
        }
        let is_open = self.bucket.is_open(now);
        if is_open || may_borrow {
            let bulk = self.bulk.pop().map(Next::Bulk);
            if bulk.is_some() {
                self.left_at = Some(now);
                return bulk;
            }
        }
        let repair = if is_open && may_repair { self.pop_repair() } else { None };
        repair.map(Next::Repair)
    }

    /// So many bytes left that are paced. What was borrowed is not the link's to spend.
    pub(crate) fn spend(&mut self, now: Timestamp, bytes: usize) {
        if self.bucket.is_open(now) {
            self.bucket.spend(now, bytes);
        }
    }

    /// Reason why what waits is held back, of all these links together. A receiver that reads
    /// slowly blocks one of them; the uplink is what holds them back when it blocks most of those
    /// that have had something to send since.
    pub(crate) fn backlog<'a>(links: impl Iterator<Item = &'a Self>) -> Backlog {
        let links: Vec<&Self> = links.filter(|link| link.is_up && !link.is_held).collect();
        let stuck = links.iter().filter(|link| link.is_stuck()).count();
        let is_stuck_by_uplink = stuck * 2 > links.len();
        let (mut queued, mut blocked, mut since) = (0, 0, Timestamp::MAX);
        let counts = |link: &&&Self| link.len() > 0 && (is_stuck_by_uplink || !link.is_stuck());
        for link in links.iter().filter(counts) {
            queued += 1;
            if link.is_blocked {
                blocked += 1;
                since = since.min(link.drained_at);
            }
        }
        let has_sent = |link: &&&Self| link.len() == 0 && link.left_at.is_some_and(|at| at > since);
        let drained = links.iter().filter(has_sent).count();
        match blocked * 2 > queued + drained {
            true => Backlog::Blocked,
            false if queued > blocked => Backlog::Paced,
            false => Backlog::Nothing,
        }
    }

    /// Takes out what was queued of the own stream and matches.
    pub(crate) fn remove_own(&mut self, matches: impl Fn(u64) -> bool) {
        self.small.retain(|seq| !matches(*seq));
        self.bulk.extract(|item| matches!(item, Item::Own(seq) if matches(*seq)));
    }

    /// Items that wait.
    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.bulk.len() + self.repairs.len()
    }

    /// When something may leave that may not now, or the link counts as stuck. Bulk may be borrowed
    /// for from `borrow_at`, answers to fetches may leave from `repair_at`.
    pub(crate) fn poll_timeout(
        &self,
        borrow_at: Timestamp,
        repair_at: Timestamp,
    ) -> Option<Timestamp> {
        if !self.is_up || self.is_blocked() {
            return self.stuck_at.filter(|_| self.is_up);
        }
        let opens_at = self.bucket.opens_at();
        if !self.small.is_empty() || !self.bulk.is_empty() {
            let bulk_at = opens_at.min(borrow_at);
            return Some(if self.small.is_empty() { bulk_at } else { Timestamp::ZERO });
        }
        (!self.repairs.is_empty()).then(|| opens_at.max(repair_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Life;

    fn op(seq: u64) -> OpId {
        OpId { source: Site(1), life: Life(1), seq }
    }

    #[test]
    fn a_fetch_that_is_repeated_looks_at_nothing_that_is_queued() {
        let mut uplink = Uplink::new(Timestamp::ZERO, Duration::ZERO);
        uplink.on_up();
        let looks = std::cell::Cell::new(0);
        let fetch = |uplink: &mut Uplink, seq, count| {
            looks.set(0);
            let wanted = (0..count).inspect(|_| looks.set(looks.get() + 1));
            uplink.push_repairs(op(seq), count, wanted, 1_000);
            (looks.get(), uplink.repairs.len())
        };
        assert_eq!(fetch(&mut uplink, 0, 512), (512, 512));
        assert_eq!(fetch(&mut uplink, 0, 512), (0, 512), "it is queued whole");
        assert_eq!(fetch(&mut uplink, 512, 512), (488, 1_000));
        assert_eq!(fetch(&mut uplink, 512, 512), (0, 1_000), "there is no room");
        let all = std::iter::from_fn(|| uplink.pop(Timestamp::ZERO, true, true));
        let all: Vec<_> = all.collect();
        let expected = (0..512).map(|it| (0, it)).chain((0..488).map(|it| (512, it)));
        let expected = expected.map(|(seq, index)| Next::Repair(Repair { op: op(seq), index }));
        assert!(all.into_iter().eq(expected));
        assert!(uplink.repaired.is_empty());
        assert_eq!(fetch(&mut uplink, 512, 512), (512, 512), "what has left is asked for again");
    }
}
