//! A tracing system that panics: other calls and tasks go on as without it.

#![cfg(feature = "tracing-spans")]

use convoke_core::{Cause, Context, Endpoint, Method, Service, Status};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoke_core::{Propagator, SpanEnd, SpanStart, TraceContext};
use tokio::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Span, Subscriber};

const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");

/// Wants every span. Panics at the next one of a task, or whenever one of a task ends, if it is to.
struct Everything;

static PANICS: AtomicBool = AtomicBool::new(false);
static PANICS_AT_ENDS: AtomicBool = AtomicBool::new(false);

const CALL: u64 = 1;
const TASK: u64 = 2;

/// Lines that say so of what panics.
static LINES: AtomicU64 = AtomicU64::new(0);

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let is_task = span.metadata().name() == "task";
        assert!(!is_task || !PANICS.swap(false, Ordering::Relaxed), "on purpose");
        Id::from_u64(if is_task { TASK } else { CALL })
    }

    fn record(&self, span: &Id, _: &Record<'_>) {
        let panics = span.into_u64() == TASK && PANICS_AT_ENDS.load(Ordering::Relaxed);
        assert!(!panics, "on purpose");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if *metadata.level() == Level::ERROR && metadata.target().ends_with("guest") {
            LINES.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Panics whatever it is told.
struct Broken;

impl Propagator for Broken {
    fn begin(&self, _: &Span, _: &SpanStart, _: Option<TraceContext>) -> Option<TraceContext> {
        panic!("on purpose")
    }

    fn end(&self, _: &Span, _: &SpanEnd) {
        panic!("on purpose")
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
async fn calls_and_tasks_go_on_though_what_traces_them_panics() {
    tracing::subscriber::set_global_default(Everything).expect("it is the first");
    let echo = Service::new().ordered("echo");
    let echo = echo.unary(ECHO, async |n: u64, _: Context| Ok::<_, Status>(n));
    let builder = Endpoint::builder().propagator(Broken).serve(echo);
    let endpoint = builder.start().await.expect("nothing to bind");
    let begun = Instant::now();
    for panics in [false, true] {
        PANICS.store(panics, Ordering::Relaxed);
        let call = endpoint.call(ECHO, 7).to_all([endpoint.me(), endpoint.me()]).open();
        let collected = call.expect("there is room").collect().await;
        let (replies, outcome) = collected.expect("what comes is a number");
        let causes: Vec<Cause> = outcome.failures.iter().map(|failed| failed.cause).collect();
        assert_eq!(causes, [Cause::Panicked].repeat(usize::from(panics)), "{outcome:?}");
        assert_eq!(replies.len() + causes.len(), 2, "{outcome:?}");
        assert_eq!((endpoint.load().calls, endpoint.load().tasks), (0, 0));
    }
    PANICS_AT_ENDS.store(true, Ordering::Relaxed);
    for number in [7, 8] {
        // The next one passes the same gate.
        let echoed = endpoint.call(ECHO, number).to(endpoint.me()).await;
        assert_eq!(echoed.expect("the handler has ended"), number);
        assert_eq!((endpoint.load().calls, endpoint.load().tasks), (0, 0));
    }
    let (lines, seconds) = (LINES.load(Ordering::Relaxed), begun.elapsed().as_secs());
    // Of the propagator, and of the subscriber.
    assert!((1..=2 * (seconds + 1)).contains(&lines), "{lines} lines in {seconds} seconds");
}
