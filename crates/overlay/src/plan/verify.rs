//! Faults that a plan can have.

use super::{Plan, Tree};
use crate::hose::{HoseModel, ModelError, sites};
use crate::site::{SITES_MAX, Site, SiteSet};

/// Fault in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// The plan is for more sites than there can be, or for others than the model.
    #[error("the plan is for {found} sites, not for {expected}")]
    Sites {
        /// Number of sites that there should be, or can be at most.
        expected: usize,
        /// Number of sites that it is for.
        found: usize,
    },
    /// The relay of a tree is its root or no site of the plan.
    #[error("a tree of {root:?} has {relay:?} as its relay")]
    Relay {
        /// Root of the tree.
        root: Site,
        /// The relay.
        relay: Site,
    },
    /// A tree has its root, its relay or no site of the plan among those that the relay serves, or
    /// it has no relay to serve them.
    #[error("the relay of a tree of {root:?} cannot serve {forward:?}")]
    Forward {
        /// Root of the tree.
        root: Site,
        /// Sites that the relay should serve.
        forward: SiteSet,
    },
    /// The model is wrong itself.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A site would broadcast more than it wants.
    #[error("{site:?} broadcasts {found} kbit/s but has demand for {demand}")]
    Demand {
        /// The site.
        site: Site,
        /// Rate that it wants, kbit/s.
        demand: u64,
        /// Rate that it gets, kbit/s.
        found: u64,
    },
    /// A site would send more than it can.
    #[error("{site:?} sends {found} kbit/s through an uplink of {uplink}")]
    Uplink {
        /// The site.
        site: Site,
        /// Its capacity, kbit/s.
        uplink: u64,
        /// Rate at which it would send, kbit/s.
        found: u64,
    },
    /// A site would receive more than it can.
    #[error("{site:?} receives {found} kbit/s through a downlink of {downlink}")]
    Downlink {
        /// The site.
        site: Site,
        /// Its capacity, kbit/s.
        downlink: u64,
        /// Rate at which it would receive, kbit/s.
        found: u64,
    },
}

impl Plan {
    /// Checks that every tree is one over the sites of the plan.
    pub(super) fn check_trees(&self) -> Result<(), PlanFault> {
        if self.sites() > SITES_MAX {
            return Err(PlanFault::Sites { expected: SITES_MAX, found: self.sites() });
        }
        for root in sites(self.sites()) {
            self.trees(root).iter().try_for_each(|tree| self.check_tree(root, tree))?;
        }
        Ok(())
    }

    fn check_tree(&self, root: Site, tree: &Tree) -> Result<(), PlanFault> {
        let all = SiteSet::first(self.sites());
        let others = all.without(root);
        let served = match tree.relay {
            Some(relay) if !others.contains(relay) => {
                return Err(PlanFault::Relay { root, relay });
            }
            Some(relay) => others.without(relay),
            None => SiteSet::EMPTY,
        };
        if tree.forward.difference(served).is_empty() {
            Ok(())
        } else {
            Err(PlanFault::Forward { root, forward: tree.forward })
        }
    }

    /// Checks that the model has what the plan uses.
    pub(super) fn check_loads(&self, model: &HoseModel) -> Result<(), PlanFault> {
        model.validate()?;
        if model.sites() != self.sites() {
            return Err(PlanFault::Sites { expected: model.sites(), found: self.sites() });
        }
        sites(self.sites()).try_for_each(|site| self.check_site(model, site))
    }

    fn check_site(&self, model: &HoseModel, site: Site) -> Result<(), PlanFault> {
        let demand = model.demand[site.index()];
        let (uplink, downlink) = (model.uplink[site.index()], model.downlink[site.index()]);
        let (rate, sent) = (self.rate(site), self.uplink_use(site));
        let received = self.downlink_use(site);
        if rate > demand {
            Err(PlanFault::Demand { site, demand, found: rate })
        } else if sent > uplink {
            Err(PlanFault::Uplink { site, uplink, found: sent })
        } else if received > downlink {
            Err(PlanFault::Downlink { site, downlink, found: received })
        } else {
            Ok(())
        }
    }
}
