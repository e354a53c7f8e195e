//! Calls to be looked at with a profiler: client and servers in this process, on one thread, over loopback TCP.
//!
//! ```sh
//! cargo bench --bench profile -- unary 64 100000       # or quorum: a majority of four
//! cargo bench --bench profile --no-run                 # names the executable, for
//! valgrind --tool=callgrind EXECUTABLE unary 64 9600
//! ```
//! Callers at once, and calls in all. Prints microseconds, writes of the client and allocations for a call; for
//! comparing counts of instructions use the same numbers, since what one write carries depends on them.

use std::time::{Duration, Instant};

use alloc_tracker::{Allocator, Session};
use convoke::quorum::{Configuration, Majority, QuorumExt};
use convoke::{Context, Endpoint, Limits, Method, NodeId, Service, Status};
use prost::bytes::Bytes;

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

const ECHO: Method<Body, Body> = Method::new("bench.Profile/Echo");

/// Under a profiler a program is some fifty times slower, and its calls would grow old.
fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.worry_min, limits.worry_max) = (Duration::from_secs(9), Duration::from_secs(9));
    limits.ask_every *= 50;
    limits
}

async fn serve(id: u64) -> Endpoint {
    let service = Service::new().unary(ECHO, |body, _: Context| async { Ok::<_, Status>(body) });
    let node = NodeId::new(id);
    let builder = convoke::endpoint().node(node).limits(limits());
    let builder = builder.listen("tcp://127.0.0.1:0").serve(service);
    builder.start().await.expect("loopback can be bound")
}

async fn call(client: &Endpoint, members: &Configuration) {
    let body = Body { bytes: Bytes::from_static(&[7; 100]) };
    let invocation = client.call(ECHO, body);
    match members.members() {
        [one] => invocation.to(one).await.expect("it answers"),
        _ => invocation.to_all(members).acked_by(Majority).await.expect("they answer"),
    };
}

async fn run(what: &str, callers: usize, calls: usize) {
    let count = if what == "quorum" { 4 } else { 1 };
    let mut servers = Vec::new();
    for id in 1..=count {
        servers.push(serve(id).await);
    }
    let members = Configuration::new(&servers).expect("they differ");
    let client = convoke::endpoint().limits(limits()).peers(&members).start();
    let client = client.await.expect("nothing to bind");
    for member in &members {
        client.warm_up(member).await.expect("it listens");
    }
    let (session, writes, start) = (Session::new(), client.counters().writes, Instant::now());
    let span = session.operation("calls").measure_thread();
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (client, members) = (client.clone(), members.clone());
            tokio::spawn(async move {
                for _ in 0..calls / callers {
                    call(&client, &members).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no call fails");
    }
    drop(span);
    let each = |total: f64| total / calls.max(1) as f64;
    let report = session.to_report();
    let allocations: u64 =
        report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    println!(
        "{what}: {:.2} us, {:.3} writes, {:.1} allocations",
        each(start.elapsed().as_secs_f64() * 1e6),
        each((client.counters().writes - writes) as f64),
        each(allocations as f64),
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number =
        |at: usize, default| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let what = words.first().map_or("unary", String::as_str);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(run(what, number(1, 64), number(2, 100_000)));
}
