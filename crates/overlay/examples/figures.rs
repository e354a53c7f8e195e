//! Figures 7.1 and 7.2 of ShallowForest's evaluation in virtual time, as rows for `wan-lab` to draw:
//!
//! ```sh
//! cargo run -p convoke-overlay --example figures -- rows.json
//! cargo run --release -p wan-lab -- figures --from rows.json --svg docs/wan
//! ```
//! The sites are the data plane of `tests/hose`, on a network in the hose model: 30 Mbit/s for each,
//! operations of 32 KiB. Latencies begin when an operation is offered; one that has not come when
//! the run ends counts with its age. No machine is fast enough or too busy to change a number.

#[path = "../tests/hose/tables.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod tables;
#[path = "../tests/hose/wan.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod wan;

use std::time::Duration;

use convoke_overlay::{HoseModel, Plan, PlanOptions, Site, SiteSet, plan};
use serde::Serialize;

use crate::tables::row;
use crate::wan::Wan;

/// A fifth of the network of the tests makes as many frames fewer.
const SCALE: u64 = 5;

const WARM_UP: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(5);

/// Parts of the load in the tables.
const LOADS: [f64; 6] = [0.2, 0.4, 0.6, 0.8, 0.9, 1.0];

/// A row as `wan-lab` writes and reads it.
#[derive(Debug, Serialize)]
struct Row {
    sites: usize,
    skew: f64,
    form: &'static str,
    load: f64,
    throughput_mbit: f64,
    planned_mbit: f64,
    mean_ms: f64,
    p99_ms: f64,
}

fn main() -> anyhow::Result<()> {
    let Some(file) = std::env::args_os().nth(1) else {
        anyhow::bail!("give the file to write the rows to");
    };
    let mut rows = Vec::new();
    for skew in [0.0, 0.5, 1.0, 1.5] {
        for load in LOADS {
            rows.extend(both(5, skew, load)?);
        }
    }
    for sites in [7, 9] {
        rows.extend(both(sites, 1.0, 1.0)?);
    }
    std::fs::write(&file, serde_json::to_string_pretty(&rows)?)?;
    Ok(())
}

/// Both forms at a load.
fn both(sites: usize, skew: f64, load: f64) -> anyhow::Result<[Row; 2]> {
    let mut full = row(sites, skew).model();
    for rates in [&mut full.uplink, &mut full.downlink, &mut full.demand] {
        rates.iter_mut().for_each(|rate| *rate /= SCALE);
    }
    let model = scaled(full, load);
    // As sites do that plan by themselves: with no slack a backlog would never go.
    let made = plan(&scaled(model.clone(), 1.1), &PlanOptions::new())?;
    let planned: u64 = (0_u16..).take(sites).map(|site| made.rate(Site(site))).sum();
    let wanted: u64 = model.demand.iter().sum();
    let row = |form, plan: Option<&Plan>, planned_mbit| {
        let row = Row { sites, skew, form, load, planned_mbit, ..measure(&model, plan) };
        println!("{row:?}");
        row
    };
    Ok([
        row("direct", None, direct_mbit(&model)),
        row("overlay", Some(&made), planned.min(wanted) as f64 / 1e3),
    ])
}

/// Rates at which sites broadcast when each sends a copy to each. (ShallowForest, equation 4.19)
fn direct_mbit(model: &HoseModel) -> f64 {
    let copies = model.sites() as u64 - 1;
    let rates = model.demand.iter().zip(&model.uplink);
    rates.map(|(rate, uplink)| (*rate).min(uplink / copies)).sum::<u64>() as f64 / 1e3
}

fn scaled(mut model: HoseModel, by: f64) -> HoseModel {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are far below 2^53, and factors are constants above 0"
    )]
    model.demand.iter_mut().for_each(|rate| *rate = (*rate as f64 * by).round() as u64);
    model
}

fn measure(model: &HoseModel, plan: Option<&Plan>) -> Row {
    let mut wan = Wan::new(model, plan);
    let from = wan.now + WARM_UP;
    let outcome = wan.measure(WARM_UP, COUNTED);
    assert_eq!(wan.refused, 0, "what is refused has no latency");
    let came = wan.deliveries.iter().filter(|it| it.sent + it.took >= from);
    let mut took: Vec<Duration> = came.map(|it| it.took).chain(wan.ages(SiteSet::EMPTY)).collect();
    took.sort_unstable();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Row {
        sites: 0,
        skew: 0.0,
        form: "",
        load: 0.0,
        planned_mbit: 0.0,
        throughput_mbit: outcome.throughput,
        mean_ms: millis(took.iter().sum::<Duration>()) / took.len() as f64,
        p99_ms: millis(took[took.len() * 99 / 100]),
    }
}
