//! Spans of calls and handlers, and the trace they make over several nodes.

#![cfg(all(feature = "tcp", feature = "tracing-spans"))]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use convoke::telemetry::{Propagator, SpanEnd, SpanKind, SpanStart, TraceContext};
use convoke::transport::TcpTransport;
use convoke::{
    Cause, Code, Context, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt as _};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const GO_ON: Method<String, String> = Method::new("test.Test/GoOn");
const TRACE: Method<String, String> = Method::new("test.Test/Trace");
const FAIL: Method<String, String> = Method::new("test.Test/Fail");
const ASK: Method<String, String> = Method::new("test.Test/Ask");

/// Everything that spans recorded, by the order of their beginning.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(Id, Recorded)>>>);

#[derive(Clone, Debug, Default)]
struct Recorded {
    kind: &'static str,
    fields: BTreeMap<String, String>,
    is_closed: bool,
}

impl Recorded {
    fn get(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }
}

impl Visit for Recorded {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").trim_matches('"').to_owned();
        self.fields.insert(field.name().to_owned(), text);
    }
}

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: LayerContext<'_, S>) {
        let metadata = attributes.metadata();
        if metadata.target() == "convoke" {
            let mut recorded = Recorded { kind: metadata.name(), ..Recorded::default() };
            attributes.record(&mut recorded);
            self.0.lock().expect("nobody panics with it").push((id.clone(), recorded));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: LayerContext<'_, S>) {
        self.with(id, |recorded| values.record(recorded));
    }

    fn on_close(&self, id: Id, _: LayerContext<'_, S>) {
        self.with(&id, |recorded| recorded.is_closed = true);
    }
}

impl Spans {
    /// Records the spans of this thread from now on.
    fn install(&self) -> DefaultGuard {
        tracing::subscriber::set_default(tracing_subscriber::registry().with(self.clone()))
    }

    /// The latest span of this id, for ids are used again.
    fn with(&self, id: &Id, act: impl FnOnce(&mut Recorded)) {
        let mut spans = self.0.lock().expect("nobody panics with it");
        if let Some((_, recorded)) = spans.iter_mut().rev().find(|(of, _)| of == id) {
            act(recorded);
        }
    }

    /// The span of this kind and method at this node.
    fn find(&self, kind: &str, method: &str, node: &Endpoint) -> Result<Recorded> {
        let node = node.node().to_string();
        let spans = self.0.lock().expect("nobody panics with it");
        let spans = spans.iter().map(|(_, recorded)| recorded);
        let of = |span: &&Recorded| {
            (span.kind, span.get("method"), span.get("node")) == (kind, method, node.as_str())
        };
        let found: Vec<_> = spans.filter(of).cloned().collect();
        match &found[..] {
            [one] => Ok(one.clone()),
            other => Err(format!("{} spans {kind} {method} at {node}", other.len()).into()),
        }
    }
}

/// The endpoint of a service, once it has started.
type Own = Arc<OnceLock<Endpoint>>;

/// Goes on to the nodes that the text lists, by tail transfer; the last one answers with its trace.
async fn go_on(own: Own, text: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    let Some((next, rest)) = text.split_once(' ') else {
        let trace = task.context().trace_context().map(|trace| trace.to_string());
        return task.answer(&trace.unwrap_or_default());
    };
    let endpoint = own.get().expect("requests come after the start");
    let next = endpoint
        .connect(next)
        .await
        .map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
    Ok(task.tail(&next, GO_ON.request(rest.to_owned())).await?)
}

async fn trace(_: String, context: Context) -> std::result::Result<String, Status> {
    tokio::task::yield_now().await;
    Ok(context.trace_context().map(|trace| trace.to_string()).unwrap_or_default())
}

async fn fail(how: String, _: Context) -> std::result::Result<String, Status> {
    match how.as_str() {
        "status" => Err(Status::new(Code::NotFound, "nothing here")),
        "panic" => panic!("on purpose"),
        _ => std::future::pending().await,
    }
}

/// Asks the node at this address in a call of its own, after a wait.
async fn ask(own: Own, address: String) -> std::result::Result<String, Status> {
    let endpoint = own.get().expect("requests come after the start");
    tokio::task::yield_now().await;
    let answer = async {
        let peer = endpoint.connect(&address).await?;
        Ok::<_, Box<dyn std::error::Error>>(endpoint.call(TRACE, String::new()).to(peer).await?)
    };
    answer.await.map_err(|error| Status::new(Code::Unavailable, error.to_string()))
}

async fn node(number: u64) -> Result<Endpoint> {
    node_with(number, |builder| builder).await
}

async fn node_with(
    number: u64,
    set: impl FnOnce(convoke::EndpointBuilder) -> convoke::EndpointBuilder,
) -> Result<Endpoint> {
    let own = Own::default();
    let (one, two) = (own.clone(), own.clone());
    let service = Service::new()
        .tree(GO_ON, move |text, task| go_on(one.clone(), text, task))
        .unary(ASK, move |address, _| ask(two.clone(), address))
        .unary(TRACE, trace)
        .unary(FAIL, fail);
    let builder = Endpoint::builder().transport(TcpTransport::new());
    let node = NodeId::new(number);
    let builder = set(builder.node(node).listen("tcp://127.0.0.1:0").serve(service));
    let endpoint = builder.start().await?;
    own.get_or_init(|| endpoint.clone());
    Ok(endpoint)
}

async fn connect(from: &Endpoint, to: &Endpoint) -> Result<Peer> {
    Ok(from.connect(to.addresses()).await?)
}

#[tokio::test]
async fn each_hop_of_a_tree_is_a_span_below_the_one_before() -> Result {
    let spans = Spans::default();
    let _guard = spans.install();
    let (client, one, two) = (node(1).await?, node(2).await?, node(3).await?);
    let three = node(4).await?;
    let peer = connect(&client, &one).await?;
    let route = format!("{} {} end", two.addresses()[0], three.addresses()[0]);
    let call = client.call(GO_ON, route).to(peer).open()?;
    let id = format!("{:?}", call.id());
    let answer: TraceContext = call.first().await?.message().parse()?;

    let call = spans.find("call", GO_ON.name(), &client)?;
    let hops = [&one, &two, &three].map(|node| spans.find("task", GO_ON.name(), node));
    let [first, second, third] = hops;
    let hops = [first?, second?, third?];
    let mut parent = &call;
    assert_eq!((call.get("otel.kind"), call.get("parent_id")), ("client", ""));
    assert_eq!((call.get("call"), call.get("peer")), (id.as_str(), "n2"));
    for hop in &hops {
        assert_eq!(hop.get("trace_id"), call.get("trace_id"));
        assert_eq!(hop.get("parent_id"), parent.get("span_id"));
        assert_eq!((hop.get("otel.kind"), hop.get("outcome")), ("server", "finished"));
        assert_eq!((hop.get("call"), hop.get("initiator")), (id.as_str(), "n1"));
        assert!(hop.get("remaining_ms").parse::<u64>()? <= 10_000);
        parent = hop;
    }
    let peers = hops.each_ref().map(|hop| hop.get("peer").to_owned());
    assert_eq!(peers, ["n1", "n2", "n3"]);
    assert_ne!(hops[0].get("path"), hops[1].get("path"));
    // What a handler sees is its own span.
    assert_eq!(format!("{:016x}", answer.span_id()), hops[2].get("span_id"));
    assert_eq!(call.get("outcome"), "answered");
    assert!(call.is_closed);
    Ok(())
}

#[tokio::test]
async fn a_call_of_a_handler_continues_its_trace_also_after_a_wait() -> Result {
    let spans = Spans::default();
    let _guard = spans.install();
    let (client, one, two) = (node(1).await?, node(2).await?, node(3).await?);
    let peer = connect(&client, &one).await?;
    let request = ASK.request(two.addresses()[0].to_string());
    let seen: TraceContext = client.invoke(request).to(peer).await?.parse()?;

    let outer = spans.find("task", ASK.name(), &one)?;
    let call = spans.find("call", TRACE.name(), &one)?;
    let inner = spans.find("task", TRACE.name(), &two)?;
    assert_eq!(call.get("parent_id"), outer.get("span_id"));
    assert_eq!(inner.get("parent_id"), call.get("span_id"));
    assert_eq!(inner.get("span_id"), format!("{:016x}", seen.span_id()));
    assert_eq!(inner.get("trace_id"), spans.find("call", ASK.name(), &client)?.get("trace_id"));

    // What is called outside of any handler is another trace.
    let request = TRACE.request(String::new());
    let seen: TraceContext = client.invoke(request).to(peer).await?.parse()?;
    assert_ne!(format!("{:032x}", seen.trace_id()), inner.get("trace_id"));
    Ok(())
}

#[tokio::test]
async fn a_trace_that_begins_elsewhere_is_continued() -> Result {
    let spans = Spans::default();
    let _guard = spans.install();
    let (client, server) = (node(1).await?, node(2).await?);
    let peer = connect(&client, &server).await?;
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let request = TRACE.request(String::new()).trace_context(header.parse()?);
    let seen: TraceContext = client.invoke(request).to(peer).await?.parse()?;
    assert_eq!(seen.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    assert!(!seen.is_sampled(), "the flags are handed on");
    let call = spans.find("call", TRACE.name(), &client)?;
    assert_eq!(call.get("parent_id"), "00f067aa0ba902b7");
    let task = spans.find("task", TRACE.name(), &server)?;
    assert_eq!(task.get("parent_id"), call.get("span_id"));
    Ok(())
}

#[tokio::test]
async fn a_span_says_how_its_handler_ended() -> Result {
    for (how, outcome, call_outcome) in
        [("status", "failed", "partial"), ("panic", "panicked", "partial")]
    {
        let spans = Spans::default();
        let _guard = spans.install();
        let (client, server) = (node(1).await?, node(2).await?);
        let peer = connect(&client, &server).await?;
        let failed = client.call(FAIL, how.to_owned()).to(peer).await;
        assert!(failed.is_err());
        let task = spans.find("task", FAIL.name(), &server)?;
        assert_eq!((task.get("outcome"), task.get("otel.status_code")), (outcome, "ERROR"));
        let call = spans.find("call", FAIL.name(), &client)?;
        assert_eq!((call.get("outcome"), call.get("otel.status_code")), (call_outcome, "ERROR"));
    }
    Ok(())
}

#[tokio::test]
async fn a_cancelled_handler_and_its_call_end_as_such() -> Result {
    let spans = Spans::default();
    let _guard = spans.install();
    let (client, server) = (node(1).await?, node(2).await?);
    let peer = connect(&client, &server).await?;
    let call = client.call(FAIL, String::new()).to(peer).open()?;
    let ping = client.call(TRACE, String::new()).to(peer);
    ping.await?; // behind it, so that it has begun
    drop(call);
    assert_eq!(spans.find("call", FAIL.name(), &client)?.get("outcome"), "dropped");
    assert!(server.clone().shutdown(Duration::from_secs(60)).await);
    assert_eq!(spans.find("task", FAIL.name(), &server)?.get("outcome"), "stopped");
    Ok(())
}

/// Counts its spans instead of drawing their ids, and keeps what it is told.
#[derive(Clone, Default)]
struct Counting(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    starts: Vec<(SpanStart, Option<TraceContext>)>,
    ends: Vec<SpanEnd>,
}

impl Propagator for Counting {
    fn begin(
        &self,
        span: &tracing::Span,
        start: &SpanStart,
        parent: Option<TraceContext>,
    ) -> Option<TraceContext> {
        assert!(!span.is_disabled());
        let mut told = self.0.lock().expect("nobody panics with it");
        told.starts.push((*start, parent));
        TraceContext::new(7, told.starts.len() as u64, 1).ok()
    }

    fn end(&self, span: &tracing::Span, end: &SpanEnd) {
        assert!(!span.is_disabled());
        self.0.lock().expect("nobody panics with it").ends.push(*end);
    }
}

#[tokio::test]
async fn a_propagator_decides_the_ids() -> Result {
    let spans = Spans::default();
    let _guard = spans.install();
    let counting = Counting::default();
    let (for_client, for_server) = (counting.clone(), counting.clone());
    let client = node_with(1, |builder| builder.propagator(for_client)).await?;
    let server = node_with(2, |builder| builder.propagator(for_server)).await?;
    let peer = connect(&client, &server).await?;
    let request = TRACE.request(String::new());
    let seen: TraceContext = client.invoke(request).to(peer).await?.parse()?;
    assert_eq!(seen, TraceContext::new(7, 2, 1)?);
    let told = std::mem::take(&mut *counting.0.lock().expect("nobody panics with it"));
    let starts = told.starts.iter().map(|(start, parent)| {
        (start.kind, start.method, start.node.get(), start.peer.get(), *parent)
    });
    let expected = [
        (SpanKind::Call, TRACE.name(), 1, 2, None),
        (SpanKind::Task, TRACE.name(), 2, 1, Some(TraceContext::new(7, 1, 1)?)),
    ];
    assert_eq!(starts.collect::<Vec<_>>(), expected);
    let end = |kind, ends: &[SpanEnd]| {
        let mut found = ends.iter().filter(|end| end.kind == kind);
        let end = found.next().expect("it has ended");
        assert!(found.next().is_none(), "a span ends once: {ends:?}");
        (end.outcome, end.cause, end.code)
    };
    assert_eq!(end(SpanKind::Call, &told.ends), ("answered", None, None));
    assert_eq!(end(SpanKind::Task, &told.ends), ("finished", None, None));

    // Both sides hear why a call failed.
    assert!(client.call(FAIL, "status".to_owned()).to(peer).await.is_err());
    let told = std::mem::take(&mut *counting.0.lock().expect("nobody panics with it"));
    let (cause, code) = (Some(Cause::Application), Some(Code::NotFound));
    assert_eq!(end(SpanKind::Call, &told.ends), ("partial", cause, code));
    assert_eq!(end(SpanKind::Task, &told.ends), ("failed", cause, code));
    Ok(())
}
