//! Scenario of a run: its nodes, limits, network, workload and faults. A seed decides all of it.

mod faults;

use std::ops::Range;
use std::time::Duration;

use convoke_proto::limits::{Limits, ReplyDial};

use crate::network::{Conditions, Network, Place};
use crate::plan::Shape;
use crate::random::Random;

pub use faults::{Fault, Injection};

/// The kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing goes wrong but for tasks that fail by themselves.
    Calm,
    /// Frames arrive in any order and some twice.
    AnyOrder,
    /// Frames are lost in silence.
    Lossy,
    /// Connections break with what is in flight.
    Cuts,
    /// Nodes crash and start again.
    Crashes,
    /// Frames of one or both directions stall until the connection dies, or just before.
    Partitions,
    /// Requests between servers take longer than it takes the initiator to worry.
    SlowParentLink,
    /// A node stops for longer than the keep-alive timeout, and finds its frames waiting.
    PausedDriver,
    /// Users of calls read slowly, or stop reading.
    StoppedReader,
    /// Initiators that only dial out and know one server.
    Relayed,
    /// Calls are cancelled or dropped.
    Cancels,
    /// Calls end by a quorum.
    Quorums,
    /// Every table is tiny.
    Overload,
    /// All of it.
    Storm,
    /// Some nodes do not keep the protocol.
    Liars,
    /// Many calls of all lengths at once, of which many fail or are given up.
    Load,
    /// The same, and copies come as late as anything is remembered, or later.
    LateCopies,
    /// Calls walk to and fro between few servers, of which one is connected to the initiator.
    Walks,
    /// Servers stop in good order under load, and start again.
    Stops,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Calm,
        Self::AnyOrder,
        Self::Lossy,
        Self::Cuts,
        Self::Crashes,
        Self::Partitions,
        Self::SlowParentLink,
        Self::PausedDriver,
        Self::StoppedReader,
        Self::Relayed,
        Self::Cancels,
        Self::Quorums,
        Self::Overload,
        Self::Storm,
        Self::Liars,
        Self::Load,
        Self::LateCopies,
        Self::Walks,
        Self::Stops,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::AnyOrder => "any-order",
            Self::Lossy => "lossy",
            Self::Cuts => "cuts",
            Self::Crashes => "crashes",
            Self::Partitions => "partitions",
            Self::SlowParentLink => "slow-parent-link",
            Self::PausedDriver => "paused-driver",
            Self::StoppedReader => "stopped-reader",
            Self::Relayed => "relayed",
            Self::Cancels => "cancels",
            Self::Quorums => "quorums",
            Self::Overload => "overload",
            Self::Storm => "storm",
            Self::Liars => "liars",
            Self::Load => "load",
            Self::LateCopies => "late-copies",
            Self::Walks => "walks",
            Self::Stops => "stops",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Workload of a run: how calls are opened and used.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Calls in all, while faults may happen.
    pub calls: usize,
    /// Calls after all faults.
    pub calls_after: usize,
    /// When the first ones open, in microseconds.
    pub open_us: Range<u64>,
    /// Their budgets, in microseconds.
    pub budget_us: Range<u64>,
    /// Short budgets are as frequent as long ones, by their order of magnitude.
    pub mixes_budgets: bool,
    /// Root branches of a call, at most.
    pub roots_max: u64,
    /// Calls that end by a quorum, of a hundred.
    pub quorum_percent: u32,
    /// Of the others, those whose callers have enough after a few replies, of a hundred.
    pub decided_percent: u32,
    /// Calls that are cancelled at some time, of a hundred.
    pub cancel_percent: u32,
    /// Calls that are dropped at some time, of a hundred.
    pub drop_percent: u32,
    /// Calls read slowly, of a hundred.
    pub slow_reader_percent: u32,
    /// Calls that nobody reads to the end, of a hundred.
    pub stopped_reader_percent: u32,
}

/// Everything about a run but its events.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its kind.
    pub kind: Kind,
    /// Seed that it came from.
    pub seed: u64,
    /// Decides latencies and faults only, so that the same work can meet another network.
    pub network_seed: u64,
    /// Nodes that serve; the others only open calls.
    pub servers: usize,
    /// Nodes that open calls.
    pub clients: usize,
    /// True when clients can be dialled.
    pub clients_listen: bool,
    /// Servers that a client knows.
    pub servers_known: usize,
    /// The cores of every node.
    pub cores: u8,
    /// The bounds of every node.
    pub limits: Limits,
    /// The network.
    pub conditions: Conditions,
    /// Shape of what tasks do.
    pub shape: Shape,
    /// Workload of the initiators.
    pub workload: Workload,
    /// Faults, and their times.
    pub faults: Vec<Injection>,
    /// When everything that is wrong ends.
    pub heal_at: Duration,
    /// A bound of a table may refuse work.
    pub has_tiny_limits: bool,
    /// Nodes that do not keep the protocol: servers, which are asked, and clients, which are not.
    pub liars: Vec<Place>,
    /// Some requests are followed by items.
    pub streams_requests: bool,
    /// So many servers may lie, or be silent, and quorum calls still decide.
    pub tolerates: usize,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::of(seed, 2);
        let kind = Kind::ALL[random.index(Kind::ALL.len())];
        Self::with_kind(kind, seed)
    }

    /// The scenario of a seed, but of this kind.
    pub fn with_kind(kind: Kind, seed: u64) -> Self {
        let mut random = Random::of(seed, 3);
        let mut scenario = Self::calm(kind, seed, &mut random);
        scenario.spoil(&mut random);
        // Items rely on the order of their connection.
        scenario.streams_requests = scenario.conditions.is_fifo && Random::of(seed, 7).chance(40);
        scenario.faults = faults::inject(&scenario, &mut random);
        scenario
    }

    /// True when calls may be settled before the words of their tasks, for lack of room.
    pub fn settles_early(&self) -> bool {
        self.limits.winding_max < self.workload.calls
    }

    /// True when every frame arrives once, in order and soon, and no node stops.
    pub fn is_fault_free(&self) -> bool {
        let c = &self.conditions;
        self.faults.is_empty()
            && c.is_fifo
            && c.loss_per_mille == 0
            && c.copies_per_mille == 0
            && c.late_per_mille == 0
            && c.dial_failure_percent == 0
    }

    fn calm(kind: Kind, seed: u64, random: &mut Random) -> Self {
        let mut limits = Limits::default();
        limits.keep_alive_timeout = random.micros(400_000..1_500_000);
        limits.backoff_max = Duration::from_millis(400);
        limits.carry_copies = 1 + random.index(3);
        limits.ask_min = random.index(4) * random.index(3);
        limits.exceptions_max = if random.chance(50) { 1 + random.index(8) } else { 1_024 };
        limits.worry_min = random.micros(10_000..80_000);
        limits.worry_max = Duration::from_millis(500);
        limits.reply_dial =
            [ReplyDial::Never, ReplyDial::KnownNodes, ReplyDial::Anybody][random.index(3)];
        limits.stream_window_bytes = 16 << (10 + random.index(4));
        Self {
            kind,
            seed,
            network_seed: seed,
            servers: 2 + random.index(4),
            clients: 1 + random.index(3),
            clients_listen: random.chance(50),
            servers_known: usize::MAX,
            cores: cores(seed),
            limits,
            conditions: Conditions {
                latency_us: 20..2_000,
                jitter_us: random.within(0..500),
                server_factor: 1,
                us_per_kib: random.within(0..20),
                is_fifo: true,
                loss_per_mille: 0,
                copies_per_mille: 0,
                late_per_mille: 0,
                dial_failure_percent: 0,
                slow_dial_percent: 0,
            },
            shape: Shape {
                depth_max: 1 + random.index(5),
                fan_out_max: 1 + random.within(0..4),
                failure_percent: 5,
                wait_percent: 25,
                wait_us: 10..30_000,
                large_percent: 4,
                stream_percent: 15,
                short_deadline_percent: 0,
            },
            workload: Workload {
                calls: 3 + random.index(12),
                calls_after: 2,
                open_us: 0..1_500_000,
                budget_us: 8_000_000..10_000_000,
                mixes_budgets: false,
                roots_max: 4,
                quorum_percent: 10,
                decided_percent: 20,
                cancel_percent: 0,
                drop_percent: 0,
                slow_reader_percent: 10,
                stopped_reader_percent: 0,
            },
            faults: Vec::new(),
            heal_at: Duration::from_secs(2),
            has_tiny_limits: false,
            liars: Vec::new(),
            streams_requests: false,
            tolerates: 0,
        }
    }

    /// Applies what is special about the kind.
    fn spoil(&mut self, random: &mut Random) {
        match self.kind {
            Kind::Calm => {
                if random.chance(20) {
                    self.shape.fan_out_max = 24;
                    self.shape.depth_max = self.shape.depth_max.min(3);
                }
                if random.chance(50) {
                    self.make_countable();
                }
            }
            Kind::Partitions | Kind::PausedDriver => {}
            Kind::AnyOrder => self.spoil_order(random),
            Kind::Lossy => {
                self.conditions.loss_per_mille =
                    1 + u32::try_from(random.within(0..150)).unwrap_or(0);
                self.workload.budget_us = 300_000..4_000_000;
            }
            Kind::Cuts | Kind::Crashes => self.conditions.jitter_us = 3_000,
            Kind::SlowParentLink => {
                self.conditions.server_factor = 50;
                self.conditions.latency_us = 500..4_000;
                self.limits.worry_min = Duration::from_millis(2);
            }
            Kind::StoppedReader => {
                self.workload.stopped_reader_percent = 40;
                self.workload.slow_reader_percent = 40;
                self.workload.budget_us = 500_000..4_000_000;
                self.shape.stream_percent = 60;
                self.shape.large_percent = 20;
                self.limits.stream_window_bytes = self.limits.unscheduled_bytes;
            }
            Kind::Relayed => self.spoil_routes(random),
            Kind::Cancels => {
                self.workload.cancel_percent = 40;
                self.workload.drop_percent = 30;
                self.workload.budget_us = 100_000..5_000_000;
                self.shape.wait_percent = 60;
                self.shape.wait_us = 1_000..100_000;
                self.shape.short_deadline_percent = 10;
            }
            Kind::Quorums => {
                self.workload.quorum_percent = 90;
                self.workload.roots_max = 8;
                self.shape.failure_percent = 15;
            }
            Kind::Overload => self.shrink_limits(random),
            Kind::Storm => self.spoil_all(random),
            Kind::Liars => self.add_liars(random),
            Kind::Load => self.load(random),
            Kind::LateCopies => {
                self.load(random);
                self.conditions.late_per_mille = 100;
            }
            Kind::Walks => self.walk(random),
            Kind::Stops => self.stop_under_load(random),
        }
    }

    /// Every task sends what fits its first credit, and never passes on more entries than may ride
    /// on its first output, so that the frames of a call can be foretold.
    fn make_countable(&mut self) {
        self.shape.depth_max = self.shape.depth_max.min(4);
        self.shape.fan_out_max = self.shape.fan_out_max.min(4);
        self.shape.failure_percent = 0;
        self.shape.large_percent = 0;
        self.shape.stream_percent = 0;
        self.limits.worry_min = Duration::from_secs(2);
        self.limits.worry_max = self.limits.worry_min;
        // A decision may cancel late tasks, and what they hold back then never leaves.
        self.workload.quorum_percent = 0;
        self.workload.decided_percent = 0;
    }

    /// True when the number of frames can be foretold.
    pub fn is_countable(&self) -> bool {
        let shape = &self.shape;
        let quorums = self.workload.quorum_percent + self.workload.decided_percent;
        let percents = [shape.failure_percent, shape.large_percent, shape.stream_percent, quorums];
        let is_kept = self.liars.is_empty();
        self.is_fault_free() && is_kept && percents == [0; 4] && shape.depth_max <= 4
    }

    /// Longest time in which a frame gets a level down the tree: a dial, the frame, and a request
    /// that is still on its way. `None` where connections break, dials are slow, or calls are
    /// settled for lack of room, for then it need not arrive (`settlement.md` section 2).
    pub(crate) fn level_latency_max(&self) -> Option<Duration> {
        let is_plain = self.is_fault_free()
            && !self.has_tiny_limits
            && !self.settles_early()
            && self.conditions.slow_dial_percent == 0;
        let network = Network::new(self.conditions.clone(), self.servers, 0);
        is_plain.then(|| network.latency_max(64 << 10) * 6)
    }

    fn spoil_order(&mut self, random: &mut Random) {
        self.conditions.is_fifo = false;
        self.conditions.copies_per_mille = 200;
        self.conditions.jitter_us = random.within(1..20_000);
        if random.chance(50) {
            // Without worry nothing but the arithmetic of the tree is at work: it must complete.
            self.limits.worry_min = Duration::from_secs(60);
            self.limits.worry_max = Duration::from_secs(60);
        }
    }

    fn spoil_routes(&mut self, random: &mut Random) {
        self.clients_listen = random.chance(25);
        self.servers_known = 1;
        self.conditions.slow_dial_percent = 10;
        self.limits.reply_dial =
            if self.clients_listen { ReplyDial::Anybody } else { ReplyDial::Never };
        self.shape.wait_us = 1_000..100_000;
        self.shape.large_percent = 15;
    }

    fn shrink_limits(&mut self, random: &mut Random) {
        self.has_tiny_limits = true;
        self.limits.tasks_max = 1 + random.index(6);
        self.limits.remembered_max = 2 + random.index(30);
        self.limits.branches_max = 1 + u32::try_from(random.index(20)).unwrap_or(0);
        self.limits.children_max = 1 + u32::try_from(random.index(4)).unwrap_or(0);
        self.limits.calls_max = 1 + random.index(4);
        self.limits.message_bytes_max = 8 << 10;
        self.limits.unscheduled_bytes = 1 << 10;
        self.limits.stream_window_bytes = 2 << 10;
        self.limits.reply_bytes_max = 16 << 10;
        self.limits.dial_queue_bytes_max = 4 << 10;
        self.workload.calls = 20;
        self.workload.budget_us = 50_000..1_500_000;
        self.workload.open_us = 0..400_000;
        self.workload.calls_after = 0;
    }

    /// Calls of very different lengths, so that no floor moves by itself; some of their tasks run
    /// on after the end, and some are settled early for lack of room.
    fn load(&mut self, random: &mut Random) {
        // So much that cancels overtake requests.
        self.conditions.jitter_us = 5_000;
        self.workload.calls = 20 + random.index(20);
        self.workload.open_us = 0..600_000;
        self.workload.budget_us = 20_000..6_000_000;
        self.workload.mixes_budgets = true;
        self.workload.cancel_percent = 30;
        self.workload.drop_percent = 10;
        self.workload.decided_percent = 30;
        self.shape.failure_percent = 15;
        self.shape.wait_percent = 40;
        self.shape.wait_us = 1_000..300_000;
        self.shape.short_deadline_percent = 15;
        self.shape.depth_max = 1 + random.index(3);
        self.limits.ask_min = random.index(4);
        self.limits.exceptions_max = 1 + random.index(4);
        if random.chance(30) {
            self.limits.winding_max = random.index(4);
        }
        if random.chance(40) {
            // Most servers never meet the initiator, and learn from one another what is over.
            self.servers_known = 1;
            self.clients_listen = false;
            self.limits.reply_dial = ReplyDial::Never;
        }
    }

    /// The servers that never meet the initiator learn from one another what is over, though each
    /// has sent to the other.
    fn walk(&mut self, random: &mut Random) {
        self.servers = 2 + random.index(2);
        self.servers_known = 1;
        self.clients_listen = false;
        self.limits.reply_dial = ReplyDial::Never;
        self.limits.ask_min = random.index(3);
        self.limits.exceptions_max = 1_024;
        self.workload.calls = 20 + random.index(20);
        self.workload.open_us = 0..300_000;
        self.shape.depth_max = 4 + random.index(4);
        self.shape.fan_out_max = 2;
        self.shape.stream_percent = 0;
    }

    /// Many calls at once, whose tasks reach their initiator by themselves.
    fn stop_under_load(&mut self, random: &mut Random) {
        self.servers = 3 + random.index(3);
        self.clients_listen = true;
        self.limits.reply_dial = ReplyDial::Anybody;
        // So much that the words of a connection and its requests overtake each other.
        self.conditions.jitter_us = random.within(0..5_000);
        self.workload.calls = 20 + random.index(30);
        self.workload.open_us = 0..500_000;
        self.workload.slow_reader_percent = 0;
        self.shape.wait_us = 10..60_000;
    }

    /// Up to two servers that are asked, and maybe a client that never is.
    fn add_liars(&mut self, random: &mut Random) {
        self.tolerates = 1 + random.index(2);
        self.servers = 3 * self.tolerates + 1;
        self.clients = 2 + random.index(2);
        self.clients_listen = random.chance(70);
        let count = random.index(self.tolerates + 1);
        let mut servers: Vec<Place> = (0..self.servers).collect();
        for _ in 0..count {
            self.liars.push(servers.swap_remove(random.index(servers.len())));
        }
        if count == 0 || random.chance(50) {
            self.liars.push(self.servers + random.index(self.clients));
        }
        self.limits.deadline_max = Duration::from_secs(10);
        self.limits.branches_max = 400;
        self.workload.quorum_percent = 40;
        self.workload.slow_reader_percent = 0;
        self.shape.large_percent = 0;
        self.shape.depth_max = 1 + random.index(3);
    }

    fn spoil_all(&mut self, random: &mut Random) {
        self.conditions.jitter_us = random.within(0..5_000);
        self.conditions.dial_failure_percent = 10;
        self.conditions.slow_dial_percent = 10;
        self.conditions.server_factor = 1 + u32::try_from(random.within(0..20)).unwrap_or(0);
        if random.chance(15) {
            self.shrink_limits(random);
        }
        if random.chance(20) {
            self.spoil_routes(random);
        }
        self.conditions.loss_per_mille = if random.chance(50) { 20 } else { 0 };
        self.conditions.copies_per_mille = if random.chance(50) { 50 } else { 0 };
        self.conditions.is_fifo = random.chance(70);
        self.workload.budget_us = 50_000..4_000_000;
        self.workload.cancel_percent = 10;
        self.workload.drop_percent = 10;
        self.workload.quorum_percent = 30;
        self.workload.stopped_reader_percent = 5;
        self.shape.short_deadline_percent = 5;
    }
}

/// The cores of every node: dice of their own, so that they change no other.
fn cores(seed: u64) -> u8 {
    [1, 1, 2, 4][Random::of(seed, 13).index(4)]
}
