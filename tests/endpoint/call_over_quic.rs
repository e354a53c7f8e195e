//! Calls among endpoints over QUIC on loopback.
#![cfg(feature = "quic")]

use std::time::Duration;

use convoke::transport::{Identity, QuicTransport};
use convoke::{
    Cause, Context, End, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task, Way,
};
use tokio::runtime::Builder;

use crate::certificates::Authority;

/// Gives back what it got.
const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.Quic/Echo");
/// Goes on to a node, which echoes to the initiator.
const PASS_ON: Method<u64, Vec<u8>> = Method::new("test.Quic/PassOn");
/// Never answers.
const NEVER: Method<u64, Vec<u8>> = Method::new("test.Quic/Never");

const HOUR: Duration = Duration::from_secs(3_600);

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn identity(authority: &Authority, node: u64) -> Identity {
    let issued = authority.issue([node]);
    Identity::from_pem(issued.certificate, issued.key, authority.pem()).expect("it is good")
}

async fn pass_on(to: u64, task: Task<Vec<u8>>) -> std::result::Result<Finish, Status> {
    Ok(task.tail(&Peer::from(node(to)), ECHO.request(b"passed on".to_vec())).await?)
}

fn service() -> Service {
    Service::new()
        .unary(ECHO, |bytes, _: Context| async move { Ok::<_, Status>(bytes) })
        .unary(NEVER, |_, _: Context| std::future::pending::<std::result::Result<_, Status>>())
        .tree(PASS_ON, pass_on)
}

async fn start(authority: &Authority, id: u64) -> Endpoint {
    let builder = Endpoint::builder()
        .transport(QuicTransport::new(identity(authority, id)))
        .listen("quic://127.0.0.1:0");
    builder.serve(service()).start().await.expect("loopback can be bound")
}

fn peer(at: &Endpoint, other: &Endpoint) -> Peer {
    let addresses = other.addresses();
    at.peer(other.node(), addresses).expect("its addresses are addresses")
}

#[tokio::test]
async fn a_reply_from_two_hops_away_is_authenticated() -> Result {
    let authority = Authority::new();
    let [one, two, three] =
        [start(&authority, 1).await, start(&authority, 2).await, start(&authority, 3).await];
    // Two knows three, and three knows one: the reply takes its own way.
    peer(&two, &three);
    peer(&three, &one);
    let to_two = peer(&one, &two);
    let call = one.call(PASS_ON, 3).to(to_two).open()?;
    let (replies, outcome) = call.collect().await?;
    assert_eq!((replies.len(), outcome.end), (1, End::Complete));
    assert_eq!((replies[0].from(), replies[0].way()), (node(3), Way::Direct));
    assert_eq!(replies[0].message(), b"passed on");
    for endpoint in [one, two, three] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_small_calls_share_a_connection() -> Result {
    let authority = Authority::new();
    let (server, client) = (start(&authority, 1).await, start(&authority, 2).await);
    let to = peer(&client, &server);
    // What may wait for a dial is bounded, so there is a connection first.
    client.call(ECHO, Vec::new()).to(to).await?;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200_u8 {
        let (client, to) = (client.clone(), to);
        calls.spawn(async move {
            let len = if number.is_multiple_of(10) { 700_000 } else { 100 };
            let bytes = vec![number; len];
            let answer = client.call(ECHO, bytes.clone()).to(to).await;
            answer.map(|answer| answer == bytes)
        });
    }
    for answer in calls.join_all().await {
        assert!(answer?, "a reply is not what was sent");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_while_the_client_moves() -> Result {
    let authority = Authority::new();
    let server = start(&authority, 1).await;
    let identity = identity(&authority, 2);
    let (id, quic) = (identity.node(), QuicTransport::new(identity));
    let client = Endpoint::builder().node(id).transport(quic.clone()).start().await?;
    let to = client.connect(server.addresses()).await?;
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..16_u8 {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..50 {
                let request = ECHO.request(vec![number; 1_000]);
                let answer = client.invoke(request).to(to).await?;
                assert_eq!(answer, vec![number; 1_000]);
            }
            Ok::<_, convoke::CallError>(())
        });
    }
    for _ in 0..5 {
        quic.rebind()?;
        client.call(ECHO, vec![1]).to(to).await?;
    }
    for done in callers.join_all().await {
        done?;
    }
    Ok(())
}

#[tokio::test]
async fn a_node_that_ends_fails_the_calls_it_runs() -> Result {
    let authority = Authority::new();
    let (server, client) = (start(&authority, 1).await, start(&authority, 2).await);
    let to = peer(&client, &server);
    client.call(ECHO, Vec::new()).to(to).await?;
    let call = client.call(NEVER, 0).to(to).open()?;
    let ending = tokio::spawn(async move { server.shutdown(Duration::from_millis(50)).await });
    let outcome = call.outcome().await;
    assert!(!outcome.is_complete(), "{outcome:?}");
    ending.await?;
    Ok(())
}

#[tokio::test]
async fn a_node_of_another_cluster_cannot_be_called() -> Result {
    let (authority, other) = (Authority::new(), Authority::new());
    let (server, client) = (start(&authority, 1).await, start(&other, 2).await);
    let to = peer(&client, &server);
    let error = client.call(ECHO, Vec::new()).to(to).await;
    let error = error.expect_err("neither trusts the other");
    assert!(error.failure().is_some_and(|failure| failure.cause != Cause::Application), "{error}");
    Ok(())
}

/// A server that is killed says nothing to its peers. Its next life, at the same port, does: they
/// need not wait for their timeouts, here an hour.
#[tokio::test]
async fn a_server_that_was_killed_and_lives_again_is_found_at_once() -> Result {
    let authority = Authority::new();
    let issued = authority.issue([1]);
    let server = |at: String| {
        let identity = Identity::from_pem(&issued.certificate, &issued.key, authority.pem());
        let quic = QuicTransport::builder(identity.expect("it is good")).keep_alive_timeout(HOUR);
        let quic = quic.build().expect("they go together");
        Endpoint::builder().transport(quic).listen(at).serve(service()).start()
    };
    let first_life = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let first = server("quic://127.0.0.1:0".into());
    let first = first_life.spawn(first).await??;
    let address = first.addresses()[0].to_string();
    let quic = QuicTransport::builder(identity(&authority, 2)).keep_alive_timeout(HOUR).build()?;
    let client = Endpoint::builder().node(node(2)).transport(quic).start().await?;
    let to = client.connect(&address).await?;
    client.call(ECHO, Vec::new()).to(to).await?;
    first_life.shutdown_background();
    drop(first);
    let second = loop {
        match server(address.clone()).await {
            Ok(server) => break server,
            // The socket of the first life goes with its last task.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let found =
        async { while client.call(ECHO, Vec::new()).deadline(HOUR).to(to).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), found).await?;
    second.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
