//! One message there and back: how much above bare verbs?

use std::thread::available_parallelism;

use convoke_transport_rdma::Defect;

use crate::bare;
use crate::node::{Pair, Setup};
use crate::rows::{CANDIDATE_BYTES_MAX, CANDIDATES, Report, best, is_quick};

const BENCH: &str = "ping_pong";
const SIZES: [usize; 9] = [8, 64, 256, 1_024, 4_000, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const SMALL_COUNT: usize = 7;
const BY_TWO: &str = "convoke, polled by two threads";
/// Enough to see that it works and keeps its limits.
const SIZES_QUICK: [usize; 2] = [64, 4_000];

pub(crate) fn measure(report: &mut Report) {
    let sizes = if is_quick() { &SIZES_QUICK[..] } else { &SIZES };
    measure_bare(report, sizes);
    let with = |defect| Setup { defect: Some(defect), ..Setup::POLLED };
    let rdma = |setup: &Setup| pairs(|| Pair::rdma(setup));
    measure_pairs(report, "convoke, polled", sizes, &mut rdma(&Setup::POLLED));
    if has_two_processors() {
        let by_two = Setup { has_two_threads: true, ..Setup::POLLED };
        measure_pairs(report, BY_TWO, small(sizes), &mut rdma(&by_two)[..1]);
    }
    measure_pairs(report, "convoke, by event", sizes, &mut rdma(&Setup::BY_EVENT));
    let mut without = rdma(&with(Defect::IgnoresCredit));
    measure_pairs(report, "without credits", &SIZES_QUICK, &mut without);
    measure_pairs(report, "without loans", &SIZES_QUICK, &mut rdma(&with(Defect::NeverLends)));
    measure_pairs(report, "tcp", sizes, &mut [Pair::tcp()]);

    let ratio =
        |size, above, below| report.median(BENCH, above, size) / report.median(BENCH, below, size);
    let polled = ratio(64, "convoke, polled", "bare, polled");
    let limits = [
        ("credits on a ping-pong of 64 B", ratio(64, "convoke, polled", "without credits"), 1.03),
        ("lending 4,000 B against copying", ratio(4_000, "convoke, polled", "without loans"), 1.02),
    ];
    report.goal("polled ping-pong of 64 B against bare verbs", polled, 1.10, 1.20);
    for (what, figure, limit) in limits {
        report.limit(what, figure, limit);
    }
}

fn measure_bare(report: &mut Report, sizes: &[usize]) {
    let mut pairs = pairs(bare::pair);
    for &size in sizes {
        let count = iterations(size);
        let mut row = |form, times: fn(&mut _, usize, usize) -> _| {
            let times = best(&mut pairs, size, |ends| times(ends, size, count));
            report.row(BENCH, form, ("size", size), times);
        };
        row("bare, polled", bare::polled);
        row("bare, by event", bare::by_event);
        if has_two_processors() && small(sizes).contains(&size) {
            row("bare, polled by two threads", bare::polled_by_two);
        }
    }
}

fn measure_pairs(report: &mut Report, form: &str, sizes: &[usize], pairs: &mut [Pair]) {
    for &size in sizes {
        let times = best(pairs, size, |pair| pair.ping_pong(size, iterations(size)));
        report.row(BENCH, form, ("size", size), times);
    }
}

fn pairs<P>(make: impl FnMut() -> P) -> Vec<P> {
    std::iter::repeat_with(make).take(CANDIDATES).collect()
}

/// Two threads that poll on one processor take turns by the scheduler's clock, and that is what
/// would be measured.
fn has_two_processors() -> bool {
    available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// The sizes for two threads, which are no faster than one where messages are large.
fn small(sizes: &[usize]) -> &[usize] {
    &sizes[..sizes.len().min(SMALL_COUNT)]
}

/// As many as keep the pairs of a row below half a second in an emulated machine.
fn iterations(size: usize) -> usize {
    match size {
        0..=CANDIDATE_BYTES_MAX => 100,
        257..=4_096 => 400,
        4_097..=65_536 => 40,
        _ => 6,
    }
}
