//! Random networks.

use convoke_overlay::{HoseModel, Plan, Site, Tree};
use proptest::prelude::*;

/// Networks of 1 to `most` sites: idle and overloaded ones, with sites that can send or receive
/// nothing, and any latencies.
pub(crate) fn networks(most: usize) -> impl Strategy<Value = HoseModel> {
    (1..=most).prop_flat_map(|n| {
        let capacity = || prop_oneof![1 => Just(0_u64), 9 => 1..10_000_u64];
        let downlink = prop_oneof![1 => Just(0_u64), 3 => 1..10_000_u64, 6 => 1..50_000_u64];
        let demand = prop_oneof![1 => Just(0_u64), 4 => 1..300_u64, 2 => 1..9_000_u64];
        let vec = prop::collection::vec::<prop::strategy::BoxedStrategy<u64>>;
        let latency = prop::collection::vec(0..300_000_u32, n * n);
        (vec(capacity().boxed(), n), vec(downlink.boxed(), n), vec(demand.boxed(), n), latency)
            .prop_map(move |(uplink, downlink, demand, mut latency_us)| {
                (0..n).for_each(|site| latency_us[site * n + site] = 0);
                HoseModel { uplink, downlink, latency_us, demand, epoch: 7 }
            })
    })
}

/// Those whose capacities divide by the n-2 copies that a relay sends, so that whole kbit/s are
/// exact.
pub(crate) fn exact_networks(most: usize) -> impl Strategy<Value = HoseModel> {
    networks(most).prop_map(|model| {
        let copies = (model.sites() as u64).saturating_sub(2).max(1);
        times(&model, copies)
    })
}

/// Those whose demands are sustainable, too.
pub(crate) fn sustainable_networks(most: usize) -> impl Strategy<Value = HoseModel> {
    exact_networks(most).prop_map(|mut model| {
        let copies = (model.sites() as u64).saturating_sub(2).max(1);
        let rates = convoke_overlay::admit(&model, &convoke_overlay::Fairness::MaxMin);
        let rates = rates.expect("the model is valid").whole();
        model.demand = rates.into_iter().map(|rate| rate / copies * copies).collect();
        model
    })
}

pub(crate) fn times(model: &HoseModel, factor: u64) -> HoseModel {
    let times = |rates: &[u64]| rates.iter().map(|rate| rate * factor).collect();
    HoseModel {
        uplink: times(&model.uplink),
        downlink: times(&model.downlink),
        demand: times(&model.demand),
        ..model.clone()
    }
}

pub(crate) fn sites(count: usize) -> impl Iterator<Item = Site> + Clone {
    (0..count).map(|site| Site(u16::try_from(site).expect("few sites")))
}

/// Rate from each site to each other, kbit/s, by following every tree from its root to its leaves.
pub(crate) fn carried(plan: &Plan) -> Vec<Vec<u64>> {
    let n = plan.sites();
    let mut links = vec![vec![0; n]; n];
    for root in sites(n) {
        for tree in plan.trees(root) {
            edges(n, root, tree)
                .for_each(|(from, to)| links[from.index()][to.index()] += tree.rate);
        }
    }
    links
}

/// The edges of a tree: each receiver has one parent.
fn edges(n: usize, root: Site, tree: &Tree) -> impl Iterator<Item = (Site, Site)> {
    let (relay, forward) = (tree.relay, tree.forward);
    let parent = move |site: Site| relay.filter(|_| forward.contains(site)).unwrap_or(root);
    sites(n).filter(move |site| *site != root).map(move |site| (parent(site), site))
}
