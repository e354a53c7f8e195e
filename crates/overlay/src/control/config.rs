//! The knobs of the control part.

use std::time::Duration;

use super::decide::Rules;
use super::snapshot::{Demands, Unknown};
use crate::hose::HoseModel;
use crate::plan::PlanOptions;

/// When sites report and plan. The defaults suit most networks. All sites need the same
/// [`PlanOptions`], or they make different plans from the same snapshot, which is safe but less
/// efficient.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    pub(super) options: PlanOptions,
    pub(super) fixed: Option<HoseModel>,
    pub(super) report_period: Duration,
    pub(super) replan_period: Duration,
    pub(super) silence: Duration,
    pub(super) start_grace: Duration,
    pub(super) moved_permille: u32,
    pub(super) better_permille: u32,
    pub(super) demand_margin_permille: u32,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            options: PlanOptions::default(),
            fixed: None,
            report_period: Duration::from_secs(1),
            replan_period: Duration::from_millis(500),
            silence: Duration::from_secs(5),
            start_grace: Duration::from_secs(3),
            moved_permille: 100,
            better_permille: 50,
            demand_margin_permille: 1_100,
        }
    }
}

impl ControlConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options of plans.
    #[must_use]
    pub fn options(mut self, options: PlanOptions) -> Self {
        self.options = options;
        self
    }

    /// One model for all time, the same at every site: nothing is reported and nothing planned
    /// anew. The plans for lost relays come with it. Default none. A model that is wrong gives the
    /// direct plan.
    #[must_use]
    pub fn fixed(mut self, model: HoseModel) -> Self {
        self.fixed = Some(model);
        self
    }

    /// Longest time between two reports of a site. Default 1 s.
    #[must_use]
    pub fn report_period(mut self, period: Duration) -> Self {
        self.report_period = period;
        self
    }

    /// Shortest time between two plans. Default 500 ms.
    #[must_use]
    pub fn replan_period(mut self, period: Duration) -> Self {
        self.replan_period = period;
        self
    }

    /// After how long without a report a site is silent: it relays for nobody. Default 5 s; more
    /// than a few report periods.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Time to wait for the reports of all sites before the first plan. Default 3 s.
    #[must_use]
    pub fn start_grace(mut self, grace: Duration) -> Self {
        self.start_grace = grace;
        self
    }

    /// By how much an input must differ before another plan is looked for, in thousandths. Default
    /// 100.
    #[must_use]
    pub fn moved_permille(mut self, permille: u32) -> Self {
        self.moved_permille = permille;
        self
    }

    /// Improvement that another plan must bring, in thousandths. Default 50.
    #[must_use]
    pub fn better_permille(mut self, permille: u32) -> Self {
        self.better_permille = permille;
        self
    }

    /// Part of a demand to plan for, in thousandths, so that it can grow before there is another
    /// plan. Default 1100.
    #[must_use]
    pub fn demand_margin_permille(mut self, permille: u32) -> Self {
        self.demand_margin_permille = permille;
        self
    }

    pub(super) fn rules(&self) -> Rules {
        let (moved_permille, better_permille) = (self.moved_permille, self.better_permille);
        Rules { moved_permille, better_permille, latency_us_min: LATENCY_US_MIN }
    }

    pub(super) fn assumptions(&self) -> (Demands, Unknown) {
        let margin_permille = self.demand_margin_permille;
        let demands = Demands { margin_permille, floor_permille: DEMAND_FLOOR_PERMILLE };
        (demands, Unknown { downlink: DOWNLINK_UNKNOWN, latency_us: LATENCY_US_UNKNOWN })
    }
}

/// Below a millisecond, differences are noise of the hosts.
const LATENCY_US_MIN: u32 = 1_000;

/// An idle site can begin with a hundredth of its uplink.
const DEMAND_FLOOR_PERMILLE: u32 = 10;

/// A site that has not reported does not slow the others down: 100 Gbit/s.
const DOWNLINK_UNKNOWN: u64 = 100_000_000;

/// Nobody has measured the way: far, but on this planet.
const LATENCY_US_UNKNOWN: u32 = 100_000;
