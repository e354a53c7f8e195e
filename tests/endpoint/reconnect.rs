//! State of a peer's connection, as an endpoint knows it, and connections that are kept up.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{
    Context, Endpoint, EndpointBuilder, Limits, Method, NodeId, Peer, PeerState, Service, Status,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("test.Test/Echo");

fn builder(number: u64) -> EndpointBuilder {
    let echo = |text, _: Context| async move { Ok::<_, Status>(text) };
    let node = NodeId::new(number);
    // Short pauses, since some dials here must fail first.
    let mut limits = Limits::default();
    (limits.backoff_min, limits.backoff_max) = (Duration::from_millis(1), Duration::from_millis(4));
    let service = Service::new().unary(ECHO, echo);
    Endpoint::builder().transport(TcpTransport::new()).node(node).limits(limits).serve(service)
}

/// The node 1 at this address, which may be `tcp://127.0.0.1:0`.
async fn server(address: &str) -> Result<Endpoint> {
    Ok(builder(1).listen(address).start().await?)
}

fn peer(client: &Endpoint, address: &str) -> Result<Peer> {
    Ok(client.peer(NodeId::new(1), [address])?)
}

#[tokio::test]
async fn a_peer_is_down_until_it_is_dialled_and_again_when_it_is_gone() -> Result {
    let server = server("tcp://127.0.0.1:0").await?;
    let client = builder(2).start().await?;
    let peer = peer(&client, server.addresses()[0].as_str())?;
    let mut state = client.watch_peer(peer);
    assert_eq!(*state.borrow_and_update(), PeerState::Down);
    let call = client.call(ECHO, "a".into()).to(peer).open()?;
    state.changed().await?;
    assert_eq!(*state.borrow_and_update(), PeerState::Connecting);
    assert_eq!(call.first().await?.message(), "a");
    state.wait_for(|state| *state == PeerState::Connected).await?;
    // Of this peer the server sees the same, though it was dialled.
    let other = Peer::from(client.node());
    assert_eq!(*server.watch_peer(other).borrow(), PeerState::Connected);
    server.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state == PeerState::Down).await?;
    // On demand means that nobody dials before the next call.
    assert!(!state.has_changed()?);
    Ok(())
}

#[tokio::test]
async fn a_node_is_always_connected_with_itself() -> Result {
    let node = builder(1).start().await?;
    assert_eq!(*node.watch_peer(node.me()).borrow(), PeerState::Connected);
    Ok(())
}

#[tokio::test]
async fn a_dial_that_fails_is_seen_to_end() -> Result {
    let client = builder(2).start().await?;
    let peer = peer(&client, "tcp://127.0.0.1:1")?; // nobody's port
    let mut state = client.watch_peer(peer);
    assert!(client.warm_up(&peer).await.is_err());
    state.wait_for(|state| *state == PeerState::Down).await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_that_is_kept_is_made_without_a_call_and_made_again_after_a_loss() -> Result {
    let first = server("tcp://127.0.0.1:0").await?;
    let address = first.addresses()[0].to_string();
    let client = builder(2).start().await?;
    let peer = peer(&client, &address)?;
    let kept = client.keep_connected(peer);
    let mut state = client.watch_peer(peer);
    state.wait_for(|state| *state == PeerState::Connected).await?;

    first.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state != PeerState::Connected).await?;
    let second = server(&address).await?;
    state.wait_for(|state| *state == PeerState::Connected).await?;
    assert_eq!(client.call(ECHO, "b".into()).to(peer).await?, "b");

    drop(kept);
    second.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state == PeerState::Down).await?;
    Ok(())
}

#[tokio::test]
async fn a_start_that_is_given_up_listens_no_more() -> Result {
    // It takes connections and says nothing, so that the start waits for it.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let peer = format!("tcp://{}", silent.local_addr()?);
    let builder = || {
        let builder = convoke::endpoint().transport(convoke::transport::MemTransport::new());
        builder.listen("mem://given-up")
    };
    let start = builder().peer(NodeId::new(9), peer).keep_connected().start();
    assert!(tokio::time::timeout(Duration::from_millis(50), start).await.is_err());
    builder().start().await?;
    Ok(())
}

#[tokio::test]
async fn a_kept_connection_does_not_outlive_its_endpoint() -> Result {
    let server = server("tcp://127.0.0.1:0").await?;
    let client = builder(2).start().await?;
    let mut seen = server.watch_peer(Peer::from(client.node()));
    let peer = peer(&client, server.addresses()[0].as_str())?;
    let kept = client.keep_connected(peer);
    seen.wait_for(|state| *state == PeerState::Connected).await?;
    client.shutdown(Duration::from_secs(60)).await;
    seen.wait_for(|state| *state == PeerState::Down).await?;
    drop(kept);
    Ok(())
}
