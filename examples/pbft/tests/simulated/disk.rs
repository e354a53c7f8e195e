//! Replicas of which one has a disk that hangs.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::disk::SimDisk;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};
use pbft::client::{self, Client};
use pbft::core::{ClientId, Group, Keys, Scope, Signer};
use pbft::node::{Node, NodeError, Options};
use tokio::time::Instant;

const CLUSTER: u64 = 7;
const CLIENT: ClientId = ClientId(9);

fn signer(number: u8) -> Signer {
    Signer::stand_in([number; 32])
}

fn address(id: u64) -> String {
    format!("sim://node{id}")
}

/// So many replicas, each on its disk.
struct World {
    network: SimNetwork,
    members: Configuration,
    keys: Keys,
    nodes: Vec<(Node, Ledger, SimDisk)>,
}

impl World {
    async fn start(count: u8) -> Result<Self, Box<dyn Error>> {
        let ids = || (1..=count).map(|id| (NodeId::new(u64::from(id)), id));
        let addresses: Vec<_> = ids().map(|(node, id)| (node, address(u64::from(id)))).collect();
        let members = addresses.iter().map(|(node, address)| (*node, address.as_str()));
        let members = Configuration::new(members)?;
        let checkers = ids().map(|(node, id)| (node, signer(id).checker())).collect();
        let clients = BTreeMap::from([(CLIENT, signer(99).checker())]);
        let scope = Scope { cluster: CLUSTER, epoch: 1 };
        let keys = Keys::new(scope, Group::new(ids().map(|(node, _)| node))?, checkers, clients);
        let mut world = Self { network: SimNetwork::new(3), members, keys, nodes: Vec::new() };
        for (node, id) in ids() {
            world.add(node, signer(id)).await?;
        }
        Ok(world)
    }

    async fn add(&mut self, node: NodeId, signer: Signer) -> Result<(), Box<dyn Error>> {
        let (id, disk) = (node.get(), SimDisk::new(node.get()));
        let identity = Identity { cluster: CLUSTER, node: id };
        let settings = Settings::default().buffered_bytes_max(BUFFERED_BYTES_MAX);
        let (ledger, recovered) = Ledger::open(disk.mount(), identity, settings).await?;
        let builder = Endpoint::builder().transport(self.network.transport()).seed(id);
        let mut options = Options::new(node, self.members.clone(), self.keys.clone(), signer);
        (options.core.checkpoint_every, options.core.window) = (8, 16);
        let opened = (ledger.clone(), Some(recovered));
        let node = Node::start(options, opened, builder.listen(address(id))).await?;
        self.nodes.push((node, ledger, disk));
        Ok(())
    }

    async fn put(&self, count: u64) -> Result<(), Box<dyn Error>> {
        let endpoint = Endpoint::builder().transport(self.network.transport()).seed(100);
        let endpoint = endpoint.peers(&self.members).start().await?;
        let (keys, name) = (Arc::new(self.keys.clone()), (CLIENT, signer(99)));
        let options = client::Options::default();
        let mut client = Client::new(&endpoint, &self.members, keys, name, options);
        for number in 0..count {
            client.put(number.to_string(), vec![b'v'; 1_000]).await?;
        }
        Ok(())
    }
}

/// A ledger has no room for more bytes that are not written.
const BUFFERED_BYTES_MAX: usize = 20_000;

#[tokio::test(start_paused = true)]
async fn a_node_whose_disk_hangs_stops_in_time() -> Result<(), Box<dyn Error>> {
    let mut world = World::start(1).await?;
    let (node, _, disk) = world.nodes.remove(0);
    disk.stall();
    let (begun, within) = (Instant::now(), Duration::from_secs(5));
    let stopped = node.stop(within).await;
    assert!(matches!(stopped, Err(NodeError::Ledger(LedgerError::NotInTime))), "{stopped:?}");
    assert!(begun.elapsed() <= within + Duration::from_secs(2));
    Ok(())
}

/// The others go on, and it keeps no more than it has room for.
#[tokio::test(start_paused = true)]
async fn a_backup_whose_disk_hangs_keeps_what_it_has_room_for() -> Result<(), Box<dyn Error>> {
    let world = World::start(4).await?;
    world.put(1).await?;
    let (_, ledger, disk) = &world.nodes[3];
    disk.stall();
    let before = ledger.durable_now().up_to().records();
    world.put(200).await?;
    let waiting = ledger.end().records() - before;
    assert!(waiting < 200, "{waiting} records wait for a disk that hangs");
    disk.resume();
    for (node, ..) in world.nodes {
        node.stop(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// It says what it has done again and again, and none of it leaves.
#[tokio::test(start_paused = true)]
async fn a_backup_whose_disk_hangs_holds_few_words() -> Result<(), Box<dyn Error>> {
    let world = World::start(4).await?;
    world.put(1).await?;
    let (node, _, disk) = &world.nodes[3];
    disk.stall();
    world.put(2).await?;
    let held = async || node.inspect().await.map_or(0, |state| state.held);
    let (mut before, mut now) = (0, held().await);
    while now != before {
        assert!(now < 2_000, "{now} words are held");
        tokio::time::sleep(Duration::from_secs(5)).await;
        (before, now) = (now, held().await);
    }
    assert!(now > 0);
    disk.resume();
    while held().await > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (node, ..) in world.nodes {
        node.stop(Duration::from_secs(5)).await?;
    }
    Ok(())
}
