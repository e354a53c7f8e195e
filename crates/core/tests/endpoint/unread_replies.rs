//! Bytes of replies that a peer has a node hold by asking for much and granting or reading nothing:
//! counted, under a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Context, Endpoint, Limits, Method, NodeId, RawMessage, Service, Status};
use convoke_proto::id::{CallId, MethodId, Path, TaskKey};
use convoke_proto::key::Key;
use convoke_proto::wire::{Frame, Header, Message, ReplyRoute, Request};
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::{Connection, Lane, Sink};

/// Answers with [`REPLY_BYTES`].
const LARGE: Method<(), RawMessage> = Method::new("test.Test/Large");
const REPLY_BYTES: usize = 256 << 10;
/// Time that a task may take.
const BUDGET: Duration = Duration::from_secs(2);

/// Bytes of replies that are held, and the most there were.
#[derive(Debug, Default)]
struct Ledger {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Ledger {
    fn reply(self: &Arc<Self>) -> Bytes {
        let now = self.now.fetch_add(REPLY_BYTES, Ordering::Relaxed) + REPLY_BYTES;
        self.most.fetch_max(now, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes: vec![7; REPLY_BYTES], ledger: self.clone() })
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }
}

struct Counted {
    bytes: Vec<u8>,
    ledger: Arc<Ledger>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.ledger.now.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

async fn server(network: &SimNetwork, limits: Limits) -> (Endpoint, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::default());
    let of_handlers = ledger.clone();
    let service = Service::new().unary(LARGE, move |(), _: Context| {
        let reply = RawMessage::from(of_handlers.reply());
        async { Ok::<_, Status>(reply) }
    });
    let builder = Endpoint::builder().node(NodeId::new(1)).transport(network.transport());
    let endpoint = builder.listen("sim://server:0").limits(limits).serve(service);
    (endpoint.start().await.expect("it starts"), ledger)
}

/// A peer that takes what comes and says nothing of itself.
async fn hostile(network: &SimNetwork, server: &Endpoint) -> (Arc<Recorder>, Arc<dyn Connection>) {
    let sink = Arc::new(Recorder::new(2));
    let address = &server.addresses()[0];
    let dialled = network.transport().dial(address, None, sink.clone()).await;
    (sink, dialled.expect("the server listens"))
}

/// Asks for so many replies in one batch.
fn ask(connection: &Arc<dyn Connection>, sink: &Recorder, count: u64) {
    let origin = sink.hello().incarnation;
    for seq in 1..=count {
        let request = Request {
            key: Key(seq),
            budget_us: u64::try_from(BUDGET.as_micros()).unwrap(),
            outlasted_us: 0,
            floor: seq,
            method: MethodId::of(LARGE.name()),
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload: Bytes::new(),
        };
        let task = TaskKey { path: Path::from_indices(&[0]).unwrap(), hop: 0 };
        let header = Header { call: CallId { origin, seq }, task };
        let message = Message::Request(request);
        let frame = Frame { header, relayed: None, key: None, message }.to_bytes();
        connection.append_bytes(Lane::Data, &[], frame).expect("there is room");
    }
    connection.flush();
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_requests_for_large_replies_holds_no_more_than_the_share_of_its_peer() {
    const POOL: usize = 4 << 20;
    let network = SimNetwork::new(1);
    let mut limits = Limits::default();
    limits.waiting_reply_bytes_max = POOL;
    limits.message_bytes_max = REPLY_BYTES;
    let (server, ledger) = server(&network, limits).await;
    let (sink, connection) = hostile(&network, &server).await;
    ask(&connection, &sink, 200);
    tokio::time::sleep(BUDGET / 2).await;
    assert_eq!(ledger.now(), POOL / 2, "its share");
    assert_eq!(ledger.most(), POOL / 2 + REPLY_BYTES, "its share, and one that finds no room");
    tokio::time::sleep(BUDGET).await;
    assert_eq!(ledger.now(), 0, "their time is over");
    server.shutdown(Duration::ZERO).await;
}
