//! From snapshots to plans, and to the plans for when a relay is lost.

use std::sync::Arc;

use super::config::ControlConfig;
use super::decide::Rules;
use super::snapshot::Snapshot;
use crate::plan::{Plan, PlanOptions, plan};
use crate::site::{SITES_MAX, Site, SiteSet};

#[derive(Debug)]
pub(super) struct Planner {
    sites: usize,
    options: PlanOptions,
    rules: Rules,
    is_fixed: bool,
    snapshot: Option<Snapshot>,
    plan: Arc<Plan>,
}

/// Plans without one relay are made beforehand up to so many sites: 16 plans of 0.15 ms. Beyond it,
/// when they are needed.
const BEFOREHAND_SITES_MAX: usize = 16;

/// An epoch is a count times this plus the site that proposed it, so that no two sites propose the
/// same.
const EPOCH_STEP: u32 = 128;
const _: () = assert!(SITES_MAX <= EPOCH_STEP as usize);

impl Planner {
    pub(super) fn new(sites: usize, config: &ControlConfig) -> Self {
        let mut planner = Self {
            sites,
            options: config.options.clone(),
            rules: config.rules(),
            is_fixed: config.fixed.is_some(),
            snapshot: None,
            plan: Arc::new(Plan::direct(sites, 0)),
        };
        if let Some(model) = config.fixed.clone() {
            planner.adopt(Snapshot { model, excluded: SiteSet::EMPTY });
        }
        planner
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// True when the data plane gets all plans for lost relays with the plan itself.
    pub(super) fn is_ready_beforehand(&self) -> bool {
        self.sites <= BEFOREHAND_SITES_MAX
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    pub(super) fn epoch(&self) -> u32 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.model.epoch)
    }

    /// The candidate with its epoch, if a plan from it is worth changing to.
    pub(super) fn improve(&self, mut candidate: Snapshot, proposer: Site) -> Option<Snapshot> {
        let next = (self.epoch() / EPOCH_STEP).wrapping_add(1).wrapping_mul(EPOCH_STEP);
        // They go round; the first ones are left out, for 0 is none.
        candidate.model.epoch = next.max(EPOCH_STEP) + u32::from(proposer.0);
        let Some(old) = &self.snapshot else { return Some(candidate) };
        if !self.rules.has_moved(old, &candidate) {
            return None;
        }
        let added = candidate.excluded.difference(old.excluded);
        let is_lost = !added.intersection(self.plan.relays()).is_empty();
        let better = self.make(&candidate, candidate.excluded);
        let is_worthwhile =
            is_lost || self.rules.is_worthwhile(&self.plan, &better, &candidate.model);
        is_worthwhile.then_some(candidate)
    }

    /// Plans from a snapshot.
    pub(super) fn adopt(&mut self, snapshot: Snapshot) {
        self.plan = Arc::new(self.make(&snapshot, snapshot.excluded));
        self.snapshot = Some(snapshot);
    }

    /// The plan without some of its relays; none where it makes no difference.
    pub(super) fn without(&self, relays: SiteSet) -> Option<Arc<Plan>> {
        let snapshot = self.snapshot.as_ref()?;
        let has_some = !self.plan.relays().intersection(relays).is_empty();
        has_some.then(|| Arc::new(self.make(snapshot, snapshot.excluded.union(relays))))
    }

    fn make(&self, snapshot: &Snapshot, excluded: SiteSet) -> Plan {
        let options = self.options.clone().excluded(excluded);
        let made = plan(&snapshot.model, &options);
        let fits = |plan: &Plan| plan.sites() == self.sites;
        made.ok().filter(fits).unwrap_or_else(|| Plan::direct(self.sites, snapshot.model.epoch))
    }
}
