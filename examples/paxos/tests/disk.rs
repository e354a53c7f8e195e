//! A node and its disk: when snapshots are written, whatever ends it in between, and a disk that
//! hangs.

use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::disk::SimDisk;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};
use paxos::client::{self, Client};
use paxos::node::{Node, NodeError, Options};
use tokio::time::Instant;

const CLUSTER: u64 = 7;

/// A cluster of one node, on a disk that outlives it.
struct World {
    network: SimNetwork,
    disk: SimDisk,
    members: Configuration,
}

impl World {
    fn new() -> Result<Self, Box<dyn Error>> {
        let members = Configuration::new([(NodeId::new(1), "sim://node1")])?;
        Ok(Self { network: SimNetwork::new(3), disk: SimDisk::new(5), members })
    }

    /// Starts the node, and says if its ledger has a snapshot.
    async fn start(&self) -> Result<(Node, bool), Box<dyn Error>> {
        let identity = Identity { cluster: CLUSTER, node: 1 };
        let opened = Ledger::open(self.disk.mount(), identity, Settings::default()).await?;
        let has_snapshot = opened.1.snapshot.is_some();
        let mut options = Options::new(CLUSTER, NodeId::new(1), self.members.clone(), 9);
        options.snapshot_bytes = 10_000;
        let builder = Endpoint::builder().transport(self.network.transport()).seed(1);
        let builder = builder.listen("sim://node1");
        let node = Node::start(options, (opened.0, Some(opened.1)), builder).await?;
        Ok((node, has_snapshot))
    }

    async fn put(&self, seed: u64, count: u64) -> Result<(), Box<dyn Error>> {
        let endpoint = Endpoint::builder().transport(self.network.transport()).seed(seed);
        let endpoint = endpoint.peers(&self.members).start().await?;
        let options = client::Options::new(CLUSTER, seed);
        let mut client = Client::new(&endpoint, &self.members, options);
        for number in 0..count {
            client.put(number.to_string(), vec![b'v'; 1_000]).await?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_again_and_again_writes_snapshots() -> Result<(), Box<dyn Error>> {
    let world = World::new()?;
    for (start, wanted) in [(1, false), (2, false), (3, true)] {
        let (node, has_snapshot) = world.start().await?;
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
    let world = World::new()?;
    let (node, _) = world.start().await?;
    world.put(10, 1).await?;
    world.disk.stall();
    let (begun, within) = (Instant::now(), Duration::from_secs(5));
    let stopped = node.stop(within).await;
    assert!(matches!(stopped, Err(NodeError::Ledger(LedgerError::NotInTime))), "{stopped:?}");
    assert!(begun.elapsed() <= within + Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_no_more_of_its_log_than_lies_between_two_snapshots()
-> Result<(), Box<dyn Error>> {
    let world = World::new()?;
    let (node, _) = world.start().await?;
    world.put(10, 100).await?;
    let state = node.inspect().await.ok_or("it has stopped")?;
    assert!(state.trimmed > 50, "{state:?}");
    node.stop(Duration::from_secs(5)).await?;
    Ok(())
}
