//! Owners of message bytes that ask the endpoint as the bytes are dropped.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use convoke_core::transport::mem::MemTransport;
use convoke_core::{
    Cause, Context, Endpoint, Limits, Method, NodeId, RawMessage, Service, Status, Task,
};
use tokio::sync::mpsc;

const TAKE: Method<RawMessage, u64> = Method::new("test.Owners/Take");
const IN_TURN: Method<RawMessage, u64> = Method::new("test.Owners/InTurn").ordered();
const GIVE: Method<u64, RawMessage> = Method::new("test.Owners/Give");
const HAND_ON: Method<u64, u64> = Method::new("test.Owners/HandOn");

struct Asks {
    endpoint: Endpoint,
    bytes: Vec<u8>,
    /// Those that were answered.
    count: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Asks {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.endpoint.load();
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// An endpoint with a single core, and messages of it.
struct Client {
    endpoint: Endpoint,
    count: Arc<AtomicUsize>,
}

impl Client {
    async fn start(service: Service) -> Self {
        let builder = Endpoint::builder().transport(MemTransport::new()).cores(1);
        let endpoint = builder.serve(service).start().await.expect("nothing to bind");
        Self { endpoint, count: Arc::default() }
    }

    fn message(&self, len: usize) -> RawMessage {
        let (endpoint, bytes) = (self.endpoint.clone(), vec![7; len]);
        Bytes::from_owner(Asks { endpoint, bytes, count: self.count.clone() }).into()
    }

    fn answered(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn they_are_dropped_without_a_lock_where_a_request_is_sent_or_refused() {
    let take = |_: RawMessage, _: Context| async { Ok::<_, Status>(7) };
    let builder = Endpoint::builder().transport(MemTransport::new()).listen("mem://owners:0");
    let mut limits = Limits::default();
    limits.message_bytes_max = 64 << 10;
    let server = builder.limits(limits).serve(Service::new().unary(TAKE, take)).start().await;
    let server = server.expect("it is free");
    let client = Client::start(Service::new()).await;
    let peer = client.endpoint.connect(server.addresses()).await.expect("it listens");
    for len in [100, 10 << 10, 60 << 10] {
        let reply = client.endpoint.call(TAKE, client.message(len)).to(peer).await;
        assert_eq!(reply.expect("it is served"), 7, "{len} bytes");
    }
    let too_large = client.endpoint.call(TAKE, client.message(1 << 20)).to(peer).await;
    assert!(too_large.is_err(), "the server takes no such message");
    drop((client.endpoint.clone(), server.shutdown(std::time::Duration::MAX).await));
    assert_eq!(client.answered(), 4);
}

#[tokio::test(start_paused = true)]
async fn they_are_dropped_without_a_lock_where_a_node_is_not_found() {
    let client = Client::start(Service::new()).await;
    let nobody = client.endpoint.peer(NodeId::new(9), "mem://nobody").expect("it is an address");
    let failed = client.endpoint.call(TAKE, client.message(100)).to(nobody).await;
    let failed = failed.expect_err("nobody listens there");
    assert_eq!(failed.failure().map(|failure| failure.cause), Some(Cause::Unreachable));
    assert_eq!(client.answered(), 1);
}

#[tokio::test]
async fn they_are_dropped_without_a_lock_where_requests_are_stopped_at_a_gate() {
    let hang = |_: RawMessage, _: Context| pending::<Result<u64, Status>>();
    let client = Client::start(Service::new().unary(IN_TURN, hang)).await;
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let call = client.endpoint.call(IN_TURN, client.message(100));
            call.to(client.endpoint.me()).open().expect("there is room")
        })
        .collect();
    assert_eq!(client.answered(), 1, "the others wait behind the first");
    drop(calls);
    while client.answered() < 64 {
        tokio::task::yield_now().await;
    }
}

/// A node is asked that nobody knows, which a fan-out does all the same.
#[tokio::test]
async fn they_are_dropped_without_a_lock_where_a_branch_is_refused() {
    let client = Client::start(Service::new()).await;
    let messages = Mutex::new(vec![client.message(100), client.message(10 << 10)]);
    let hand_on = move |_: u64, task: Task<u64>| {
        let mut messages = messages.lock().expect("nobody panics with it");
        let message = messages.pop().expect("it is asked twice");
        async move { task.fan_out([(NodeId::new(9), TAKE.request(message))]).await }
    };
    let service = Service::new().tree(HAND_ON, hand_on);
    let builder = Endpoint::builder().transport(MemTransport::new()).cores(1);
    let server = builder.serve(service).start().await.expect("nothing to bind");
    for _ in 0..2 {
        let failed = server.call(HAND_ON, 1).to(server.me()).await;
        let failed = failed.expect_err("nobody knows the node");
        assert_eq!(failed.failure().map(|failure| failure.cause), Some(Cause::Unreachable));
    }
    assert_eq!(client.answered(), 2);
}

/// Its caller goes before it is read, or before it may come.
#[tokio::test]
async fn they_are_dropped_without_a_lock_where_nobody_reads_a_reply() {
    for len in [100, 10 << 10, 1 << 20] {
        let endpoint = Arc::new(OnceLock::<Client>::new());
        let (own, (has_run, mut runs)) = (endpoint.clone(), mpsc::unbounded_channel());
        let give = move |_: u64, _: Context| {
            let message = own.get().expect("it has started").message(len);
            let _ = has_run.send(());
            async move { Ok::<_, Status>(message) }
        };
        let client = Client::start(Service::new().unary(GIVE, give)).await;
        let client = endpoint.get_or_init(|| client);
        let call = client.endpoint.call(GIVE, 1).to(client.endpoint.me());
        let call = call.open().expect("there is room");
        runs.recv().await.expect("it runs");
        while client.endpoint.load().tasks > 0 && len < 1 << 20 {
            tokio::task::yield_now().await;
        }
        drop(call);
        while client.answered() < 1 {
            tokio::task::yield_now().await;
        }
    }
}
