//! Snapshot that all sites plan from: one model, and the sites that are to relay for nobody.

use super::fault::ControlFault;
use super::report::SiteReport;
use crate::estimate::Estimate;
use crate::hose::{HoseModel, ModelError, sites};
use crate::site::{SITES_MAX, Site, SiteSet};

/// Input that a plan is made from. Sites that have the same make the same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The network, with the epoch of the plan.
    pub model: HoseModel,
    /// Sites that relay for nobody, since they are silent or suspected.
    pub excluded: SiteSet,
}

/// Values taken for a site that has not reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    pub(super) downlink: u64,
    pub(super) latency_us: u32,
}

/// Factors that turn demands into those of a model, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demands {
    /// Of the demand, so that it can grow a little before there is another plan.
    pub(super) margin_permille: u32,
    /// Of the uplink, at least, so that an idle site has trees to begin with.
    pub(super) floor_permille: u32,
}

/// Part of the median of all downlinks that each counts as at least, in thousandths. Everybody
/// receives everything, so that the smallest downlink bounds the rates of all: one site that has
/// none, or says so, would stop the others. A site that has less falls behind, and is given up like
/// any that does not keep up.
const DOWNLINK_FLOOR_PERMILLE: u32 = 100;

impl Snapshot {
    /// From what the sites have reported last.
    pub(super) fn of(
        reports: &[Option<&SiteReport>],
        excluded: SiteSet,
        demands: Demands,
        unknown: Unknown,
    ) -> Self {
        let estimates = || reports.iter().map(|report| report.map(|report| &report.estimate));
        let latency = |(from, to): (Site, Site)| {
            if from == to {
                return 0;
            }
            let measured = |by: Site, of: Site| reports[by.index()].and_then(|r| r.latency(of));
            measured(from, to).or_else(|| measured(to, from)).unwrap_or(unknown.latency_us)
        };
        let downlink_min =
            permille(median(estimates().flatten().map(|of| of.downlink)), DOWNLINK_FLOOR_PERMILLE);
        let downlink =
            |of: Option<&Estimate>| of.map_or(unknown.downlink, |of| of.downlink.max(downlink_min));
        let count = reports.len();
        let pairs = sites(count).flat_map(|from| sites(count).map(move |to| (from, to)));
        let model = HoseModel {
            // Who has not reported relays nothing, and what it sends itself goes direct.
            uplink: estimates().map(|of| of.map_or(0, |of| of.uplink)).collect(),
            downlink: estimates().map(downlink).collect(),
            demand: estimates()
                .map(|of| of.map_or(0, |of| demands.of(of.demand, of.uplink)))
                .collect(),
            latency_us: pairs.map(latency).collect(),
            epoch: 0,
        };
        Self { model, excluded }
    }

    /// Checks that it can be one for so many sites.
    pub(super) fn check(&self, sites: usize) -> Result<(), ControlFault> {
        let found = self.model.sites();
        if found != sites || found > SITES_MAX {
            return Err(ControlFault::Sites { expected: sites, found });
        }
        self.model.validate().map_err(|error| match error {
            ModelError::TooLarge { .. } => ControlFault::Rate,
            ModelError::OwnLatency { .. } => ControlFault::OwnLatency,
            _ => ControlFault::Sites { expected: sites, found },
        })
    }
}

impl Demands {
    fn of(self, demand: u64, uplink: u64) -> u64 {
        let wanted = permille(demand, self.margin_permille).min(uplink);
        wanted.max(permille(uplink, self.floor_permille))
    }
}

/// So many thousandths of a rate.
fn permille(rate: u64, permille: u32) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(permille) / 1_000).unwrap_or(u64::MAX)
}

/// The lower one of two in the middle; 0 of none.
fn median(rates: impl Iterator<Item = u64>) -> u64 {
    let mut rates: Vec<u64> = rates.collect();
    rates.sort_unstable();
    rates.get(rates.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
