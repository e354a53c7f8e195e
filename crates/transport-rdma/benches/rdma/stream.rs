//! One way with 64 messages under way: how much above bare verbs?

use crate::bare;
use crate::node::{Pair, Setup};
use crate::rows::{CANDIDATES, Report, best, is_quick};

const BENCH: &str = "stream_64_under_way";
const WINDOW: u32 = 64;
const SIZES: [usize; 4] = [64, 1_000, 4_000, 64 << 10];

pub(crate) fn measure(report: &mut Report) {
    let sizes = if is_quick() { &SIZES[..1] } else { &SIZES };
    let mut pairs = [(); CANDIDATES].map(|()| bare::pair());
    for &size in sizes {
        let times = best(&mut pairs, size, |ends| bare::stream(ends, size, WINDOW, bursts(size)));
        report.row(BENCH, "bare, polled", ("size", size), times);
    }
    let setup = Setup { slots: 64, ..Setup::POLLED };
    for (form, pair) in [("convoke, polled", Pair::rdma(&setup)), ("tcp", Pair::tcp())] {
        for &size in sizes {
            let times = pair.stream(size, (WINDOW, bare::BURST), bursts(size));
            report.row(BENCH, form, ("size", size), times);
        }
    }
}

/// As many as keep a row below a second in an emulated machine.
fn bursts(size: usize) -> usize {
    if size > 4_096 { 3 } else { 9 }
}
