//! Worth of a ring of registered slots. A slot against memory that is allocated and registered
//! for each message, with and without writing all of it: the table of the talk on RUBIN.

use std::hint::black_box;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use convoke_transport_rdma::provider::Provider;
use convoke_transport_rdma::provider::verbs::VerbsDevice;
use convoke_transport_rdma::slab::Slab;

use crate::node::device_address;
use crate::rows::{Report, is_quick};

const BENCH: &str = "ring";
const SLOTS: u32 = 32;
const BYTES: usize = 4 << 10;
/// Operations that are timed together: a slot is taken in less time than the clock can tell.
const BATCH: u32 = 100;

pub(crate) fn measure(report: &mut Report) {
    let device = VerbsDevice::of_address(device_address());
    let device = device.unwrap_or_else(|error| panic!("{error}"));
    let slab = Slab::new(SLOTS, BYTES, Waker::noop().clone());
    let memory = device.register(&slab).unwrap_or_else(|error| panic!("{error}"));
    let counts = if is_quick() { &[1_000][..] } else { &[1_000, 100_000] };
    for &count in counts {
        let parameter = ("iterations", count);
        for (is_written, suffix) in [(false, ""), (true, ", written")] {
            let times = timed(count, |number| take(&slab, number % SLOTS, is_written));
            report.row(BENCH, &format!("slot{suffix}"), parameter, times);
            let times = timed(count, |_| allocate(&device, is_written));
            report.row(BENCH, &format!("allocated and registered{suffix}"), parameter, times);
        }
    }
    drop(memory);
    let median = |form| report.median(BENCH, form, 1_000);
    let ratio = median("slot") / median("allocated and registered");
    report.limit("a slot against allocating and registering", ratio, 0.01);
}

fn take(slab: &Arc<Slab>, slot: u32, is_written: bool) {
    let mut slot = slab.edit(slot).expect("nobody has it");
    if is_written {
        slot.fill(7);
    }
    black_box(&mut slot[..1]);
}

fn allocate(device: &VerbsDevice, is_written: bool) {
    let slab = Slab::new(1, BYTES, Waker::noop().clone());
    let memory = device.register(&slab).unwrap_or_else(|error| panic!("{error}"));
    take(&slab, 0, is_written);
    drop(memory);
}

fn timed(count: usize, mut operation: impl FnMut(u32)) -> Vec<Duration> {
    let batches = count / BATCH as usize;
    let batch = |_| {
        let start = Instant::now();
        (0..BATCH).for_each(&mut operation);
        start.elapsed() / BATCH
    };
    (0..batches).map(batch).collect()
}
