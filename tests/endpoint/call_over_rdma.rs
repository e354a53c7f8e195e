//! Calls over RDMA on simulated verbs, alone and beside TCP.

#![cfg(all(feature = "rdma-simulated", feature = "tcp"))]

use std::time::Duration;

use convoke::rdma::provider::simulated::{Fabric, SimDevice};
use convoke::transport::RdmaTransport;
use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, EndpointBuilder, Method, NodeId, Peer, Service, Status};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("test.Test/Echo");

/// A node with both transports.
fn builder(number: u64, device: SimDevice) -> EndpointBuilder {
    let echo = |text, _: Context| async move { Ok::<_, Status>(text) };
    Endpoint::builder()
        .transport(TcpTransport::new())
        .transport(RdmaTransport::new(device))
        .node(NodeId::new(number))
        .serve(Service::new().unary(ECHO, echo))
}

/// A node that listens over both, TCP first.
async fn server(device: SimDevice) -> Result<Endpoint> {
    let server = builder(1, device).listen("tcp://127.0.0.1:0").listen("rdma://127.0.0.1:0");
    Ok(server.start().await?)
}

fn peer(client: &Endpoint, server: &Endpoint) -> Result<Peer> {
    let addresses = server.addresses();
    Ok(client.peer(server.node(), addresses)?)
}

async fn echo(client: &Endpoint, peer: &Peer, text: &str) -> Result {
    let reply = client.call(ECHO, text.into()).to(peer).await?;
    assert_eq!(reply, text);
    Ok(())
}

#[tokio::test]
async fn a_call_goes_over_rdma_where_both_have_it() -> Result {
    let fabric = Fabric::new();
    let server = server(fabric.device()).await?;
    let client = builder(2, fabric.device()).start().await?;
    let peer = peer(&client, &server)?;
    for text in ["short".to_owned(), "x".repeat(100_000)] {
        echo(&client, &peer, &text).await?;
    }
    assert_eq!(fabric.counters().queue_pairs, 2, "one connection, and that over RDMA");
    let counters = fabric.counters();
    assert_eq!((counters.receiver_not_ready, counters.violations), (0, 0));
    for endpoint in [client, server] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn warming_up_prefers_rdma_too() -> Result {
    let fabric = Fabric::new();
    let server = server(fabric.device()).await?;
    let client = builder(2, fabric.device()).start().await?;
    let peer = peer(&client, &server)?;
    client.warm_up(&peer).await?;
    assert_eq!(fabric.counters().queue_pairs, 2);
    Ok(())
}

#[tokio::test]
async fn a_call_falls_back_to_tcp_where_rdma_fails() -> Result {
    let fabric = Fabric::new();
    let server = server(fabric.device()).await?;
    let broken = fabric.device();
    let client = builder(2, broken.clone()).start().await?;
    let peer = peer(&client, &server)?;
    broken.lose();
    echo(&client, &peer, "by tcp").await?;
    assert_eq!(fabric.counters().queue_pairs, 0);
    Ok(())
}

#[tokio::test]
async fn a_connection_is_replaced_over_tcp_when_the_device_is_lost() -> Result {
    let fabric = Fabric::new();
    let server = server(fabric.device()).await?;
    let device = fabric.device();
    let client = builder(2, device.clone()).start().await?;
    let peer = peer(&client, &server)?;
    echo(&client, &peer, "by rdma").await?;
    let mut state = client.watch_peer(peer);
    device.lose();
    state.wait_for(|state| *state == convoke::PeerState::Down).await?;
    echo(&client, &peer, "by tcp").await?;
    Ok(())
}

#[tokio::test]
async fn without_a_device_at_the_peer_tcp_is_dialled() -> Result {
    let fabric = Fabric::new();
    let server = server(fabric.device()).await?;
    let client = Endpoint::builder().transport(TcpTransport::new()).start().await?;
    echo(&client, &peer(&client, &server)?, "by tcp").await?;
    assert_eq!(fabric.counters().queue_pairs, 0);
    Ok(())
}
