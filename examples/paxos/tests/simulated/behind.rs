//! A node that was away comes back under load: the others write their snapshots and trim their logs
//! faster than it takes the state of one of them.

use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::disk::SimDisk;
use convoke::sim::transport::{Conditions, SimNetwork};
use convoke::{Endpoint, NodeId};
use convoke_sim::random::Random;
use node_kit::ledger::{Identity, Ledger, Settings};
use paxos::client::{self, Client};
use paxos::core::Standing;
use paxos::node::{Lacking, Node, Options};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const CLUSTER: u64 = 7;
const NODES: u64 = 3;
const VALUE_BYTES: usize = 8 << 10;
/// The state is 4 MiB, in 16 parts or more.
const KEYS: u64 = 512;
/// A snapshot every 64 writes.
const SNAPSHOT_BYTES: usize = 64 * VALUE_BYTES;
const WRITERS: u64 = 6;
/// Of a writer: all of them write 1.6 MB a second, in more slots than a node accepts ahead of what
/// it knows.
const PAUSE: Duration = Duration::from_millis(30);

fn address(id: u64) -> String {
    format!("sim://node{id}")
}

/// Nodes of which one is away, and is far from the others.
struct World {
    random: Random,
    network: SimNetwork,
    disks: Vec<SimDisk>,
    members: Configuration,
    /// By place, that of node 1 first.
    nodes: Vec<Option<Node>>,
    away: u64,
    starts: u64,
}

impl World {
    /// A cluster whose log was written and trimmed since one of its followers left.
    async fn new(seed: u64, way: Duration) -> Result<Self, Box<dyn Error>> {
        let mut random = Random::of(seed, 1);
        let network = SimNetwork::new(random.draw());
        let near = Conditions {
            latency: Duration::from_micros(random.within(100..1_000)),
            jitter: Duration::from_micros(random.within(0..500)),
            ..Conditions::default()
        };
        network.default_conditions(near);
        let members = (1..=NODES).map(|id| (NodeId::new(id), address(id)));
        let members = Configuration::new(members)?;
        let disks = (0..NODES).map(|_| SimDisk::new(random.draw())).collect();
        let nodes = (0..NODES).map(|_| None).collect();
        let mut world = Self { random, network, disks, members, nodes, away: 0, starts: 0 };
        for id in 1..=NODES {
            world.start(id).await?;
        }
        world.fill(1).await?;
        let follows =
            |id: &u64| matches!(*world.node(*id).standing().borrow(), Standing::Following(_));
        let followers: Vec<u64> = (1..=NODES).filter(follows).collect();
        world.away = followers[world.random.index(followers.len())];
        world.end(world.away).await?;
        for id in (1..=NODES).filter(|id| *id != world.away).map(NodeId::new) {
            let far = Conditions { latency: way, ..near };
            world.network.conditions(id, NodeId::new(world.away), far);
            world.network.conditions(NodeId::new(world.away), id, far);
        }
        world.fill(KEYS).await?;
        Ok(world)
    }

    async fn start(&mut self, id: u64) -> Result<(), Box<dyn Error>> {
        let (node, place) = (NodeId::new(id), usize::try_from(id)? - 1);
        let identity = Identity { cluster: CLUSTER, node: id };
        let ledger = Ledger::open(self.disks[place].mount(), identity, Settings::default()).await?;
        self.starts += 1;
        let mut options = Options::new(CLUSTER, node, self.members.clone(), self.starts);
        options.snapshot_bytes = SNAPSHOT_BYTES as u64;
        let builder = Endpoint::builder().transport(self.network.transport());
        let builder = builder.seed(self.random.draw()).listen(address(id));
        let node = Node::start(options, (ledger.0, Some(ledger.1)), builder).await?;
        self.nodes[place] = Some(node);
        Ok(())
    }

    async fn end(&mut self, id: u64) -> Result<(), Box<dyn Error>> {
        let node = self.nodes[usize::try_from(id)? - 1].take().ok_or("it is not there")?;
        node.stop(Duration::from_secs(5)).await?;
        self.network.crash(NodeId::new(id));
        Ok(())
    }

    fn node(&self, id: u64) -> &Node {
        let place = usize::try_from(id).expect("small") - 1;
        self.nodes[place].as_ref().expect("it is there")
    }

    async fn client(&mut self) -> Result<Client, Box<dyn Error>> {
        let seed = self.random.draw();
        let endpoint = Endpoint::builder().transport(self.network.transport()).seed(seed);
        let endpoint = endpoint.peers(&self.members).start().await?;
        Ok(Client::new(&endpoint, &self.members, client::Options::new(CLUSTER, seed)))
    }

    /// Writes the first keys.
    async fn fill(&mut self, keys: u64) -> Result<(), Box<dyn Error>> {
        let mut client = self.client().await?;
        for key in 0..keys {
            client.put(key.to_string(), vec![b'v'; VALUE_BYTES]).await?;
        }
        Ok(())
    }

    /// Clients that write without end.
    async fn load(&mut self) -> Result<Vec<JoinHandle<()>>, Box<dyn Error>> {
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            let (mut client, mut random) =
                (self.client().await?, Random::of(self.random.draw(), 2));
            writers.push(tokio::spawn(async move {
                loop {
                    let key = random.within(0..KEYS).to_string();
                    client.put(key, vec![b'w'; VALUE_BYTES]).await.expect("a majority is there");
                    sleep(PAUSE).await;
                }
            }));
        }
        Ok(writers)
    }

    /// Slots that a node has applied, and slots of its log.
    async fn log(&self, id: u64) -> (u64, u64) {
        let state = self.node(id).inspect().await.expect("it runs");
        (state.applied, state.applied - state.trimmed)
    }

    /// The most slots that any node but that one has in its log.
    async fn longest_log(&self) -> u64 {
        let mut longest = 0;
        for id in (1..=NODES).filter(|id| *id != self.away) {
            longest = longest.max(self.log(id).await.1);
        }
        longest
    }

    /// Waits until the node that was away is ready, and tells what it lacked until then.
    async fn ready(&self) -> Result<Vec<Lacking>, Box<dyn Error>> {
        let (mut lacking, mut lacked) = (self.node(self.away).lacking(), Vec::new());
        loop {
            let Some(what) = *lacking.borrow_and_update() else { return Ok(lacked) };
            lacked.push(what);
            timeout(Duration::from_secs(20), lacking.changed()).await??;
        }
    }

    /// Slots by which the node that was away is behind another.
    async fn behind(&self) -> u64 {
        let applied = self.log(self.away).await.0;
        let other = (1..=NODES).find(|id| *id != self.away).expect("there are three");
        self.log(other).await.0.saturating_sub(applied)
    }
}

/// Slots that a node accepts ahead of what it knows: four windows.
const ACCEPTED_AHEAD: u64 = 4 * 32;

/// Slots that others are ahead by where nothing is to be fetched: writes of some hundred
/// milliseconds.
const LEVEL: u64 = 50;

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_catches_up_under_load() -> Result<(), Box<dyn Error>> {
    for seed in 1..4 {
        let mut world = World::new(seed, Duration::from_millis(20)).await?;
        let writers = world.load().await?;
        world.start(world.away).await?;
        let begun = Instant::now();
        while world.behind().await > LEVEL {
            let (elapsed, behind) = (begun.elapsed(), world.behind().await);
            assert!(elapsed < Duration::from_secs(20), "seed {seed}: {behind} slots behind");
            sleep(Duration::from_millis(50)).await;
        }
        writers.iter().for_each(JoinHandle::abort);
        for id in 1..=NODES {
            world.end(id).await?;
        }
    }
    Ok(())
}

/// Else whoever restarts one node after the other takes the majority away.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_is_ready_once_it_votes_for_what_is_new() -> Result<(), Box<dyn Error>>
{
    for seed in 1..4 {
        let mut world = World::new(seed, Duration::from_millis(20)).await?;
        let writers = world.load().await?;
        world.start(world.away).await?;
        let lacked = world.ready().await?;
        assert!(lacked.contains(&Lacking::Log), "seed {seed}: {lacked:?}");
        let behind = world.behind().await;
        assert!(behind <= ACCEPTED_AHEAD, "seed {seed}: {behind} slots behind, and ready");
        writers.iter().for_each(JoinHandle::abort);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_ledger_was_lost_is_ready_once_it_is_counted() -> Result<(), Box<dyn Error>> {
    let mut world = World::new(1, Duration::from_millis(1)).await?;
    let away = world.away;
    world.disks[usize::try_from(away)? - 1] = SimDisk::new(9);
    world.start(away).await?;
    let mut lacking = world.node(away).lacking();
    lacking.wait_for(|lacking| *lacking == Some(Lacking::Ledger)).await?;
    while world.behind().await > 0 {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(*lacking.borrow(), Some(Lacking::Ledger), "it knows all, and is not counted");
    world.client().await?.join(NodeId::new(away), Vec::new(), false).await?;
    world.ready().await?;
    Ok(())
}

/// Values that are kept for a node that takes them too slowly have no more bytes than the state,
/// beside what is kept for nobody; once it is gone, they are not kept.
#[tokio::test(start_paused = true)]
async fn a_log_is_kept_within_bounds_for_who_is_slow_or_gone() -> Result<(), Box<dyn Error>> {
    let state = KEYS * 11 / 10; // with what is around its values
    let kept = 4 * (SNAPSHOT_BYTES / VALUE_BYTES) as u64;
    let mut world = World::new(1, Duration::from_millis(400)).await?;
    let writers = world.load().await?;
    world.start(world.away).await?;
    let (begun, mut longest) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(12) {
        longest = longest.max(world.longest_log().await);
        assert!(longest < state + kept, "{longest} slots are kept");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(longest > state - kept, "no more than {longest} slots are kept");
    world.end(world.away).await?;
    sleep(Duration::from_secs(12)).await;
    let now = world.longest_log().await;
    assert!(now < kept, "{now} slots are kept for nobody");
    writers.iter().for_each(JoinHandle::abort);
    let away = world.away;
    for id in (1..=NODES).filter(|id| *id != away) {
        world.end(id).await?;
    }
    Ok(())
}
