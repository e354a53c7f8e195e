//! Plan of a run: how large it is, how slow all is, who lies, and which faults there are.

use std::time::Duration;

use convoke_sim::random::Random;

use crate::node::Lie;

/// Conditions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Nodes: 4 or 7.
    pub nodes: u64,
    /// Of these the first so many lie, at most f.
    pub liars: u64,
    /// Their lie.
    pub lie: Lie,
    /// Clients.
    pub clients: u64,
    /// Clients ask all nodes at once.
    pub is_to_all: bool,
    /// Keys.
    pub keys: u64,
    /// The longest pause between two calls of a client.
    pub pause: Duration,
    /// Time of a message.
    pub latency: Duration,
    /// The most that is added to it.
    pub jitter: Duration,
    /// The longest time of a sync.
    pub sync: Duration,
    /// Syncs that fail, per mille: the node then stops, and starts again.
    pub failing_syncs: u32,
    /// Bytes of the ledger between two snapshots.
    pub snapshot_bytes: u64,
    /// Places between two checkpoints.
    pub checkpoint_every: u64,
    /// Batches under way.
    pub in_flight: u64,
    /// The shortest time in which a request has to be executed.
    pub timeout: Duration,
    /// The longest pause between two faults.
    pub fault: Duration,
    /// Of a hundred faults, how many crash a node,
    pub crash: u32,
    /// part it from others,
    pub part: u32,
    /// end all partitions,
    pub mend: u32,
    /// or stop it in good order. The rest are disks that hang, and connections that are lost.
    pub stop: u32,
    /// Time with faults.
    pub faulty_for: Duration,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 4);
        let ms = Duration::from_millis;
        let nodes = [4, 4, 4, 4, 7][random.index(5)];
        Self {
            nodes,
            liars: random.within(0..(nodes - 1) / 3 + 1),
            lie: [Lie::Equivocate, Lie::Contradict][random.index(2)],
            clients: random.within(2..5),
            is_to_all: random.chance(30),
            keys: random.within(1..4),
            pause: ms([60, 150, 300][random.index(3)]),
            latency: ms(random.within(1..15)),
            jitter: ms([0, 5, 30][random.index(3)]),
            sync: ms([1, 10, 60][random.index(3)]),
            failing_syncs: [0, 0, 5][random.index(3)],
            snapshot_bytes: [2_000, 20_000, 1 << 20][random.index(3)],
            checkpoint_every: [4, 8][random.index(2)],
            in_flight: [1, 4][random.index(2)],
            timeout: ms([300, 1_000][random.index(2)]),
            fault: ms([300, 800, 2_000][random.index(3)]),
            crash: 40,
            part: 20,
            mend: 20,
            stop: 5,
            faulty_for: ms(6_000),
        }
    }

    /// A run without faults and lies.
    pub fn calm(nodes: u64) -> Self {
        let drawn = Self::draw(0);
        Self {
            nodes,
            liars: 0,
            failing_syncs: 0,
            sync: Duration::from_millis(1),
            latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            timeout: Duration::from_secs(1),
            faulty_for: Duration::ZERO,
            ..drawn
        }
    }
}
