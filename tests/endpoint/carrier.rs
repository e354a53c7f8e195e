//! Messages that travel beside their requests, over real sockets. The carrier of these tests is a
//! shelf that all nodes of the process share: what reaches a node otherwise than by its connections
//! is on it.

#![cfg(feature = "tcp")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke::cast::{Announce, CastBody, CastPort};
use convoke::transport::{BoxFuture, Lane, TcpTransport, Transport};
use convoke::{
    Caller, Cause, Context, Endpoint, Executed, Limits, Method, NodeId, Peer, Service, Status, Task,
};
use convoke_core::carrier::{BodyCarrier, Carried, CarryError};
use convoke_core::proto::id::{CallId, Incarnation, Path, TaskKey};
use convoke_core::proto::wire::{About, Cast, Digest, Frame, Header, Message};
use convoke_core::seam::EndpointSeam;
use convoke_transport::conformance::{PATIENCE, Recorder, send};
use tokio::sync::Notify;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LEN: Method<Vec<u8>, u64> = Method::new("test.Test/Len");

#[derive(Debug, Default)]
struct Shelf {
    bodies: Mutex<BTreeMap<Bytes, Bytes>>,
    came: Notify,
    /// Nodes it brings nothing to.
    leaves_out: Mutex<Vec<NodeId>>,
    offers: Mutex<Vec<(Vec<NodeId>, usize)>>,
    /// It brings nothing to those who ask.
    loses: bool,
    /// Those who have offered something still have it.
    keeps: AtomicBool,
}

impl Shelf {
    fn put(&self, reference: &Bytes, body: Bytes) {
        self.bodies.lock().unwrap().insert(reference.clone(), body);
        self.came.notify_waiters();
    }

    fn offers(&self) -> Vec<(Vec<NodeId>, usize)> {
        self.offers.lock().unwrap().clone()
    }
}

/// The shelf as one endpoint uses it.
#[derive(Debug)]
struct OnShelf {
    shelf: Arc<Shelf>,
    puts: bool,
}

impl BodyCarrier for OnShelf {
    fn body_bytes_min(&self) -> usize {
        4_096
    }

    fn offer(&self, to: &[NodeId], body: &Bytes) -> Option<Carried> {
        let mut offers = self.shelf.offers.lock().unwrap();
        offers.push((to.to_vec(), body.len()));
        let reference = Bytes::from(vec![u8::try_from(offers.len()).unwrap(); 8]);
        if self.puts {
            self.shelf.put(&reference, body.clone());
        }
        let left_out = self.shelf.leaves_out.lock().unwrap().clone();
        let nodes = to.iter().copied().filter(|node| !left_out.contains(node)).collect();
        Some(Carried { reference, nodes })
    }

    fn held(&self, to: NodeId, reference: &Bytes) -> Option<Bytes> {
        let offers = self.shelf.offers.lock().unwrap();
        let was_for = offers.iter().any(|(nodes, _)| nodes.contains(&to));
        let keeps = was_for && self.shelf.keeps.load(Ordering::Relaxed);
        self.shelf.bodies.lock().unwrap().get(reference).filter(|_| keeps).cloned()
    }

    fn body(
        &self,
        from: NodeId,
        reference: Bytes,
    ) -> BoxFuture<std::result::Result<Bytes, CarryError>> {
        let shelf = self.shelf.clone();
        Box::pin(async move {
            if shelf.loses || reference.starts_with(&[0xff]) {
                return Err(CarryError::Missing { from, message: "nobody has it".into() });
            }
            loop {
                let came = shelf.came.notified();
                if let Some(body) = shelf.bodies.lock().unwrap().get(&reference) {
                    return Ok(body.clone());
                }
                came.await;
            }
        })
    }
}

async fn len(bytes: Vec<u8>, _: Context) -> std::result::Result<u64, Status> {
    Ok(bytes.len() as u64)
}

/// `count` servers and a client that knows them.
async fn cluster(count: usize) -> Result<(Vec<Endpoint>, Endpoint, Vec<Peer>)> {
    let tcp = || Endpoint::builder().transport(TcpTransport::new());
    let mut servers = Vec::new();
    for _ in 0..count {
        let server = tcp().listen("tcp://127.0.0.1:0").serve(Service::new().unary(LEN, len));
        servers.push(server.start().await?);
    }
    let client = tcp().serve(Service::new().unary(LEN, len)).start().await?;
    let mut peers = Vec::new();
    for server in &servers {
        peers.push(client.connect(server.addresses()).await?);
    }
    Ok((servers, client, peers))
}

fn all_carry(endpoints: &[&Endpoint], shelf: &Arc<Shelf>, puts: bool) -> Result {
    for endpoint in endpoints {
        endpoint.carry_bodies(Arc::new(OnShelf { shelf: shelf.clone(), puts }))?;
    }
    Ok(())
}

fn cast_of(payload: Bytes) -> CastBody {
    let digest = convoke::cast::Digest([1; 32]);
    CastBody { phase: 0, sender: 0, epoch: 0, digest, payload }
}

async fn wait_for(port: &CastPort, count: usize) {
    std::future::poll_fn(|cx| match port.poll_waiting(cx, count).is_ready {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

async fn lens(client: &Endpoint, peers: &[Peer], bytes: usize) -> Result<Vec<u64>> {
    let call = client.call(LEN, vec![7; bytes]).to_all(peers);
    let (replies, outcome) = call.open()?.collect().await?;
    assert!(outcome.is_complete(), "{outcome:?}");
    Ok(replies.iter().map(|reply| *reply.message()).collect())
}

#[tokio::test]
async fn a_large_message_for_several_travels_once_and_reaches_every_handler() -> Result {
    let (servers, client, peers) = cluster(3).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client, &servers[0], &servers[1], &servers[2]], &shelf, true)?;

    let before = client.counters().bytes_sent;
    assert_eq!(lens(&client, &peers, 100_000).await?, [100_000; 3]);
    let nodes: Vec<NodeId> = peers.iter().map(Peer::node).collect();
    assert_eq!(shelf.offers(), [(nodes, 100_004)]); // A tag and a length before the bytes.
    let sent = client.counters().bytes_sent - before;
    assert!(sent < 1_000, "{sent} bytes went with the requests");
    Ok(())
}

#[tokio::test]
async fn small_or_single_or_different_messages_are_not_offered() -> Result {
    let (servers, client, peers) = cluster(2).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client, &servers[0], &servers[1]], &shelf, true)?;

    assert_eq!(lens(&client, &peers, 1_000).await?, [1_000; 2]);
    assert_eq!(lens(&client, &peers[..1], 100_000).await?, [100_000]);
    let call = client.fan_out([
        (&peers[0], LEN.request(vec![1; 50_000])),
        (&peers[1], LEN.request(vec![2; 50_000])),
    ]);
    assert!(call.open()?.outcome().await.is_complete());
    // This node itself has the message already.
    assert_eq!(lens(&client, &[peers[0], client.me()], 100_000).await?, [100_000; 2]);
    assert_eq!(shelf.offers(), []);

    client.stop_carrying();
    assert_eq!(lens(&client, &peers, 100_000).await?, [100_000; 2]);
    assert_eq!(shelf.offers(), []);
    Ok(())
}

#[tokio::test]
async fn messages_are_the_same_by_what_they_say() -> Result {
    let (servers, client, peers) = cluster(5).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client], &shelf, true)?;
    all_carry(&servers.iter().collect::<Vec<_>>(), &shelf, true)?;
    // Two shards, for two nodes each, and something else for one.
    let sizes = [50_000, 60_000, 50_000, 60_000, 50_001];
    let branches = peers.iter().zip(sizes);
    let branches = branches.map(|(peer, size)| (peer, LEN.request(vec![1; size])));
    let (mut replies, outcome) = client.fan_out(branches).open()?.collect().await?;
    assert!(outcome.is_complete(), "{outcome:?}");
    replies.sort_by_key(|reply| peers.iter().position(|peer| peer.node() == reply.from()));
    let came: Vec<u64> = replies.iter().map(|reply| *reply.message()).collect();
    assert_eq!(came, sizes.map(|size| size as u64));
    let node = |index: usize| peers[index].node();
    let expected = [(vec![node(0), node(2)], 50_004), (vec![node(1), node(3)], 60_004)];
    assert_eq!(shelf.offers(), expected);
    Ok(())
}

#[tokio::test]
async fn the_message_of_a_task_for_several_travels_once_too() -> Result {
    const SPREAD: Method<Vec<u8>, u64> = Method::new("test.Test/Spread");
    let (servers, client, peers) = cluster(2).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&servers[0], &servers[1]], &shelf, true)?;
    let to = peers.clone();
    let spread = Service::new().tree(SPREAD, move |bytes: Vec<u8>, task: Task<u64>| {
        let to = to.clone();
        async move { task.fan_out(to.iter().map(|peer| (peer, LEN.request(bytes.clone())))).await }
    });
    let tcp = Endpoint::builder().transport(TcpTransport::new()).listen("tcp://127.0.0.1:0");
    let middle = tcp.serve(spread).start().await?;
    all_carry(&[&middle], &shelf, true)?;
    for server in &servers {
        middle.connect(server.addresses()).await?;
    }
    let by = client.connect(middle.addresses()).await?;
    let call = client.call(SPREAD, vec![7; 100_000]).to(by);
    let (replies, outcome) = call.open()?.collect().await?;
    assert!(outcome.is_complete(), "{outcome:?}");
    assert_eq!(replies.iter().map(|reply| *reply.message()).collect::<Vec<_>>(), [100_000; 2]);
    assert_eq!(shelf.offers(), [(peers.iter().map(Peer::node).collect(), 100_004)]);
    let sent = middle.counters().bytes_sent;
    assert!(sent < 2_000, "{sent} bytes went with the requests");
    Ok(())
}

#[tokio::test]
async fn whom_the_carrier_leaves_out_gets_it_with_the_request() -> Result {
    let (servers, client, peers) = cluster(3).await?;
    let shelf = Arc::new(Shelf::default());
    // The third has no carrier at all.
    all_carry(&[&client, &servers[0], &servers[1]], &shelf, true)?;
    shelf.leaves_out.lock().unwrap().push(peers[2].node());
    assert_eq!(lens(&client, &peers, 100_000).await?, [100_000; 3]);
    Ok(())
}

#[tokio::test]
async fn a_node_without_a_carrier_says_so_and_has_not_run_it() -> Result {
    let (_servers, client, peers) = cluster(2).await?;
    all_carry(&[&client], &Arc::default(), true)?;
    let call = client.call(LEN, vec![7; 100_000]).to_all(&peers);
    let outcome = call.open()?.outcome().await;
    assert_eq!(outcome.failures.len(), 2);
    for failure in &outcome.failures {
        assert_eq!((failure.cause, failure.executed), (Cause::Application, Executed::No));
        assert!(failure.to_string().contains("has no overlay"), "{failure}");
    }
    Ok(())
}

#[tokio::test]
async fn what_no_carrier_brings_is_got_from_the_sender() -> Result {
    let deny = |_: &Caller, _: &str| false;
    let tcp = || Endpoint::builder().transport(TcpTransport::new());
    let client = tcp().authorize(deny).start().await?;
    let shelf = Arc::new(Shelf { keeps: AtomicBool::new(true), ..Shelf::default() });
    all_carry(&[&client], &shelf, true)?;
    let (servers, _, _) = cluster(3).await?;
    let mut peers = Vec::new();
    for server in &servers {
        peers.push(client.connect(server.addresses()).await?);
    }
    // The first has no carrier, that of the second finds nothing, the third has it.
    let lost = Arc::new(Shelf { loses: true, ..Shelf::default() });
    all_carry(&[&servers[1]], &lost, true)?;
    all_carry(&[&servers[2]], &shelf, true)?;
    assert_eq!(lens(&client, &peers, 100_000).await?, [100_000; 3]);
    assert_eq!(shelf.offers().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_value_that_no_carrier_brings_is_got_from_the_sender() -> Result {
    let (servers, client, peers) = cluster(2).await?;
    let shelf = Arc::new(Shelf { keeps: AtomicBool::new(true), ..Shelf::default() });
    all_carry(&[&client], &shelf, true)?;
    let announce = Announce { senders_min: 1, source: None };
    let lifetime = Duration::from_secs(10);
    let value = Bytes::from(vec![0; 200_000]);
    let from = client.cast_space(7, 8, announce, None)?;
    from.open(0, 1, lifetime)?.send(peers.iter().map(Peer::node), cast_of(value.clone()));
    for server in &servers {
        let space = server.cast_space(7, 8, announce, None)?;
        let port = space.open(0, 1, lifetime)?;
        wait_for(&port, 1).await;
        let mut casts = Vec::new();
        port.take(&mut casts);
        assert_eq!(casts[0].body.payload, value);
    }
    Ok(())
}

#[tokio::test]
async fn a_handler_waits_for_its_message_until_the_deadline() -> Result {
    let (servers, client, peers) = cluster(2).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client, &servers[0], &servers[1]], &shelf, false)?;
    let call = || client.call(LEN, vec![7; 100_000]).to_all(&peers);

    let outcome = call().deadline(Duration::from_millis(50)).open()?.outcome().await;
    assert!(!outcome.is_complete(), "{outcome:?}");

    // It comes late, but it comes.
    let waiting = call().open()?;
    shelf.put(&Bytes::from(vec![2; 8]), vec![10, 3, 1, 2, 3].into());
    let (replies, outcome) = waiting.collect().await?;
    assert!(outcome.is_complete(), "{outcome:?}");
    assert!(replies.iter().all(|reply| *reply.message() == 3));
    Ok(())
}

#[tokio::test]
async fn a_message_that_nobody_has_any_more_fails_its_branch_unrun() -> Result {
    let (servers, client, peers) = cluster(2).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client, &servers[0], &servers[1]], &shelf, false)?;
    shelf.offers.lock().unwrap().resize(254, (Vec::new(), 0));
    let call = client.call(LEN, vec![7; 100_000]).to_all(&peers);
    let outcome = call.open()?.outcome().await;
    assert_eq!(outcome.failures.len(), 2);
    for failure in &outcome.failures {
        assert_eq!(failure.executed, Executed::No);
        assert!(failure.to_string().contains("nobody has it"), "{failure}");
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_has_one_carrier() -> Result {
    let (servers, ..) = cluster(1).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&servers[0]], &shelf, true)?;
    let second = servers[0].carry_bodies(Arc::new(OnShelf { shelf, puts: true }));
    assert!(second.unwrap_err().to_string().contains("already"));
    servers[0].stop_carrying();
    all_carry(&[&servers[0]], &Arc::default(), true)
}

#[tokio::test]
async fn a_large_value_travels_beside_its_cast() -> Result {
    let (servers, client, peers) = cluster(3).await?;
    let shelf = Arc::new(Shelf::default());
    all_carry(&[&client, &servers[0], &servers[1]], &shelf, true)?;
    // The third has no carrier, and gets the value with its cast.
    shelf.leaves_out.lock().unwrap().push(peers[2].node());

    let lifetime = Duration::from_secs(10);
    let announce = Announce { senders_min: 1, source: None };
    let space = |endpoint: &Endpoint| endpoint.cast_space(7, 8, announce, None);
    let value = Bytes::from(vec![0; 200_000]); // As it is: casts are not protobuf messages.
    let from = space(&client)?;
    let port = from.open(0, 1, lifetime)?;
    let before = client.counters().bytes_sent;
    port.send(peers.iter().map(Peer::node), cast_of(value.clone()));
    port.send(peers.iter().map(Peer::node), cast_of(Bytes::from_static(b"vote")));

    for server in &servers {
        let space = space(server)?;
        let port = space.open(0, 1, lifetime)?;
        wait_for(&port, 2).await;
        let mut casts = Vec::new();
        port.take(&mut casts);
        assert!(casts.iter().all(|cast| cast.from == client.node()));
        let mut values: Vec<Bytes> = casts.into_iter().map(|cast| cast.body.payload).collect();
        values.sort_by_key(Bytes::len);
        assert_eq!(values, [Bytes::from_static(b"vote"), value.clone()]);
    }
    let sent = client.counters().bytes_sent - before;
    assert!((200_000..201_000).contains(&sent), "{sent} bytes went with the casts");
    assert_eq!(shelf.offers().len(), 1);
    Ok(())
}

/// They are got from the senders, which say different names and never answer.
#[tokio::test]
async fn values_of_casts_from_one_place_leave_calls_to_others() -> Result {
    const CASTS: u64 = 300;
    let mut limits = Limits::default();
    limits.calls_max = 512;
    let builder = Endpoint::builder().transport(TcpTransport::new()).listen("tcp://127.0.0.1:0");
    let builder = builder.serve(Service::new().unary(LEN, len)).cores(1).limits(limits);
    let endpoint = builder.start().await?;
    let cast = |seq| {
        let header = Header {
            call: CallId { origin: Incarnation(7), seq },
            task: TaskKey { path: Path::root(), hop: 0 },
        };
        let cast = Cast {
            about: About::Tag { view: 0 },
            phase: 0,
            sender: 0,
            epoch: 0,
            budget_us: 600_000_000,
            digest: Digest::ZERO,
            is_carried: true,
            payload: Bytes::from_static(b"a reference"),
        };
        Frame::new(header, Message::Cast(cast)).to_bytes()
    };
    let address = &endpoint.addresses()[0];
    let mut silent = Vec::new();
    for node in 2..6 {
        let sink = Arc::new(Recorder::new(node));
        let connection = TcpTransport::new().dial(address, None, sink).await?;
        for seq in 0..CASTS {
            send(&connection, Lane::Data, &cast(seq)).await;
        }
        silent.push(connection);
    }
    let all_but_one_share = 4 * CASTS - 256;
    tokio::time::timeout(PATIENCE, async {
        while endpoint.casts_dropped().over_limit < all_but_one_share {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    assert!(endpoint.load().calls <= 256, "{:?}", endpoint.load());
    assert_eq!(endpoint.call(LEN, vec![7; 9]).to(endpoint.me()).await?, 9);
    Ok(())
}
