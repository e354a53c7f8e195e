//! Cost of a call by workers and cores: `call_workers/W-C` is a server and four clients, each by a
//! connection of its own, on one runtime of W workers, with 16 callers each; every endpoint has C
//! cores.
//!
//! Unit: time per call, of all callers together. Behind each group it says how often a call found a
//! lock of an endpoint or a connection held by another worker, and how much of the workers' time
//! went by so: from as many processors as workers on, that is the part that more workers cannot
//! take. Good: time falls with the workers that have a processor, and few wait.

use std::time::{Duration, Instant};

use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, Method, Peer, Service, Status};
use convoke_transport::conformance::lock_waits;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("bench.Workers/Echo");
const CLIENTS: usize = 4;
const CALLERS_EACH: usize = 16;

/// Clients, each with the one server they all have.
async fn start(cores: u8) -> (Endpoint, Vec<(Endpoint, Peer)>) {
    let endpoint = || Endpoint::builder().transport(TcpTransport::new()).cores(cores);
    let echo = |payload: Vec<u8>, _: Context| async move { Ok::<_, Status>(payload) };
    let server = endpoint().listen("tcp://127.0.0.1:0").serve(Service::new().unary(ECHO, echo));
    let server = server.start().await.expect("loopback can be bound");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = endpoint().start().await.expect("it listens nowhere");
        let peer = client.connect(server.addresses()).await.expect("it listens");
        clients.push((client, peer));
    }
    (server, clients)
}

/// At least so many calls.
fn call(runtime: &Runtime, clients: &[(Endpoint, Peer)], calls: u64) -> u64 {
    let each = calls.div_ceil((clients.len() * CALLERS_EACH) as u64);
    let callers = clients.iter().flat_map(|client| std::iter::repeat_n(client, CALLERS_EACH));
    let callers: Vec<_> = callers
        .map(|(client, peer)| {
            let (client, peer) = (client.clone(), *peer);
            runtime.spawn(async move {
                for _ in 0..each {
                    client.call(ECHO, vec![7; 100]).to(peer).await.expect("it answers");
                }
            })
        })
        .collect();
    let count = callers.len() as u64;
    callers.into_iter().for_each(|caller| runtime.block_on(caller).expect("no call fails"));
    each * count
}

fn workers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("call_workers");
    group.throughput(Throughput::Elements(1));
    for (workers, cores) in [(1, 1), (1, 4), (2, 1), (2, 4), (4, 1), (4, 8)] {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (_server, clients) = runtime.block_on(start(cores));
        let (mut calls, mut time) = (0, Duration::ZERO);
        let (waits, waited) = lock_waits();
        let name = format!("{workers}-{cores}");
        group.bench_with_input(BenchmarkId::from_parameter(&name), &name, |bencher, _| {
            bencher.iter_custom(|wanted| {
                let begun = Instant::now();
                let made = call(&runtime, &clients, wanted);
                calls += made;
                time += begun.elapsed();
                begun.elapsed().mul_f64(wanted as f64 / made as f64)
            });
        });
        let (after, waited_after) = lock_waits();
        println!(
            "call_workers/{name}: {:.4} waits for a lock a call, {:.1} % of the workers' time",
            (after - waits) as f64 / calls.max(1) as f64,
            100.0 * (waited_after - waited).as_secs_f64()
                / (time.as_secs_f64() * workers as f64).max(1e-9),
        );
    }
    group.finish();
}

criterion_group!(benches, workers);
criterion_main!(benches);
