//! Sites that broadcast at fixed rates over a hose network.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;
use convoke_overlay::{
    Event, Frame, HoseModel, LinkEvent, NodeConfig, OverlayNode, Plan, Site, TransmitKind,
};
use convoke_sim::hose::{Hose, Limits};

/// Size of an operation.
pub(crate) const OP_BYTES: usize = 32 << 10;

/// What a link takes before it is blocked, until as much has arrived: more than a round trip holds at full rate.
const WINDOW_BYTES: u64 = 32 << 20;

/// A site that nobody can hear: how long until the others notice.
const SILENCE: Duration = Duration::from_millis(300);

pub(crate) struct Wan {
    pub(crate) now: Timestamp,
    pub(crate) nodes: Vec<OverlayNode>,
    /// When each node wants to be called, as it said after its last input.
    due: Vec<Option<Timestamp>>,
    model: HoseModel,
    hose: Hose<End, Frame>,
    /// Data bytes on their way, by pair.
    in_flight: Vec<u64>,
    is_blocked: Vec<bool>,
    sources: Vec<Source>,
    dead: BTreeSet<u16>,
    /// When the others notice that a site is dead.
    notice: Option<(Timestamp, u16)>,
    /// What each site has received, by source: the operations by their number.
    pub(crate) received: Vec<Vec<BTreeSet<u64>>>,
    window: Window,
    pub(crate) control_bytes: u64,
    pub(crate) data_bytes: u64,
}

/// A site as the hose knows it. Control frames pass beside the data: their ends have no limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Data(usize),
    Control(usize),
}

impl End {
    fn index(self) -> usize {
        match self {
            Self::Data(index) | Self::Control(index) => index,
        }
    }
}

/// What a site broadcasts.
struct Source {
    next_at: Timestamp,
    every: Duration,
    until: Timestamp,
    count: u64,
}

/// What is counted of what arrives.
struct Window {
    from: Timestamp,
    until: Timestamp,
    bytes: u64,
    count: u64,
    latency: Duration,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Payload at each receiver in the mean, with what a site broadcasts counted once, Mbit/s.
    pub(crate) throughput: f64,
    pub(crate) mean_ms: f64,
}

fn site(index: usize) -> Site {
    Site(u16::try_from(index).expect("there are few sites"))
}

impl Wan {
    /// Sites that are connected and want to broadcast what the model says, with a plan or without.
    pub(crate) fn new(model: &HoseModel, plan: Option<&Plan>) -> Self {
        let (n, now) = (model.sites(), Timestamp::from_nanos(1));
        let mut hose = Hose::new();
        for index in 0..n {
            hose.uplink(End::Data(index), Limits::kbit_per_s(model.uplink[index]));
            hose.downlink(End::Data(index), Limits::kbit_per_s(model.downlink[index]));
        }
        let node = |index| {
            let config = NodeConfig::new(site(index), n, Incarnation(1));
            OverlayNode::new(now, config).expect("the limits are the defaults")
        };
        let source = |demand: &u64| {
            let bits = OP_BYTES as u64 * 8;
            let every = Duration::from_nanos((bits * 1_000_000).checked_div(*demand).unwrap_or(0));
            Source { next_at: now, every, until: Timestamp::MAX, count: 0 }
        };
        let window = Window { from: now, until: now, bytes: 0, count: 0, latency: Duration::ZERO };
        let mut wan = Self {
            now,
            nodes: (0..n).map(node).collect(),
            due: vec![None; n],
            model: model.clone(),
            hose,
            in_flight: vec![0; n * n],
            is_blocked: vec![false; n * n],
            sources: model.demand.iter().map(source).collect(),
            dead: BTreeSet::new(),
            notice: None,
            received: vec![vec![BTreeSet::new(); n]; n],
            window,
            control_bytes: 0,
            data_bytes: 0,
        };
        wan.connect(plan);
        wan
    }

    fn connect(&mut self, plan: Option<&Plan>) {
        let n = self.nodes.len();
        for index in 0..n {
            for peer in (0..n).filter(|peer| *peer != index) {
                let up = LinkEvent::Up { incarnation: Incarnation(1) };
                self.nodes[index].handle_link(self.now, site(peer), up);
            }
            if let Some(plan) = plan {
                let taken = self.nodes[index].set_plan(self.now, plan.clone());
                taken.expect("it is for these sites");
            }
            self.drain(index);
        }
    }

    /// Gives a site the plan for when a relay is lost.
    pub(crate) fn prepare(&mut self, index: usize, relay: Site, plan: Plan) {
        let taken = self.nodes[index].set_contingency(self.now, relay, plan);
        taken.expect("it is of the same epoch");
    }

    /// Runs, and counts what arrives after the warm-up.
    pub(crate) fn measure(&mut self, warm_up: Duration, counted: Duration) -> Outcome {
        self.window.from = self.now + warm_up;
        self.window.until = self.window.from + counted;
        self.run_until(self.window.until);
        let receivers = self.nodes.len() as f64 - 1.0;
        let bits = self.window.bytes as f64 * 8.0;
        Outcome {
            throughput: bits / counted.as_secs_f64() / receivers / 1e6,
            mean_ms: self.window.latency.as_secs_f64() * 1e3 / self.window.count.max(1) as f64,
        }
    }

    /// How many operations each source has broadcast.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.count).collect()
    }

    /// Broadcasts nothing more.
    pub(crate) fn stop(&mut self) {
        self.sources.iter_mut().for_each(|source| source.until = source.until.min(self.now));
    }

    /// A site stops at once; what it has sent arrives. The others notice later.
    pub(crate) fn kill(&mut self, victim: Site) {
        self.dead.insert(victim.0);
        self.due[victim.index()] = None;
        self.sources[victim.index()].until = self.now;
        self.notice = Some((self.now + SILENCE, victim.0));
    }

    pub(crate) fn run_until(&mut self, until: Timestamp) {
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = until;
    }

    fn next_at(&self) -> Option<Timestamp> {
        let sources = self.sources.iter().filter(|source| source.next_at < source.until);
        let sources = sources.filter(|source| !source.every.is_zero()).map(|it| it.next_at);
        let notice = self.notice.map(|(at, _)| at);
        sources
            .chain(self.due.iter().flatten().copied())
            .chain(self.hose.poll_timeout())
            .chain(notice)
            .min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(arrival) = self.hose.poll_arrival(now) {
            let (from, to) = (arrival.from.index(), arrival.to.index());
            self.arrive(from, to, arrival.bytes, arrival.item);
        }
        if let Some((_, victim)) = self.notice.take_if(|(at, _)| *at <= now) {
            for index in (0..self.nodes.len()).filter(|index| *index != usize::from(victim)) {
                self.nodes[index].handle_link(now, Site(victim), LinkEvent::Down);
                self.drain(index);
            }
        }
        for index in 0..self.nodes.len() {
            if self.is_dead(index) {
                continue;
            }
            self.broadcast_due(index);
            if self.due[index].is_some_and(|at| at <= now) {
                self.nodes[index].handle_timeout(now);
                self.drain(index);
            }
        }
    }

    fn is_dead(&self, index: usize) -> bool {
        self.dead.contains(&site(index).0)
    }

    /// What there is no room for is not offered again.
    fn broadcast_due(&mut self, index: usize) {
        let source = &mut self.sources[index];
        if source.every.is_zero() || source.next_at > self.now || source.next_at >= source.until {
            return;
        }
        source.next_at = source.next_at + source.every;
        let mut payload = vec![0; OP_BYTES];
        payload[..8].copy_from_slice(&source.count.to_le_bytes());
        payload[8..16].copy_from_slice(&self.now.as_nanos().to_le_bytes());
        if self.nodes[index].broadcast(self.now, payload.into()).is_ok() {
            source.count += 1;
        }
        self.drain(index);
    }

    fn arrive(&mut self, from: usize, to: usize, bytes: u64, frame: Frame) {
        let (now, pair) = (self.now, from * self.nodes.len() + to);
        if matches!(frame, Frame::Data(_)) {
            self.in_flight[pair] -= bytes;
            if std::mem::take(&mut self.is_blocked[pair]) && !self.is_dead(from) {
                self.nodes[from].handle_link(now, site(to), LinkEvent::Writable);
                self.drain(from);
            }
        }
        if !self.is_dead(to) {
            let handled = self.nodes[to].handle_frame(now, site(from), frame);
            handled.expect("everybody keeps the rules");
            self.drain(to);
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(event) = self.nodes[index].poll_event() {
            if let Event::Delivered { op, payload } = event {
                self.deliver(index, op.source, &payload.into_bytes());
            }
        }
        while let Some(transmit) = self.nodes[index].poll_transmit(self.now) {
            self.send(index, transmit.to.index(), transmit.kind, transmit.frame);
        }
        self.due[index] = self.nodes[index].poll_timeout();
    }

    fn send(&mut self, from: usize, to: usize, kind: TransmitKind, frame: Frame) {
        let n = self.nodes.len();
        let latency = Duration::from_micros(self.model.latency_us[from * n + to].into());
        let len = frame.encoded_len() as u64;
        if kind == TransmitKind::Control {
            // Small and urgent: it waits for nobody, and is counted apart.
            self.control_bytes += len;
            let (from, to) = (End::Control(from), End::Control(to));
            self.hose.send(self.now, from, to, len, latency, frame);
            return;
        }
        self.data_bytes += len;
        self.in_flight[from * n + to] += len;
        self.hose.send(self.now, End::Data(from), End::Data(to), len, latency, frame);
        if self.in_flight[from * n + to] > WINDOW_BYTES {
            self.is_blocked[from * n + to] = true;
            self.nodes[from].handle_link(self.now, site(to), LinkEvent::Blocked);
        }
    }

    fn deliver(&mut self, at: usize, source: Site, payload: &Bytes) {
        let number = |part: &[u8]| u64::from_le_bytes(part.try_into().expect("eight bytes"));
        let (count, sent) = (number(&payload[..8]), number(&payload[8..16]));
        let is_new = self.received[at][source.index()].insert(count);
        assert!(is_new, "{source:?} {count} is delivered twice at {at}");
        if (self.window.from..self.window.until).contains(&self.now) {
            self.window.bytes += payload.len() as u64;
            self.window.count += 1;
            self.window.latency += self.now.since(Timestamp::from_nanos(sent));
        }
    }
}
