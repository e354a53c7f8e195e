//! State of the network at the moment: paths, partitions, who listens, what was carried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_proto::id::{Incarnation, LinkNonce, NodeId};
use convoke_transport::{Hello, Lane, Sink};
use tokio::time::Instant;

use super::carrier::{Carrier, Token};
use super::hook::Hooks;
use super::pipe::Departure;
use super::wire::Wire;
use crate::clock::after;
use crate::random::Random;

/// Conditions on the way from one node to another. One direction; the way back has its own. They
/// are for frames: the hellos that open a connection take the latency, and no jitter, loss or
/// bandwidth.
///
/// All durations are of tokio's clock; see [`dilate`](super::dilate) for shorter ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Time that a frame takes. Default zero: it arrives without a timer.
    pub latency: Duration,
    /// The most that is added to the latency, drawn per frame. Default zero. A lane stays in order.
    pub jitter: Duration,
    /// The probability that a frame is lost, from 0 to 1. Default 0. The connection dies of it at
    /// both ends, since no transport may lose a single frame.
    pub loss: f64,
    /// Bytes per second that all connections together carry on the data lane. Default `None`,
    /// no limit. Control frames are small and urgent: they take no bandwidth.
    pub bandwidth: Option<u64>,
}

/// Traffic from one node to another, over all connections there ever were between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames sent on the control lane.
    pub control_frames: u64,
    /// Frames sent on the data lane.
    pub data_frames: u64,
    /// Bytes of both, with [16 a frame](super::SimNetwork) for what a header would be.
    pub bytes: u64,
}

impl Traffic {
    /// Frames sent on either lane.
    pub fn frames(&self) -> u64 {
        self.control_frames + self.data_frames
    }
}

/// Times of things that are not a path's: of tokio's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Longest time of a dial. Default 3 s.
    pub dial_timeout: Duration,
    /// Longest wait of a close until the other end has taken what was appended. Default 1 s; set it
    /// above the longest round trip.
    pub close_grace: Duration,
    /// Time after which an end that hears nothing closes: in a partition, or once its peer has
    /// crashed in silence. Default 10 s.
    pub keep_alive_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            dial_timeout: Duration::from_secs(3),
            close_grace: Duration::from_secs(1),
            keep_alive_timeout: Duration::from_secs(10),
        }
    }
}

/// From one node to another.
pub(crate) type Pair = (NodeId, NodeId);

/// Somebody who accepts connections.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) hello: Hello,
    pub(crate) sink: Arc<dyn Sink>,
}

/// A life of a node.
#[derive(Debug, Default)]
struct Life {
    has_crashed: bool,
    /// All that have listened or dialled in it.
    sinks: Vec<Weak<dyn Sink>>,
}

#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) timing: Timing,
    pub(crate) everywhere: Conditions,
    pub(crate) paths: BTreeMap<Pair, Conditions>,
    /// There from when the first uplink or downlink is set.
    pub(crate) carrier: Option<Carrier>,
    pub(crate) listeners: BTreeMap<String, Arc<Listening>>,
    /// Where nodes listened that have crashed in silence: nobody refuses a dial there either.
    pub(crate) unanswered: BTreeSet<String>,
    pub(crate) hooks: Hooks,
    wires: BTreeMap<LinkNonce, Weak<Wire>>,
    held: BTreeMap<Pair, Instant>,
    busy_until: BTreeMap<Pair, Instant>,
    traffic: BTreeMap<Pair, Traffic>,
    /// Lives that have listened or dialled.
    lives: BTreeMap<(NodeId, Incarnation), Life>,
    last_port: u64,
    random: Random,
}

impl Topology {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            timing: Timing::default(),
            everywhere: Conditions::default(),
            paths: BTreeMap::new(),
            carrier: None,
            listeners: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            hooks: Hooks::default(),
            wires: BTreeMap::new(),
            held: BTreeMap::new(),
            busy_until: BTreeMap::new(),
            traffic: BTreeMap::new(),
            lives: BTreeMap::new(),
            last_port: 0,
            random: Random::new(seed),
        }
    }

    pub(crate) fn conditions(&self, pair: Pair) -> Conditions {
        self.paths.get(&pair).copied().unwrap_or(self.everywhere)
    }

    /// The conditions of one pair, to change.
    pub(crate) fn conditions_mut(&mut self, pair: Pair) -> &mut Conditions {
        self.paths.entry(pair).or_insert(self.everywhere)
    }

    pub(crate) fn carrier_mut(&mut self) -> &mut Carrier {
        self.carrier.get_or_insert_with(Carrier::new)
    }

    pub(crate) fn traffic(&self, pair: Pair) -> Traffic {
        self.traffic.get(&pair).copied().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> Traffic {
        self.traffic.values().fold(Traffic::default(), |sum, traffic| Traffic {
            control_frames: sum.control_frames + traffic.control_frames,
            data_frames: sum.data_frames + traffic.data_frames,
            bytes: sum.bytes + traffic.bytes,
        })
    }

    /// A frame leaves now: when does it arrive? `token` makes the token of a frame that is carried.
    pub(crate) fn depart(
        &mut self,
        now: Instant,
        pair: Pair,
        lane: Lane,
        bytes: usize,
        token: impl FnOnce() -> Token,
    ) -> Departure {
        let conditions = self.conditions(pair);
        self.count(pair, lane, bytes);
        if self.random.happens(conditions.loss) {
            return Departure::Lost;
        }
        let sent = match (lane, conditions.bandwidth) {
            (Lane::Data, Some(bandwidth)) => self.occupy(now, pair, bytes, bandwidth),
            _ => now,
        };
        let jitter = self.random.up_to(conditions.jitter);
        let arrives = after(sent, conditions.latency.saturating_add(jitter));
        match (lane, &mut self.carrier) {
            (Lane::Data, Some(carrier)) => {
                carrier.send(now, pair, bytes, arrives - now, token());
                Departure::Carried
            }
            _ => Departure::Arrives(arrives),
        }
    }

    fn count(&mut self, pair: Pair, lane: Lane, bytes: usize) {
        let traffic = self.traffic.entry(pair).or_default();
        match lane {
            Lane::Control => traffic.control_frames += 1,
            Lane::Data => traffic.data_frames += 1,
        }
        traffic.bytes += bytes as u64;
    }

    /// When the last byte of a frame has left.
    fn occupy(&mut self, now: Instant, pair: Pair, bytes: usize, bandwidth: u64) -> Instant {
        let nanos = (bytes as u128 * 1_000_000_000) / u128::from(bandwidth.max(1));
        let free = self.busy_until.get(&pair).copied().unwrap_or(now).max(now);
        let sent = after(free, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        self.busy_until.insert(pair, sent);
        sent
    }

    pub(crate) fn is_held(&self, pair: Pair) -> bool {
        self.held.contains_key(&pair)
    }

    /// Lets nothing arrive any more. Answers the connections it concerns.
    pub(crate) fn hold(&mut self, pair: Pair, now: Instant) -> Vec<Arc<Wire>> {
        self.held.entry(pair).or_insert(now);
        self.wires(|nodes| nodes.joins(pair.0, pair.1))
    }

    /// Lets everything arrive again. Answers the connections it concerns.
    pub(crate) fn release(&mut self, pair: Pair) -> Vec<Arc<Wire>> {
        self.held.remove(&pair);
        self.wires(|nodes| nodes.joins(pair.0, pair.1))
    }

    pub(crate) fn held_pairs(&self) -> Vec<Pair> {
        self.held.keys().copied().collect()
    }

    pub(crate) fn held_since(&self, pair: Pair) -> Option<Instant> {
        self.held.get(&pair).copied()
    }

    /// Ends the lives that a node has had: who listens in them is gone. Answers its connections,
    /// and the sinks of those lives that it ends now.
    pub(crate) fn crash(
        &mut self,
        node: NodeId,
        is_silent: bool,
    ) -> (Vec<Arc<Wire>>, Vec<Arc<dyn Sink>>) {
        let lives = (node, Incarnation(0))..=(node, Incarnation(u64::MAX));
        let mut sinks = Vec::new();
        for (_, life) in self.lives.range_mut(lives) {
            life.has_crashed = true;
            sinks.extend(life.sinks.drain(..).filter_map(|sink| sink.upgrade()));
        }
        self.listeners.retain(|name, listening| {
            let is_of_node = listening.hello.node == node;
            if is_of_node && is_silent {
                self.unanswered.insert(name.clone());
            }
            !is_of_node
        });
        (self.wires(|nodes| nodes.includes(node)), sinks)
    }

    /// A life of a node listens or dials. True when it has crashed, so that it can do neither.
    pub(crate) fn has_crashed(&mut self, hello: &Hello, sink: &Arc<dyn Sink>) -> bool {
        let life = self.lives.entry((hello.node, hello.incarnation)).or_default();
        if !life.has_crashed {
            life.sinks.retain(|known| known.strong_count() > 0);
            let sink = Arc::downgrade(sink);
            if !life.sinks.iter().any(|known| known.ptr_eq(&sink)) {
                life.sinks.push(sink);
            }
        }
        life.has_crashed
    }

    /// A name no connection has had.
    pub(crate) fn next_nonce(&mut self) -> LinkNonce {
        loop {
            let nonce = LinkNonce(self.random.draw());
            if !self.wires.contains_key(&nonce) {
                return nonce;
            }
        }
    }

    pub(crate) fn register(&mut self, nonce: LinkNonce, wire: &Arc<Wire>) {
        self.wires.retain(|_, wire| wire.strong_count() > 0);
        self.wires.insert(nonce, Arc::downgrade(wire));
    }

    /// The connections that `is_meant`, by their ends.
    pub(crate) fn wires(&self, is_meant: impl Fn(Nodes) -> bool) -> Vec<Arc<Wire>> {
        let wires = self.wires.values().filter_map(Weak::upgrade);
        wires.filter(|wire| is_meant(wire.nodes())).collect()
    }

    /// A name for `name:0`, or `name` itself. `None` when somebody listens there.
    pub(crate) fn free_name(&mut self, name: &str) -> Option<String> {
        let Some(prefix) = name.strip_suffix(":0") else {
            return (!self.listeners.contains_key(name)).then(|| name.to_owned());
        };
        loop {
            self.last_port += 1;
            let name = format!("{prefix}:{}", self.last_port);
            if !self.listeners.contains_key(&name) {
                return Some(name);
            }
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes(pub(crate) [NodeId; 2]);

impl Nodes {
    pub(crate) fn joins(self, a: NodeId, b: NodeId) -> bool {
        self.0 == [a, b] || self.0 == [b, a]
    }

    pub(crate) fn includes(self, node: NodeId) -> bool {
        self.0.contains(&node)
    }
}
