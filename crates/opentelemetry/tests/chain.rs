//! A chain of three nodes and a failure, as an exporter of OpenTelemetry gets them.

use std::collections::BTreeSet;

use convoke_core::id::NodeId;
use convoke_core::transport::mem::MemTransport;
use convoke_core::{
    Code, Context, Endpoint, EndpointBuilder, Finish, Method, Peer, Service, Status, Task,
    TraceContext,
};
use convoke_opentelemetry::{OpenTelemetry, extract, inject};
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanKind, TracerProvider as _};
use opentelemetry::{Context as Current, KeyValue};
use opentelemetry_sdk::propagation::BaggagePropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

const START: Method<String, String> = Method::new("chain.Chain/Start");
const MIDDLE: Method<String, String> = Method::new("chain.Chain/Middle");
const END: Method<String, String> = Method::new("chain.Chain/End");
const FAIL: Method<String, String> = Method::new("chain.Chain/Fail");
const WORK: Method<String, String> = Method::new("chain.Chain/Work");
const TENANT: Method<String, String> = Method::new("chain.Chain/Tenant");

/// Exported spans of this thread.
struct Exported {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Exported {
    fn install() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("chain"));
        let subscriber = tracing_subscriber::registry().with(layer);
        let guard = tracing::subscriber::set_default(subscriber);
        Self { exporter, provider, _guard: guard }
    }

    fn spans(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        self.exporter.get_finished_spans().unwrap()
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| attribute.value.to_string())
}

fn find(spans: &[SpanData], kind: SpanKind, method: &Method<String, String>) -> SpanData {
    let mut found =
        spans.iter().filter(|span| span.span_kind == kind && span.name == method.name());
    let span = found.next().unwrap_or_else(|| panic!("no {kind:?} of {}", method.name()));
    assert!(found.next().is_none(), "one {kind:?} of {}", method.name());
    span.clone()
}

async fn node(number: u64, peers: &[&Endpoint], service: Service) -> Endpoint {
    let builder = Endpoint::builder().transport(MemTransport::new()).propagator(OpenTelemetry);
    let builder = builder.node(NodeId::new(number)).listen("mem://chain:0").serve(service);
    let introduce =
        |builder: EndpointBuilder, peer: &&Endpoint| builder.peer(peer.node(), peer.addresses());
    peers.iter().fold(builder, introduce).start().await.unwrap()
}

/// The first asks the second in a call of its own, and hands its branch on to the third.
async fn chain() -> (Endpoint, [Endpoint; 3]) {
    let end = |text, _: Context| async move { Ok::<_, Status>(format!("{text} end")) };
    let fail = |_: String, _: Context| async move {
        Err::<String, _>(Status::new(Code::NotFound, "nothing here"))
    };
    let tenant = |_: String, context: Context| async move {
        let came = extract(context.metadata());
        Ok::<_, Status>(came.baggage().get("tenant").map(ToString::to_string).unwrap_or_default())
    };
    let third = node(3, &[], Service::new().unary(END, end)).await;
    let middle = |text, _: Context| async move { Ok::<_, Status>(format!("{text} middle")) };
    let second = node(2, &[], Service::new().unary(MIDDLE, middle)).await;
    let (ask, hand_on): (Peer, Peer) = (second.node().into(), third.node().into());
    let start = move |text, task: Task<String>| async move {
        let text = task.call(MIDDLE, text).to(ask).await?;
        Ok::<Finish, Status>(task.tail(hand_on, END.request(text)).await?)
    };
    let work = move |text, context: Context| async move {
        let call = async { context.client().call(MIDDLE, text).to(ask).await };
        Ok::<_, Status>(call.instrument(tracing::info_span!("work")).await?)
    };
    let service = Service::new().tree(START, start).unary(FAIL, fail).unary(TENANT, tenant);
    let service = service.unary(WORK, work);
    let first = node(1, &[&second, &third], service).await;
    let client = node(4, &[&first], Service::new()).await;
    (client, [first, second, third])
}

/// Ends the nodes, so that all their spans have ended.
async fn stop(client: Endpoint, nodes: [Endpoint; 3]) {
    for endpoint in [client].into_iter().chain(nodes) {
        assert!(endpoint.shutdown(std::time::Duration::from_secs(60)).await);
    }
}

#[tokio::test]
async fn a_chain_of_three_nodes_is_one_trace_with_the_right_parents() {
    let exported = Exported::install();
    let (client, nodes) = chain().await;
    let root = TraceContext::new(0xaaaa, 0xbbbb, 1).unwrap();
    let request = START.request("start".to_owned()).trace_context(root);
    let answer = client.invoke(request).to(nodes[0].node()).await.unwrap();
    assert_eq!(answer, "start middle end");
    stop(client, nodes).await;

    let spans = exported.spans();
    let traces: BTreeSet<_> =
        spans.iter().map(|span| span.span_context.trace_id().to_bytes()).collect();
    assert_eq!((spans.len(), traces.len()), (5, 1), "{spans:#?}");
    assert_eq!(u128::from_be_bytes(*traces.first().unwrap()), 0xaaaa);
    let id = |span: &SpanData| u64::from_be_bytes(span.span_context.span_id().to_bytes());
    let parent = |span: &SpanData| u64::from_be_bytes(span.parent_span_id.to_bytes());
    let call = find(&spans, SpanKind::Client, &START);
    let start = find(&spans, SpanKind::Server, &START);
    let asked = find(&spans, SpanKind::Client, &MIDDLE);
    let middle = find(&spans, SpanKind::Server, &MIDDLE);
    let end = find(&spans, SpanKind::Server, &END);
    assert_eq!(parent(&call), 0xbbbb);
    assert_eq!(parent(&start), id(&call));
    assert_eq!(parent(&asked), id(&start));
    assert_eq!(parent(&middle), id(&asked));
    assert_eq!(parent(&end), id(&start), "a delegation carries the span of its task");

    for span in &spans {
        assert_eq!(attribute(span, "rpc.system.name").as_deref(), Some("convoke"));
        assert_eq!(attribute(span, "rpc.method").as_deref(), Some(&*span.name));
        assert_eq!(attribute(span, "rpc.response.status_code").as_deref(), Some("OK"));
        assert_eq!(attribute(span, "error.type"), None);
    }
    assert_eq!(attribute(&asked, "server.address").as_deref(), Some("n2"));
    assert_eq!(attribute(&middle, "server.address"), None);
}

#[tokio::test]
async fn a_call_inside_a_span_of_the_handler_is_below_it() {
    let exported = Exported::install();
    let (client, nodes) = chain().await;
    client.call(WORK, "work".to_owned()).to(nodes[0].node()).await.unwrap();
    stop(client, nodes).await;

    let spans = exported.spans();
    let task = find(&spans, SpanKind::Server, &WORK);
    let work = spans.iter().find(|span| span.name == "work").unwrap();
    let call = find(&spans, SpanKind::Client, &MIDDLE);
    let asked = find(&spans, SpanKind::Server, &MIDDLE);
    for (above, below, is_remote) in
        [(&task, work, false), (work, &call, false), (&call, &asked, true)]
    {
        assert_eq!(below.parent_span_id, above.span_context.span_id(), "{}", below.name);
        assert_eq!(below.parent_span_is_remote, is_remote, "{}", below.name);
        assert_eq!(below.span_context.trace_id(), task.span_context.trace_id());
    }
}

#[tokio::test]
async fn a_call_inside_a_span_of_another_trace_stays_in_its_own() {
    let exported = Exported::install();
    let (client, nodes) = chain().await;
    let root = TraceContext::new(0xaaaa, 0xbbbb, 1).unwrap();
    let request = TENANT.request("elsewhere".to_owned()).trace_context(root);
    let call = async { client.invoke(request).to(nodes[0].node()).await };
    call.instrument(tracing::info_span!("elsewhere")).await.unwrap();
    stop(client, nodes).await;

    let call = find(&exported.spans(), SpanKind::Client, &TENANT);
    assert_eq!(call.span_context.trace_id().to_string(), format!("{:032x}", 0xaaaa));
    assert_eq!(call.parent_span_id.to_string(), format!("{:016x}", 0xbbbb));
}

#[tokio::test]
async fn a_failure_has_its_code_at_both_sides() {
    let exported = Exported::install();
    let (client, nodes) = chain().await;
    client.call(FAIL, String::new()).to(nodes[0].node()).await.unwrap_err();
    let nobody = Method::<String, String>::new("chain.Chain/Nobody");
    client.call(nobody, String::new()).to(nodes[0].node()).await.unwrap_err();
    stop(client, nodes).await;

    let spans = exported.spans();
    for kind in [SpanKind::Client, SpanKind::Server] {
        let span = find(&spans, kind, &FAIL);
        assert_eq!(attribute(&span, "rpc.response.status_code").as_deref(), Some("NOT_FOUND"));
        assert_eq!(attribute(&span, "error.type").as_deref(), Some("NOT_FOUND"));
        assert!(matches!(span.status, opentelemetry::trace::Status::Error { .. }), "{span:?}");
    }
    let refused = find(&spans, SpanKind::Client, &nobody);
    assert_eq!(attribute(&refused, "rpc.response.status_code"), None);
    assert_eq!(attribute(&refused, "error.type").as_deref(), Some("unknown_method"));
}

#[tokio::test]
async fn a_trace_that_nobody_samples_is_passed_on_and_not_exported() {
    let exported = Exported::install();
    let (client, nodes) = chain().await;
    let root = TraceContext::new(0xaaaa, 0xbbbb, 0).unwrap();
    let request = START.request("start".to_owned()).trace_context(root);
    client.invoke(request).to(nodes[0].node()).await.unwrap();
    stop(client, nodes).await;
    assert!(exported.spans().is_empty(), "its sender has said that nobody keeps it");
}

#[tokio::test]
async fn baggage_reaches_the_handler() {
    opentelemetry::global::set_text_map_propagator(BaggagePropagator::new());
    let (client, nodes) = chain().await;
    let calls = client.client().before_each(inject);
    let current = Current::current_with_baggage([KeyValue::new("tenant", "the shop, größe")]);
    let call = {
        let _current = current.attach();
        calls.call(TENANT, String::new()).to(nodes[0].node()).open().unwrap()
    };
    assert_eq!(call.first().await.unwrap().into_inner(), "the shop, größe");
    assert_eq!(calls.call(TENANT, String::new()).to(nodes[0].node()).await.unwrap(), "");
    stop(client, nodes).await;
}
