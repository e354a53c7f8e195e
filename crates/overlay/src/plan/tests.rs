use super::*;
use crate::{Fairness, ModelError};

const S0: Site = Site(0);
const S1: Site = Site(1);
const S2: Site = Site(2);
const S3: Site = Site(3);

/// Sites on a line, one unit of latency apart.
fn line(uplink: &[u64], demand: &[u64]) -> HoseModel {
    let n = u32::try_from(uplink.len()).expect("few sites");
    HoseModel {
        uplink: uplink.to_vec(),
        downlink: vec![1_000_000; uplink.len()],
        latency_us: (0..n).flat_map(|a| (0..n).map(move |b| a.abs_diff(b))).collect(),
        demand: demand.to_vec(),
        epoch: 3,
    }
}

fn all_of_it() -> PlanOptions {
    PlanOptions::new().headroom_permille(1000)
}

fn rates(plan: &Plan) -> Vec<u64> {
    sites(plan.sites()).map(|site| plan.rate(site)).collect()
}

#[test]
fn a_site_alone_has_nothing_to_send() {
    let alone = plan(&line(&[5], &[5]), &all_of_it().admit(None)).expect("a plan");
    assert_eq!((alone.epoch(), alone.sites(), alone.trees(S0)), (3, 1, &[][..]));
    assert_eq!(alone.mean_delivery_us(&line(&[5], &[5])), None);
    assert!(Plan::direct(1, 0).trees(S0).is_empty());
}

#[test]
fn two_sites_send_directly() {
    let model = line(&[5, 9], &[9, 9]);
    let two = plan(&model, &all_of_it().excluded(SiteSet::first(2))).expect("a plan");
    assert_eq!(two.trees(S0), [Tree::direct(5)]);
    assert_eq!(two.trees(S1), [Tree::direct(9)]);
    assert_eq!((two.link_rate(S0, S1), two.link_rate(S1, S0)), (5, 9));
}

#[test]
fn the_hot_site_has_others_relay_for_it() {
    // 6 have to be sent 3 times each: 10 of that by site 0, and 8 by site 1.
    let model = line(&[10, 8, 0, 0], &[6, 0, 0, 0]);
    let hot = plan(&model, &all_of_it().admit(None)).expect("sustainable");
    assert_eq!(hot.trees(S0), [Tree::direct(2), Tree::relayed(4, S0, S1, 4)]);
    assert_eq!((hot.own_use(S0), hot.relayed_use(S1)), (10, 8));
    assert_eq!((hot.link_rate(S0, S1), hot.link_rate(S0, S3), hot.link_rate(S1, S3)), (6, 2, 4));
    assert_eq!((hot.link_rate(S0, S0), hot.link_rate(S0, Site(4))), (0, 0));
    assert_eq!(hot.downlink_use(S3), 6);
    assert_eq!(hot.verify(&model), Ok(()));
}

#[test]
fn without_uplinks_nothing_is_planned() {
    let dead = plan(&line(&[0, 0, 0], &[4, 5, 6]), &PlanOptions::new()).expect("a plan");
    assert_eq!(rates(&dead), [0, 0, 0]);
    assert!(dead.trees(S1).is_empty());
    let refused = plan(&line(&[0, 0, 0], &[4, 5, 6]), &PlanOptions::new().admit(None));
    let refused = refused.expect_err("nobody can send").to_string();
    assert!(refused.contains("uplink:0 needs 4 kbit/s of 0"), "{refused}");
}

#[test]
fn demands_within_the_capacities_but_not_the_headroom_are_cut() {
    let model = line(&[1000, 1000, 1000], &[500, 500, 500]);
    assert_eq!(rates(&plan(&model, &all_of_it()).expect("a plan")), [500, 500, 500]);
    let within = plan(&model, &PlanOptions::new()).expect("a plan");
    assert_eq!(rates(&within), [460, 460, 460]);
    assert!(sites(3).all(|site| within.uplink_use(site) <= 920));
}

#[test]
fn what_whole_kbits_cannot_carry_is_cut_or_refused() {
    // Sustainable with half a kbit/s through each site.
    let model = line(&[3, 1, 1, 1], &[2, 0, 0, 0]);
    let cut = plan(&model, &all_of_it()).expect("a plan");
    assert_eq!(rates(&cut), [1, 0, 0, 0]);
    assert_eq!(plan(&model, &all_of_it().admit(None)), Err(PlanError::NoRoom));
}

#[test]
fn without_relays_each_site_has_what_it_can_send_itself() {
    let model = line(&[90, 60, 6], &[80, 20, 1]);
    let options = all_of_it().excluded(SiteSet::first(3));
    let alone = plan(&model, &options).expect("a plan");
    assert_eq!(rates(&alone), [45, 20, 1]);
    assert_eq!(alone.relays(), SiteSet::EMPTY);
}

#[test]
fn a_cap_spreads_a_stream_over_relays() {
    let model = line(&[100, 1000, 1000, 1000], &[100, 0, 0, 0]);
    let one = plan(&model, &all_of_it()).expect("a plan");
    assert_eq!(one.relays().len(), 1);
    let capped = plan(&model, &all_of_it().max_relay_share_permille(400)).expect("a plan");
    assert_eq!(rates(&capped), [100, 0, 0, 0]);
    let largest = capped.trees(S0).iter().map(|tree| tree.rate).max();
    assert_eq!((capped.relays().len(), largest), (3, Some(40)));
    // Three relays carry three tenths each, and of the rest nothing can be sent directly.
    let tight = plan(&model, &all_of_it().max_relay_share_permille(300)).expect("a plan");
    assert!(tight.rate(S0) > 80 && tight.rate(S0) < 100, "{tight:?}");
}

#[test]
fn the_loss_of_a_relay_moves_its_load() {
    let model = line(&[10, 20, 20, 0], &[6, 0, 0, 0]);
    let before = plan(&model, &all_of_it()).expect("a plan");
    assert!(before.relays().contains(S1));
    let after = contingency(&model, &all_of_it(), S1).expect("a plan");
    assert_eq!(rates(&after), rates(&before));
    assert_eq!(after.relays(), SiteSet::EMPTY.with(S2));
}

#[test]
fn shares_follow_weights_when_demands_are_cut() {
    let model = line(&[300, 300, 300], &[900, 900, 900]);
    let weighted = Some(Fairness::Weighted(vec![3, 1, 1]));
    let cut = plan(&model, &all_of_it().admit(weighted)).expect("a plan");
    assert_eq!(rates(&cut), [270, 90, 90]);
    let wrong = Some(Fairness::Weighted(vec![3, 0, 1]));
    let wrong = plan(&model, &all_of_it().admit(wrong));
    let expected = ModelError::Weight { site: S1, found: 0, max: crate::WEIGHT_MAX };
    assert_eq!(wrong, Err(PlanError::Model(expected)));
}

#[test]
fn options_are_thousandths() {
    let model = line(&[1, 1], &[1, 1]);
    for wrong in [0, 1001, u32::MAX] {
        let headroom = plan(&model, &PlanOptions::new().headroom_permille(wrong));
        let error = headroom.expect_err("not thousandths").to_string();
        assert_eq!(error, format!("headroom_permille is {wrong}: give 1 to 1000"));
        let share = plan(&model, &PlanOptions::new().max_relay_share_permille(wrong));
        assert!(matches!(share, Err(PlanError::Permille { found, .. }) if found == wrong));
    }
}

#[test]
fn the_largest_model_is_planned() {
    let most = crate::RATE_MAX_KBIT;
    let mut model = line(&[most; 128], &[most; 128]);
    model.downlink = vec![most; 128];
    model.latency_us = vec![u32::MAX; 128 * 128];
    (0..128).for_each(|site| model.latency_us[site * 129] = 0);
    let largest = plan(&model, &all_of_it()).expect("a plan");
    assert_eq!(largest.verify(&model), Ok(()));
    let rate = most / 127;
    assert!(rates(&largest).iter().all(|found| rate - found <= 1), "{rate}");
    assert!(largest.objective(&model, Cost::Sum) > 0);
}

#[test]
fn costs_look_at_all_the_last_or_the_kth_receiver() {
    let model = line(&[0; 4], &[0; 4]);
    let tree = Tree::relayed(4, S0, S2, 1);
    let of = |cost: Cost| cost.of_tree(&model, S0, &tree);
    // Site 2 after 2, sites 1 and 3 after 3.
    assert_eq!([of(Cost::Sum), of(Cost::Max)], [8, 3]);
    assert_eq!([0, 1, 2, 9].map(|count| of(Cost::Quorum(count))), [2, 2, 3, 3]);
    assert_eq!(of(Cost::Custom(|deliveries| deliveries[0] * 10)), 20);
    assert_eq!(of(Cost::Custom(|_| u64::MAX)), Cost::COST_MAX);
}

#[test]
fn the_direct_plan_limits_nothing() {
    let direct = Plan::direct(3, 9);
    assert_eq!((direct.epoch(), direct.sites()), (9, 3));
    assert_eq!(direct.trees(S2), [Tree::direct(RATE_UNLIMITED)]);
    assert_eq!(direct.link_rate(S0, S2), RATE_UNLIMITED);
    assert_eq!(direct.uplink_use(S0), RATE_UNLIMITED);
    assert!(direct.verify(&line(&[1; 3], &[1; 3])).is_err());
}

#[test]
fn a_plan_by_hand_has_only_trees() {
    let served = SiteSet::EMPTY.with(S2);
    let tree = |relay, forward| Tree { relay, forward, rate: 1 };
    let fixed = |tree| Plan::fixed(1, vec![vec![tree], Vec::new(), Vec::new()]);
    let good = fixed(tree(Some(S1), served)).expect("a tree");
    assert_eq!((good.link_rate(S0, S1), good.link_rate(S1, S2)), (1, 1));
    assert_eq!(fixed(Tree::direct(0)).expect("no tree").trees(S0), []);
    for relay in [S0, S3] {
        let fault = fixed(tree(Some(relay), SiteSet::EMPTY)).expect_err("no relay");
        assert_eq!(fault, PlanFault::Relay { root: S0, relay });
    }
    let wrong = [(Some(S1), S0), (Some(S1), S1), (Some(S1), S3), (None, S2)];
    for (relay, site) in wrong {
        let forward = SiteSet::EMPTY.with(site);
        let fault = fixed(tree(relay, forward)).expect_err("not served");
        assert_eq!(fault, PlanFault::Forward { root: S0, forward });
    }
    assert!(Plan::fixed(1, vec![Vec::new(); 129]).is_err());
}

#[test]
fn verify_names_the_site_and_what_it_lacks() {
    let plan = Plan::fixed(1, vec![vec![Tree::relayed(3, S0, S1, 5)], Vec::new(), Vec::new()]);
    let plan = plan.expect("a tree");
    let model = line(&[5, 5, 0], &[5, 0, 0]);
    assert_eq!(plan.verify(&model), Ok(()));
    let fault = |spoil: fn(&mut HoseModel)| {
        let mut model = model.clone();
        spoil(&mut model);
        plan.verify(&model).expect_err("it does not fit")
    };
    let demand = PlanFault::Demand { site: S0, demand: 4, found: 5 };
    assert_eq!(fault(|model| model.demand[0] = 4), demand);
    let uplink = PlanFault::Uplink { site: S1, uplink: 4, found: 5 };
    assert_eq!(fault(|model| model.uplink[1] = 4), uplink);
    let downlink = PlanFault::Downlink { site: S2, downlink: 4, found: 5 };
    assert_eq!(fault(|model| model.downlink[2] = 4), downlink);
    assert!(matches!(fault(|model| model.demand.clear()), PlanFault::Model(_)));
    let more = line(&[5; 4], &[5; 4]);
    assert_eq!(plan.verify(&more), Err(PlanFault::Sites { expected: 4, found: 3 }));
}
