//! A subscriber of the log that asks the endpoint, or panics: calls and connections go on as
//! without it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Once;

use convoke_core::transport::mem::MemTransport;
use convoke_core::{Context, Endpoint, Limits, Method, Peer, RawMessage, Service, Status};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const TAKE: Method<RawMessage, u64> = Method::new("test.Subscriber/Take");

thread_local! {
    /// The endpoint that is asked whenever this thread logs.
    static ASKED: RefCell<Option<Endpoint>> = const { RefCell::new(None) };
    static PANICS: Cell<bool> = const { Cell::new(false) };
    /// Lines that it took, or panicked at.
    static LINES: Cell<usize> = const { Cell::new(0) };
    /// Warnings among them.
    static WARNINGS: Cell<usize> = const { Cell::new(0) };
}

struct Callback;

impl Callback {
    fn act() {
        LINES.set(LINES.get() + 1);
        assert!(!PANICS.get(), "on purpose");
        if let Some(endpoint) = ASKED.with_borrow(Clone::clone) {
            endpoint.load();
        }
    }
}

impl Visit for Callback {
    /// Of a span the name of its call alone: a panic as it begins is that of the call.
    fn record_debug(&mut self, field: &Field, _: &dyn fmt::Debug) {
        if field.name() == "call" {
            Self::act();
        }
    }
}

impl Subscriber for Callback {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("convoke")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Self);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::WARN {
            WARNINGS.set(WARNINGS.get() + 1);
        }
        Self::act();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A server that takes no large message, and a client that is connected to it.
async fn pair() -> (Endpoint, Endpoint, Peer) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        tracing::subscriber::set_global_default(Callback).expect("it is the only one");
    });
    let take = |_: RawMessage, _: Context| async { Ok::<_, Status>(7) };
    let builder = Endpoint::builder().transport(MemTransport::new()).listen("mem://server:0");
    let mut limits = Limits::default();
    limits.message_bytes_max = 64 << 10;
    let server = builder.limits(limits).serve(Service::new().unary(TAKE, take)).start().await;
    let server = server.expect("it is free");
    let client = Endpoint::builder().transport(MemTransport::new()).cores(1).start().await;
    let client = client.expect("nothing to bind");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    (server, client, peer)
}

fn message(len: usize) -> RawMessage {
    bytes::Bytes::from(vec![7; len]).into()
}

#[tokio::test]
async fn one_that_asks_the_endpoint_is_called_without_a_lock() {
    let (_server, client, peer) = pair().await;
    ASKED.set(Some(client.clone()));
    let before = LINES.get();
    let too_large = client.call(TAKE, message(1 << 20)).to(peer).await;
    ASKED.set(None);
    assert!(too_large.is_err(), "the server takes no such message");
    assert!(LINES.get() > before, "it is said");
    assert_eq!(client.call(TAKE, message(100)).to(peer).await.expect("it is served"), 7);
}

#[tokio::test]
async fn one_that_panics_leaves_no_connection_behind() {
    let (server, client, _) = pair().await;
    PANICS.set(true);
    let before = LINES.get();
    client.shutdown(std::time::Duration::MAX).await;
    while server.load().connections > 0 {
        tokio::task::yield_now().await;
    }
    PANICS.set(false);
    assert!(LINES.get() > before, "it is said");
}

#[cfg(feature = "tracing-spans")]
#[tokio::test]
async fn one_that_panics_leaves_no_call_behind() {
    let (_server, client, peer) = pair().await;
    PANICS.set(true);
    let replied = client.call(TAKE, message(100)).to(peer).await;
    PANICS.set(false);
    assert_eq!(replied.expect("it is served"), 7);
    assert_eq!(client.load().calls, 0);
}

/// A peer says how large its frames may be, so a line for each that is too large would be as many
/// as it likes.
#[tokio::test]
async fn frames_that_are_too_large_are_few_lines() {
    const COUNT: usize = 1_000;
    let (_server, client, peer) = pair().await;
    let before = WARNINGS.get();
    for _ in 0..COUNT {
        let too_large = client.call(TAKE, message(1 << 20)).to(peer).await;
        assert!(too_large.is_err(), "the server takes no such message");
    }
    let lines = WARNINGS.get() - before;
    assert!((1..COUNT / 2).contains(&lines), "{lines} lines of {COUNT}");
}
