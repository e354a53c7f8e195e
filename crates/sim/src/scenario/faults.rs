//! Faults of the nodes and connections of a run, and their times.

use std::time::Duration;

use crate::network::Place;
use crate::random::Random;

use super::{Kind, Scenario};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every connection between two nodes breaks; what is in flight may be lost.
    Cut(Place, Place),
    /// A node stops at once, forgets everything and starts again after this time.
    Crash(Place, Duration),
    /// A node takes no requests any more, ends once nothing runs there and nothing is on its way,
    /// and starts again after this time.
    Stop(Place, Duration),
    /// Frames from the first node to the second stall for this time.
    Partition(Place, Place, Duration),
    /// A node does nothing for this time, while frames for it queue up.
    Pause(Place, Duration),
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// When, since the start.
    pub at: Duration,
    /// The fault.
    pub fault: Fault,
}

/// The faults of a scenario.
pub(super) fn inject(scenario: &Scenario, random: &mut Random) -> Vec<Injection> {
    let kinds: &[Kind] = match scenario.kind {
        Kind::Cuts => &[Kind::Cuts],
        Kind::Crashes => &[Kind::Crashes],
        Kind::Stops => &[Kind::Stops],
        Kind::Partitions => &[Kind::Partitions],
        Kind::PausedDriver => &[Kind::PausedDriver],
        Kind::Relayed if random.chance(40) => &[Kind::Cuts, Kind::Crashes],
        Kind::StoppedReader | Kind::Quorums | Kind::SlowParentLink if random.chance(30) => {
            &[Kind::Cuts, Kind::Crashes, Kind::Partitions]
        }
        Kind::Liars if random.chance(30) => &[Kind::Cuts, Kind::Crashes, Kind::Partitions],
        Kind::Storm => &[Kind::Cuts, Kind::Crashes, Kind::Partitions, Kind::PausedDriver],
        _ => return Vec::new(),
    };
    let count = 1 + random.index(6);
    let mut faults: Vec<Injection> = (0..count)
        .map(|_| {
            let kind = kinds[random.index(kinds.len())];
            let at = match kind {
                // While calls are under way, and with time to end.
                Kind::Stops => random.micros(1_000..500_000),
                _ => random.micros(1_000..1_700_000),
            };
            Injection { at, fault: fault(kind, scenario, random) }
        })
        .collect();
    faults.sort_by_key(|injection| injection.at);
    faults
}

fn fault(kind: Kind, scenario: &Scenario, random: &mut Random) -> Fault {
    let nodes = scenario.servers + scenario.clients;
    let one = random.index(nodes);
    let other = (one + 1 + random.index(nodes - 1)) % nodes;
    let keep_alive = u64::try_from(scenario.limits.keep_alive_timeout.as_micros()).unwrap_or(1);
    match kind {
        Kind::Crashes => Fault::Crash(one, random.micros(1_000..500_000)),
        Kind::Stops => Fault::Stop(one % scenario.servers, random.micros(1_000..500_000)),
        Kind::Partitions => Fault::Partition(one, other, random.micros(1_000..keep_alive * 3 / 2)),
        Kind::PausedDriver => Fault::Pause(one, random.micros(1_000..keep_alive * 3)),
        _ => Fault::Cut(one, other),
    }
}
