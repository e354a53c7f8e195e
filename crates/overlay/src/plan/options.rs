//! Options of a plan.

use super::Tree;
use crate::admit::Fairness;
use crate::hose::{HoseModel, sites};
use crate::site::{Site, SiteSet};

/// Options of a plan. The defaults suit most networks.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub(super) headroom_permille: u32,
    pub(super) cost: Cost,
    pub(super) family: Family,
    pub(super) excluded: SiteSet,
    pub(super) max_relay_share_permille: u32,
    pub(super) admit: Option<Fairness>,
}

/// Trees that a plan may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// Base overlays: the root serves all, or one relay serves all but itself. Enough for any
    /// sustainable rates. The default.
    #[default]
    Base,
    /// The root serves some receivers, one relay the rest: 2 to 10 % less latency under skew. It
    /// takes a linear program, of milliseconds with 9 sites and about 100 with 25; more than 32
    /// sites get base overlays. The program is solved in floating point: sites that run the same
    /// build make the same plan. (Not in ShallowForest, whose section 9 asks for such trees.)
    #[cfg(feature = "lp")]
    OneRelay,
}

/// Objective that a plan makes small: the cost of a tree, from when each receiver gets what is sent
/// over it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Cost {
    /// The sum over all receivers, microseconds: the latency weight of ShallowForest, section 5.2.
    /// The default.
    #[default]
    Sum,
    /// Until the last receiver has it.
    Max,
    /// Until this many receivers have it; more than there are count as all, 0 as 1.
    Quorum(usize),
    /// Any function of the delivery latencies, microseconds, ascending; it is not called without
    /// receivers. It must depend on nothing else, or sites will plan differently. What it returns
    /// is taken as at most [`COST_MAX`](Self::COST_MAX).
    Custom(fn(&[u64]) -> u64),
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            headroom_permille: Self::HEADROOM_PERMILLE,
            cost: Cost::default(),
            family: Family::default(),
            excluded: SiteSet::EMPTY,
            max_relay_share_permille: 1000,
            admit: Some(Fairness::MaxMin),
        }
    }
}

impl PlanOptions {
    /// Default of [`headroom_permille`](Self::headroom_permille). Measured over real TCP with five
    /// skewed sites: mean delivery took 478 ms at 990, 260 ms at 920 and 156 ms at 850.
    pub const HEADROOM_PERMILLE: u32 = 920;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Part of each uplink that the plan may use, in thousandths, 1 to 1000; default 920. The rest
    /// is for headers, acknowledgements and repair, and keeps queues short: less of it costs more
    /// latency than any choice of trees wins.
    #[must_use]
    pub fn headroom_permille(mut self, permille: u32) -> Self {
        self.headroom_permille = permille;
        self
    }

    /// Objective to make small; default [`Cost::Sum`].
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Uses these trees; default [`Family::Base`].
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Sites that relay for nobody, say because they are suspected; default none. They still send
    /// their own.
    #[must_use]
    pub fn excluded(mut self, sites: SiteSet) -> Self {
        self.excluded = sites;
        self
    }

    /// Share of a root's stream that one relay may carry, in thousandths, 1 to 1000; default 1000.
    /// Less means that the loss of one relay holds up less, and may mean lower rates where there
    /// are few relays.
    #[must_use]
    pub fn max_relay_share_permille(mut self, permille: u32) -> Self {
        self.max_relay_share_permille = permille;
        self
    }

    /// Cuts demands that do not fit by this rule; default [`Fairness::MaxMin`]. With none, they are
    /// an error.
    #[must_use]
    pub fn admit(mut self, fairness: Option<Fairness>) -> Self {
        self.admit = fairness;
        self
    }
}

impl Cost {
    /// Larger costs are taken for this. The sum over 127 receivers of the largest latencies is
    /// less.
    pub const COST_MAX: u64 = 1 << 48;

    /// The cost of a tree: per unit of rate that is sent over it.
    ///
    /// # Panics
    /// If the model is not [valid](HoseModel::validate), or the root or relay is no site of it.
    pub fn of_tree(self, model: &HoseModel, root: Site, tree: &Tree) -> u64 {
        let latency = |from, to| u64::from(model.latency(from, to));
        let receivers = sites(model.sites()).filter(|site| *site != root);
        let delivery = |site| match tree.relay {
            Some(relay) if tree.forward.contains(site) => {
                latency(root, relay) + latency(relay, site)
            }
            _ => latency(root, site),
        };
        self.of_deliveries(&mut receivers.map(delivery).collect::<Vec<u64>>())
    }

    fn of_deliveries(self, deliveries: &mut [u64]) -> u64 {
        if deliveries.is_empty() {
            return 0;
        }
        let last = deliveries.len() - 1;
        let cost = match self {
            Self::Sum => deliveries.iter().sum(),
            Self::Max => deliveries.iter().copied().max().unwrap_or(0),
            Self::Quorum(count) => {
                *deliveries.select_nth_unstable(count.saturating_sub(1).min(last)).1
            }
            Self::Custom(cost) => {
                deliveries.sort_unstable();
                cost(deliveries)
            }
        };
        cost.min(Self::COST_MAX)
    }

    /// The cost of every base overlay, of root `i` and relay `j` at `i * n + j`; where they are the
    /// same, of the root alone.
    pub(super) fn of_base(self, model: &HoseModel) -> Vec<u64> {
        let n = model.sites();
        let overlays = sites(n).flat_map(|root| sites(n).map(move |relay| (root, relay)));
        if let Self::Sum = self {
            let sums: Vec<u64> = model
                .latency_us
                .chunks(n)
                .map(|row| row.iter().copied().map(u64::from).sum())
                .collect();
            let latency = |from, to| u64::from(model.latency(from, to));
            // The relay serves all but the root, and each delivery begins with the way to the
            // relay.
            return overlays
                .map(|(root, relay)| {
                    (n as u64 - 1) * latency(root, relay) + sums[relay.index()]
                        - latency(relay, root)
                })
                .collect();
        }
        overlays
            .map(|(root, relay)| {
                let tree =
                    if root == relay { Tree::direct(0) } else { Tree::relayed(n, root, relay, 0) };
                self.of_tree(model, root, &tree)
            })
            .collect()
    }
}
