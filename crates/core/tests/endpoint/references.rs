//! Requests whose messages are elsewhere, or packed: what a peer can have a node do by a few
//! bytes of its own, under a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::carrier::{BodyCarrier, Carried, CarryError};
use convoke_core::seam::EndpointSeam;
use convoke_core::transport::BoxFuture;
use convoke_core::{
    Call, CallError, Cause, Context, Endpoint, Executed, Limits, Method, NodeId, RawMessage,
    Service, Status,
};
use convoke_proto::id::{CallId, MethodId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{Frame, Header, Message, ReplyRoute, Request};
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Connection, Lane, Sink};

/// Holds its message until it is stopped.
const HOLD: Method<RawMessage, ()> = Method::new("test.Test/Hold");
/// The length of its message.
const LEN: Method<RawMessage, u64> = Method::new("test.Test/Len");

/// Says that the message is elsewhere, under the name `r`.
const REFERENCE: &[u8] = b"\x00\x02r";

const MESSAGE_BYTES: usize = 256 << 10;
/// A message that is elsewhere, and has a few bytes around it where it is asked for.
const BODY_BYTES: usize = 200 << 10;
/// For large requests that run: of which one peer may have a half.
const POOL: usize = 1 << 20;
/// Time that a task may take.
const BUDGET: Duration = Duration::from_secs(2);

/// Has one message for all who ask, and brings none.
#[derive(Debug)]
struct Shelf {
    asked: AtomicUsize,
    /// Time after which it says that it brings none.
    takes: Duration,
}

impl Shelf {
    fn new(takes: Duration) -> Arc<Self> {
        Arc::new(Self { asked: AtomicUsize::new(0), takes })
    }
}

impl BodyCarrier for Shelf {
    fn body_bytes_min(&self) -> usize {
        usize::MAX
    }

    fn offer(&self, _: &[NodeId], _: &Bytes) -> Option<Carried> {
        None
    }

    fn body(&self, from: NodeId, _: Bytes) -> BoxFuture<Result<Bytes, CarryError>> {
        let takes = self.takes;
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Err(CarryError::Missing { from, message: "it brings none".to_owned() })
        })
    }

    fn held(&self, _: NodeId, _: &Bytes) -> Option<Bytes> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(Bytes::from(vec![7; BODY_BYTES]))
    }
}

/// Bytes of messages that handlers hold.
#[derive(Debug, Default)]
struct Held(AtomicUsize);

impl Held {
    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.message_bytes_max = MESSAGE_BYTES;
    limits.running_request_bytes_max = POOL;
    limits
}

fn service(held: &Arc<Held>) -> Service {
    let held = held.clone();
    Service::new()
        .unary(LEN, |message: RawMessage, _: Context| async move {
            Ok::<_, Status>(message.into_bytes().len() as u64)
        })
        .unary(HOLD, move |message: RawMessage, _: Context| {
            let (held, bytes) = (held.clone(), message.into_bytes().len());
            held.0.fetch_add(bytes, Ordering::Relaxed);
            async move {
                let _gone = OnDrop(|| _ = held.0.fetch_sub(bytes, Ordering::Relaxed));
                std::future::pending::<Result<(), Status>>().await
            }
        })
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn node(network: &SimNetwork, number: u64) -> convoke_core::EndpointBuilder {
    Endpoint::builder().node(NodeId::new(number)).transport(network.transport()).limits(limits())
}

async fn client(network: &SimNetwork, number: u64, server: &Endpoint) -> Endpoint {
    let client = node(network, number).start().await.expect("it starts");
    client.connect(&server.addresses()[0].to_string()).await.expect("the server listens");
    client
}

fn ask(client: &Endpoint, message: Bytes) -> Call<()> {
    let request = HOLD.request(RawMessage::from(message));
    client.invoke(request).to(NodeId::new(1)).deadline(BUDGET).open().expect("there is room")
}

/// Those of these calls that were refused for want of room.
async fn refused(calls: Vec<Call<()>>) -> usize {
    let mut refused = 0;
    for call in calls {
        let Err(CallError::Branch(failure)) = call.first().await else { panic!("it is held") };
        if failure.cause == Cause::Overloaded {
            assert_eq!(failure.executed, Executed::No);
            assert!(failure.text.contains("share of running_request_bytes_max"), "{failure}");
            refused += 1;
        }
    }
    refused
}

async fn expect_room(client: &Endpoint) {
    let request = LEN.request(RawMessage::from(Bytes::from(vec![8; MESSAGE_BYTES])));
    let len = client.invoke(request).to(NodeId::new(1)).await;
    assert_eq!(len.expect("there is room for it"), MESSAGE_BYTES as u64);
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_asked_for_take_no_more_than_the_share_of_their_sender() {
    let (network, held) = (SimNetwork::new(1), Arc::default());
    let server = node(&network, 1).listen("sim://server:0").serve(service(&held));
    let server = server.start().await.expect("it starts");
    let (greedy, other) = (client(&network, 2, &server).await, client(&network, 3, &server).await);
    let shelf = Shelf::new(Duration::ZERO);
    greedy.carry_bodies(shelf.clone()).expect("it has none");
    let calls: Vec<_> = (0..200).map(|_| ask(&greedy, Bytes::from_static(REFERENCE))).collect();
    tokio::time::sleep(BUDGET / 2).await;
    assert_eq!(held.now(), 2 * BODY_BYTES, "its share");
    assert_eq!(shelf.asked.load(Ordering::Relaxed), POOL / 2 / MESSAGE_BYTES, "nor more is asked");
    expect_room(&other).await;
    assert_eq!(refused(calls).await, 198);
    assert_eq!(held.now(), 0, "their time is over");
    // It is given back.
    let again = ask(&greedy, Bytes::from_static(REFERENCE));
    tokio::time::sleep(BUDGET / 2).await;
    assert_eq!(held.now(), BODY_BYTES);
    drop(again);
    server.shutdown(Duration::ZERO).await;
}

/// Sends so many requests whose messages are elsewhere.
fn refer(connection: &Arc<dyn Connection>, sink: &Recorder, count: u64) {
    let origin = sink.hello().incarnation;
    for seq in 1..=count {
        let request = Request {
            key: Key(seq),
            budget_us: u64::try_from(BUDGET.as_micros()).unwrap(),
            outlasted_us: 0,
            floor: seq,
            method: MethodId::of(HOLD.name()),
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload: Bytes::from_static(REFERENCE),
        };
        let task = TaskKey { path: Path::from_indices(&[0]).unwrap(), hop: 0 };
        let header = Header { call: CallId { origin, seq }, task };
        let message = Message::Request(request);
        let frame = Frame { header, relayed: None, key: None, message }.to_bytes();
        connection.append_bytes(Lane::Data, &[], frame).expect("there is room");
    }
    connection.flush();
}

/// Frames of a peer's that ask for messages.
fn asks(sink: &Recorder, connection: &Arc<dyn Connection>) -> usize {
    let seen = sink.seen(connection.link().nonce).expect("it is open");
    let is_request = |(_, frame): &&(Lane, Bytes)| {
        matches!(Frame::decode(frame.clone()), Ok(Frame { message: Message::Request(_), .. }))
    };
    seen.frames.iter().filter(is_request).count()
}

/// Each would hold one of the node's own calls until the deadline.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_has_few_calls_made_to_it() {
    let network = SimNetwork::new(1);
    let server = node(&network, 1).listen("sim://server:0").serve(service(&Arc::default()));
    let server = server.start().await.expect("it starts");
    let sink = Arc::new(Recorder::new(2));
    let dialled = network.transport().dial(&server.addresses()[0], None, sink.clone()).await;
    let connection = dialled.expect("the server listens");
    refer(&connection, &sink, 1_000);
    tokio::time::sleep(BUDGET / 2).await;
    assert_eq!(asks(&sink, &connection), POOL / 2 / MESSAGE_BYTES);
    server.shutdown(Duration::ZERO).await;
}

/// A peer that sends a reference and goes would have the node connect to wherever it said it is.
#[tokio::test(start_paused = true)]
async fn nobody_is_dialled_or_resolved_for_a_message_that_is_elsewhere() {
    let (network, resolved) = (SimNetwork::new(1), Arc::<AtomicUsize>::default());
    let counting = {
        let resolved = resolved.clone();
        move |_| {
            resolved.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, std::io::Error>("sim://stranger:0") }
        }
    };
    let server = node(&network, 1).listen("sim://server:0").serve(service(&Arc::default()));
    let server = server.resolver(counting).start().await.expect("it starts");
    // It knows that it brings none when the sender has gone.
    server.carry_bodies(Shelf::new(BUDGET / 4)).expect("it has none");
    let sink = Arc::new(Recorder::new(2));
    let dialled = network.transport().dial(&server.addresses()[0], None, sink.clone()).await;
    let connection = dialled.expect("the server listens");
    refer(&connection, &sink, 3);
    tokio::time::sleep(BUDGET / 8).await;
    connection.close(CloseReason::Local);
    tokio::time::sleep(BUDGET).await;
    assert_eq!(resolved.load(Ordering::Relaxed), 0);
    server.shutdown(Duration::ZERO).await;
}

/// A few bytes unpack to many: they are of the same room, which one peer cannot use up.
#[cfg(feature = "zstd")]
#[tokio::test(start_paused = true)]
async fn requests_that_came_packed_take_no_more_than_the_share_of_their_sender() {
    use convoke_core::Compression;

    let (network, held) = (SimNetwork::new(1), Arc::default());
    let server = node(&network, 1).listen("sim://server:0").serve(service(&held));
    let server = server.compression(Compression::accept_only()).start().await.expect("it starts");
    let packing = node(&network, 2).compression(Compression::zstd_from(64));
    let greedy = packing.start().await.expect("it starts");
    greedy.connect(&server.addresses()[0].to_string()).await.expect("the server listens");
    let other = client(&network, 3, &server).await;
    tokio::time::sleep(BUDGET / 8).await; // It is told what it may send.
    let calls: Vec<_> =
        (0..200).map(|_| ask(&greedy, Bytes::from(vec![8; MESSAGE_BYTES]))).collect();
    tokio::time::sleep(BUDGET / 2).await;
    assert!(greedy.counters().bytes_sent < POOL as u64 / 4, "they were packed");
    assert_eq!(held.now(), POOL / 2, "its share");
    expect_room(&other).await;
    assert_eq!(refused(calls).await, 198);
    assert_eq!(held.now(), 0, "their time is over");
    server.shutdown(Duration::ZERO).await;
}
