//! Base overlays: which sub-stream goes through which relay, at the least cost.

use super::transportation::{Problem, Solution};
use super::{Plan, Tree};
use crate::hose::sites;
use crate::site::{Site, SiteSet};

/// The rate of each sub-stream of each site: r_ij of ShallowForest, section 4.3.1, where site i is
/// the root and site j the relay, or i itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substreams {
    n: usize,
    rates: Vec<u64>,
}

/// Input of the planner of base overlays.
#[derive(Clone, Debug)]
pub(super) struct Base<'a> {
    /// Rate of each root, kbit/s.
    pub(super) rates: &'a [u64],
    /// Room of each site for others, as whole units of rate, and for its own beyond the first
    /// copies.
    pub(super) room: &'a [u64],
    /// Cost of each overlay.
    pub(super) cost: &'a [u64],
    /// Most that a relay may carry of each root's rate.
    pub(super) share: &'a [u64],
    /// Sites that relay for nobody.
    pub(super) excluded: SiteSet,
}

impl Base<'_> {
    /// The cheapest sub-streams, and what has no room.
    pub(super) fn solve(&self) -> Solution {
        let n = self.rates.len();
        let limit = |root: Site, relay: Site| {
            if root == relay {
                u64::MAX
            } else if self.excluded.contains(relay) {
                0
            } else {
                self.share[root.index()]
            }
        };
        let arcs = sites(n).flat_map(|root| sites(n).map(move |relay| limit(root, relay)));
        let problem = Problem {
            n,
            supply: self.rates.to_vec(),
            room: self.room.to_vec(),
            cost: self.cost.to_vec(),
            limit: arcs.collect(),
        };
        problem.solve()
    }
}

impl Substreams {
    /// Of `n` sites, row by row.
    pub(crate) fn new(n: usize, rates: Vec<u64>) -> Self {
        debug_assert_eq!(rates.len(), n * n);
        Self { n, rates }
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.n
    }

    /// Rate of the sub-stream of `root` that goes through `relay`, kbit/s; directly where they are
    /// the same.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn rate(&self, root: Site, relay: Site) -> u64 {
        self.rates[root.index() * self.n + relay.index()]
    }

    /// As a plan. With two sites all is direct: there is nobody to relay to.
    pub fn plan(&self, epoch: u32) -> Plan {
        Plan { epoch, trees: self.trees() }
    }

    /// The trees of each site.
    fn trees(&self) -> Vec<Vec<Tree>> {
        let of_root = |root: Site| {
            let row = &self.rates[root.index() * self.n..][..self.n];
            if self.n == 2 {
                return vec![Tree::direct(row.iter().sum())];
            }
            let relayed = sites(self.n).filter(|relay| *relay != root);
            let relayed =
                relayed.map(|relay| Tree::relayed(self.n, root, relay, row[relay.index()]));
            let mut trees = vec![Tree::direct(row[root.index()])];
            trees.extend(relayed);
            trees
        };
        let with_load = |mut trees: Vec<Tree>| {
            trees.retain(|tree| tree.rate > 0);
            trees
        };
        sites(self.n).map(of_root).map(with_load).collect()
    }
}
