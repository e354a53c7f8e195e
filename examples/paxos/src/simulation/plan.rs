//! Plan of a run: how large it is, how slow all is, and which faults there are.

use std::time::Duration;

use convoke_sim::random::Random;

use crate::client::Shape;

/// Conditions of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Voters of the beginning: 1, 3 or 5.
    pub nodes: u64,
    /// Nodes that join later, if at all.
    pub spares: u64,
    /// The longest pause between two changes of the members, if there are any.
    pub change: Option<Duration>,
    /// Clients.
    pub clients: u64,
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
    /// Bytes of the log between two snapshots.
    pub snapshot_bytes: u64,
    /// Batches under way.
    pub pipeline: usize,
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
        Self {
            spares,
            change,
            nodes: [3, 3, 3, 5, 5, 1][random.index(6)],
            clients: random.within(2..6),
            keys: random.within(1..4),
            pause: ms([20, 100, 300][random.index(3)]),
            latency: ms(random.within(1..15)),
            jitter: ms([0, 5, 30][random.index(3)]),
            sync: ms([1, 10, 60][random.index(3)]),
            failing_syncs: [0, 0, 10][random.index(3)],
            snapshot_bytes: [500, 4_000, 1 << 20][random.index(3)],
            pipeline: [1, 4][random.index(2)],
            fault: ms([300, 1_000, 2_500][random.index(3)]),
            crash: 40,
            part: 20,
            mend: 20,
            stop: 5,
            faulty_for: ms(8_000),
            shape: [Shape::Gather, Shape::Direct][random.index(2)],
        }
    }

    /// A run without faults, with puts answered so.
    pub fn calm(nodes: u64, shape: Shape) -> Self {
        let drawn = Self::draw(0);
        let faulty_for = Duration::ZERO;
        Self { nodes, spares: 0, change: None, failing_syncs: 0, faulty_for, shape, ..drawn }
    }
}
