//! A broadcast overlay: four replicas, one of which sends most, so that its uplink would be what
//! limits all. Large requests to all the others travel over trees instead; nothing changes for
//! whoever calls or serves.
//!
//! ```sh
//! cargo run --example overlay --features overlay
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::overlay::{Delivery, HoseModel, Overlay, Site};
use convoke::quorum::{All, Configuration, QuorumExt};
use convoke::{Context, Endpoint, Method, NodeId, Service, Status};

const STORE: Method<Vec<u8>, u64> = Method::new("replica.Replica/Store");

async fn store(block: Vec<u8>, _: Context) -> Result<u64, Status> {
    Ok(block.len() as u64)
}

/// Model of the network, kbit/s: all have the same links, and the first wants to send what it has.
fn network() -> HoseModel {
    let (uplink, downlink) = (vec![100_000; 4], vec![200_000; 4]);
    let latency_us = (0..16).map(|pair| if pair % 5 == 0 { 0 } else { 20_000 }).collect();
    HoseModel { uplink, downlink, latency_us, demand: vec![80_000, 5_000, 5_000, 5_000], epoch: 1 }
}

async fn start_replica(
    node: NodeId,
    all: &[NodeId],
) -> Result<(Endpoint, Overlay), Box<dyn Error>> {
    let service = Service::new().unary(STORE, store);
    let endpoint =
        convoke::endpoint().node(node).listen("tcp://127.0.0.1:0").serve(service).start().await?;
    // A port of its own: what travels by the overlay is not to hold up calls.
    let overlay = Overlay::builder(&endpoint).listen("tcp://127.0.0.1:0").model(network());
    let overlay = all.iter().fold(overlay, |it, node| it.site_without_address(*node));
    Ok((endpoint, overlay.start().await?))
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let nodes: Vec<NodeId> = (1..=4).map(NodeId::new).collect();
    let mut replicas = Vec::new();
    for node in &nodes {
        replicas.push(start_replica(*node, &nodes).await?);
    }
    // Where nodes are known beforehand, `site(node, "tcp://host:port")` says so at once.
    for (endpoint, overlay) in &replicas {
        for (node, (other, site)) in nodes.iter().zip(&replicas) {
            overlay.introduce(*node, site.addresses()[0].as_str())?;
            if other.node() > endpoint.node() {
                endpoint.connect(other.addresses()).await?;
            }
        }
    }
    for (_, overlay) in &replicas {
        overlay.connected().await;
    }
    let (leader, site) = &replicas[0];
    for tree in site.plan().trees(Site(0)) {
        println!("{:>6} kbit/s of the first go by way of {:?}", tree.rate, tree.relay);
    }

    // An ordinary request to all. Each block leaves the first replica once, or a little more often.
    let others = Configuration::new(nodes[1..].to_vec())?;
    for number in 0..10 {
        let block = vec![number; 200_000];
        let stored = leader.call(STORE, block).to_all(&others).acked_by(All).await?;
        assert_eq!(stored, 200_000);
    }
    let copies = site.counters().own_bytes as f64 / 2_000_000.0;
    println!("each block left the first replica {copies:.2} times, instead of 3");
    assert!(copies < 3.0);

    // What is no request: an operation to all other sites, available once two of them have it.
    let held = site.broadcast(vec![7; 100_000]).await?.acked_by(2).await;
    println!("{:?} have the operation", held.by);
    for (_, other) in &replicas[1..] {
        let Some(Delivery::Operation { op, payload }) = other.next().await else {
            return Err("nothing came".into());
        };
        assert_eq!((op.source, payload.len()), (Site(0), 100_000));
    }
    for (endpoint, overlay) in replicas {
        overlay.shutdown(Duration::from_secs(5)).await;
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}
