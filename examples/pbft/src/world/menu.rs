//! Faults of a run and their frequency, by its seed.

use std::ops::Range;
use std::time::Duration;

use convoke_sim::random::Random;
use node_kit::world::{Network, odd};

use crate::core::{ClientId, Trust};

/// Lies of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// It is two replicas with one key, each of which some members hear.
    pub is_twins: bool,
    /// Of a thousand of its words, those of which a field is changed, signed with its own key.
    pub tampered_per_mille: u32,
    /// Words in the name of others, or under a wrong signature.
    pub forged_per_mille: u32,
    /// Words of anybody, said before, that it says again.
    pub replayed_per_mille: u32,
    /// Requests that no client made.
    pub invented_per_mille: u32,
    /// It says nothing to the first so many of the others.
    pub silent_to: u64,
    /// Of a hundred of its words, those that come about a timeout late.
    pub late_percent: u32,
    /// It has batches prepared for liars alone: it proposes to just so many others as their votes
    /// need, in the first view, gives its votes to prepare to liars, and answers nobody else who
    /// asks for a batch. It wants each next view before all others, and shows the proof once one
    /// has begun without it. Never drawn.
    pub hoards: bool,
}

/// Faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Members.
    pub nodes: u64,
    /// Of these the first so many lie, at most f.
    pub liars: u64,
    /// Their lies.
    pub habits: Habits,
    /// Members that are away for good in the end: with the liars f at most.
    pub away: u64,
    /// Clients.
    pub clients: u64,
    /// Requests that a client has in flight.
    pub each_client: u64,
    /// Places between checkpoints; the window is twice that.
    pub checkpoint_every: u64,
    /// Batches in flight.
    pub in_flight: u64,
    /// Requests of a batch.
    pub batch_max: usize,
    /// Times and faults of messages.
    pub network: Network,
    /// Time of a sync, in microseconds.
    pub sync_us: Range<u64>,
    /// Pause of a client between two steps.
    pub pause_us: Range<u64>,
    /// Words after which a replica crashes at once.
    pub crash_per_mille: u32,
    /// Pause between two faults.
    pub fault_us: Range<u64>,
    /// Of a hundred faults, how many are crashes,
    pub crash: u32,
    /// one-way cuts of a link, or of all links of a replica. The rest end all cuts.
    pub cut: u32,
    /// The shortest timeout, in milliseconds.
    pub timeout_ms: u64,
    /// Signatures are Ed25519, not the stand-in.
    pub is_signed: bool,
    /// The proof of names.
    pub trust: Trust,
    /// Clients ask all members, and proposals have digests of their requests.
    pub is_outlined: bool,
    /// Clients, the first so many, that lie: of each request only some members hear, and at times
    /// some of another of the same number.
    pub partial: u64,
    /// Nodes that are no members at first. An administrator has them join, and others leave, at
    /// random; without them members stay as they are.
    pub spares: u64,
    /// Time with faults.
    pub faulty_for: Duration,
}

impl Menu {
    /// The menu of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 1);
        let nodes = [4, 4, 4, 4, 5, 6, 7][random.index(7)];
        let faults = (nodes - 1) / 3;
        let liars = random.within(0..faults + 1).max(random.within(0..faults + 1));
        let clients = 1 + random.within(0..4);
        let slowest = [1_000, 8_000, 40_000][random.index(3)];
        Self {
            nodes,
            liars,
            habits: Habits::draw(&mut random, nodes),
            away: random.within(0..faults - liars + 1),
            clients,
            each_client: 1 + random.within(0..3),
            checkpoint_every: [4, 8, 32][random.index(3)],
            in_flight: [1, 4, 8][random.index(3)],
            batch_max: [1, 4, 16][random.index(3)],
            network: Network {
                delay_us: 100..slowest,
                lost_per_mille: odd(&mut random, 150),
                copied_per_mille: odd(&mut random, 100),
                late_per_mille: odd(&mut random, 60),
            },
            sync_us: 50..[200, 5_000, 60_000][random.index(3)],
            pause_us: 1_000..[20_000, 200_000][random.index(2)],
            crash_per_mille: odd(&mut random, 8),
            fault_us: 20_000..[300_000, 1_500_000][random.index(2)],
            crash: 45,
            cut: 30,
            timeout_ms: [60, 200, 400][random.index(3)],
            is_signed: false,
            trust: Trust::Signatures,
            is_outlined: Random::of(seed, 7).chance(40),
            partial: 0,
            spares: 0,
            faulty_for: Duration::from_secs(4),
        }
    }

    /// The menu of a seed where connections prove names: the same, and clients may lie.
    pub fn draw_channels(seed: u64) -> Self {
        let mut random = Random::of(seed, 6);
        let mut menu = Self { trust: Trust::Channels, ..Self::draw(seed) };
        menu.partial = random.within(0..3);
        menu.clients += menu.partial;
        menu
    }

    /// The menu of a seed in which members change: the same, in a third of them with connections
    /// that prove names.
    pub fn draw_members(seed: u64) -> Self {
        let mut random = Random::of(seed, 8);
        let by_channels = random.chance(33);
        let menu = if by_channels { Self::draw_channels(seed) } else { Self::draw(seed) };
        let checkpoint_every = [4, 8][random.index(2)];
        Self { spares: 1 + random.within(0..3), checkpoint_every, ..menu }
    }

    /// The client that changes the members.
    pub fn administrator(&self) -> ClientId {
        ClientId(self.clients + 1)
    }

    /// Nothing goes wrong.
    pub fn calm(nodes: u64) -> Self {
        Self {
            nodes,
            liars: 0,
            habits: Habits::default(),
            away: 0,
            clients: 2,
            each_client: 3,
            checkpoint_every: 32,
            in_flight: 8,
            batch_max: 16,
            network: Network::calm(),
            sync_us: 100..101,
            pause_us: 5_000..50_000,
            crash_per_mille: 0,
            fault_us: 1_000_000..1_000_001,
            crash: 0,
            cut: 0,
            timeout_ms: 400,
            is_signed: false,
            trust: Trust::Signatures,
            is_outlined: false,
            partial: 0,
            spares: 0,
            faulty_for: Duration::from_secs(2),
        }
    }
}

impl Habits {
    fn draw(random: &mut Random, nodes: u64) -> Self {
        Self {
            is_twins: random.chance(40),
            tampered_per_mille: odd(random, 300),
            forged_per_mille: odd(random, 60),
            replayed_per_mille: odd(random, 60),
            invented_per_mille: odd(random, 20),
            silent_to: if random.chance(30) { random.within(0..nodes) } else { 0 },
            late_percent: odd(random, 30),
            hoards: false,
        }
    }
}
