//! Lives of endpoints: what their ends leave behind, and addresses that change hands.

#![cfg(feature = "tcp")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use convoke::transport::{Address, TcpTransport};
use convoke::{
    CallError, ConnectError, Context, Endpoint, EndpointBuilder, Executed, Items, Limits, Method,
    NodeId, Peer, PeerState, Service, Status,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of the node that answers.
const WHO: Method<(), u64> = Method::new("lives.Test/Who");
/// So many bytes.
const LARGE: Method<u64, String> = Method::new("lives.Test/Large");
/// Never answers.
const NEVER: Method<(), u64> = Method::new("lives.Test/Never");
/// Reads what is never sent.
const READ: Method<Items<u64>, u64> = Method::new("lives.Test/Read");
/// Bounds what hangs.
const LONG: Duration = Duration::from_secs(20);

fn builder(node: u64) -> EndpointBuilder {
    let who =
        |(), context: Context| async move { Ok::<_, Status>(context.endpoint().node().get()) };
    let large = |bytes: u64, _: Context| async move {
        Ok::<_, Status>("a".repeat(usize::try_from(bytes).expect("it is small")))
    };
    let mut limits = Limits::default();
    limits.backoff_min = Duration::from_millis(1);
    let service = Service::new().unary(WHO, who).unary(LARGE, large);
    convoke::endpoint().node(NodeId::new(node)).limits(limits).serve(service)
}

async fn server(node: u64, address: &str) -> Result<Endpoint> {
    Ok(builder(node).listen(address).start().await?)
}

const ANY: &str = "tcp://127.0.0.1:0";

const HOUR: Duration = Duration::from_secs(3_600);

/// An endpoint whose dials and calls take as long as the test lets them.
fn patient(node: u64) -> Result<EndpointBuilder> {
    let transport = TcpTransport::builder().dial_timeout(HOUR).handshake_timeout(HOUR).build()?;
    let mut limits = Limits::default();
    (limits.deadline_default, limits.deadline_max) = (HOUR, HOUR);
    let never = |(), _: Context| std::future::pending::<std::result::Result<u64, Status>>();
    let service = Service::new().unary(NEVER, never);
    let builder = Endpoint::builder().transport(transport).node(NodeId::new(node));
    Ok(builder.limits(limits).serve(service))
}

/// Sockets that take connections and say nothing, and the nodes that a client is told to be there,
/// from 100 on.
async fn silent(client: &Endpoint, count: u64) -> Result<(Vec<TcpListener>, Vec<Peer>)> {
    let (mut listeners, mut peers) = (Vec::new(), Vec::new());
    for node in 100..100 + count {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        peers.push(client.peer(NodeId::new(node), address)?);
        listeners.push(listener);
    }
    Ok((listeners, peers))
}

/// A call that ended with the endpoint of its caller, and says so.
fn is_left<T: std::fmt::Debug>(ended: std::result::Result<T, CallError>, executed: Executed) {
    let error = ended.expect_err("nobody answers");
    assert!(error.to_string().contains("has been shut down"), "{error}");
    assert_eq!(error.failure().map(|failure| failure.executed), Some(executed), "{error}");
}

#[test]
fn the_last_replies_have_left_when_a_shutdown_is_over() -> Result {
    let (its, ours) = (Runtime::new()?, Runtime::new()?);
    let server = its.block_on(server(1, ANY))?;
    let answers = ours.block_on(async {
        let client = builder(2).start().await?;
        let peer = client.connect(server.addresses()).await?;
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push(client.call(LARGE, 3 << 20).to(peer).open()?);
        }
        client.call(WHO, ()).to(peer).await?; // behind them
        Ok::<_, Box<dyn std::error::Error>>((client, calls))
    });
    let (client, calls) = answers?;
    assert!(its.block_on(server.shutdown(LONG)));
    // As at the end of a program.
    its.shutdown_background();
    ours.block_on(async {
        for call in calls {
            assert_eq!(call.first().await?.message().len(), 3 << 20);
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    drop(client);
    Ok(())
}

#[test]
fn calls_of_an_endpoint_whose_runtime_is_gone_end() -> Result {
    let (its, ours) = (Runtime::new()?, Runtime::new()?);
    let server = ours.block_on(server(1, ANY))?;
    let client = its.block_on(builder(2).start())?;
    let (connected, at) = (client.clone(), server.addresses().to_vec());
    let peer = its.block_on(async move { connected.connect(at).await })?;
    its.shutdown_timeout(LONG); // Its tasks are gone then: until they are, a call may be answered.
    let ended = ours.block_on(async {
        let known = timeout(LONG, async { client.call(WHO, ()).to(peer).await }).await;
        let stranger = client.peer(NodeId::new(7), "tcp://127.0.0.1:1")?;
        let unknown = timeout(LONG, async { client.call(WHO, ()).to(stranger).await }).await;
        let own = timeout(LONG, async { client.call(WHO, ()).to(client.me()).await }).await;
        Ok::<_, Box<dyn std::error::Error>>([known, unknown, own])
    })?;
    for ended in ended {
        assert!(ended.is_ok_and(|call| call.is_err()));
    }
    Ok(())
}

/// Another clone closes the endpoint, or its runtime ends: then its calls do, whether they wait for
/// a dial that takes an hour yet or run elsewhere.
#[test]
fn calls_under_way_end_with_their_endpoint() -> Result {
    for is_closed in [true, false] {
        let (its, ours) = (Runtime::new()?, Runtime::new()?);
        let server = ours.block_on(patient(1)?.listen(ANY).start())?;
        let client = its.block_on(patient(2)?.start())?;
        let (connected, at) = (client.clone(), server.addresses().to_vec());
        let known = its.block_on(async move { connected.connect(at).await })?;
        let (waiting, running, items, awaited, _silent) = ours.block_on(async {
            let (listeners, strangers) = silent(&client, 2).await?;
            let waiting = [
                client.call(WHO, ()).to(strangers[0]).open()?,
                client.call(WHO, ()).to_all(strangers.clone()).open()?,
            ];
            let running = client.call(NEVER, ()).to_all([known, strangers[1]]).open()?;
            let items = client.call_stream(READ).to(strangers[0]).open()?;
            let (client, stranger) = (client.clone(), strangers[1]);
            let mut awaited = Box::pin(async move { client.call(WHO, ()).to(stranger).await });
            let begun = poll_fn(|cx| Poll::Ready(awaited.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
            // They are dialled, and nobody says a word.
            let mut dialled = Vec::new();
            for listener in &listeners {
                dialled.push(listener.accept().await?);
            }
            let silent = (listeners, dialled);
            Ok::<_, Box<dyn std::error::Error>>((waiting, running, items, awaited, silent))
        })?;
        if is_closed {
            let other = client.clone();
            its.block_on(async move { other.shutdown(Duration::ZERO).await });
        } else {
            its.shutdown_background();
        }
        let ended = async {
            for call in waiting {
                is_left(call.first().await, Executed::No);
            }
            let mut running = running;
            is_left(running.next().await.expect("one branch waited"), Executed::No);
            is_left(running.next().await.expect("the other ran"), Executed::Maybe);
            assert!(running.next().await.is_none());
            let (mut items, call) = items;
            assert!(items.send(&1).await.is_err());
            is_left(call.first().await, Executed::No);
            is_left(awaited.await, Executed::No);
        };
        ours.block_on(async { timeout(LONG, ended).await })?;
        assert_eq!(client.load().calls, 0);
        drop(server);
    }
    Ok(())
}

/// Another clone closes while their dials hang.
#[tokio::test]
async fn who_connects_is_told_when_the_endpoint_closes() -> Result {
    let client = patient(2)?.start().await?;
    let (listeners, strangers) = silent(&client, 2).await?;
    let address = format!("tcp://{}", listeners[1].local_addr()?);
    let closing = async {
        let dialled = (listeners[0].accept().await, listeners[1].accept().await);
        client.clone().shutdown(Duration::ZERO).await;
        dialled
    };
    let warming = timeout(LONG, client.warm_up(strangers[0]));
    let connecting = timeout(LONG, client.connect(&address));
    let (warm, connected, _dialled) = tokio::join!(warming, connecting, closing);
    let later = timeout(LONG, client.connect(&address)).await;
    for told in [warm?.err(), connected?.err(), later?.err()] {
        assert!(matches!(told, Some(ConnectError::Stopped)), "{told:?}");
    }
    Ok(())
}

/// The last member that could make a quorum waits for a dial when another clone closes.
#[cfg(feature = "quorum")]
#[tokio::test]
async fn a_quorum_call_that_waits_for_a_dial_ends_with_its_endpoint() -> Result {
    use convoke::quorum::{Configuration, Majority, QuorumExt};
    let one = server(1, ANY).await?;
    let client = patient(2)?.start().await?;
    let (listeners, strangers) = silent(&client, 2).await?;
    let known = client.connect(one.addresses()).await?;
    let members = Configuration::new([known, strangers[0], strangers[1]])?;
    let asked = client.call(WHO, ()).to_all(&members).quorum(Majority);
    let closing = async {
        let mut dialled = Vec::new();
        for listener in &listeners {
            dialled.push(listener.accept().await);
        }
        client.clone().shutdown(Duration::ZERO).await;
        dialled
    };
    let (asked, _dialled) = tokio::join!(timeout(LONG, asked), closing);
    let error = asked?.expect_err("one of three is no majority").to_string();
    assert!(error.contains("has been shut down"), "{error}");
    Ok(())
}

#[tokio::test]
async fn who_has_moved_is_not_taken_for_who_listens_there_now() -> Result {
    let client = builder(9).start().await?;
    let one = server(1, ANY).await?;
    let before = one.addresses()[0].clone();
    assert_eq!(client.connect(&before).await?.node(), one.node());
    let mut state = client.watch_peer(one.node());
    one.shutdown(Duration::ZERO).await;
    state.wait_for(|state| *state == PeerState::Down).await?;
    // It starts again elsewhere, and another at its place.
    let one = server(1, ANY).await?;
    assert_eq!(client.connect(one.addresses()).await?.node(), one.node());
    let two = server(2, before.as_str()).await?;
    assert_eq!(client.connect(&before).await?.node(), two.node());
    assert_eq!(client.connections().len(), 2);
    assert_eq!(client.connect(&before).await?.node(), two.node());
    assert_eq!(client.connect(one.addresses()).await?.node(), one.node());
    assert_eq!(client.connections().len(), 2, "none is dialled again");
    Ok(())
}

#[tokio::test]
async fn who_has_moved_is_not_dialled_where_it_was() -> Result {
    let client = builder(9).start().await?;
    let mut state = client.watch_peer(NodeId::new(1));
    let mut places = Vec::new();
    for _ in 0..2 {
        let one = server(1, ANY).await?;
        places.push(one.addresses()[0].clone());
        client.connect(one.addresses()).await?;
        one.shutdown(Duration::ZERO).await;
        state.wait_for(|state| *state == PeerState::Down).await?;
    }
    // At the first somebody takes connections and says nothing, at the second it starts again.
    let silent = TcpListener::bind(places[0].rest()).await?;
    let one = server(1, places[1].as_str()).await?;
    client.warm_up(one.node()).await?;
    let accepted = poll_fn(|cx| Poll::Ready(silent.poll_accept(cx).is_ready())).await;
    assert!(!accepted, "it was dialled where it was");
    Ok(())
}

#[tokio::test]
async fn a_peer_that_is_found_elsewhere_while_it_is_dialled_is_dialled_there() -> Result {
    let client = builder(9).start().await?;
    let one = server(1, ANY).await?;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let peer = client.peer(one.node(), format!("tcp://{}", silent.local_addr()?))?;
    let call = client.call(WHO, ()).to(peer).open()?;
    let (dialled, _) = silent.accept().await?;
    client.peer(one.node(), one.addresses())?;
    drop((dialled, silent));
    assert_eq!(*call.first().await?.message(), 1);
    Ok(())
}

#[tokio::test]
async fn many_who_connect_at_once_share_a_connection() -> Result {
    let client = builder(9).start().await?;
    let one = server(1, ANY).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (client, addresses): (_, Vec<Address>) = (client.clone(), one.addresses().to_vec());
        tasks.spawn(async move { client.connect(addresses).await.map(|peer| peer.node()) });
    }
    while let Some(connected) = tasks.join_next().await {
        assert_eq!(connected??, one.node());
    }
    assert_eq!(client.connections().len(), 1);
    Ok(())
}

#[tokio::test]
async fn many_who_warm_up_at_once_share_a_connection() -> Result {
    let client = builder(9).start().await?;
    let one = server(1, ANY).await?;
    let peer = client.peer(one.node(), one.addresses())?;
    let call = client.call(WHO, ()).to(peer).open()?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        tasks.spawn(async move { client.warm_up(peer).await });
    }
    while let Some(connected) = tasks.join_next().await {
        connected??;
    }
    call.first().await?;
    assert_eq!(client.connections().len(), 1);
    Ok(())
}

/// A node that is kept connected is dialled before it listens; a call that comes later does not
/// wait for the end of that dial, nor fail with it.
#[tokio::test]
async fn a_call_does_not_share_a_dial_that_began_before_its_node_listened() -> Result {
    let one = server(1, ANY).await?;
    let to: SocketAddr = one.addresses()[0].rest().parse()?;
    let front = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", front.local_addr()?);
    let client = builder(9).start().await?;
    let peer = client.peer(one.node(), address.as_str())?;
    let _kept = client.keep_connected(peer);
    // Nobody answers the first; the others are the server's.
    let (_silent, _) = front.accept().await?;
    let carrying = tokio::spawn(async move {
        while let Ok((mut stream, _)) = front.accept().await {
            let Ok(mut other) = TcpStream::connect(to).await else { return };
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut other).await;
            });
        }
    });
    client.call(WHO, ()).to(peer).await?;
    carrying.abort();
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_cannot_start_gives_its_other_ports_back() -> Result {
    let taken = server(1, ANY).await?;
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let address = format!("tcp://{free}");
    let both = builder(2).listen(&address).listen(taken.addresses());
    let error = both.start().await.expect_err("the second is in use").to_string();
    assert!(error.contains("another socket has this port"), "{error}");
    server(3, &address).await?;
    Ok(())
}
