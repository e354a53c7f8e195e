//! The cluster file: which replicas there are, and where. It is that of `node_kit`.

use anyhow::Result;
use convoke::quorum::Configuration;
use node_kit::cluster::{self, NoProtocol, Node};

/// A cluster of replicas.
pub type Cluster = cluster::Cluster<NoProtocol>;

/// Place of a replica.
pub type ReplicaNode = Node<NoProtocol>;

/// The replicas as a configuration, with where to dial them.
///
/// # Errors
/// Never: two nodes of a cluster file have neither one id nor one address.
pub fn members(cluster: &Cluster) -> Result<Configuration> {
    Ok(Configuration::new(cluster.peers())?)
}
