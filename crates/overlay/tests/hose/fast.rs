//! Fast links over long distances, with the limits that an overlay has by default.

use std::time::Duration;

use crate::tables::row;
use crate::wan::{OP_BYTES, Wan};

/// The parts of the plan, and of what all direct would carry, that come.
fn run(uplink_mbit: u64) -> (f64, f64) {
    let row = row(5, 1.0);
    let mut model = row.model();
    for rates in [&mut model.uplink, &mut model.downlink, &mut model.demand] {
        rates.iter_mut().for_each(|rate| *rate = *rate * uplink_mbit / 150);
    }
    let mut wan = Wan::planned(&model, 2 * OP_BYTES, 1_000);
    let plan = wan.plan().clone();
    let planned: u64 = wan.nodes.iter().map(|node| plan.rate(node.me())).sum();
    let outcome = wan.measure(Duration::from_millis(800), Duration::from_millis(500));
    let direct = row.direct_mbit() * uplink_mbit as f64 / 150.0;
    let planned = planned as f64 / 1e3;
    println!(
        "{uplink_mbit} Mbit/s uplinks: {:.0} of {planned:.0} Mbit/s planned, {direct:.0} direct",
        outcome.throughput
    );
    (outcome.throughput / planned, outcome.throughput / direct)
}

#[test]
fn a_plan_of_fast_links_is_kept_with_the_defaults() {
    for uplink_mbit in [2_500, 10_000] {
        let (of_plan, of_direct) = run(uplink_mbit);
        assert!(of_plan >= 0.95, "{of_plan}");
        assert!(of_direct >= 1.4, "{of_direct}");
    }
}
