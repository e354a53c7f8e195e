//! Shares of one peer in what all peers share.
//!
//! A peer may have at most `alpha` times what is free (Choudhury and Hahne, *Dynamic queue length
//! thresholds for shared-memory packet switches*, 1998): `of_peer < alpha * (max - used)`. With
//! alpha 1 one greedy peer gets a half, n of them 1/(n + 1) each, and as much stays free, of which
//! who comes next can take half. Two counters decide; nothing is ever taken back.
//!
//! A peer is a node where its connection proves which, and else the address it connects from, of
//! IPv6 its first 64 bits: names are free there. Who pays is the connection that brought the
//! request, the fence or the mark, not the call's origin.

use std::collections::BTreeMap;

use crate::ledger::{self, Ledger, Part};
use crate::limits::Limits;
use crate::link::PeerName;
use crate::mutant::{self, Mutant};

/// A peer among those that share: an index that stays while it has a connection or takes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerIndex(u32);

/// Pool that peers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Finished tasks, fences, cancel marks, origins, stubs: what is remembered. Running tasks,
    /// too, for they will be.
    Records,
    /// Running tasks.
    Running,
    /// Bytes of whole replies that wait for credit.
    Replies,
    /// Bytes of items of requests that wait to be read, or were granted.
    Items,
    /// Bytes of large requests whose tasks run.
    Requests,
}

pub(crate) const POOLS: usize = 5;

/// Amounts of each pool.
pub(crate) type Amounts = [usize; POOLS];

/// Share that one peer has of a pool, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The peer.
    pub peer: PeerName,
    /// The pool, as messages name its limit.
    pub pool: &'static str,
    /// Amount that it has.
    pub taken: usize,
    /// Size of the pool.
    pub max: usize,
}

impl Pool {
    const ALL: [Self; POOLS] =
        [Self::Records, Self::Running, Self::Replies, Self::Items, Self::Requests];

    /// The limit that it is.
    const fn name(self) -> &'static str {
        match self {
            Self::Records => "remembered_max",
            Self::Running => "tasks_max",
            Self::Replies => "waiting_reply_bytes_max",
            Self::Items => "waiting_item_bytes_max",
            Self::Requests => "running_request_bytes_max",
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Records => 0,
            Self::Running => 1,
            Self::Replies => 2,
            Self::Items => 3,
            Self::Requests => 4,
        }
    }

    /// Factor by which one peer may have what is free.
    const fn alpha(self) -> usize {
        match self {
            Self::Records | Self::Replies | Self::Items | Self::Requests => 1,
            Self::Running => 2,
        }
    }
}

#[derive(Debug)]
struct Peer {
    name: PeerName,
    connections: usize,
    part: Part<POOLS>,
}

/// The pools, and what each peer has of them.
#[derive(Debug)]
pub(crate) struct Shares {
    max: Amounts,
    total: Part<POOLS>,
    peers: Vec<Option<Peer>>,
    free: Vec<u32>,
    names: BTreeMap<PeerName, PeerIndex>,
    /// Differences from which on the ledger is to be told; none for the only core of a node.
    steps: Option<Amounts>,
    /// Peers that differ by a step, or have given back all that the ledger has of them.
    due: Vec<PeerIndex>,
    /// Peers that were forgotten, with what the ledger still has of them.
    withdrawn: Vec<(PeerName, Part<POOLS>)>,
}

/// The largest difference that a core keeps to itself, in tasks as in bytes.
const STEP_MAX: usize = 4_096;

impl Shares {
    /// Of one of so many cores.
    pub(crate) fn new(limits: &Limits, cores: usize) -> Self {
        let max = [
            limits.remembered_max,
            limits.tasks_max,
            limits.waiting_reply_bytes_max,
            limits.waiting_item_bytes_max,
            limits.running_request_bytes_max,
        ];
        Self {
            max,
            total: Part::default(),
            peers: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            steps: (cores > 1).then(|| max.map(|max| ledger::step(max, cores).min(STEP_MAX))),
            due: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    /// True when the ledger is to be told.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.total.is_due() || !self.due.is_empty() || !self.withdrawn.is_empty()
    }

    /// Tells the ledger what has changed by enough.
    pub(crate) fn tell(&mut self, ledger: &mut Ledger) {
        let ledger = ledger.pools_mut();
        ledger.note_total(&mut self.total);
        for index in self.due.drain(..) {
            // Another peer may have taken its place since.
            if let Some(peer) = &mut self.peers[index.0 as usize] {
                ledger.note(&peer.name, &mut peer.part);
            }
        }
        for (name, mut part) in self.withdrawn.drain(..) {
            ledger.note(&name, &mut part);
        }
    }

    /// Looks up what the other cores have, in all and of a peer.
    pub(crate) fn hear(&mut self, index: PeerIndex, ledger: &Ledger) {
        self.total.hear(ledger.pools().total());
        let peer = self.peer_mut(index);
        peer.part.hear(ledger.pools().of(&peer.name));
    }

    /// An amount has changed.
    #[inline]
    fn note_change(&mut self, index: PeerIndex, at: usize) {
        if let Some(steps) = &self.steps {
            self.note_step(index, at, steps[at]);
        }
    }

    fn note_step(&mut self, index: PeerIndex, at: usize, step: usize) {
        self.total.becomes_due(at, step);
        if self.peer_mut(index).part.becomes_due(at, step) {
            self.due.push(index);
        }
    }

    /// A connection of a peer is up.
    pub(crate) fn connect(&mut self, name: PeerName) -> PeerIndex {
        let index = self.index_of(name);
        self.peer_mut(index).connections += 1;
        index
    }

    /// A connection of a peer has ended.
    pub(crate) fn disconnect(&mut self, index: PeerIndex) {
        self.peer_mut(index).connections -= 1;
        self.forget_idle(index);
    }

    /// True when a peer may take one more.
    #[inline]
    pub(crate) fn may_take(&self, index: PeerIndex, pool: Pool) -> bool {
        let at = pool.index();
        if mutant::is(Mutant::AlphaNotApplied) {
            return self.used(pool) < self.max[at];
        }
        self.peer(index).part.in_all(at)
            < self.max[at].saturating_sub(self.used(pool)).saturating_mul(pool.alpha())
    }

    /// True while a peer has an eighth of a pool at most, and all together a quarter.
    pub(crate) fn has_little(&self, index: PeerIndex, pool: Pool) -> bool {
        let (at, max) = (pool.index(), self.max(pool));
        self.peer(index).part.in_all(at) < max / 8 && self.used(pool) < max / 4
    }

    /// Takes so many for a peer, whatever it has.
    #[inline]
    pub(crate) fn take(&mut self, index: PeerIndex, pool: Pool, count: usize) {
        let at = pool.index();
        self.total.take(at, count);
        self.peer_mut(index).part.take(at, count);
        self.note_change(index, at);
    }

    /// Gives so many of a peer's back.
    #[inline]
    pub(crate) fn give(&mut self, index: PeerIndex, pool: Pool, count: usize) {
        let at = pool.index();
        self.total.give(at, count);
        self.peer_mut(index).part.give(at, count);
        self.note_change(index, at);
        self.forget_idle(index);
    }

    /// Has a peer pay for so many in place of so many.
    pub(crate) fn adjust(&mut self, index: PeerIndex, pool: Pool, before: usize, after: usize) {
        if after > before {
            self.take(index, pool, after - before);
        } else if before > after {
            self.give(index, pool, before - after);
        }
    }

    /// Name that a peer is counted by.
    pub(crate) fn name(&self, index: PeerIndex) -> &PeerName {
        &self.peer(index).name
    }

    /// Amount of a pool that is taken, in all cores as far as it is known.
    pub(crate) fn used(&self, pool: Pool) -> usize {
        self.total.in_all(pool.index())
    }

    /// Size of a pool.
    pub(crate) fn max(&self, pool: Pool) -> usize {
        self.max[pool.index()]
    }

    /// Shares that each peer has of each pool.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Taken> {
        self.peers.iter().flatten().flat_map(|peer| {
            Pool::ALL.into_iter().map(|pool| Taken {
                peer: peer.name.clone(),
                pool: pool.name(),
                taken: peer.part.taken()[pool.index()],
                max: self.max[pool.index()],
            })
        })
    }

    /// Compares what is noted with a count from scratch.
    pub(crate) fn compare(&self, counted: &BTreeMap<PeerIndex, Amounts>) -> Result<(), String> {
        let mut used = [0; POOLS];
        for (index, peer) in (0..).zip(&self.peers) {
            let counted = counted.get(&PeerIndex(index)).copied().unwrap_or_default();
            let (name, taken) = match peer {
                Some(peer) => (Some(&peer.name), *peer.part.taken()),
                None => (None, [0; POOLS]),
            };
            if taken != counted {
                return Err(format!("{name:?} pays for {taken:?}, and a count gives {counted:?}"));
            }
            used.iter_mut().zip(taken).for_each(|(used, taken)| *used += taken);
        }
        let total = self.total.taken();
        if used == *total { Ok(()) } else { Err(format!("{total:?} are {used:?}")) }
    }

    /// Peers that are connected or have taken anything.
    #[cfg(test)]
    fn peer_count(&self) -> usize {
        self.names.len()
    }

    fn index_of(&mut self, name: PeerName) -> PeerIndex {
        if let Some(index) = self.names.get(&name) {
            return *index;
        }
        let peer = Peer { name: name.clone(), connections: 0, part: Part::default() };
        let index = match self.free.pop() {
            Some(index) => {
                self.peers[index as usize] = Some(peer);
                PeerIndex(index)
            }
            None => {
                self.peers.push(Some(peer));
                PeerIndex(u32::try_from(self.peers.len() - 1).expect("fewer peers than addresses"))
            }
        };
        self.names.insert(name, index);
        index
    }

    #[inline]
    fn forget_idle(&mut self, index: PeerIndex) {
        if self.peer(index).connections == 0 {
            self.forget_unconnected(index);
        }
    }

    fn forget_unconnected(&mut self, index: PeerIndex) {
        let peer = self.peer(index);
        if *peer.part.taken() == [0; POOLS] {
            self.names.remove(&peer.name.clone());
            if let Some(Peer { name, part, .. }) = self.peers[index.0 as usize].take()
                && let Some(part) = part.withdrawn()
            {
                self.withdrawn.push((name, part));
            }
            self.free.push(index.0);
        }
    }

    #[inline]
    fn peer(&self, index: PeerIndex) -> &Peer {
        self.peers[index.0 as usize].as_ref().expect("a peer that has anything is known")
    }

    #[inline]
    fn peer_mut(&mut self, index: PeerIndex) -> &mut Peer {
        self.peers[index.0 as usize].as_mut().expect("a peer that has anything is known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(remembered_max: usize, tasks_max: usize) -> Shares {
        shares_of(remembered_max, tasks_max, 1)
    }

    fn shares_of(remembered_max: usize, tasks_max: usize, cores: usize) -> Shares {
        Shares::new(&Limits { remembered_max, tasks_max, ..Limits::default() }, cores)
    }

    fn place(name: usize) -> PeerName {
        PeerName::Place(name.to_string().into())
    }

    fn take_all(shares: &mut Shares, peer: PeerIndex, pool: Pool) -> usize {
        let mut count = 0;
        while shares.may_take(peer, pool) {
            shares.take(peer, pool, 1);
            count += 1;
        }
        count
    }

    #[test]
    fn greedy_peers_leave_as_much_free_as_each_has() {
        let mut shares = shares(1_000, 900);
        let first = shares.connect(place(1));
        assert_eq!(take_all(&mut shares, first, Pool::Records), 500);
        assert_eq!(take_all(&mut shares, first, Pool::Running), 600);
        let second = shares.connect(place(2));
        assert_eq!(take_all(&mut shares, second, Pool::Records), 250);
        shares.give(first, Pool::Records, 500);
        assert_eq!(take_all(&mut shares, second, Pool::Records), 250);
    }

    /// I41 for peers that come one after the other: each gets half of what those before it have
    /// left.
    #[test]
    fn the_next_peer_can_take_half_of_what_is_free() {
        let mut shares = shares(10_000, 10_000);
        for n in 0..10_usize {
            let peer = shares.connect(place(n));
            let free = shares.max(Pool::Records) - shares.used(Pool::Records);
            assert_eq!(take_all(&mut shares, peer, Pool::Records), free.div_ceil(2), "peer {n}");
        }
    }

    /// I41 once what was taken has been given back and taken again: then all have the same.
    #[test]
    fn greedy_peers_become_equal_as_they_renew_what_they_have() {
        let max = 10_000;
        let mut shares = shares(max, max);
        for count in 1..=8_usize {
            let peers: Vec<PeerIndex> = (0..count).map(|n| shares.connect(place(n))).collect();
            for _ in 0..max {
                for peer in &peers {
                    if shares.peer(*peer).part.taken()[Pool::Records.index()] > 0 {
                        shares.give(*peer, Pool::Records, 1);
                    }
                }
                for peer in &peers {
                    for _ in 0..3 {
                        if shares.may_take(*peer, Pool::Records) {
                            shares.take(*peer, Pool::Records, 1);
                        }
                    }
                }
            }
            for peer in &peers {
                let taken = shares.peer(*peer).part.taken()[Pool::Records.index()];
                let part = max / (count + 1);
                assert!(taken.abs_diff(part) <= 2 * count + 2, "{taken} of {part}, {count} peers");
            }
            let next = shares.connect(place(99));
            let taken = take_all(&mut shares, next, Pool::Records);
            assert!(taken + 2 * count + 2 >= max / (2 * (1 + count)), "the next one gets {taken}");
            shares.give(next, Pool::Records, taken);
            shares.disconnect(next);
        }
    }

    /// Whatever its cores are, a node lets a greedy peer have a half, and the next one a quarter.
    #[test]
    fn cores_that_tell_each_other_bound_a_peer_as_one_does() {
        let (mut ledger, cores) = (Ledger::default(), 4);
        let mut all: Vec<Shares> = (0..cores).map(|_| shares_of(1_000, 1_000, cores)).collect();
        let peers = [1, 2].map(|name| {
            let peers: Vec<PeerIndex> = all.iter_mut().map(|s| s.connect(place(name))).collect();
            peers
        });
        let mut taken = [0_usize; 2];
        for (peers, taken) in peers.iter().zip(&mut taken) {
            let mut is_refused = false;
            while !is_refused {
                is_refused = true;
                for (shares, peer) in all.iter_mut().zip(peers) {
                    shares.hear(*peer, &ledger);
                    if shares.may_take(*peer, Pool::Records) {
                        shares.take(*peer, Pool::Records, 1);
                        (*taken, is_refused) = (*taken + 1, false);
                    }
                    if shares.has_news() {
                        shares.tell(&mut ledger);
                    }
                }
            }
        }
        let step = ledger::step(1_000, cores);
        for (taken, part) in taken.iter().zip([500, 250]) {
            assert!(taken.abs_diff(part) <= cores * step + 1, "{taken} of {part}");
        }
        // What is given back is nobody's, wherever it was.
        for (shares, peer) in all.iter_mut().zip(&peers[0]) {
            let has = shares.peer(*peer).part.taken()[Pool::Records.index()];
            shares.give(*peer, Pool::Records, has);
            shares.disconnect(*peer);
            shares.tell(&mut ledger);
        }
        let records = Pool::Records.index();
        assert_eq!(ledger.pools().of(&place(1)), Amounts::default());
        assert!(ledger.pools().total()[records].abs_diff(taken[1]) <= cores * step);
    }

    #[test]
    fn a_peer_is_forgotten_when_it_is_gone_and_has_given_all_back() {
        let mut shares = shares(10, 10);
        let peer = shares.connect(place(1));
        let again = shares.connect(place(1));
        assert_eq!(peer, again);
        shares.take(peer, Pool::Records, 2);
        shares.disconnect(peer);
        shares.disconnect(peer);
        shares.give(peer, Pool::Records, 1);
        assert_eq!(shares.peer_count(), 1);
        shares.give(peer, Pool::Records, 1);
        assert_eq!((shares.peer_count(), shares.used(Pool::Records)), (0, 0));
    }
}
