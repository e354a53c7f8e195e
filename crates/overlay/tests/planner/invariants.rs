//! The invariants of the planner, over random networks.

use convoke_overlay::{
    Condition, Cost, Fairness, HoseModel, Plan, PlanError, PlanOptions, Ratio, Site, SiteSet, Tree,
    Violation, admit, contingency, greedy, largest_scale, largest_total, plan, sustainable,
};
use proptest::prelude::*;

use crate::network::{carried, exact_networks, networks, sites, sustainable_networks, times};
use crate::oracle;

/// Uses every bit of the uplinks, and cuts nobody.
fn all_of_it() -> PlanOptions {
    PlanOptions::new().headroom_permille(1000).admit(None)
}

fn objective(model: &HoseModel) -> u128 {
    let plan = plan(model, &all_of_it()).expect("the demands are sustainable");
    plan.objective(model, Cost::Sum)
}

/// The plan for any model at all, with its promises checked by following its trees.
fn checked_plan(model: &HoseModel, options: &PlanOptions, headroom: u64) -> Plan {
    let plan = plan(model, options).expect("something always fits");
    plan.verify(model).expect("it is within the capacities");
    let links = carried(&plan);
    for site in sites(model.sites()) {
        let sent: u64 = links[site.index()].iter().sum();
        assert!(sent <= model.uplink[site.index()] * headroom / 1000, "uplink of {site:?}");
        assert_eq!(sent, plan.uplink_use(site));
        assert_eq!(sent, plan.own_use(site) + plan.relayed_use(site));
        let received: u64 = links.iter().map(|row| row[site.index()]).sum();
        assert!(received <= model.downlink[site.index()], "downlink of {site:?}");
        assert_eq!(received, plan.downlink_use(site));
        assert!(plan.rate(site) <= model.demand[site.index()]);
        assert!(plan.trees(site).iter().all(|tree| tree.rate > 0));
        for other in sites(model.sites()) {
            assert_eq!(plan.link_rate(site, other), links[site.index()][other.index()]);
        }
    }
    plan
}

fn total(plan: &Plan) -> u64 {
    sites(plan.sites()).map(|site| plan.rate(site)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn plans_stay_within_every_capacity(model in networks(9), headroom in 1..=1000_u32) {
        let options = PlanOptions::new().headroom_permille(headroom);
        let plan = checked_plan(&model, &options, headroom.into());
        let usable = HoseModel {
            uplink: model.uplink.iter().map(|up| up * u64::from(headroom) / 1000).collect(),
            ..model.clone()
        };
        if model.sites() > 1 {
            let possible = largest_total(&usable).expect("a valid model").floor();
            // Rounding each rate down, then fitting whole units: less than one kbit/s each for each
            // site.
            prop_assert!(total(&plan) + 2 * model.sites() as u64 >= possible);
        }
    }

    #[test]
    fn there_is_a_plan_if_and_only_if_the_demands_are_sustainable(model in exact_networks(8)) {
        let violations = sustainable(&model).expect("a valid model");
        if model.sites() == 1 {
            return Ok(());
        }
        match plan(&model, &all_of_it()) {
            Ok(plan) => {
                prop_assert_eq!(&violations, &[]);
                for site in sites(model.sites()) {
                    prop_assert_eq!(plan.rate(site), model.demand[site.index()]);
                }
            }
            Err(PlanError::Unsustainable(found)) => prop_assert_eq!(&found, &violations),
            Err(other) => prop_assert!(false, "{other}"),
        }
        // Downlinks are no concern of the program: each tree brings each stream once to everybody.
        let is_of_uplinks = |one: &Violation| {
            matches!(one.condition, Condition::Uplink(_) | Condition::AggregateUplink)
        };
        let has_plan = oracle::least_latency(&model).is_some();
        prop_assert_eq!(!violations.iter().any(is_of_uplinks), has_plan);
    }

    #[test]
    fn no_plan_of_base_overlays_is_cheaper(model in sustainable_networks(7)) {
        let oracle = oracle::least_latency(&model).expect("the demands are sustainable");
        let found = objective(&model) as f64 / 1e3;
        if model.sites() > 1 {
            prop_assert!((found - oracle).abs() <= 1e-6 * oracle.max(1.0), "{found} {oracle}");
        }
    }

    #[test]
    fn the_largest_total_is_that_of_the_linear_program(model in networks(8)) {
        let found = largest_total(&model).expect("a valid model").to_f64();
        let oracle = oracle::largest_total(&model);
        prop_assert!((found - oracle).abs() <= 1e-6 * oracle.max(1.0), "{found} {oracle}");
    }

    #[test]
    fn the_greedy_plan_carries_everything_and_is_never_cheaper(model in sustainable_networks(8)) {
        let greedy = greedy(&model).expect("a valid model").plan(1);
        greedy.verify(&model).expect("it is within the capacities");
        for site in sites(model.sites()) {
            prop_assert_eq!(greedy.rate(site), model.demand[site.index()]);
        }
        prop_assert!(objective(&model) <= greedy.objective(&model, Cost::Sum));
    }

    #[test]
    fn all_is_direct_where_that_fits_and_the_latency_is_a_metric(
        places in prop::collection::vec((0..100_000_u32, 0..100_000_u32), 2..8),
        demand in 1..50_u64,
    ) {
        let n = places.len();
        let latency_us = places.iter().flat_map(|a| {
            places.iter().map(move |b| a.0.abs_diff(b.0) + a.1.abs_diff(b.1))
        });
        let model = HoseModel {
            uplink: vec![(demand + 1) * (n as u64 - 1); n],
            downlink: vec![(demand + 1) * n as u64; n],
            latency_us: latency_us.collect(),
            demand: (0..n as u64).map(|site| demand + site % 2).collect(),
            epoch: 1,
        };
        let direct = model.demand.iter().map(|demand| vec![Tree::direct(*demand)]).collect();
        let direct = Plan::fixed(1, direct).expect("trees");
        prop_assert_eq!(objective(&model), direct.objective(&model, Cost::Sum));
    }

    #[test]
    fn numbering_the_sites_otherwise_changes_no_cost(
        (model, order) in sustainable_networks(7).prop_flat_map(|model| {
            let order: Vec<usize> = (0..model.sites()).collect();
            (Just(model), Just(order).prop_shuffle())
        })
    ) {
        let n = model.sites();
        let of = |rates: &[u64]| order.iter().map(|site| rates[*site]).collect();
        let pairs = order.iter().flat_map(|from| order.iter().map(move |to| (from, to)));
        let other = HoseModel {
            uplink: of(&model.uplink),
            downlink: of(&model.downlink),
            demand: of(&model.demand),
            latency_us: pairs.map(|(from, to)| model.latency_us[from * n + to]).collect(),
            epoch: 1,
        };
        prop_assert_eq!(objective(&model), objective(&other));
    }

    #[test]
    fn everything_times_a_factor_gives_the_same_plan_times_it(
        model in sustainable_networks(8),
        factor in 2..1_000_000_u64,
    ) {
        let one = plan(&model, &all_of_it()).expect("the demands are sustainable");
        prop_assert_eq!(&one, &plan(&model.clone(), &all_of_it()).expect("as before"));
        let many = plan(&times(&model, factor), &all_of_it()).expect("they still are");
        let scaled = sites(model.sites()).map(|root| {
            let trees = one.trees(root).iter();
            trees.map(|tree| Tree { rate: tree.rate * factor, ..*tree }).collect()
        });
        prop_assert_eq!(many, Plan::fixed(7, scaled.collect()).expect("trees"));
    }

    #[test]
    fn sites_that_may_not_or_cannot_relay_do_not(
        model in networks(8),
        excluded in any::<u128>(),
        share in 1..=1000_u32,
    ) {
        let excluded = SiteSet::from_bits(excluded);
        let options = PlanOptions::new().excluded(excluded).max_relay_share_permille(share);
        let plan = checked_plan(&model, &options, 920);
        prop_assert!(plan.relays().intersection(excluded).is_empty());
        for relay in plan.relays().iter() {
            prop_assert!(model.uplink[relay.index()] > 0);
        }
        check_shares(&plan, share);
        let lost = Site(0);
        let without = contingency(&model, &options, lost).expect("something always fits");
        without.verify(&model).expect("it is within the capacities");
        prop_assert!(!without.relays().contains(lost));
    }

    #[test]
    fn who_is_excluded_takes_no_more_from_the_others_than_must_be(
        model in networks(7),
        excluded in any::<u128>(),
    ) {
        // As even as possible: nobody could have one kbit/s more while all others keep theirs.
        let excluded = SiteSet::from_bits(excluded);
        let options = PlanOptions::new().headroom_permille(1000).excluded(excluded);
        let cut = plan(&model, &options).expect("something always fits");
        let rates: Vec<u64> = sites(model.sites()).map(|site| cut.rate(site)).collect();
        let admitted = admit(&model, &Fairness::MaxMin).expect("a valid model").whole();
        for site in sites(model.sites()).filter(|_| model.sites() > 1) {
            let mut more = model.clone();
            more.demand.clone_from(&rates);
            more.demand[site.index()] += 1;
            if rates[site.index()] < admitted[site.index()] {
                prop_assert!(plan(&more, &options.clone().admit(None)).is_err(), "{site:?}");
            }
        }
    }

    #[test]
    fn admitted_rates_are_the_largest_total_and_fair(
        (model, weights) in networks(8).prop_flat_map(|model| {
            let weights = prop::collection::vec(1..10_u32, model.sites());
            (Just(model), prop_oneof![Just(vec![1; 8]).boxed(), weights.boxed()])
        })
    ) {
        let weights = &weights[..model.sites()];
        let rates = admit(&model, &Fairness::Weighted(weights.to_vec())).expect("valid");
        if weights.iter().all(|weight| *weight == 1) {
            prop_assert_eq!(&rates, &admit(&model, &Fairness::MaxMin).expect("valid"));
        }
        check_fair(&model, weights, rates.exact());
        let cut = HoseModel { demand: rates.whole(), ..model.clone() };
        prop_assert_eq!(sustainable(&cut).expect("valid"), []);
    }

    #[test]
    fn proportional_rates_are_sustainable_and_could_not_be_larger(model in networks(8)) {
        let rates = admit(&model, &Fairness::Proportional).expect("a valid model");
        let cut = HoseModel { demand: rates.whole(), ..model.clone() };
        prop_assert_eq!(sustainable(&cut).expect("valid"), []);
        let scale = largest_scale(&model).expect("valid");
        let is_met = scale.is_none_or(|scale| scale >= Ratio::ONE);
        prop_assert_eq!(is_met, sustainable(&model).expect("valid").is_empty());
        // Exactly at the bound: with everything times the denominator, one more for each is too
        // much.
        if let Some(scale) = scale.filter(|scale| *scale < Ratio::ONE) {
            let parts = u64::try_from(scale.denominator()).expect("small");
            let up = u64::try_from(scale.numerator()).expect("small");
            let mut at = times(&model, parts);
            at.demand = model.demand.iter().map(|demand| demand * up).collect();
            prop_assert_eq!(sustainable(&at).expect("valid"), []);
            at.demand = model.demand.iter().map(|demand| demand * (up + 1)).collect();
            prop_assert!(!sustainable(&at).expect("valid").is_empty());
        }
    }

    #[test]
    fn other_costs_are_never_larger_than_what_the_default_gets(
        model in sustainable_networks(6),
        count in 0..8_usize,
    ) {
        fn median(deliveries: &[u64]) -> u64 {
            deliveries[deliveries.len() / 2]
        }
        let by_sum = plan(&model, &all_of_it()).expect("the demands are sustainable");
        for cost in [Cost::Max, Cost::Quorum(count), Cost::Custom(median)] {
            let best = plan(&model, &all_of_it().cost(cost)).expect("as before");
            best.verify(&model).expect("it is within the capacities");
            prop_assert!(best.objective(&model, cost) <= by_sum.objective(&model, cost));
        }
    }
}

fn check_shares(plan: &Plan, share: u32) {
    for root in sites(plan.sites()) {
        for relay in sites(plan.sites()) {
            let through = plan.trees(root).iter().filter(|tree| tree.relay == Some(relay));
            let through: u64 = through.map(|tree| tree.rate).sum();
            assert!(through * 1000 <= plan.rate(root) * u64::from(share), "{root:?} {relay:?}");
        }
    }
}

/// The total is the largest, and whoever could have more could only have it of sites that have no
/// more for their weight, or that must send so much.
fn check_fair(model: &HoseModel, weights: &[u32], rates: &[Ratio]) {
    let total = largest_total(model).expect("a valid model");
    let common: u128 = rates.iter().map(|rate| rate.denominator()).fold(1, lcm);
    let whole = |ratio: &Ratio| ratio.numerator() * (common / ratio.denominator());
    let sum: u128 = rates.iter().map(whole).sum();
    assert_eq!(Ratio::new(sum, common), total);
    let per_weight = |site: usize| Ratio::new(whole(&rates[site]), u128::from(weights[site]));
    for site in 0..rates.len() {
        let most = Ratio::whole(model.demand[site].min(model.uplink[site]));
        assert!(rates[site] <= most);
        if rates[site] == most {
            continue;
        }
        for other in (0..rates.len()).filter(|other| per_weight(*other) > per_weight(site)) {
            let downlink = u128::from(model.downlink[other]) * total.denominator();
            let least = total.numerator().saturating_sub(downlink);
            assert_eq!(rates[other], Ratio::new(least, total.denominator()));
        }
    }
}

fn lcm(a: u128, b: u128) -> u128 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(feature = "lp")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_relay_trees_cost_no_more_than_base_overlays(model in sustainable_networks(7)) {
        // Large enough that rounding to kbit/s does not matter.
        let model = times(&model, 1 << 20);
        let options = all_of_it().family(convoke_overlay::Family::OneRelay);
        let best = plan(&model, &options).expect("the demands are sustainable");
        best.verify(&model).expect("it is within the capacities");
        prop_assert!(best.objective(&model, Cost::Sum) <= objective(&model));
        let wanted: u64 = if model.sites() > 1 { model.demand.iter().sum() } else { 0 };
        prop_assert!(total(&best) <= wanted && wanted - total(&best) <= wanted / 1000);
    }

    #[test]
    fn one_relay_trees_stay_within_every_bound(
        model in networks(7),
        excluded in any::<u128>(),
        share in 1..=1000_u32,
    ) {
        let excluded = SiteSet::from_bits(excluded);
        let options = PlanOptions::new().excluded(excluded).max_relay_share_permille(share);
        let options = options.family(convoke_overlay::Family::OneRelay);
        let plan = checked_plan(&times(&model, 1000), &options, 920);
        prop_assert!(plan.relays().intersection(excluded).is_empty());
        check_shares(&plan, share);
    }
}
