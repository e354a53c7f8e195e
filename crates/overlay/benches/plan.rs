//! Cost of planning: `plan_base_sites/N` for base overlays, with skewed demands of which half is
//! sustainable, so that rates are cut and every uplink is full; `plan_one_relay_sites/N` for
//! one-relay trees, with `--features lp`.
//!
//! Unit: time per plan, from model to verified plan. Good: 0.1 ms with 9 sites and 60 ms with 100,
//! on one core.

use std::hint::black_box;

use convoke_overlay::{HoseModel, PlanOptions, plan};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// Sites on a plane with uplinks from 0.1 to 1 Gbit/s, and demands like 1/1, 1/2, 1/3, ... in no
/// order.
fn model(n: u64) -> HoseModel {
    // A linear congruence is enough to scatter sites, and the same everywhere.
    let mut state = 0x2545_f491_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let places: Vec<(u64, u64)> = (0..n).map(|_| (random(100_000), random(100_000))).collect();
    let uplink: Vec<u64> = (0..n).map(|_| 100_000 + random(900_000)).collect();
    let latency = |a: &(u64, u64), b: &(u64, u64)| {
        u32::try_from(a.0.abs_diff(b.0) + a.1.abs_diff(b.1)).expect("the plane is small")
    };
    let latency_us = places.iter().flat_map(|a| places.iter().map(move |b| latency(a, b)));
    let total = uplink.iter().sum::<u64>() / (n - 1) * 2;
    let ranks: Vec<u64> = (0..n).map(|_| 1 + random(n)).collect();
    let parts: u64 = ranks.iter().map(|rank| PARTS / rank).sum();
    HoseModel {
        downlink: vec![1_000_000; uplink.len()],
        demand: ranks.iter().map(|rank| total * (PARTS / rank) / parts).collect(),
        latency_us: latency_us.collect(),
        uplink,
        epoch: 1,
    }
}

/// Into how many parts the largest demand is divided: enough to tell the 100th from the 99th.
const PARTS: u64 = 1_000_000;

fn base(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan_base_sites");
    for n in [3, 5, 9, 25, 50, 100] {
        let model = model(n);
        group.bench_with_input(BenchmarkId::from_parameter(n), &model, |bencher, model| {
            let options = PlanOptions::new();
            bencher.iter(|| plan(black_box(model), &options).expect("a plan"));
        });
    }
}

#[cfg(feature = "lp")]
fn one_relay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan_one_relay_sites");
    group.sample_size(10);
    for n in [5, 9, 16, 25, 32] {
        let model = model(n);
        group.bench_with_input(BenchmarkId::from_parameter(n), &model, |bencher, model| {
            let options = PlanOptions::new().family(convoke_overlay::Family::OneRelay);
            bencher.iter(|| plan(black_box(model), &options).expect("a plan"));
        });
    }
}

#[cfg(not(feature = "lp"))]
fn one_relay(_: &mut Criterion) {}

criterion_group!(benches, base, one_relay);
criterion_main!(benches);
