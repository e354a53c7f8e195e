//! A node and its disk: when snapshots are written, whatever ends it in between, and a disk that
//! hangs.

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use convoke::disk::{Disk as _, DiskError, DiskFile as _, Open};
use convoke::quorum::Configuration;
use convoke::sim::disk::SimDisk;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};
use paxos::client::{self, Client};
use paxos::core::Standing;
use paxos::node::{Node, NodeError, Options};
use tokio::time::Instant;

pub(crate) const CLUSTER: u64 = 7;

/// A ledger has no room for more bytes that are not written.
const BUFFERED_BYTES_MAX: usize = 20_000;

pub(crate) fn address(id: u64) -> String {
    format!("sim://node{id}")
}

/// A cluster of nodes on disks that outlive them.
pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) disks: Vec<SimDisk>,
    members: Configuration,
    /// Lives that have begun: each is another.
    starts: Cell<u64>,
}

impl World {
    pub(crate) fn new(nodes: u64) -> Result<Self, Box<dyn Error>> {
        let addresses: Vec<_> = (1..=nodes).map(|id| (NodeId::new(id), address(id))).collect();
        let members = addresses.iter().map(|(node, address)| (*node, address.as_str()));
        let members = Configuration::new(members)?;
        let disks = (0..nodes).map(|disk| SimDisk::new(5 + disk)).collect();
        Ok(Self { network: SimNetwork::new(3), disks, members, starts: Cell::new(0) })
    }

    /// Starts a node on its ledger, and says if that has a snapshot.
    async fn start(&self, id: u64) -> Result<(Node, Ledger, bool), Box<dyn Error>> {
        self.start_of(CLUSTER, id).await
    }

    /// The same, as a node of some cluster.
    pub(crate) async fn start_of(
        &self,
        cluster: u64,
        id: u64,
    ) -> Result<(Node, Ledger, bool), Box<dyn Error>> {
        let (node, disk) = (NodeId::new(id), &self.disks[usize::try_from(id)? - 1]);
        let identity = Identity { cluster, node: id };
        let settings = Settings::default().buffered_bytes_max(BUFFERED_BYTES_MAX);
        let (ledger, recovered) = Ledger::open(disk.mount(), identity, settings).await?;
        let has_snapshot = recovered.snapshot.is_some();
        let mut options = Options::new(cluster, node, self.members.clone(), 8 + id);
        options.snapshot_bytes = 10_000;
        self.starts.set(self.starts.get() + 1);
        let seed = id | self.starts.get() << 8;
        let builder = Endpoint::builder().transport(self.network.transport()).seed(seed);
        let builder = builder.listen(address(id));
        let node = Node::start(options, (ledger.clone(), Some(recovered)), builder).await?;
        Ok((node, ledger, has_snapshot))
    }

    pub(crate) async fn put(&self, seed: u64, count: u64) -> Result<(), Box<dyn Error>> {
        self.put_values(seed, count, 1_000).await
    }

    pub(crate) async fn put_values(
        &self,
        seed: u64,
        count: u64,
        bytes: usize,
    ) -> Result<(), Box<dyn Error>> {
        let endpoint = Endpoint::builder().transport(self.network.transport()).seed(seed);
        let endpoint = endpoint.peers(&self.members).start().await?;
        let options = client::Options::new(CLUSTER, seed);
        let mut client = Client::new(&endpoint, &self.members, options);
        for number in 0..count {
            client.put(number.to_string(), vec![b'v'; bytes]).await?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_again_and_again_writes_snapshots() -> Result<(), Box<dyn Error>> {
    let world = World::new(1)?;
    for (start, wanted) in [(1, false), (2, false), (3, true)] {
        let (node, _, has_snapshot) = world.start(1).await?;
        assert_eq!(has_snapshot, wanted, "start {start}");
        // Less than what lies between two snapshots, each time.
        world.put(10 + start, 6).await?;
        node.stop(Duration::from_secs(5)).await?;
        world.network.crash(NodeId::new(1));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_disk_hangs_stops_in_time() -> Result<(), Box<dyn Error>> {
    let world = World::new(1)?;
    let (node, ..) = world.start(1).await?;
    world.put(10, 1).await?;
    world.disks[0].stall();
    let (begun, within) = (Instant::now(), Duration::from_secs(5));
    let stopped = node.stop(within).await;
    assert!(matches!(stopped, Err(NodeError::Ledger(LedgerError::NotInTime))), "{stopped:?}");
    assert!(begun.elapsed() <= within + Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_no_more_of_its_log_than_lies_between_two_snapshots()
-> Result<(), Box<dyn Error>> {
    let world = World::new(1)?;
    let (node, ..) = world.start(1).await?;
    world.put(10, 100).await?;
    let state = node.inspect().await.ok_or("it has stopped")?;
    assert!(state.trimmed > 50, "{state:?}");
    node.stop(Duration::from_secs(5)).await?;
    Ok(())
}

/// A question whose asker has given up long ago waits for the disk no less than others.
#[tokio::test(start_paused = true)]
async fn a_node_whose_disk_hangs_holds_few_answers() -> Result<(), Box<dyn Error>> {
    let world = World::new(3)?;
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(world.start(id).await?.0);
    }
    world.put(10, 1).await?;
    let follows = |node: &Node| matches!(*node.standing().borrow(), Standing::Following(_));
    let follower = nodes.iter().position(follows).ok_or("nobody follows")?;
    world.disks[follower].stall();
    world.put(11, 1).await?;
    let held = async || nodes[follower].inspect().await.map_or(0, |state| state.held);
    let (mut before, mut now) = (0, held().await);
    while now != before {
        assert!(now < 2_000, "{now} answers are held");
        tokio::time::sleep(Duration::from_secs(5)).await;
        (before, now) = (now, held().await);
    }
    assert!(now > 0);
    world.disks[follower].resume();
    while held().await > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for node in nodes {
        node.stop(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Nodes whose disks work go on, under another of them, and the one whose disk hangs keeps no more
/// than it has room for.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_disk_hangs_leaves_it_to_others() -> Result<(), Box<dyn Error>> {
    let world = World::new(3)?;
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(world.start(id).await?);
    }
    world.put(10, 1).await?;
    let leads = |(node, ..): &(Node, Ledger, bool)| {
        matches!(*node.standing().borrow(), Standing::Leading(_))
    };
    let leader = nodes.iter().position(leads).ok_or("nobody leads")?;
    let disk = &world.disks[leader];
    disk.stall();
    let before = nodes[leader].1.durable_now().up_to().records();
    world.put(11, 200).await?;
    assert!(!leads(&nodes[leader]));
    let waiting = nodes[leader].1.end().records() - before;
    assert!(waiting < 100, "{waiting} records wait for a disk that hangs");
    disk.resume();
    let applied = async |node: &Node| node.inspect().await.map(|state| state.applied);
    while applied(&nodes[leader].0).await != applied(&nodes[(leader + 1) % 3].0).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (node, ..) in nodes {
        node.stop(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Bytes of all files.
async fn used(disk: &SimDisk) -> Result<u64, DiskError> {
    let (mount, mut bytes) = (disk.mount(), 0);
    for entry in mount.list("").await? {
        bytes += mount.open(&entry.name, Open::Read).await?.len().await?;
    }
    Ok(bytes)
}

/// The log has room for what comes, and a snapshot, which takes as much as all values, has not.
#[tokio::test(start_paused = true)]
async fn a_disk_without_room_for_a_snapshot_stops_nobody() -> Result<(), Box<dyn Error>> {
    let world = World::new(1)?;
    let disk = &world.disks[0];
    let (node, ..) = world.start(1).await?;
    world.put(10, 100).await?;
    let snapshots = async |node: &Node| {
        let state = node.inspect().await.ok_or("it has stopped")?;
        Ok::<_, Box<dyn Error>>(state.snapshots)
    };
    let before = snapshots(&node).await?;
    assert!(before > 0);
    let room = used(disk).await? + 60_000;
    disk.configure(|settings| settings.capacity = room);
    world.put(11, 20).await?;
    assert_eq!(snapshots(&node).await?, before);
    node.stop(Duration::from_secs(5)).await?;
    world.network.crash(NodeId::new(1));

    let (node, ..) = world.start(1).await?;
    world.put(12, 2).await?;
    assert_eq!(snapshots(&node).await?, 0);
    disk.configure(|settings| settings.capacity = 10 * room);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.put(13, 1).await?;
    while snapshots(&node).await? == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    node.stop(Duration::from_secs(5)).await?;
    Ok(())
}
