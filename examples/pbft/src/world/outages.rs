//! Outages of one replica where nothing else goes wrong: the time until a silent primary is
//! replaced, and the rate without a backup.

use std::time::Duration;

use convoke::NodeId;
use convoke_sim::random::Random;
use node_kit::world::Network;

use super::{Menu, Violation, World};

/// Result of a primary that fell silent for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The time until all others were in one later view.
    pub after: Duration,
    /// The shortest timeout of the replicas.
    pub timeout: Duration,
    /// Requests, which all were executed.
    pub executed: u64,
}

/// Silences the primary of a seed's cluster under load, and waits for its successor and for every
/// request.
///
/// # Errors
/// [`Violation`].
pub fn silence_primary(seed: u64) -> Result<Replaced, Violation> {
    let mut world = World::new(seed, menu(seed), false);
    let begun = Random::of(seed, 9).micros(100_000..2_000_000);
    while world.step(begun)? {}
    let (_, last) = world.view();
    let primary = world.keys.primary(last);
    world.lose(primary);
    let others = world.hosts.len() - 1;
    world.run_until(REPLACED_WITHIN, |world| {
        let running = world.hosts.values().filter_map(|host| host.replica());
        let (_, view) = world.view();
        view > last && running.filter(|replica| replica.view() == (view, true)).count() == others
    })?;
    let after = world.schedule.now() - begun;
    world.finish()?;
    Ok(Replaced { after, timeout: world.timeout(), executed: world.report.accepted })
}

/// Requests that a seed's cluster executes in two seconds under a load that waits for nothing but
/// answers: first with all its backups, then without one.
///
/// # Errors
/// [`Violation`].
pub fn lose_backup(seed: u64) -> Result<[u64; 2], Violation> {
    let count = |is_lost: bool| {
        let mut world = World::new(seed, menu(seed), false);
        if is_lost {
            world.lose(NodeId::new(world.menu.nodes));
        }
        while world.step(MEASURED)? {}
        let executed = world.report.accepted;
        world.finish()?;
        Ok(executed)
    };
    Ok([count(false)?, count(true)?])
}

/// A cluster without other faults: ways that differ by up to a quarter, and timeouts that are long
/// beside what requests take.
fn menu(seed: u64) -> Menu {
    let mut random = Random::of(seed, 8);
    let nodes = [4, 7][random.index(2)];
    let way_us = [100, 1_000, 10_000][random.index(3)] * random.within(1..3);
    Menu {
        clients: 1 + random.within(0..4),
        each_client: 1 + random.within(0..3),
        batch_max: [1, 4, 16][random.index(3)],
        network: Network { delay_us: way_us..way_us + way_us / 4, ..Network::calm() },
        sync_us: 50..[200, 5_000][random.index(2)],
        pause_us: 100..200,
        timeout_ms: [400, 1_000][random.index(2)],
        ..Menu::calm(nodes)
    }
}

/// In so much time a view change that has failed three times has ended, too.
const REPLACED_WITHIN: Duration = Duration::from_secs(30);

/// Time in which requests are counted.
const MEASURED: Duration = Duration::from_secs(2);
