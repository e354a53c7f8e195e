//! The cluster file: where each shard listens.
//!
//! It is that of `node_kit`. Shard 0 is node 1, and so on.

use std::num::NonZeroUsize;

use anyhow::Result;
use convoke::{Endpoint, NodeId, Peer};
use node_kit::cluster::{self, NoProtocol, Node, Protocol};
use serde::{Deserialize, Serialize};

use crate::store::Sharding;

/// A cluster of shards.
pub type Cluster = cluster::Cluster<Shards>;

/// Place of a shard.
pub type ShardNode = Node<NoProtocol>;

/// The protocol of shards: it has no settings, and wants their numbers without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {}

impl Protocol for Shards {
    type Role = NoProtocol;

    fn contradictions(&self, nodes: &[ShardNode]) -> Vec<String> {
        let is_dense = nodes.iter().enumerate().all(|(index, node)| node.id == shard_node(index));
        let words = format!("shards are nodes 1 to {}, in this order", nodes.len());
        if is_dense { Vec::new() } else { vec![words] }
    }
}

/// Spread of ids over a cluster.
///
/// # Panics
/// Never: a cluster has a node.
pub fn sharding(cluster: &Cluster) -> Sharding {
    let shards = NonZeroUsize::new(cluster.nodes().len());
    Sharding::over(shards.expect("a cluster without nodes is refused"))
}

/// Its shards as peers of an endpoint.
///
/// # Errors
/// When an address cannot be dialled by this endpoint.
pub fn peers(cluster: &Cluster, endpoint: &Endpoint) -> Result<Vec<Peer>> {
    cluster.peers().map(|(node, addresses)| Ok(endpoint.peer(node, addresses)?)).collect()
}

/// The node that a shard runs at.
///
/// # Panics
/// If there are 2^64 shards.
pub fn shard_node(index: usize) -> NodeId {
    NodeId::new(index as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ids: [u64; 2]) -> String {
        let node = |id| format!("[[node]]\nid = {id}\naddresses = [\"tcp://127.0.0.1:700{id}\"]\n");
        format!("[cluster]\nid = 7\nname = \"graph\"\n{}", ids.map(node).concat())
    }

    #[test]
    fn shards_are_numbered_without_a_gap() {
        let cluster = Cluster::parse(&text([1, 2])).unwrap();
        assert_eq!(sharding(&cluster).shards(), 2);
        for ids in [[2, 1], [1, 3]] {
            let error = Cluster::parse(&text(ids)).unwrap_err().to_string();
            assert!(error.contains("shards are nodes 1 to 2, in this order"), "{error}");
        }
    }
}
