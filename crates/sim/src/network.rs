//! The network between the nodes of a run: connections with latency, and everything that goes wrong
//! with them.
//!
//! It decides and remembers; the world keeps the queue of what happens when. A frame of a
//! connection arrives once and in the order of its lane, unless the conditions say otherwise:
//! silent loss, copies and any order are worse than what a transport owes, and the protocol must
//! stay safe even so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::LinkNonce;
use convoke_proto::link::Lane;
use convoke_proto::time::Timestamp;

use crate::random::Random;

/// Conditions on every link of a run.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// One-way latency of a pair of nodes, in microseconds: drawn once per pair.
    pub latency_us: Range<u64>,
    /// Added to it for each frame, in microseconds.
    pub jitter_us: u64,
    /// Factor by which connections between servers are slower than those to clients.
    pub server_factor: u32,
    /// Microseconds per KiB on the data lane, which the control lane overtakes.
    pub us_per_kib: u64,
    /// Frames of a lane arrive in order. Off is worse than any transport.
    pub is_fifo: bool,
    /// Frames lost in silence, of a thousand.
    pub loss_per_mille: u32,
    /// Frames that arrive twice, of a thousand.
    pub copies_per_mille: u32,
    /// Frames of which a copy comes late, of a thousand: up to the time that it may be remembered.
    pub late_per_mille: u32,
    /// Dials that fail, of a hundred.
    pub dial_failure_percent: u32,
    /// Dials that take up to two seconds, of a hundred.
    pub slow_dial_percent: u32,
}

/// A node by its place in the world.
pub type Place = usize;

/// One end of a connection: a node in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub place: Place,
    /// Its life.
    pub life: u64,
}

/// A connection. The end that dialled comes first.
#[derive(Debug)]
pub struct Wire {
    /// Both ends.
    pub ends: [End; 2],
    /// True for the ends that know it as open.
    pub is_up: [bool; 2],
    /// When each end learns of it; nothing arrives there before.
    pub ready_at: [Timestamp; 2],
    /// Nothing that is sent from now on arrives.
    pub is_cut: bool,
    /// Latest arrival so far, by receiving end and lane.
    last: [[Timestamp; 2]; 2],
    /// Frames that wait for the end of a partition, by receiving end.
    stalled: [VecDeque<(Lane, Bytes)>; 2],
}

/// Fate of a frame that has come to its receiver.
#[derive(Debug)]
pub enum Arrival {
    /// The receiver takes it.
    Taken(Bytes),
    /// It waits for the end of a partition.
    Stalled,
    /// Its connection is gone.
    Dropped,
}

/// All connections of a run.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    random: Random,
    wires: BTreeMap<LinkNonce, Wire>,
    latencies: BTreeMap<(Place, Place), u64>,
    servers: usize,
    blocked: BTreeSet<(Place, Place)>,
    next_nonce: u64,
}

impl Network {
    /// A network among nodes of which the first `servers` are servers.
    pub fn new(conditions: Conditions, servers: usize, seed: u64) -> Self {
        Self {
            conditions,
            random: Random::of(seed, 1),
            wires: BTreeMap::new(),
            latencies: BTreeMap::new(),
            servers,
            blocked: BTreeSet::new(),
            next_nonce: 1,
        }
    }

    /// True when a copy of a frame may come at any time.
    pub fn delivers_late(&self) -> bool {
        self.conditions.late_per_mille > 0
    }

    /// Ends silent loss and failing dials; latency and order stay.
    pub fn heal(&mut self) {
        self.conditions.loss_per_mille = 0;
        self.conditions.dial_failure_percent = 0;
        self.conditions.slow_dial_percent = 0;
    }

    /// Time that a frame of `size` bytes takes now.
    pub fn latency(&mut self, from: Place, to: Place, lane: Lane, size: usize) -> Duration {
        let pair = (from.min(to), from.max(to));
        let range = self.conditions.latency_us.clone();
        let random = &mut self.random;
        let base = *self.latencies.entry(pair).or_insert_with(|| random.within(range));
        let factor = if pair.1 < self.servers { self.conditions.server_factor.into() } else { 1 };
        let jitter = self.random.within(0..self.conditions.jitter_us + 1);
        let transfer = match lane {
            Lane::Control => 0,
            Lane::Data => self.conditions.us_per_kib * (size as u64 >> 10),
        };
        Duration::from_micros(base * factor + jitter + transfer)
    }

    /// The longest a frame of `size` bytes may take between any two nodes.
    pub fn latency_max(&self, size: usize) -> Duration {
        let c = &self.conditions;
        let transfer = c.us_per_kib * (size as u64 >> 10);
        Duration::from_micros(
            c.latency_us.end * u64::from(c.server_factor) + c.jitter_us + transfer,
        )
    }

    /// Sends a frame: when it arrives, once, twice or never.
    pub fn send(
        &mut self,
        now: Timestamp,
        from: Place,
        link: LinkNonce,
        (lane, size): (Lane, usize),
        late_max: Duration,
    ) -> Vec<Timestamp> {
        let Some(wire) = self.wires.get(&link) else { return Vec::new() };
        let to = 1 - wire.side(from);
        let (peer, is_cut, ready_at) = (wire.ends[to].place, wire.is_cut, wire.ready_at[to]);
        if is_cut || self.random.per_mille(self.conditions.loss_per_mille) {
            return Vec::new();
        }
        let copies = 1 + usize::from(self.random.per_mille(self.conditions.copies_per_mille));
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let mut at = (now + self.latency(from, peer, lane, size)).max(ready_at);
            let Some(wire) = self.wires.get_mut(&link) else { break };
            if self.conditions.is_fifo {
                at = at.max(wire.last[to][lane as usize]);
                wire.last[to][lane as usize] = at;
            }
            arrivals.push(at);
        }
        if self.random.per_mille(self.conditions.late_per_mille) {
            let most = u64::try_from(late_max.as_micros()).unwrap_or(u64::MAX);
            // Often at the very end of what is to be remembered.
            let least = if self.random.chance(40) { most / 10 * 9 } else { 0 };
            let late = now + self.random.micros(least..most);
            // Behind the frame itself, which keeps the order of its lane.
            arrivals.push(arrivals.last().map_or(late, |at| late.max(*at)));
        }
        arrivals
    }

    /// A frame has come to the end of its way.
    pub fn arrive(&mut self, to: Place, link: LinkNonce, lane: Lane, frame: Bytes) -> Arrival {
        let Some(wire) = self.wires.get_mut(&link) else { return Arrival::Dropped };
        let side = wire.side(to);
        if !wire.is_up[side] {
            return Arrival::Dropped;
        }
        let from = wire.ends[1 - side].place;
        if self.blocked.contains(&(from, to)) || !wire.stalled[side].is_empty() {
            wire.stalled[side].push_back((lane, frame));
            return Arrival::Stalled;
        }
        Arrival::Taken(frame)
    }

    /// Frames that waited for the end of a partition, in order.
    pub fn release(&mut self, to: Place, link: LinkNonce) -> Vec<(Lane, Bytes)> {
        let Some(wire) = self.wires.get_mut(&link) else { return Vec::new() };
        let side = wire.side(to);
        wire.stalled[side].drain(..).collect()
    }

    /// True when frames from one node reach the other.
    pub fn is_blocked(&self, from: Place, to: Place) -> bool {
        self.blocked.contains(&(from, to))
    }

    /// Begins or ends a one-way partition.
    pub fn block(&mut self, from: Place, to: Place, is_blocked: bool) {
        if is_blocked {
            self.blocked.insert((from, to));
        } else {
            self.blocked.remove(&(from, to));
        }
    }

    /// Every one-way partition there is.
    pub fn blocked(&self) -> Vec<(Place, Place)> {
        self.blocked.iter().copied().collect()
    }

    /// Opens a connection, known to each end from `ready_at`.
    pub fn open(&mut self, ends: [End; 2], ready_at: [Timestamp; 2]) -> LinkNonce {
        let nonce = LinkNonce(self.next_nonce);
        self.next_nonce += 1;
        let wire = Wire {
            ends,
            is_up: [false; 2],
            ready_at,
            is_cut: false,
            last: [[Timestamp::ZERO; 2]; 2],
            stalled: [VecDeque::new(), VecDeque::new()],
        };
        self.wires.insert(nonce, wire);
        nonce
    }

    /// A connection.
    pub fn wire(&self, link: LinkNonce) -> Option<&Wire> {
        self.wires.get(&link)
    }

    /// One end learns that a connection is up. Whether it still is.
    pub fn rise(&mut self, end: End, link: LinkNonce) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        let side = wire.side(end.place);
        if wire.is_cut || wire.ends[side] != end {
            return false;
        }
        wire.is_up[side] = true;
        true
    }

    /// One end learns that a connection is down. Whether it knew it as up.
    pub fn fall(&mut self, end: End, link: LinkNonce) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        let side = wire.side(end.place);
        wire.is_cut = true;
        wire.stalled[side].clear();
        std::mem::replace(&mut wire.is_up[side], false) && wire.ends[side] == end
    }

    /// Cuts a connection: what is sent from now on is lost. Whether it was whole.
    pub fn cut(&mut self, link: LinkNonce) -> bool {
        self.wires.get_mut(&link).is_some_and(|wire| !std::mem::replace(&mut wire.is_cut, true))
    }

    /// Latest time at which a frame that has left by a connection comes to this end.
    pub fn last_arrival(&self, link: LinkNonce, to: Place) -> Timestamp {
        let last = self.wires.get(&link).map(|wire| wire.last[wire.side(to)]);
        last.into_iter().flatten().max().unwrap_or_default()
    }

    /// The connections of a node that are not cut.
    pub fn of(&self, place: Place) -> Vec<LinkNonce> {
        let is_of = |wire: &Wire| wire.ends.iter().any(|end| end.place == place);
        let whole = self.wires.iter().filter(|(_, wire)| !wire.is_cut && is_of(wire));
        whole.map(|(link, _)| *link).collect()
    }

    /// The connections between two nodes that are not cut.
    pub fn between(&self, one: Place, other: Place) -> Vec<LinkNonce> {
        let links = self.of(one).into_iter();
        links.filter(|link| self.wires[link].ends.iter().any(|end| end.place == other)).collect()
    }

    /// Outcome of a dial: the time it takes, and true when it succeeds.
    pub fn dial(&mut self, from: Place, to: Place) -> (Duration, bool) {
        let there = self.latency(from, to, Lane::Control, 0);
        let back = self.latency(to, from, Lane::Control, 0);
        let is_slow = self.random.chance(self.conditions.slow_dial_percent);
        let extra = if is_slow { self.random.micros(0..2_000_000) } else { Duration::ZERO };
        let fails = self.random.chance(self.conditions.dial_failure_percent);
        let is_blocked = self.is_blocked(from, to) || self.is_blocked(to, from);
        (there + back + extra, !fails && !is_blocked)
    }
}

impl Wire {
    /// Index of the end that a node is.
    pub fn side(&self, place: Place) -> usize {
        usize::from(self.ends[0].place != place)
    }
}
