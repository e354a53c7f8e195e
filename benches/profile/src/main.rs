//! Calls to be looked at with a profiler: client and servers in this process, on one thread, over
//! loopback TCP. `cargo xtask counts` counts their instructions.
//!
//! ```sh
//! cargo run --release -p profile -- unary 64 100000
//! cargo build --release -p profile
//! valgrind --tool=callgrind target/release/profile unary 64 9600
//! cargo run --release -p profile --features quic -- unary 64 100000 --transport quic
//! ```
//! Callers at once, and calls, or items, in all, of which each caller makes an equal whole part.
//! A fourth word is the cores that each endpoint has. Prints microseconds, writes of the client and
//! allocations for a call that was made; for comparing counts of instructions use the same numbers,
//! since one write carries more or fewer frames with them.

#![forbid(unsafe_code)]

mod kinds;
mod servers;
mod wire;

use std::time::Instant;

use alloc_tracker::{Allocator, Session};

use crate::kinds::{Cluster, KINDS, Kind};
use crate::wire::{Ends, Wire};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// Work that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    name: &'static str,
    kind: Kind,
    callers: usize,
    calls_each: usize,
    ends: Ends,
}

/// The number that a word is.
fn number<N: std::str::FromStr>(word: &String) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word} is no number here"))
}

impl Plan {
    fn parse(words: &[String]) -> Result<Self, String> {
        let (words, wire) = match words {
            [words @ .., option, name] if option == "--transport" => (words, Wire::parse(name)?),
            words => (words, Wire::Tcp),
        };
        if let Some(word) = words.get(4) {
            return Err(format!("{word} is one word too many"));
        }
        let what = words.first().map_or("unary", String::as_str);
        let Some((name, kind, _)) = KINDS.into_iter().find(|(name, ..)| *name == what) else {
            let names: Vec<_> = KINDS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("{what} is unknown; choose of {}", names.join(", ")));
        };
        let callers: usize = words.get(1).map_or(Ok(64), number)?;
        let calls: usize = words.get(2).map_or(Ok(100_000), number)?;
        let calls_each = calls.checked_div(callers).filter(|each| *each > 0);
        let calls_each = calls_each.ok_or_else(|| format!("{calls} calls of {callers} callers"))?;
        let cores = words.get(3).map(number).transpose()?;
        Ok(Self { name, kind, callers, calls_each, ends: Ends { wire, cores } })
    }
}

/// Gives the endpoints, as they are after the last call.
async fn run(Plan { name, kind, callers, calls_each, ends }: Plan) -> Cluster {
    let cluster = Cluster::start(kind, ends).await;
    let writes_now = || cluster.client.counters().writes;
    let (session, writes, start) = (Session::new(), writes_now(), Instant::now());
    let span = session.operation("calls").measure_thread();
    kind.run(&cluster, callers, calls_each).await;
    drop(span);
    let each = |total: f64| total / (callers * calls_each) as f64;
    let report = session.to_report();
    let allocations: u64 =
        report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    println!(
        "{name}: {:.2} us, {:.3} writes, {:.2} allocations",
        each(start.elapsed().as_secs_f64() * 1e6),
        each((writes_now() - writes) as f64),
        each(allocations as f64),
    );
    cluster
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::parse(&words).unwrap_or_else(|complaint| {
        eprintln!("profile: {complaint}");
        std::process::exit(2);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _cluster = runtime.block_on(run(plan));
    // Before any of it is dropped: connections that end one after the other have servers tell of
    // each call that is not settled by then, and how many these are depends on the time.
    std::process::exit(0);
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
        assert_eq!(made("unary 64 127 --transport tcp"), Ok(64));
    }

    #[test]
    fn cores_are_left_to_the_endpoints_unless_they_are_told() {
        let cores = |words| parse(words).map(|plan| plan.ends.cores);
        assert_eq!(cores("unary 64 9600"), Ok(None));
        assert_eq!(cores("unary 64 9600 4"), Ok(Some(4)));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for words in [
            "unary 64 63",
            "unary 0 100",
            "unary sixty 6400",
            "unary 1 1 many",
            "tree 1 1 1 1",
            "sextary",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        for words in ["--transport", "unary --transport pigeon", "--transport tcp unary"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
