//! Owners of message bytes that ask the endpoint as the bytes are dropped.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use convoke_core::transport::mem::MemTransport;
use convoke_core::{Cause, Context, Endpoint, Limits, Method, NodeId, RawMessage, Service, Status};

const TAKE: Method<RawMessage, u64> = Method::new("test.Owners/Take");
const IN_TURN: Method<RawMessage, u64> = Method::new("test.Owners/InTurn").ordered();

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
