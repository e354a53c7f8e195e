//! Plan of a run: how large it is, how slow all is, and which faults there are.

use std::time::Duration;

use convoke_sim::random::Random;
use node_kit::simulation::Conditions;

use crate::client::Shape;

/// Conditions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Those of every program.
    pub conditions: Conditions,
    /// Voters of the beginning: 1, 3 or 5.
    pub nodes: u64,
    /// Nodes that join later, if at all.
    pub spares: u64,
    /// The longest pause between two changes of the members, if there are any.
    pub change: Option<Duration>,
    /// Bytes of the log between two snapshots.
    pub snapshot_bytes: u64,
    /// Batches under way.
    pub pipeline: usize,
    /// The way in which puts are answered.
    pub shape: Shape,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 4);
        let ms = Duration::from_millis;
        let (spares, change) =
            [(0, None), (2, Some(ms(500))), (2, Some(ms(3_000)))][random.index(3)];
        let nodes = [3, 3, 3, 5, 5, 1][random.index(6)];
        let mut conditions = Conditions {
            clients: random.within(2..6),
            keys: random.within(1..4),
            pause: ms([20, 100, 300][random.index(3)]),
            latency: ms(random.within(1..15)),
            jitter: ms([0, 5, 30][random.index(3)]),
            sync: ms([1, 10, 60][random.index(3)]),
            failing_syncs: [0, 0, 10][random.index(3)],
            fault: Duration::ZERO,
            faulty_for: ms(8_000),
        };
        let snapshot_bytes = [500, 4_000, 1 << 20][random.index(3)];
        let pipeline = [1, 4][random.index(2)];
        conditions.fault = ms([300, 1_000, 2_500][random.index(3)]);
        let shape = [Shape::Gather, Shape::Direct][random.index(2)];
        Self { conditions, nodes, spares, change, snapshot_bytes, pipeline, shape }
    }

    /// A run without faults, with puts answered so.
    pub fn calm(nodes: u64, shape: Shape) -> Self {
        let drawn = Self::draw(0);
        let faulty_for = Duration::ZERO;
        let conditions = Conditions { failing_syncs: 0, faulty_for, ..drawn.conditions };
        Self { conditions, nodes, spares: 0, change: None, shape, ..drawn }
    }
}
