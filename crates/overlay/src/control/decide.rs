//! When to look for a better plan, and when a better plan is worth changing to.

use super::snapshot::Snapshot;
use crate::hose::{HoseModel, sites};
use crate::plan::{Cost, Plan};
use crate::site::Site;

/// Thresholds that the rules compare with, in thousandths and microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// An input that differs by more is another.
    pub(super) moved_permille: u32,
    /// A plan must be better by as much.
    pub(super) better_permille: u32,
    /// Latencies that differ by less are the same.
    pub(super) latency_us_min: u32,
}

/// A rate that is a smaller part of all rates is not worth a new plan, in thousandths.
const RATE_PERMILLE_MIN: u128 = 10;

impl Rules {
    /// True when a plan from `new` might be another than one from `old`.
    pub(super) fn has_moved(&self, old: &Snapshot, new: &Snapshot) -> bool {
        let (a, b) = (&old.model, &new.model);
        let uplinks = sum(&a.uplink).max(sum(&b.uplink));
        // What is a small part of the network is allowed to move.
        let rate_min = uplinks / a.sites().max(1) as u128 * RATE_PERMILLE_MIN / 1_000;
        let rates = [(&a.uplink, &b.uplink), (&a.downlink, &b.downlink), (&a.demand, &b.demand)];
        let mut rates = rates.into_iter().flat_map(|(a, b)| a.iter().zip(b));
        let mut latencies = a.latency_us.iter().zip(&b.latency_us);
        let least = self.latency_us_min.into();
        old.excluded != new.excluded
            || rates.any(|(a, b)| self.differ(*a, *b, rate_min))
            || latencies.any(|(a, b)| self.differ((*a).into(), (*b).into(), least))
    }

    /// By more than the tenth, or so, of the larger one.
    fn differ(&self, a: u64, b: u64, least: u128) -> bool {
        let difference = u128::from(a.abs_diff(b));
        let most = u128::from(a.max(b)) * u128::from(self.moved_permille) / 1_000;
        difference > most && difference >= least
    }

    /// True when `new` should take the place of `old`, both in the network of `model` as it is now.
    pub(super) fn is_worthwhile(&self, old: &Plan, new: &Plan, model: &HoseModel) -> bool {
        !fits(old, model) || self.carries_more(old, new, model) || self.is_faster(old, new, model)
    }

    /// Some site gets more of what it wants, and it matters among all rates.
    fn carries_more(&self, old: &Plan, new: &Plan, model: &HoseModel) -> bool {
        let total: u128 = sites(model.sites()).map(|site| u128::from(new.rate(site))).sum();
        sites(model.sites()).any(|site| {
            let (has, gets) = (old.rate(site).min(model.demand[site.index()]), new.rate(site));
            let gain = u128::from(gets.saturating_sub(has)) * 1_000;
            gain >= u128::from(gets) * u128::from(self.better_permille)
                && gain >= total * RATE_PERMILLE_MIN
                && gain > 0
        })
    }

    /// True when what is sent arrives sooner, in the mean over all deliveries.
    fn is_faster(&self, old: &Plan, new: &Plan, model: &HoseModel) -> bool {
        let (mut old_cost, mut new_cost) = (0_u128, 0_u128);
        for site in sites(model.sites()) {
            let weight = u128::from(new.rate(site));
            if let (Some(a), Some(b)) = (unit_cost(old, site, model), unit_cost(new, site, model)) {
                old_cost += weight * a;
                new_cost += weight * b;
            }
        }
        new_cost * 1_000 < old_cost * u128::from(1_000 - self.better_permille.min(1_000))
    }
}

/// True when no link would have to carry more than it can.
pub(super) fn fits(plan: &Plan, model: &HoseModel) -> bool {
    sites(model.sites()).all(|site| {
        plan.uplink_use(site) <= model.uplink[site.index()]
            && plan.downlink_use(site) <= model.downlink[site.index()]
    })
}

/// Cost of a unit of a root's stream; none without trees.
fn unit_cost(plan: &Plan, root: Site, model: &HoseModel) -> Option<u128> {
    let trees = plan.trees(root);
    let rate: u128 = trees.iter().map(|tree| u128::from(tree.rate)).sum();
    let cost = |tree| u128::from(Cost::Sum.of_tree(model, root, tree));
    let costs = trees.iter().map(|tree| cost(tree) * u128::from(tree.rate));
    costs.sum::<u128>().checked_div(rate)
}

fn sum(rates: &[u64]) -> u128 {
    rates.iter().map(|rate| u128::from(*rate)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PlanOptions, plan};
    use crate::site::SiteSet;

    const RULES: Rules = Rules { moved_permille: 100, better_permille: 50, latency_us_min: 1_000 };

    fn model() -> HoseModel {
        let latency_us = (0..16).map(|at| if at % 5 == 0 { 0 } else { 30_000 }).collect();
        let (uplink, downlink) = (vec![100_000; 4], vec![100_000; 4]);
        HoseModel {
            uplink,
            downlink,
            latency_us,
            demand: vec![60_000, 3_000, 3_000, 3_000],
            epoch: 1,
        }
    }

    fn moved(change: impl FnOnce(&mut Snapshot)) -> bool {
        let old = Snapshot { model: model(), excluded: SiteSet::EMPTY };
        let mut new = old.clone();
        change(&mut new);
        RULES.has_moved(&old, &new)
    }

    fn worthwhile(change: impl FnOnce(&mut HoseModel)) -> bool {
        let mut model = model();
        let old = plan(&model, &PlanOptions::new()).expect("it is a model");
        change(&mut model);
        let new = plan(&model, &PlanOptions::new()).expect("it is one still");
        RULES.is_worthwhile(&old, &new, &model)
    }

    #[test]
    fn a_tenth_and_trifles_are_no_move() {
        assert!(!moved(|new| new.model.uplink[0] = 90_000));
        assert!(moved(|new| new.model.uplink[0] = 89_000));
        assert!(!moved(|new| new.model.uplink[0] = 111_000));
        assert!(moved(|new| new.model.downlink[3] = 112_000));
        assert!(!moved(|new| new.model.demand[1] = 2_100), "9 % of 1 % of the network");
        assert!(moved(|new| new.model.demand[1] = 1_900));
        assert!(moved(|new| new.model.latency_us[1] = 34_000));
        assert!(!moved(|new| new.model.latency_us[1] = 33_300));
        assert!(moved(|new| new.excluded = SiteSet::first(1)));
    }

    #[test]
    fn the_same_network_is_not_worth_a_new_plan() {
        assert!(!worthwhile(|_| {}));
        assert!(!worthwhile(|model| model.uplink[1] = 120_000));
    }

    #[test]
    fn a_plan_that_does_not_fit_any_more_is_changed() {
        assert!(worthwhile(|model| model.uplink[0] = 50_000));
    }

    #[test]
    fn more_for_a_site_that_wants_it_is_worth_it() {
        assert!(worthwhile(|model| model.demand[0] = 70_000));
        assert!(!worthwhile(|model| model.demand[0] = 62_000));
        assert!(
            !worthwhile(|model| model.demand[0] = 20_000 + 39_000),
            "less is no gain by itself"
        );
    }

    #[test]
    fn what_can_go_direct_again_is_worth_it() {
        assert!(worthwhile(|model| model.demand[0] = 10_000));
    }
}
