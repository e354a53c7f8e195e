//! One message there and back: how much above bare verbs?

use convoke_transport_rdma::Defect;

use crate::bare;
use crate::node::{Pair, Setup};
use crate::rows::{Report, is_quick};

const BENCH: &str = "ping_pong";
const SIZES: [usize; 9] = [8, 64, 256, 1_024, 4_000, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Two threads that poll on one processor take turns by the scheduler's clock; over many milliseconds
/// that is what would be measured.
const SMALL_COUNT: usize = 7;
/// Enough to see that it works and keeps its limits.
const SIZES_QUICK: [usize; 2] = [64, 4_000];

pub(crate) fn measure(report: &mut Report) {
    let sizes = if is_quick() { &SIZES_QUICK[..] } else { &SIZES };
    let mut ends = bare::pair();
    for &size in sizes {
        let count = iterations(size);
        report.row(BENCH, "bare, polled", ("size", size), bare::polled(&mut ends, size, count));
        let times = bare::polled_by_two(&mut ends, size, count);
        report.row(BENCH, "bare, polled by two threads", ("size", size), times);
        report.row(BENCH, "bare, by event", ("size", size), bare::by_event(&mut ends, size, count));
    }
    let with = |defect| Setup { defect: Some(defect), ..Setup::POLLED };
    measure_pair(report, "convoke, polled", sizes, &Pair::rdma(&Setup::POLLED));
    let by_two = Setup { has_two_threads: true, ..Setup::POLLED };
    let small = &sizes[..sizes.len().min(SMALL_COUNT)];
    measure_pair(report, "convoke, polled by two threads", small, &Pair::rdma(&by_two));
    measure_pair(report, "convoke, by event", sizes, &Pair::rdma(&Setup::BY_EVENT));
    measure_pair(
        report,
        "without credits",
        &SIZES_QUICK,
        &Pair::rdma(&with(Defect::IgnoresCredit)),
    );
    measure_pair(report, "without loans", &SIZES_QUICK, &Pair::rdma(&with(Defect::NeverLends)));
    measure_pair(report, "tcp", sizes, &Pair::tcp());

    let ratio =
        |size, above, below| report.median(BENCH, above, size) / report.median(BENCH, below, size);
    let polled = ratio(64, "convoke, polled", "bare, polled");
    let limits = [
        ("credits on a ping-pong of 64 B", ratio(64, "convoke, polled", "without credits"), 1.03),
        ("lending 4,000 B against copying", ratio(4_000, "convoke, polled", "without loans"), 1.02),
    ];
    report.goal("polled ping-pong of 64 B against bare verbs", polled, 1.10, 1.40);
    for (what, figure, limit) in limits {
        report.limit(what, figure, limit);
    }
}

fn measure_pair(report: &mut Report, form: &str, sizes: &[usize], pair: &Pair) {
    for &size in sizes {
        report.row(BENCH, form, ("size", size), pair.ping_pong(size, iterations(size)));
    }
}

/// As many as keep a row below half a second in an emulated machine.
fn iterations(size: usize) -> usize {
    match size {
        0..=4_096 => 400,
        4_097..=65_536 => 40,
        _ => 6,
    }
}
