//! The shards and a client over a simulated network, in one process: where the time of a query has
//! to be exact. Under tokio's paused clock a query takes what its frames are under way, and nothing
//! else.

use std::time::Duration;

use anyhow::Result;
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, Limits, Peer};

use crate::cluster::shard_node;
use crate::forms::Client;
use crate::node::Node;
use crate::proto::GraphServer;
use crate::store::{Graph, Part, Sharding};

/// Connected shards and their client.
#[derive(Debug)]
pub struct Simulated {
    /// The network between them.
    pub network: SimNetwork,
    /// The client.
    pub client: Client,
    /// They serve as long as they are held.
    _shards: Vec<Endpoint>,
}

impl Simulated {
    /// Starts shards of a graph; from then on each frame is under way for `one_way`.
    ///
    /// # Errors
    /// [`convoke::StartError`] and the like, which would be a mistake of this module.
    pub async fn start(graph: &Graph, sharding: Sharding, one_way: Duration) -> Result<Self> {
        let network = SimNetwork::new(1);
        // Frames are looked at: nobody asks now and then which calls are settled.
        let mut limits = Limits::default();
        limits.ask_min = usize::MAX;
        let mut shards = Vec::new();
        for part in Part::all(sharding) {
            let endpoint = Endpoint::builder()
                .transport(network.transport())
                .node(shard_node(part.index()))
                .seed(part.index() as u64 + 1)
                .limits(limits.clone())
                .listen(address(part.index()))
                .serve(GraphServer::new(Node::new(graph.shard(part), CLUSTER, DATA)));
            shards.push(endpoint.start().await?);
        }
        let endpoint = Endpoint::builder().transport(network.transport()).seed(99);
        let endpoint = endpoint.start().await?;
        for shard in &shards {
            connect(shard, sharding).await?;
        }
        let peers = connect(&endpoint, sharding).await?;
        let client = Client::new(&endpoint, CLUSTER, peers, sharding);
        network.default_latency(one_way);
        Ok(Self { network, client, _shards: shards })
    }
}

/// Number of the cluster: any.
pub const CLUSTER: u64 = 1;

/// Fingerprint of the graph: any, as all have the same.
pub const DATA: u64 = 1;

fn address(index: usize) -> String {
    format!("sim://shard{index}")
}

async fn connect(endpoint: &Endpoint, sharding: Sharding) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    for index in 0..sharding.shards() {
        let peer = endpoint.peer(shard_node(index), [address(index)])?;
        endpoint.warm_up(&peer).await?;
        peers.push(peer);
    }
    Ok(peers)
}
