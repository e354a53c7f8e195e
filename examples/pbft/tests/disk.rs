//! A replica whose disk hangs.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::disk::SimDisk;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};
use pbft::core::{Group, Keys, Scope, Signer};
use pbft::node::{Node, NodeError, Options};
use tokio::time::Instant;

const CLUSTER: u64 = 7;

#[tokio::test(start_paused = true)]
async fn a_node_whose_disk_hangs_stops_in_time() -> Result<(), Box<dyn Error>> {
    let (disk, network, id) = (SimDisk::new(5), SimNetwork::new(3), NodeId::new(1));
    let members = Configuration::new([(id, "sim://node1")])?;
    let signer = Signer::stand_in([1; 32]);
    let checkers = BTreeMap::from([(id, signer.checker())]);
    let (scope, group) = (Scope { cluster: CLUSTER, epoch: 1 }, Group::new([id])?);
    let keys = Keys::new(scope, group, checkers, BTreeMap::new());
    let identity = Identity { cluster: CLUSTER, node: 1 };
    let opened = Ledger::open(disk.mount(), identity, Settings::default()).await?;
    let builder = Endpoint::builder().transport(network.transport()).seed(1).listen("sim://node1");
    let options = Options::new(id, members, keys, signer);
    let node = Node::start(options, (opened.0, Some(opened.1)), builder).await?;
    disk.stall();
    let (begun, within) = (Instant::now(), Duration::from_secs(5));
    let stopped = node.stop(within).await;
    assert!(matches!(stopped, Err(NodeError::Ledger(LedgerError::NotInTime))), "{stopped:?}");
    assert!(begun.elapsed() <= within + Duration::from_secs(2));
    Ok(())
}
