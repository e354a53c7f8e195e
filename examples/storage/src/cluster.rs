//! The cluster file: which replicas there are, and where. It is that of `node_kit`.

use anyhow::Result;
use convoke::NodeId;
use convoke::cast::Digest;
use convoke::quorum::Configuration;
use convoke::quorum::echo::digest_of;
use node_kit::cluster::{self, NoProtocol, Node};

/// A cluster of replicas.
pub type Cluster = cluster::Cluster<NoProtocol>;

/// Place of a replica.
pub type ReplicaNode = Node<NoProtocol>;

/// Fingerprint of a cluster of this number with these members. Two majorities of two lists of
/// members need not have a replica in common, so who has another list than a replica is refused.
pub fn fingerprint(cluster: u64, members: &Configuration) -> u64 {
    let mut nodes: Vec<u64> = members.nodes().map(NodeId::get).collect();
    nodes.sort_unstable();
    let numbers = [cluster].into_iter().chain(nodes);
    let Digest(digest) = digest_of(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The replicas as a configuration, with where to dial them.
///
/// # Errors
/// Never: two nodes of a cluster file have neither one id nor one address.
pub fn members(cluster: &Cluster) -> Result<Configuration> {
    Ok(Configuration::new(cluster.peers())?)
}
