//! Ways of the own stream: by the plan, and by the plan that does without a relay while that relay
//! fails.

use std::collections::BTreeMap;

use crate::event::PlanRefused;
use crate::pick::TreePicker;
use crate::plan::{Plan, RATE_UNLIMITED, Tree, is_later};
use crate::site::{Site, SiteSet};

/// The plans of one site, and what its trees have carried.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    me: Site,
    sites: usize,
    plan: Option<Plan>,
    /// By the relays they do without; of the same epoch as the plan.
    contingencies: BTreeMap<SiteSet, Plan>,
    /// Relays of the plan that fail.
    failing: SiteSet,
    /// Relays that the plan in use does without.
    without: SiteSet,
    picker: TreePicker,
}

/// A way of two hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// The site between.
    pub(crate) relay: Site,
    /// Sites that it serves.
    pub(crate) forward: SiteSet,
}

/// Rate that a plan gives a link, kbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate {
    /// For the own stream.
    pub(crate) own: u64,
    /// For the streams of others.
    pub(crate) forwarded: u64,
}

impl Routes {
    /// Without a plan: all direct, not paced.
    pub(crate) fn new(me: Site, sites: usize) -> Self {
        let picker = TreePicker::default();
        let (contingencies, failing, without) = Default::default();
        Self { me, sites, plan: None, contingencies, failing, without, picker }
    }

    /// Takes a plan. The contingency plans of the one before are forgotten.
    pub(crate) fn set_plan(&mut self, plan: Plan) -> Result<(), PlanRefused> {
        self.check(&plan)?;
        if is_later(self.epoch(), plan.epoch()) {
            return Err(PlanRefused::Stale { epoch: plan.epoch(), in_use: self.epoch() });
        }
        self.contingencies.clear();
        self.failing = SiteSet::EMPTY;
        self.without = SiteSet::EMPTY;
        self.picker.adopt(plan.trees(self.me));
        self.plan = Some(plan);
        Ok(())
    }

    /// Takes the plan to use while these relays fail. Of plans for several at once there is one.
    pub(crate) fn set_contingency(
        &mut self,
        without: SiteSet,
        plan: Plan,
    ) -> Result<(), PlanRefused> {
        self.check(&plan)?;
        if plan.epoch() != self.epoch() || self.plan.is_none() {
            return Err(PlanRefused::Epoch { epoch: plan.epoch(), in_use: self.epoch() });
        }
        if without.len() > 1 {
            self.contingencies.retain(|relays, _| relays.len() == 1);
        }
        self.contingencies.insert(without, plan);
        if self.failing == without {
            self.turn_to(without);
        }
        Ok(())
    }

    fn check(&self, plan: &Plan) -> Result<(), PlanRefused> {
        let (plan, sites) = (plan.sites(), self.sites);
        if plan == sites { Ok(()) } else { Err(PlanRefused::Sites { plan, sites }) }
    }

    /// Chooses between the plan and its contingencies: all sites that know the same choose the
    /// same, whosever relays fail. The relays of the plan that do, if others did before and there
    /// is no plan without all of them.
    pub(crate) fn avoid(&mut self, failing: SiteSet) -> Option<SiteSet> {
        let failing = self.plan.as_ref()?.relays().intersection(failing);
        if failing == self.failing {
            return None;
        }
        self.failing = failing;
        let covered = |without: &&SiteSet| without.difference(failing).is_empty();
        let best = self.contingencies.keys().rev().filter(covered).max_by_key(|it| it.len());
        let best = best.copied().unwrap_or_default();
        self.turn_to(best);
        (best != failing).then_some(failing)
    }

    fn turn_to(&mut self, without: SiteSet) {
        self.without = without;
        let trees = self.in_use().map_or(&[][..], |plan| plan.trees(self.me)).to_vec();
        self.picker.adopt(&trees);
    }

    /// The way for a frame of `bytes`; none: direct.
    pub(crate) fn choose(
        &mut self,
        bytes: usize,
        is_usable: impl Fn(Site) -> bool,
    ) -> Option<Relayed> {
        let tree = self.picker.pick(bytes, |tree| tree.relay.is_none_or(&is_usable))?;
        tree.relay.map(|relay| Relayed { relay, forward: tree.forward })
    }

    /// A way over this relay, to find out whether it works again: that of the plan, or to all
    /// others, since a plan may have been made without it because it did not work.
    pub(crate) fn over(&self, relay: Site) -> Relayed {
        let trees = self.plan.iter().flat_map(|plan| plan.trees(self.me));
        let planned =
            trees.filter(|tree| tree.relay == Some(relay)).map(|tree| tree.forward).next();
        let all = || SiteSet::first(self.sites).without(self.me).without(relay);
        Relayed { relay, forward: planned.unwrap_or_else(all) }
    }

    /// Rate that all trees of this site carry, kbit/s, if all of them go by way of relays none of
    /// which is usable; else 0.
    pub(crate) fn stranded(&self, is_usable: impl Fn(Site) -> bool) -> u64 {
        let trees = self.in_use().map_or(&[][..], |plan| plan.trees(self.me)).iter();
        let works = |tree: &Tree| tree.rate > 0 && tree.relay.is_none_or(&is_usable);
        match trees.clone().any(works) {
            true => 0,
            false => trees.fold(0, |sum, tree| sum.saturating_add(tree.rate)),
        }
    }

    /// Relays of the plan that all sites do without for now.
    pub(crate) fn failing(&self) -> SiteSet {
        self.failing
    }

    /// Relays that fail, if there is no plan without all of them, and they alone.
    pub(crate) fn lacking(&self) -> SiteSet {
        if self.failing == self.without { SiteSet::EMPTY } else { self.failing }
    }

    /// The rate at which the plan in use lets this site broadcast, kbit/s; none where nothing
    /// limits it.
    pub(crate) fn own_rate(&self) -> Option<u64> {
        let rate = self.in_use()?.rate(self.me);
        (rate != RATE_UNLIMITED).then_some(rate)
    }

    /// Rates that the plan in use gives each root to be relayed here, kbit/s, by root.
    pub(crate) fn relayed_here(&self) -> Vec<u64> {
        let here = |tree: &&Tree| tree.relay == Some(self.me);
        let of = |root: usize| {
            let root = Site(u16::try_from(root).expect("sites are few"));
            let trees = self.in_use().map_or(&[][..], |plan| plan.trees(root)).iter();
            trees.filter(here).fold(0, |sum: u64, tree| sum.saturating_add(tree.rate))
        };
        (0..self.sites).map(of).collect()
    }

    /// All relays of the plan and its contingencies, failing or not.
    pub(crate) fn relays(&self) -> SiteSet {
        let plans = self.plan.iter().chain(self.contingencies.values());
        let trees = plans.flat_map(|plan| plan.trees(self.me));
        trees.filter_map(|tree| tree.relay).collect()
    }

    /// The plan in use.
    fn in_use(&self) -> Option<&Plan> {
        self.contingencies.get(&self.without).or(self.plan.as_ref())
    }

    /// Of the plan; 0 without.
    pub(crate) fn epoch(&self) -> u32 {
        self.plan.as_ref().map_or(0, Plan::epoch)
    }

    /// Rates that the plan in use gives the links of this site, by site; none where nothing limits
    /// it.
    pub(crate) fn link_rates(&self) -> Vec<Option<LinkRate>> {
        let to = |index: usize| Site(u16::try_from(index).expect("sites are few"));
        (0..self.sites).map(|index| self.link_rate(to(index))).collect()
    }

    fn link_rate(&self, to: Site) -> Option<LinkRate> {
        let plan = self.in_use()?;
        let all = plan.link_rate(self.me, to);
        let mine = plan.trees(self.me).iter().filter(|tree| !tree.forward.contains(to));
        let own = mine.fold(0, |sum: u64, tree| sum.saturating_add(tree.rate)).min(all);
        (all != RATE_UNLIMITED).then_some(LinkRate { own, forwarded: all - own })
    }
}
