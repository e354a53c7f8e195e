//! Calls to be looked at with a profiler: client and servers in this process, on one thread, over
//! loopback TCP.
//!
//! ```sh
//! cargo bench --bench profile -- unary 64 100000       # or quorum: a majority of four
//! cargo bench --bench profile -- items 1 100000        # streamed requests; replies: streamed replies
//! cargo bench --bench profile --no-run                 # names the executable, for
//! valgrind --tool=callgrind EXECUTABLE unary 64 9600
//! ```
//! Callers at once, and calls, or items, in all. Prints microseconds, writes of the client and
//! allocations for a call; for comparing counts of instructions use the same numbers, since what
//! one write carries depends on them.

use std::time::{Duration, Instant};

use alloc_tracker::{Allocator, Session};
use convoke::quorum::{Configuration, Majority, QuorumExt};
use convoke::{Context, Endpoint, Items, Limits, Method, NodeId, Service, Status, Task};
use prost::bytes::Bytes;

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

const ECHO: Method<Body, Body> = Method::new("bench.Profile/Echo");
/// Reads all items and says how many.
const TAKE: Method<Items<Body>, u64> = Method::new("bench.Profile/Take");
/// Streams so many items.
const GIVE: Method<u64, Body> = Method::new("bench.Profile/Give");

/// Under a profiler a program is some fifty times slower, and its calls would grow old.
fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.worry_min, limits.worry_max) = (Duration::from_secs(9), Duration::from_secs(9));
    limits.ask_every *= 50;
    limits
}

async fn serve(id: u64) -> Endpoint {
    let service = Service::new()
        .unary(ECHO, |body, _: Context| async { Ok::<_, Status>(body) })
        .unary(TAKE, |mut items: Items<Body>, _: Context| async move {
            let mut count = 0;
            while let Some(item) = items.next().await {
                item?;
                count += 1;
            }
            Ok::<_, Status>(count)
        })
        .tree(GIVE, |count: u64, task: Task<Body>| async move {
            let mut stream = task.stream()?;
            for _ in 0..count {
                stream.send(&body()).await?;
            }
            drop(stream);
            Ok::<_, Status>(task.finish())
        });
    let node = NodeId::new(id);
    let builder = convoke::endpoint().node(node).limits(limits());
    let builder = builder.listen("tcp://127.0.0.1:0").serve(service);
    builder.start().await.expect("loopback can be bound")
}

fn body() -> Body {
    Body { bytes: Bytes::from_static(&[7; 100]) }
}

/// One stream of so many items.
async fn stream(client: &Endpoint, members: &Configuration, what: &str, count: usize) {
    let to = &members.members()[0];
    if what == "items" {
        let (mut items, call) = client.call_stream(TAKE).to(to).open().expect("it is opened");
        for _ in 0..count {
            items.send(&body()).await.expect("it is read");
        }
        items.finish();
        assert_eq!(call.first().await.expect("it answers").into_inner(), count as u64);
    } else {
        let call = client.call(GIVE, count as u64).to(to).open();
        let (replies, _) = call.expect("it is opened").collect().await.expect("they come");
        assert_eq!(replies.len(), count);
    }
}

async fn call(client: &Endpoint, members: &Configuration) {
    let invocation = client.call(ECHO, body());
    match members.members() {
        [one] => invocation.to(one).await.expect("it answers"),
        _ => invocation.to_all(members).acked_by(Majority).await.expect("they answer"),
    };
}

async fn run(what: &'static str, callers: usize, calls: usize) {
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
                if matches!(what, "items" | "replies") {
                    return stream(&client, &members, what, calls / callers).await;
                }
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
    let what = match words.first().map(String::as_str) {
        None | Some("unary") => "unary",
        Some("quorum") => "quorum",
        Some("items") => "items",
        Some("replies") => "replies",
        Some(other) => panic!("{other} is none of unary, quorum, items, replies"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(run(what, number(1, 64), number(2, 100_000)));
}
