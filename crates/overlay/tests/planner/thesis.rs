//! The published loads and latencies (ShallowForest, tables 7.1 to 7.3), and what is computed from
//! them.

use convoke_overlay::{
    Cost, HoseModel, Plan, PlanOptions, Site, Tree, contingency, greedy, largest_scale,
    largest_total, plan,
};
use serde::Deserialize;

use crate::network::{sites, times};

#[derive(Deserialize)]
struct Tables {
    rtt_ms: Vec<Vec<u32>>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    n: usize,
    load_percent: Vec<u64>,
    offered_mbps: f64,
    direct_delivered_mbps: f64,
    gain_eq_4_19: f64,
    direct_max_balanced_mbps: f64,
    overlay_max_balanced_mbps: f64,
    gain_balanced: f64,
    mean_rtt_weight_direct_ms: f64,
    mean_rtt_weight_phase2_ms: f64,
    #[cfg(feature = "lp")]
    mean_rtt_weight_one_relay_ms: f64,
}

/// Mean delivery under Algorithm 1 in milliseconds, of half the round trips.
const GREEDY_MS: [f64; 6] = [85.8, 76.1, 91.7, 100.8, 111.0, 127.4];
/// Of each site and direction, kbit/s.
const CAPACITY: u64 = 750_000;

fn rows() -> Vec<(Row, HoseModel)> {
    let text = include_str!("../../testdata/vectors/thesis-tables.json");
    let tables: Tables = serde_json::from_str(text).expect("the tables");
    let with_model = |row: Row| {
        let latencies = tables.rtt_ms.iter().take(row.n).flat_map(|line| &line[..row.n]);
        let model = HoseModel {
            uplink: vec![CAPACITY; row.n],
            downlink: vec![CAPACITY; row.n],
            latency_us: latencies.map(|ms| ms * 1000).collect(),
            demand: row.load_percent.iter().map(|percent| CAPACITY * percent / 100).collect(),
            epoch: 1,
        };
        (row, model)
    };
    tables.rows.into_iter().map(with_model).collect()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}");
}

fn all_of_it() -> PlanOptions {
    PlanOptions::new().headroom_permille(1000).admit(None)
}

fn mean_ms(plan: &Plan, model: &HoseModel) -> f64 {
    plan.mean_delivery_us(model).expect("there is load") / 1e3
}

#[test]
fn the_throughput_gains_are_those_of_the_tables() {
    for (row, model) in rows() {
        let offered: u64 = model.demand.iter().sum();
        near(offered as f64 / 1e3, row.offered_mbps);
        let fits = CAPACITY / (row.n as u64 - 1);
        let direct: u64 = model.demand.iter().map(|demand| *demand.min(&fits)).sum();
        near(direct as f64 / 1e3, row.direct_delivered_mbps);
        let overlay = largest_total(&model).expect("a valid model");
        near(overlay.to_f64() / direct as f64 - 1.0, row.gain_eq_4_19);

        let hottest = *model.demand.iter().max().expect("there are sites") as f64;
        let sent_direct = fits as f64 / hottest;
        near(sent_direct * row.offered_mbps, row.direct_max_balanced_mbps);
        let scale = largest_scale(&model).expect("a valid model").expect("there is load");
        near(scale.to_f64() * row.offered_mbps, row.overlay_max_balanced_mbps);
        near(scale.to_f64() / sent_direct - 1.0, row.gain_balanced);
    }
}

#[test]
fn the_latencies_are_those_of_the_tables() {
    for ((row, model), greedy_ms) in rows().into_iter().zip(GREEDY_MS) {
        // In whole units the plan is off by a millionth; n-2 times as much is exact.
        let model = times(&model, row.n as u64 - 2);
        let direct = model.demand.iter().map(|demand| vec![Tree::direct(*demand)]).collect();
        let direct = Plan::fixed(1, direct).expect("trees");
        near(mean_ms(&direct, &model), row.mean_rtt_weight_direct_ms);
        let best = plan(&model, &all_of_it()).expect("the loads are sustainable");
        near(mean_ms(&best, &model), row.mean_rtt_weight_phase2_ms);
        let greedy = greedy(&model).expect("a valid model").plan(1);
        let found = mean_ms(&greedy, &model) / 2.0;
        assert!((found - greedy_ms).abs() < 0.051, "{found} {greedy_ms}");
    }
}

#[cfg(feature = "lp")]
#[test]
fn one_relay_trees_have_the_latencies_of_the_tables() {
    for (row, model) in rows() {
        let options = all_of_it().family(convoke_overlay::Family::OneRelay);
        let best = plan(&model, &options).expect("the loads are sustainable");
        let found = mean_ms(&best, &model);
        assert!((found / row.mean_rtt_weight_one_relay_ms - 1.0).abs() < 1e-5, "{found}");
    }
}

#[test]
fn no_load_has_to_be_cut_when_a_relay_is_lost() {
    for (row, model) in rows() {
        // All but the site with the most load: that alone is more than its direct copies.
        for lost in sites(row.n).filter(|site| *site != Site(0)) {
            let plan = contingency(&model, &all_of_it(), lost).expect("still sustainable");
            assert!(!plan.relays().contains(lost));
            let carried: u64 = sites(row.n).map(|site| plan.rate(site)).sum();
            assert_eq!(carried, model.demand.iter().sum::<u64>());
            assert!(plan.objective(&model, Cost::Sum) > 0);
        }
    }
}
