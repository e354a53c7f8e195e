//! One trace over several nodes, exported through OpenTelemetry.
//!
//! ```sh
//! cargo run -p telemetry
//! ```
//! An order goes to a shop, whose task asks a bank, in a call of its own, and then hands over to a
//! store, which answers the client. The program prints what was exported, as a tree. It keeps the
//! spans in memory; in earnest the exporter would be that of `opentelemetry-otlp`, and the rest the
//! same.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoke::{Context, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task};
use convoke_opentelemetry::OpenTelemetry;
use opentelemetry::trace::{SpanId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::layer::SubscriberExt as _;

const ORDER: Method<String, String> = Method::new("shop.Shop/Order");
const PAY: Method<String, String> = Method::new("bank.Bank/Pay");
const SHIP: Method<String, String> = Method::new("store.Store/Ship");

async fn node(number: u64, peers: &[&Endpoint], service: Service) -> anyhow::Result<Endpoint> {
    let node = NodeId::new(number);
    let builder = convoke::endpoint().propagator(OpenTelemetry).node(node);
    let builder =
        peers.iter().fold(builder, |builder, peer| builder.peer(peer.node(), peer.addresses()));
    Ok(builder.listen("tcp://127.0.0.1:0").serve(service).start().await?)
}

/// The nodes that a shop needs.
#[derive(Clone, Copy)]
struct Shop {
    bank: Peer,
    store: Peer,
}

async fn order(shop: Shop, goods: String, task: Task<String>) -> Result<Finish, Status> {
    // A call made by a handler: its span is below that of the task.
    let paid = task.call(PAY, goods).to(shop.bank).await?;
    // A delegation carries the span of the task.
    Ok(task.tail(shop.store, SHIP.request(paid)).await?)
}

async fn pay(goods: String, context: Context) -> Result<String, Status> {
    let trace = context.trace_context().map(|trace| trace.to_string());
    println!("the bank sees traceparent: {}", trace.unwrap_or_default());
    Ok(format!("{goods}, paid"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let exported = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("telemetry"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;

    let ship = |goods, _: Context| async move { Ok::<_, Status>(format!("{goods}, shipped")) };
    let store = node(3, &[], Service::new().unary(SHIP, ship)).await?;
    let bank = node(2, &[], Service::new().unary(PAY, pay)).await?;
    let own = Shop { bank: bank.node().into(), store: store.node().into() };
    let service = Service::new().tree(ORDER, move |goods, task| order(own, goods, task));
    let shop = node(1, &[&bank, &store], service).await?;
    let client = node(4, &[&shop], Service::new()).await?;

    let root = tracing::info_span!("a customer orders");
    let call = root.in_scope(|| client.call(ORDER, "a book".to_owned()).to(shop.node()).open());
    let answer = call?.first().await?.into_inner();
    println!("answer: {answer}");
    ensure!(answer == "a book, paid, shipped", "the nodes did something else");

    drop(root);
    for endpoint in [client, shop, bank, store] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    provider.force_flush()?;
    let spans = exported.get_finished_spans()?;
    print_below(&spans, SpanId::INVALID, 0);
    check(&spans)
}

/// One line per span, each below its parent.
fn print_below(spans: &[SpanData], parent: SpanId, depth: usize) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        let name = describe(span);
        println!("{:indent$}{name}", "", indent = 2 * depth);
        print_below(spans, span.span_context.span_id(), depth + 1);
    }
}

/// Name of a span, its kind, and its node.
fn describe(span: &SpanData) -> String {
    let attribute = |key: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        found.map(|attribute| attribute.value.to_string())
    };
    match attribute("node") {
        Some(node) => format!("{} ({:?} at {node})", span.name, span.span_kind),
        None => span.name.to_string(),
    }
}

/// All spans are of one trace, and each is where it was caused.
fn check(spans: &[SpanData]) -> anyhow::Result<()> {
    let parent_of = |name: &str| {
        let span = spans.iter().find(|span| describe(span) == name);
        let parent = span.with_context(|| format!("no span {name}"))?.parent_span_id;
        let found = spans.iter().find(|span| span.span_context.span_id() == parent);
        anyhow::Ok(found.map_or_else(|| "nothing".to_owned(), describe))
    };
    let expected = [
        ("a customer orders", "nothing"),
        ("shop.Shop/Order (Client at n4)", "a customer orders"),
        ("shop.Shop/Order (Server at n1)", "shop.Shop/Order (Client at n4)"),
        ("bank.Bank/Pay (Client at n1)", "shop.Shop/Order (Server at n1)"),
        ("bank.Bank/Pay (Server at n2)", "bank.Bank/Pay (Client at n1)"),
        ("store.Store/Ship (Server at n3)", "shop.Shop/Order (Server at n1)"),
    ];
    for (span, parent) in expected {
        let found = parent_of(span)?;
        ensure!(found == parent, "{span} is below {found}, not below {parent}");
    }
    let traces: std::collections::BTreeSet<_> =
        spans.iter().map(|span| span.span_context.trace_id().to_bytes()).collect();
    ensure!(spans.len() == expected.len() && traces.len() == 1, "not one trace of these spans");
    println!("one trace, {} spans, four nodes", spans.len());
    Ok(())
}
