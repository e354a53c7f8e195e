//! Calls to be looked at with a profiler: client and servers in this process, on one thread, over
//! loopback TCP. `cargo xtask counts` counts their instructions.
//!
//! ```sh
//! cargo run --release -p profile -- unary 64 100000
//! cargo build --release -p profile
//! valgrind --tool=callgrind target/release/profile unary 64 9600
//! ```
//! Callers at once, and calls, or items, in all, of which each caller makes an equal whole part.
//! Prints microseconds, writes of the client and allocations for a call that was made; for
//! comparing counts of instructions use the same numbers, since one write carries more or fewer
//! frames with them.

#![forbid(unsafe_code)]

mod servers;

use std::time::Instant;

use alloc_tracker::{Allocator, Session};
use convoke::Endpoint;
use convoke::quorum::{Configuration, Majority, QuorumExt};

use crate::servers::{Body, ECHO, GIVE, HOP, TAKE, limits, serve};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// Kinds of calls that it can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unary,
    Quorum,
    Tree,
    Hops,
    Items,
    Replies,
}

/// Their names and servers.
const KINDS: [(&str, Kind, u64); 6] = [
    ("unary", Kind::Unary, 1),
    // A majority of four.
    ("quorum", Kind::Quorum, 4),
    // A call that five servers hand on, and five calls to one after the other.
    ("tree", Kind::Tree, 5),
    ("hops", Kind::Hops, 5),
    // Streamed requests, and streamed replies.
    ("items", Kind::Items, 1),
    ("replies", Kind::Replies, 1),
];

impl Kind {
    const fn is_stream(self) -> bool {
        matches!(self, Self::Items | Self::Replies)
    }

    async fn call(self, client: &Endpoint, members: &Configuration) {
        let first = &members.members()[0];
        match self {
            Self::Quorum => {
                let call = client.call(ECHO, Body::visiting(0)).to_all(members);
                call.acked_by(Majority).await.expect("they answer");
            }
            Self::Tree => {
                let call = client.call(HOP, Body::visiting(5)).to(first);
                call.await.expect("the last answers");
            }
            _ => {
                let visited = if self == Self::Hops { members.members() } else { &[*first] };
                for member in visited {
                    let call = client.call(ECHO, Body::visiting(0)).to(member);
                    call.await.expect("it answers");
                }
            }
        }
    }

    /// One stream of so many items.
    async fn stream(self, client: &Endpoint, members: &Configuration, count: usize) {
        let to = &members.members()[0];
        if self == Self::Items {
            let (mut items, call) = client.call_stream(TAKE).to(to).open().expect("it is opened");
            for _ in 0..count {
                items.send(&Body::visiting(0)).await.expect("it is read");
            }
            items.finish();
            assert_eq!(call.first().await.expect("it answers").into_inner(), count as u64);
        } else {
            let call = client.call(GIVE, count as u64).to(to).open();
            let (replies, _) = call.expect("it is opened").collect().await.expect("they come");
            assert_eq!(replies.len(), count);
        }
    }
}

/// Work that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    name: &'static str,
    kind: Kind,
    servers: u64,
    callers: usize,
    calls_each: usize,
}

impl Plan {
    fn parse(words: &[String]) -> Result<Self, String> {
        let number = |at: usize, default: usize| match words.get(at) {
            None => Ok(default),
            Some(word) => word.parse().map_err(|_| format!("{word} is no number")),
        };
        if let Some(word) = words.get(3) {
            return Err(format!("{word} is one word too many"));
        }
        let what = words.first().map_or("unary", String::as_str);
        let Some((name, kind, servers)) = KINDS.into_iter().find(|(name, ..)| *name == what) else {
            let names: Vec<_> = KINDS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("{what} is unknown; choose of {}", names.join(", ")));
        };
        let (callers, calls) = (number(1, 64)?, number(2, 100_000)?);
        let calls_each = calls.checked_div(callers).filter(|each| *each > 0);
        let calls_each = calls_each.ok_or_else(|| format!("{calls} calls of {callers} callers"))?;
        Ok(Self { name, kind, servers, callers, calls_each })
    }
}

async fn run(Plan { name, kind, servers, callers, calls_each }: Plan) {
    let servers = serve(servers).await;
    let members = Configuration::new(&servers).expect("they differ");
    let client = convoke::endpoint().limits(limits()).peers(&members).start();
    let client = client.await.expect("nothing to bind");
    for member in &members {
        client.warm_up(member).await.expect("it listens");
    }
    let (session, writes, start) = (Session::new(), client.counters().writes, Instant::now());
    let span = session.operation("calls").measure_thread();
    let calls = callers * calls_each;
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (client, members) = (client.clone(), members.clone());
            tokio::spawn(async move {
                if kind.is_stream() {
                    return kind.stream(&client, &members, calls_each).await;
                }
                for _ in 0..calls_each {
                    kind.call(&client, &members).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no call fails");
    }
    drop(span);
    let each = |total: f64| total / calls as f64;
    let report = session.to_report();
    let allocations: u64 =
        report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    println!(
        "{name}: {:.2} us, {:.3} writes, {:.2} allocations",
        each(start.elapsed().as_secs_f64() * 1e6),
        each((client.counters().writes - writes) as f64),
        each(allocations as f64),
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::parse(&words).unwrap_or_else(|complaint| {
        eprintln!("profile: {complaint}");
        std::process::exit(2);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run(plan));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Plan, String> {
        Plan::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn calls_are_those_that_are_made() {
        let made = |words| parse(words).map(|plan| plan.callers * plan.calls_each);
        assert_eq!(made(""), Ok(99_968));
        assert_eq!(made("unary 64 127"), Ok(64));
        assert_eq!(made("quorum 16 6400"), Ok(6_400));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for words in ["unary 64 63", "unary 0 100", "unary sixty 6400", "tree 1 1 1", "sextary"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
