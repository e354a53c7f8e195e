//! Cost of a quorum call over loopback TCP, one in flight: `quorum_majority_members/N` against
//! `quorum_unary`, a call to one of the same servers, and `quorum_all_members/N`.
//!
//! Every member is an endpoint on a thread and a current-thread runtime of its own. Unit: time per
//! call. Good: a majority of 4 within 1.3 of the unary call.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use convoke::quorum::{All, Configuration, Majority, QuorumExt};
use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, Method, NodeId, Service, Status};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};

const ECHO: Method<String, String> = Method::new("bench.Quorum/Echo");

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts a member on a thread that lives as long as the process.
fn serve(id: u64) -> (NodeId, String) {
    let (tell, told) = mpsc::channel();
    let node = NodeId::new(id);
    thread::spawn(move || {
        runtime().block_on(async move {
            let service =
                Service::new().unary(ECHO, |text, _: Context| async move { Ok::<_, Status>(text) });
            let builder = Endpoint::builder().transport(TcpTransport::new()).node(node);
            let endpoint = builder.listen("tcp://127.0.0.1:0").serve(service).start().await;
            let endpoint = endpoint.expect("loopback can be bound");
            tell.send(endpoint.addresses()[0].to_string()).expect("the bench waits");
            std::future::pending::<()>().await;
        });
    });
    (node, told.recv().expect("the member starts"))
}

fn quorum(criterion: &mut Criterion) {
    let runtime = runtime();
    let all = Configuration::new((1..=7).map(serve)).expect("seven members");
    let client = Endpoint::builder().transport(TcpTransport::new()).peers(&all).start();
    let client = runtime.block_on(client).expect("nothing to bind");
    for member in &all {
        runtime.block_on(client.warm_up(member)).expect("it listens");
    }
    let invoke = || client.call(ECHO, "x".repeat(100));

    criterion.bench_function("quorum_unary", |bencher| {
        let one = all.members()[0];
        bencher.iter(|| {
            let reply = runtime.block_on(async { invoke().to(one).await });
            black_box(reply.expect("it answers"))
        });
    });
    let mut group = criterion.benchmark_group("quorum_majority_members");
    for count in [1, 4, 7] {
        let members = all.subset(|member| member.node().get() <= count);
        group.bench_with_input(BenchmarkId::from_parameter(count), &members, |bencher, members| {
            bencher.iter(|| {
                let decided = runtime.block_on(invoke().to_all(members).quorum(Majority));
                black_box(decided.expect("a majority answers"))
            });
        });
    }
    group.finish();
    criterion.bench_with_input(BenchmarkId::new("quorum_all_members", 4), &4, |bencher, count| {
        let members = all.subset(|member| member.node().get() <= *count);
        bencher.iter(|| {
            let decided = runtime.block_on(invoke().to_all(&members).quorum(All));
            black_box(decided.expect("all answer"))
        });
    });
}

criterion_group!(benches, quorum);
criterion_main!(benches);
