//! Cost of credits, by the number of buffers. The sweep of RUBIN, whose flow control was either
//! off, and crashed, or on, and slow.
//!
//! Messages of a size of which each takes a buffer go one way. The sender limits itself to as many
//! as there are buffers by a count that it shares with the receiver, which only works within one
//! process; so without credits, too, every message finds a buffer.

use convoke_transport_rdma::Defect;

use crate::node::{Pair, Setup};
use crate::rows::{Report, is_quick};

const BENCH: &str = "flow_control";
const BUFFERS: [u16; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const BUFFERS_QUICK: [u16; 1] = [32];
/// Two of these do not fit a message.
const SIZE: usize = 600;
const SLOT_BYTES: u32 = 1 << 10;
const BURST: u32 = 256;
/// Rounds of all buffers, so that what opens a connection does not count among credit messages.
const ROUNDS: usize = 16;
const BURSTS_MIN: usize = 5;

pub(crate) fn measure(report: &mut Report) {
    let buffers = if is_quick() { &BUFFERS_QUICK[..] } else { &BUFFERS };
    for &slots in buffers {
        let setup = Setup { slots, slot_bytes: SLOT_BYTES, ..Setup::POLLED };
        let without = Setup { defect: Some(Defect::IgnoresCredit), ..setup };
        let parameter = ("buffers", usize::from(slots));
        let pair = Pair::rdma(&setup);
        let window = (u32::from(slots), BURST);
        let bursts = (ROUNDS * usize::from(slots) / BURST as usize).max(BURSTS_MIN);
        let times = pair.stream(SIZE, window, bursts);
        report.row(BENCH, "with credits", parameter, times);
        let (credit, data) = (pair.credit_messages() as f64, pair.counters().frames_sent as f64);
        let what = format!("credit messages of {slots} buffers, of the data messages");
        report.limit(&what, credit / data, 2.5 / f64::from(slots));
        let times = Pair::rdma(&without).stream(SIZE, window, bursts);
        report.row(BENCH, "without credits", parameter, times);
    }
    let median = |form| report.median(BENCH, form, 32);
    let ratio = median("with credits") / median("without credits");
    report.limit("credits on a stream over 32 buffers", ratio, 1.06);
}
