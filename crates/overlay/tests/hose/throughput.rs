//! P16: at least 0.95 of what the plan promises comes, and the gains over direct broadcast are
//! those of the model.

use std::time::Duration;

use convoke_overlay::{Plan, PlanOptions, plan, sustainable};

use crate::tables::{Row, rows};
use crate::wan::{Outcome, Wan};

const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(2);

fn run(row: &Row, plan: Option<&Plan>) -> Outcome {
    let mut wan = Wan::new(&row.model(), plan);
    let outcome = wan.measure(WARM_UP, COUNTED);
    assert!(wan.control_bytes * 50 < wan.data_bytes, "control is less than 2 %");
    outcome
}

fn check(row: &Row) {
    let model = row.model();
    assert_eq!(sustainable(&model), Ok(Vec::new()));
    let made = plan(&model, &PlanOptions::new()).expect("the loads are sustainable");
    let planned = model.demand.iter().sum::<u64>() as f64 / 1e3;
    let (direct, overlay) = (run(row, None), run(row, Some(&made)));
    println!(
        "n = {}, s = {}: direct {:.1} of {:.1} Mbit/s, overlay {:.1} of {planned:.1}, {:.2}x; mean {:.1} and {:.1} ms, {:.1} ms planned",
        row.n,
        row.s,
        direct.throughput,
        row.direct_mbit(),
        overlay.throughput,
        overlay.throughput / direct.throughput,
        direct.mean_ms,
        overlay.mean_ms,
        made.mean_delivery_us(&model).unwrap_or(0.0) / 1e3,
    );
    assert!(overlay.throughput >= 0.95 * planned, "{overlay:?} of {planned}");
    assert!((0.95..=1.02).contains(&(direct.throughput / row.direct_mbit())), "{direct:?}");
    let gain = overlay.throughput / direct.throughput;
    assert!(gain >= 0.95 * (1.0 + row.gain_eq_4_19), "{gain} times direct");
    if row.gain_eq_4_19 > 0.1 {
        assert!(
            overlay.mean_ms < direct.mean_ms,
            "direct broadcasts queue: {direct:?} {overlay:?}"
        );
    }
}

#[test]
fn the_plan_is_kept_in_every_row_of_the_tables() {
    let rows = rows();
    assert_eq!(rows.len(), 6);
    rows.iter().for_each(check);
}
