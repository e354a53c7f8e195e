//! A plan: over which trees each site sends its stream, and how much over each.

mod base;
mod fit;
mod make;
#[cfg(feature = "lp")]
mod one_relay;
mod options;
mod transportation;
mod verify;

use crate::hose::{HoseModel, sites};
use crate::site::{Site, SiteSet};

pub use make::{PlanError, contingency, plan};
pub use options::{Cost, Family, PlanOptions};
pub use verify::PlanFault;

pub use base::Substreams;

/// A tree of height one or two: one sub-stream of a site's client data stream goes over it.
/// (ShallowForest, section 4.2: a base overlay, where `forward` is all but the root and the relay,
/// or nobody.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The only inner node besides the root; none when the root serves all itself.
    pub relay: Option<Site>,
    /// Sites that the relay serves. Contains neither the root nor the relay; empty without a relay.
    pub forward: SiteSet,
    /// Rate of the sub-stream, kbit/s; [`RATE_UNLIMITED`] where nothing limits it.
    pub rate: u64,
}

/// True when a plan of one epoch takes the place of one of another. Epochs go round: the later of
/// two is the one that is less than half of all ahead, so that no site can use them up. 0 is before
/// the first.
pub(crate) fn is_later(epoch: u32, other: u32) -> bool {
    let ahead = epoch.wrapping_sub(other);
    epoch != 0 && (other == 0 || (1..1 << 31).contains(&ahead))
}

/// The rate of what needs no pacing.
pub const RATE_UNLIMITED: u64 = u64::MAX;

/// The trees of all sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    epoch: u32,
    trees: Vec<Vec<Tree>>,
}

impl Plan {
    /// The plan that needs no model: every site serves all others itself, unpaced. To be used as
    /// long as nothing is known, and when no plan can be made.
    pub fn direct(sites: usize, epoch: u32) -> Self {
        let trees = if sites > 1 { vec![Tree::direct(RATE_UNLIMITED)] } else { Vec::new() };
        Self { epoch, trees: vec![trees; sites] }
    }

    /// A plan made by hand: the trees of each site, in the order of the sites. Trees with rate 0
    /// are left out.
    ///
    /// # Errors
    /// If a tree is invalid: its relay is the root or no site, or it serves the root, itself or no
    /// site.
    pub fn fixed(epoch: u32, trees: Vec<Vec<Tree>>) -> Result<Self, PlanFault> {
        let mut plan = Self { epoch, trees };
        plan.trees.iter_mut().for_each(|trees| trees.retain(|tree| tree.rate > 0));
        plan.check_trees()?;
        Ok(plan)
    }

    /// Version of the model it was made from.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.trees.len()
    }

    /// The trees of a root, none with rate 0; empty when it may send nothing.
    pub fn trees(&self, root: Site) -> &[Tree] {
        self.trees.get(root.index()).map_or(&[], Vec::as_slice)
    }

    /// Rate at which a site may broadcast, kbit/s: the sum over its trees.
    pub fn rate(&self, root: Site) -> u64 {
        self.trees(root).iter().fold(0, |sum, tree| sum.saturating_add(tree.rate))
    }

    /// Rate at which to pace what `from` sends to `to` under this plan, as a root and as a relay,
    /// kbit/s. [`RATE_UNLIMITED`] under a plan that limits nothing.
    pub fn link_rate(&self, from: Site, to: Site) -> u64 {
        if from == to || from.index().max(to.index()) >= self.sites() {
            return 0;
        }
        let own = self.trees(from).iter().filter(|tree| !tree.forward.contains(to));
        let passed_on = sites(self.sites()).flat_map(|root| self.trees(root));
        let passed_on =
            passed_on.filter(|tree| tree.relay == Some(from) && tree.forward.contains(to));
        own.chain(passed_on).fold(0, |sum, tree| sum.saturating_add(tree.rate))
    }

    /// Rate at which a site sends to all others together, kbit/s.
    pub fn uplink_use(&self, site: Site) -> u64 {
        self.own_use(site).saturating_add(self.relayed_use(site))
    }

    /// Rate at which a site sends of its own, kbit/s.
    pub fn own_use(&self, site: Site) -> u64 {
        let copies = |tree: &Tree| self.sites() - 1 - tree.forward.len();
        self.trees(site).iter().fold(0, |sum, tree| add(sum, tree.rate, copies(tree)))
    }

    /// Rate at which a site sends for others, kbit/s.
    pub fn relayed_use(&self, site: Site) -> u64 {
        let all = sites(self.sites()).flat_map(|root| self.trees(root));
        let through = all.filter(|tree| tree.relay == Some(site));
        through.fold(0, |sum, tree| add(sum, tree.rate, tree.forward.len()))
    }

    /// Rate at which a site receives, kbit/s: everything that the others broadcast.
    pub fn downlink_use(&self, site: Site) -> u64 {
        let others = sites(self.sites()).filter(|root| *root != site);
        others.fold(0, |sum, root| sum.saturating_add(self.rate(root)))
    }

    /// The sites that relay for some root.
    pub fn relays(&self) -> SiteSet {
        self.trees.iter().flatten().filter_map(|tree| tree.relay).collect()
    }

    /// Cost of the plan: of each tree its cost times its rate. [`plan`] makes it smallest.
    ///
    /// # Panics
    /// If the model is not of as many sites.
    pub fn objective(&self, model: &HoseModel, cost: Cost) -> u128 {
        assert_eq!(model.sites(), self.sites(), "a plan and a model of the same sites");
        let roots = sites(self.sites()).zip(&self.trees);
        let all = roots.flat_map(|(root, trees)| trees.iter().map(move |tree| (root, tree)));
        all.map(|(root, tree)| u128::from(cost.of_tree(model, root, tree)) * u128::from(tree.rate))
            .fold(0, u128::saturating_add)
    }

    /// Mean time from a root to a receiver over all that is sent, microseconds, without queues;
    /// none without load.
    ///
    /// # Panics
    /// If the model is not of as many sites.
    pub fn mean_delivery_us(&self, model: &HoseModel) -> Option<f64> {
        let total: u128 = sites(self.sites()).map(|root| u128::from(self.rate(root))).sum();
        let deliveries = total * (self.sites().max(1) as u128 - 1);
        (deliveries > 0).then(|| self.objective(model, Cost::Sum) as f64 / deliveries as f64)
    }

    /// Checks that a network as in the model carries the plan: the trees are trees, no site sends
    /// more than its demand, and no uplink or downlink takes more than its capacity.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self, model: &HoseModel) -> Result<(), PlanFault> {
        self.check_trees()?;
        self.check_loads(model)
    }
}

impl Tree {
    /// The root serves all itself.
    pub fn direct(rate: u64) -> Self {
        Self { relay: None, forward: SiteSet::EMPTY, rate }
    }

    /// The base overlay in which a relay serves all of `count` sites but the root.
    pub fn relayed(count: usize, root: Site, relay: Site, rate: u64) -> Self {
        let forward = SiteSet::first(count).without(root).without(relay);
        Self { relay: Some(relay), forward, rate }
    }
}

fn add(sum: u64, rate: u64, copies: usize) -> u64 {
    sum.saturating_add(rate.saturating_mul(copies as u64))
}

#[cfg(test)]
mod tests;
