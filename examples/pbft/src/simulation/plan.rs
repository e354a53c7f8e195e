//! Plan of a run: how large it is, how slow all is, who lies, and which faults there are.

use std::time::Duration;

use convoke_sim::random::Random;
use node_kit::simulation::Conditions;

use crate::node::Lie;

/// Conditions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Those of every program.
    pub conditions: Conditions,
    /// Nodes: 4 or 7.
    pub nodes: u64,
    /// Of these the first so many lie, at most f.
    pub liars: u64,
    /// Their lie.
    pub lie: Lie,
    /// Clients ask all nodes at once.
    pub is_to_all: bool,
    /// Bytes of the ledger between two snapshots.
    pub snapshot_bytes: u64,
    /// Places between two checkpoints.
    pub checkpoint_every: u64,
    /// Batches under way.
    pub in_flight: u64,
    /// The shortest time in which a request has to be executed.
    pub timeout: Duration,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 4);
        let ms = Duration::from_millis;
        let nodes = [4, 4, 4, 4, 7][random.index(5)];
        let liars = random.within(0..(nodes - 1) / 3 + 1);
        let lie = [Lie::Equivocate, Lie::Contradict][random.index(2)];
        let clients = random.within(2..5);
        let is_to_all = random.chance(30);
        let mut conditions = Conditions {
            clients,
            keys: random.within(1..4),
            pause: ms([60, 150, 300][random.index(3)]),
            latency: ms(random.within(1..15)),
            jitter: ms([0, 5, 30][random.index(3)]),
            sync: ms([1, 10, 60][random.index(3)]),
            failing_syncs: [0, 0, 5][random.index(3)],
            fault: Duration::ZERO,
            faulty_for: ms(6_000),
        };
        let snapshot_bytes = [2_000, 20_000, 1 << 20][random.index(3)];
        let checkpoint_every = [4, 8][random.index(2)];
        let in_flight = [1, 4][random.index(2)];
        let timeout = ms([300, 1_000][random.index(2)]);
        conditions.fault = ms([300, 800, 2_000][random.index(3)]);
        Self {
            conditions,
            nodes,
            liars,
            lie,
            is_to_all,
            snapshot_bytes,
            checkpoint_every,
            in_flight,
            timeout,
        }
    }

    /// A run without faults and lies.
    pub fn calm(nodes: u64) -> Self {
        let drawn = Self::draw(0);
        let conditions = Conditions {
            failing_syncs: 0,
            sync: Duration::from_millis(1),
            latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            faulty_for: Duration::ZERO,
            ..drawn.conditions
        };
        Self { conditions, nodes, liars: 0, timeout: Duration::from_secs(1), ..drawn }
    }
}
