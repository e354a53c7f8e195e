//! Sites that broadcast at fixed rates over a hose network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;
use convoke_overlay::{
    Control, ControlConfig, ControlEvent, Event, Fault, Frame, HoseModel, LinkEvent, NodeConfig,
    OpId, OverlayNode, Payload, Plan, Site, SiteSet, TransmitKind,
};
use convoke_sim::hose::{Hose, Limits};

/// Size of an operation.
pub(crate) const OP_BYTES: usize = 32 << 10;

/// Bytes that a link takes before it is blocked, until as much has arrived: a round trip of 250 ms
/// at the rate of the fastest uplink, and 32 MiB at least.
fn window_bytes(model: &HoseModel) -> u64 {
    let fastest = model.uplink.iter().max().copied().unwrap_or(0);
    (fastest * 125 / 4).max(32 << 20)
}

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
    /// Plans of each site, if they are made where they are used.
    controls: Vec<Control>,
    dead: BTreeSet<u16>,
    cut: BTreeSet<(usize, usize)>,
    /// Sites that read nothing.
    deaf: BTreeSet<usize>,
    /// Link events to come.
    notices: BTreeMap<(Timestamp, usize, usize), LinkEvent>,
    /// The bad relay, if there is one.
    pub(crate) tamper: Option<Tamper>,
    /// Operations that each site has received, by source and number.
    pub(crate) received: Vec<Vec<BTreeSet<u64>>>,
    /// Everything that was delivered.
    pub(crate) deliveries: Vec<Delivery>,
    /// Suspicions: when, by and of whom.
    pub(crate) suspicions: Vec<(Timestamp, Site, Site)>,
    /// Operations that their sources were told somebody missed.
    pub(crate) missed: Vec<(Timestamp, OpId, Site)>,
    /// Operations that there was no room for.
    pub(crate) refused: u64,
    window: Window,
    /// Bytes of a link that its receiver may leave unread.
    pub(crate) window_bytes: u64,
    pub(crate) control_bytes: u64,
    pub(crate) data_bytes: u64,
}

/// Something delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) source: Site,
    pub(crate) to: Site,
    pub(crate) sent: Timestamp,
    pub(crate) took: Duration,
}

/// A bad relay's treatment of a frame for this receiver: drop it, pass it on, or something else.
pub(crate) type Tamper = fn(relay: Site, to: Site, frame: Frame) -> Option<Frame>;

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

/// Source of operations: what a site broadcasts.
struct Source {
    next_at: Timestamp,
    every: Duration,
    until: Timestamp,
    count: u64,
    /// The same for all its operations.
    payload: Bytes,
    /// The how many-th operation has which sequence number, and when it was broadcast.
    sent: BTreeMap<u64, (u64, Timestamp)>,
}

/// Counts of what arrives within a span of time.
struct Window {
    from: Timestamp,
    until: Timestamp,
    bytes: u64,
    count: u64,
    latency: Duration,
}

/// Result of a run: what was counted.
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
        let source = |index: usize| Source {
            next_at: now,
            every: Duration::ZERO,
            until: Timestamp::MAX,
            count: 0,
            payload: vec![u8::try_from(index).expect("there are few sites"); OP_BYTES].into(),
            sent: BTreeMap::new(),
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
            sources: (0..n).map(source).collect(),
            controls: Vec::new(),
            dead: BTreeSet::new(),
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            notices: BTreeMap::new(),
            tamper: None,
            received: vec![vec![BTreeSet::new(); n]; n],
            deliveries: Vec::new(),
            suspicions: Vec::new(),
            missed: Vec::new(),
            refused: 0,
            window,
            window_bytes: window_bytes(model),
            control_bytes: 0,
            data_bytes: 0,
        };
        (0..n).for_each(|index| wan.offer(index, OP_BYTES, model.demand[index]));
        wan.connect(plan);
        wan
    }

    /// A site broadcasts operations of so many bytes at a rate, kbit/s.
    fn offer(&mut self, index: usize, op_bytes: usize, rate: u64) {
        let source = &mut self.sources[index];
        let bits = op_bytes as u64 * 8;
        source.every = Duration::from_nanos((bits * 1_000_000).checked_div(rate).unwrap_or(0));
        source.payload = vec![u8::try_from(index).expect("there are few sites"); op_bytes].into();
    }

    /// Sites that plan from the model themselves and broadcast so many thousandths of what they
    /// plan.
    pub(crate) fn planned(model: &HoseModel, op_bytes: usize, load_permille: u64) -> Self {
        let n = model.sites();
        let mut wan = Self::new(model, None);
        for index in 0..n {
            let config = ControlConfig::new().fixed(model.clone());
            let (me, now) = (site(index), wan.now);
            wan.controls.push(Control::new(config, me, n, Incarnation(1), now));
            let rate = wan.controls[index].plan().rate(me) * load_permille / 1_000;
            wan.offer(index, op_bytes, rate);
            wan.drain(index);
        }
        wan
    }

    /// The plan that all sites begin with.
    pub(crate) fn plan(&self) -> &Plan {
        self.controls[0].plan()
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
        let taken = self.nodes[index].set_contingency(self.now, SiteSet::EMPTY.with(relay), plan);
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

    /// Number of operations that each source has broadcast.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.count).collect()
    }

    /// Ages of what was broadcast and has not come yet, for each site that it is for, but for some
    /// sites.
    pub(crate) fn ages(&self, without: SiteSet) -> Vec<Duration> {
        let (mut ages, all) = (Vec::new(), SiteSet::first(self.nodes.len()).difference(without));
        for from in all.iter() {
            let sent = &self.sources[from.index()].sent;
            for to in all.without(from).iter() {
                let came = &self.received[to.index()][from.index()];
                let missing = sent.values().filter(|(count, _)| !came.contains(count));
                ages.extend(missing.map(|(_, sent)| self.now.since(*sent)));
            }
        }
        ages
    }

    /// Broadcasts nothing more.
    pub(crate) fn stop(&mut self) {
        self.sources.iter_mut().for_each(|source| source.until = source.until.min(self.now));
    }

    /// A site stops at once; what it has sent arrives. The others are told after a while, or not at
    /// all.
    pub(crate) fn kill(&mut self, victim: Site, notice: Option<Duration>) {
        self.dead.insert(victim.0);
        self.due[victim.index()] = None;
        let source = &mut self.sources[victim.index()];
        source.until = source.until.min(self.now);
        for index in (0..self.nodes.len()).filter(|index| *index != victim.index()) {
            let Some(notice) = notice else { continue };
            self.notices.insert((self.now + notice, index, victim.index()), LinkEvent::Down);
        }
    }

    /// A site that was killed is back, with nothing of what it knew, and connected with all that
    /// live.
    pub(crate) fn restart(&mut self, index: usize) {
        let (n, now, life) = (self.nodes.len(), self.now, Incarnation(2));
        self.dead.remove(&site(index).0);
        self.received[index] = vec![BTreeSet::new(); n];
        let config = NodeConfig::new(site(index), n, life);
        self.nodes[index] = OverlayNode::new(now, config).expect("the limits are the defaults");
        let config = ControlConfig::new().fixed(self.model.clone());
        self.controls[index] = Control::new(config, site(index), n, life, now);
        for peer in (0..n).filter(|peer| *peer != index) {
            if self.is_dead(peer) {
                continue;
            }
            for (at, to, incarnation) in [(index, peer, Incarnation(1)), (peer, index, life)] {
                self.in_flight[at * n + to] = 0;
                self.is_blocked[at * n + to] = false;
                self.notices.insert((now, at, to), LinkEvent::Up { incarnation });
            }
        }
        self.drain(index);
    }

    /// From now on all that leaves a site leaves at this rate, kbit/s.
    pub(crate) fn slow(&mut self, victim: Site, rate: u64) {
        self.hose.uplink(End::Data(victim.index()), Limits::kbit_per_s(rate));
    }

    /// From now on a site reads nothing. What else it does it does.
    pub(crate) fn deafen(&mut self, victim: Site) {
        self.deaf.insert(victim.index());
    }

    /// Two sites lose their link; both are told after a while.
    pub(crate) fn cut(&mut self, a: Site, b: Site, notice: Duration) {
        for (at, peer) in [(a.index(), b.index()), (b.index(), a.index())] {
            self.cut.insert((at, peer));
            self.notices.insert((self.now + notice, at, peer), LinkEvent::Down);
        }
    }

    /// And have it back.
    pub(crate) fn join(&mut self, a: Site, b: Site) {
        for (at, peer) in [(a.index(), b.index()), (b.index(), a.index())] {
            self.cut.remove(&(at, peer));
            self.in_flight[at * self.nodes.len() + peer] = 0;
            self.is_blocked[at * self.nodes.len() + peer] = false;
            let up = LinkEvent::Up { incarnation: Incarnation(1) };
            self.notices.insert((self.now, at, peer), up);
        }
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
        let notice = self.notices.keys().next().map(|(at, ..)| *at);
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
        while let Some(entry) = self.notices.first_entry().filter(|it| it.key().0 <= now) {
            let ((_, index, peer), event) = entry.remove_entry();
            if self.is_dead(index) {
                continue;
            }
            self.nodes[index].handle_link(now, site(peer), event);
            self.drain(index);
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

    /// Broadcasts what is due. What there is no room for is not offered again.
    fn broadcast_due(&mut self, index: usize) {
        let source = &mut self.sources[index];
        if source.every.is_zero() || source.next_at > self.now || source.next_at >= source.until {
            return;
        }
        source.next_at = source.next_at + source.every;
        if let Ok(op) = self.nodes[index].broadcast(self.now, source.payload.clone()) {
            source.sent.insert(op.seq, (source.count, self.now));
            source.count += 1;
        } else {
            self.refused += 1;
        }
        self.drain(index);
    }

    fn arrive(&mut self, from: usize, to: usize, bytes: u64, frame: Frame) {
        let (now, pair) = (self.now, from * self.nodes.len() + to);
        if self.cut.contains(&(from, to)) || self.deaf.contains(&to) {
            return;
        }
        if matches!(frame, Frame::Data(_)) {
            self.in_flight[pair] = self.in_flight[pair].saturating_sub(bytes);
            if std::mem::take(&mut self.is_blocked[pair]) && !self.is_dead(from) {
                self.nodes[from].handle_link(now, site(to), LinkEvent::Writable);
                self.drain(from);
            }
        }
        if !self.is_dead(to) {
            let handled = self.nodes[to].handle_frame(now, site(from), frame);
            if let Err(fault) = handled {
                let is_tampered = matches!(fault, Fault::Changed { .. }) && self.tamper.is_some();
                assert!(is_tampered, "everybody keeps the rules: {fault}");
            }
            self.drain(to);
        }
    }

    fn drain(&mut self, index: usize) {
        loop {
            self.plan_again(index);
            let Some(event) = self.nodes[index].poll_event() else { break };
            match event {
                Event::Delivered { op, payload } => {
                    self.deliver(index, op, &payload);
                }
                Event::Suspect { relay, by, .. } if by == site(index) => {
                    self.suspicions.push((self.now, by, relay));
                    if let Some(control) = self.controls.get_mut(index) {
                        control.handle_suspicion(self.now, relay, true);
                    }
                }
                Event::RelaysFail { .. } => {
                    if let Some(control) = self.controls.get_mut(index) {
                        control.handle_failing(self.now, self.nodes[index].lacking());
                    }
                }
                Event::AllAcked { op, missed } => {
                    let missed = missed.iter().filter(|site| !self.dead.contains(&site.0));
                    self.missed.extend(missed.map(|by| (self.now, op, by)));
                }
                _ => {}
            }
        }
        while let Some(transmit) = self.nodes[index].poll_transmit(self.now) {
            self.send(index, transmit.to.index(), transmit.kind, transmit.frame);
        }
        self.due[index] = self.nodes[index].poll_timeout();
    }

    fn plan_again(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.nodes[index]);
        while let Some(event) = self.controls.get_mut(index).and_then(Control::poll_event) {
            match event {
                ControlEvent::Plan(plan) => node.set_plan(now, (*plan).clone()),
                ControlEvent::Contingency(relays, plan) => {
                    node.set_contingency(now, relays, (*plan).clone())
                }
            }
            .expect("the plans are of these sites");
        }
    }

    fn send(&mut self, from: usize, to: usize, kind: TransmitKind, frame: Frame) {
        let n = self.nodes.len();
        let is_passed_on = matches!(&frame, Frame::Data(it) if it.op.source != site(from));
        let frame = match self.tamper.filter(|_| is_passed_on) {
            None => frame,
            Some(tamper) => match tamper(site(from), site(to), frame) {
                Some(frame) => frame,
                None => return,
            },
        };
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
        if self.in_flight[from * n + to] > self.window_bytes {
            self.is_blocked[from * n + to] = true;
            self.nodes[from].handle_link(self.now, site(to), LinkEvent::Blocked);
        }
    }

    fn deliver(&mut self, at: usize, op: OpId, payload: &Payload) {
        let source = &self.sources[op.source.index()];
        let (count, sent) = source.sent[&op.seq];
        let is_new = self.received[at][op.source.index()].insert(count);
        assert!(is_new, "{op:?} is delivered twice at {at}");
        let mut pieces = payload.chunks().iter().flat_map(|chunk| chunk.chunks(OP_BYTES));
        let is_same = |piece: &[u8]| *piece == source.payload[..piece.len()];
        assert!(pieces.all(is_same) && payload.len() == source.payload.len(), "it was changed");
        let (took, source) = (self.now.since(sent), op.source);
        self.deliveries.push(Delivery { source, to: site(at), sent, took });
        if (self.window.from..self.window.until).contains(&self.now) {
            self.window.bytes += payload.len() as u64;
            self.window.count += 1;
            self.window.latency += took;
        }
    }
}
