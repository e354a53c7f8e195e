//! A killed leader, and the time until somebody takes requests again.

use std::ops::Range;
use std::time::Duration;

use convoke_sim::random::Random;
use node_kit::simulation::{Conditions, Violation, World, in_virtual_time};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Paxos, Plan};
use crate::client::Client;
use crate::core::{Settings, Standing};
use crate::node::Node;

/// Clients that ask all the time. The first that is answered counts.
const CLIENTS: u64 = 4;

/// Time in which a cluster that has lost one node has to go on.
const WITHIN: Duration = Duration::from_secs(30);

/// The time without a leader, after a leader was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// From the kill until a client was told that a write of after it was done.
    pub resumed_after: Duration,
    /// The time after which nodes miss a leader.
    pub election_timeout: Duration,
}

impl Failover {
    /// The same, in election timeouts.
    pub fn timeouts(&self) -> f64 {
        self.resumed_after.as_secs_f64() / self.election_timeout.as_secs_f64()
    }
}

/// Kills the leader of a cluster of three or five under load, at a moment that the seed draws, as
/// `kill -9` does.
///
/// # Errors
/// [`Violation`], when a node fails or nobody takes a write any more.
pub fn failover(seed: u64) -> Result<Failover, Violation> {
    in_virtual_time(async {
        let mut world = Paxos::world(seed, plan(seed), false);
        fail_over(&mut world, seed).await
    })
}

/// No faults, and nodes as far apart, with disks as slow, as the seed draws.
fn plan(seed: u64) -> Plan {
    let mut random = Random::of(seed, 6);
    let ms = Duration::from_millis;
    let drawn = Plan::draw(seed);
    let latency = ms(random.within(1..15));
    let jitter = ms([0, 5][random.index(2)]);
    let sync = ms([1, 10][random.index(2)]);
    let calm = Plan::calm([3, 5][random.index(2)], drawn.shape);
    let conditions = Conditions { latency, jitter, sync, ..calm.conditions };
    Plan { conditions, ..calm }
}

async fn fail_over(world: &mut World<Paxos>, seed: u64) -> Result<Failover, Violation> {
    world.start_all().await?;
    let mut clients = Vec::new();
    for id in 0..CLIENTS {
        let mut client = world.client(100 + id).await;
        put(&mut client).await?;
        clients.push(client);
    }
    let leader = leader(world)?;
    let (killed, seen) = watch::channel(None);
    let mut writing = JoinSet::new();
    for (number, client) in (8..).zip(clients) {
        writing.spawn(write(client, Random::of(seed, number), seen.clone()));
    }
    sleep(Random::of(seed, 7).micros(0..1_000_000)).await;
    world.kill(leader);
    let now = Instant::now();
    killed.send_replace(Some(now));
    let first = writing.join_next().await.expect("there are clients");
    first.expect("clients do not panic")?;
    let election_timeout = Settings::new(world.hosts()[leader].node(), []).election_timeout;
    Ok(Failover { resumed_after: now.elapsed(), election_timeout })
}

/// Index of the host that leads.
fn leader(world: &World<Paxos>) -> Result<usize, Violation> {
    let leads = |node: &Node| matches!(*node.standing().borrow(), Standing::Leading(_));
    let leader = world.hosts().iter().position(|host| host.running().is_some_and(leads));
    leader.ok_or_else(|| Violation::Stuck("a write was answered, and nobody leads".to_owned()))
}

/// Writes all the time, until a write is done that began after the kill.
async fn write(
    mut client: Client,
    mut random: Random,
    killed: watch::Receiver<Option<Instant>>,
) -> Result<(), Violation> {
    loop {
        sleep(random.micros(PAUSE_US)).await;
        let begun = Instant::now();
        put(&mut client).await?;
        if killed.borrow().is_some_and(|killed| killed <= begun) {
            return Ok(());
        }
    }
}

/// Pause of a client between two writes, in microseconds.
const PAUSE_US: Range<u64> = 0..50_000;

/// Writes until it is told that it is done.
async fn put(client: &mut Client) -> Result<(), Violation> {
    let end = Instant::now() + WITHIN;
    loop {
        match client.put("k", "v").await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(Violation::Stuck(error.to_string())),
            Err(_) => {}
        }
    }
}
