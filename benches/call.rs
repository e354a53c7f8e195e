//! Cost of a call over loopback TCP, one in flight: `call_unary`, `call_hops/H` (a chain of H tail
//! transfers, answered straight to the initiator) against `call_client_hops/H` (the same nodes
//! asked one after another by the client), `call_fanout/F` (F branches at once).
//!
//! Every server is an endpoint on a thread and a current-thread runtime of its own. Unit: time per
//! call. Good: hops grow by one one-way step each, client hops by two.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    /// Nodes still to go to.
    #[prost(uint64, repeated, tag = "2")]
    route: Vec<u64>,
}

const ECHO: Method<Payload, Payload> = Method::new("bench.Bench/Echo");
const HOPS: Method<Payload, Payload> = Method::new("bench.Bench/Hops");

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn node(index: u64) -> NodeId {
    NodeId::new(index)
}

/// A running server: the address that it tells of itself, and the way to tell it of the others.
struct Server {
    address: String,
    others: mpsc::Sender<Vec<(NodeId, String)>>,
}

/// Starts a server on a thread that lives as long as the process.
fn serve(index: u64) -> Server {
    let (tell, told) = mpsc::channel();
    let (others, told_others) = mpsc::channel::<Vec<(NodeId, String)>>();
    thread::spawn(move || {
        runtime().block_on(async move {
            let service = Service::new()
                .unary(ECHO, |payload, _: Context| async move { Ok::<_, Status>(payload) })
                .tree(HOPS, hop);
            let endpoint = Endpoint::builder()
                .transport(TcpTransport::new())
                .node(node(index))
                .listen("tcp://127.0.0.1:0")
                .serve(service)
                .start()
                .await
                .expect("loopback can be bound");
            tell.send(endpoint.addresses()[0].to_string()).expect("the bench waits");
            let mut peers = BTreeMap::new();
            for (node, address) in told_others.recv().expect("the bench tells") {
                peers.insert(node.get(), endpoint.peer(node, [address]).expect("an address"));
            }
            PEERS.set(peers);
            std::future::pending::<()>().await;
        });
    });
    Server { address: told.recv().expect("the server starts"), others }
}

thread_local! {
    /// The peers of the server on this thread.
    static PEERS: Cell<BTreeMap<u64, Peer>> = const { Cell::new(BTreeMap::new()) };
}

async fn hop(mut payload: Payload, task: Task<Payload>) -> Result<Finish, Status> {
    if payload.route.is_empty() {
        return task.answer(&payload);
    }
    let next = payload.route.remove(0);
    let peers = PEERS.take();
    let peer = peers[&next];
    PEERS.set(peers);
    Ok(task.tail(&peer, HOPS.request(payload)).await?)
}

struct Nodes {
    client: Endpoint,
    peers: Vec<Peer>,
}

fn start(runtime: &Runtime, count: u64) -> Nodes {
    runtime.block_on(async {
        let client = Endpoint::builder()
            .transport(TcpTransport::new())
            .node(node(1000))
            .listen("tcp://127.0.0.1:0")
            .start()
            .await
            .expect("loopback can be bound");
        let servers: Vec<Server> = (1..=count).map(serve).collect();
        let mut all = vec![(client.node(), client.addresses()[0].to_string())];
        all.extend((1..=count).map(node).zip(servers.iter().map(|server| server.address.clone())));
        let mut peers = Vec::new();
        for server in &servers {
            server.others.send(all.clone()).expect("the server waits");
            peers.push(client.connect(&server.address).await.expect("it listens"));
        }
        Nodes { client, peers }
    })
}

fn calls(criterion: &mut Criterion) {
    let runtime = runtime();
    let nodes = start(&runtime, 10);
    let payload = Payload { bytes: vec![7; 100], route: Vec::new() };
    let Nodes { client, peers } = &nodes;

    criterion.bench_function("call_unary", |bencher| {
        bencher.iter(|| {
            let call = client.call(ECHO, payload.clone()).to(peers[0]);
            black_box(runtime.block_on(call.into_future()).expect("it answers"))
        });
    });

    let mut group = criterion.benchmark_group("call_hops");
    for hops in [1, 2, 5, 10] {
        let route = peers[1..hops].iter().map(|peer| peer.node().get()).collect();
        let payload = Payload { route, ..payload.clone() };
        group.bench_with_input(BenchmarkId::from_parameter(hops), &hops, |bencher, _| {
            bencher.iter(|| {
                let call = client.call(HOPS, payload.clone()).to(peers[0]);
                black_box(runtime.block_on(call.into_future()).expect("it answers"))
            });
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("call_client_hops");
    for hops in [1, 2, 5, 10] {
        group.bench_with_input(BenchmarkId::from_parameter(hops), &hops, |bencher, hops| {
            bencher.iter(|| {
                runtime.block_on(async {
                    for peer in &peers[..*hops] {
                        let call = client.call(ECHO, payload.clone()).to(peer);
                        black_box(call.await.expect("it answers"));
                    }
                });
            });
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("call_fanout");
    for width in [1, 3, 10] {
        group.bench_with_input(BenchmarkId::from_parameter(width), &width, |bencher, width| {
            bencher.iter(|| {
                let branches =
                    peers[..*width].iter().map(|peer| (peer, ECHO.request(payload.clone())));
                let call = client.fan_out(branches);
                let replies = runtime.block_on(call.open().expect("it opens").collect());
                assert_eq!(replies.expect("they decode").0.len(), *width);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
