//! Report of a site to the others about itself.

use convoke_core::id::Incarnation;

use super::fault::ControlFault;
use crate::estimate::{Estimate, LATENCY_UNKNOWN};
use crate::hose::RATE_MAX_KBIT;
use crate::site::{Site, SiteSet};

/// State of a site as it tells the others. A later one replaces an earlier one whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteReport {
    /// Site that reports.
    pub site: Site,
    /// Version of the report.
    pub version: ReportVersion,
    /// Epoch of the plan that the site uses: a site with a newer one tells it.
    pub plan_epoch: u32,
    /// Capacities of the site, its demand, and its distance to the others.
    pub estimate: Estimate,
    /// Relays that lately failed it.
    pub suspects: SiteSet,
}

/// Version of a site's report. A report of another life is taken, whichever came first: the next
/// one mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportVersion {
    /// The life.
    pub incarnation: Incarnation,
    /// Counts up within it.
    pub sequence: u32,
}

impl SiteReport {
    /// Checks that it can be a report among so many sites.
    pub(super) fn check(&self, sites: usize) -> Result<(), ControlFault> {
        let estimate = &self.estimate;
        let found = estimate.latency_us.len();
        if found != sites || self.site.index() >= sites {
            return Err(ControlFault::Sites { expected: sites, found });
        }
        let rates = [estimate.uplink, estimate.downlink, estimate.demand];
        if rates.iter().any(|rate| *rate > RATE_MAX_KBIT) {
            return Err(ControlFault::Rate);
        }
        if estimate.latency_us[self.site.index()] != 0 {
            return Err(ControlFault::OwnLatency);
        }
        Ok(())
    }

    /// Suspects of the site, as far as others should believe it: a site that suspects more than
    /// half of the others is most likely cut off itself.
    pub(super) fn credible_suspects(&self) -> SiteSet {
        let others = self.estimate.latency_us.len().saturating_sub(1);
        let suspects = self.suspects.without(self.site);
        let suspects = suspects.intersection(SiteSet::first(others + 1));
        if suspects.len() * 2 > others.max(2) { SiteSet::EMPTY } else { suspects }
    }

    /// A latency that was measured.
    pub(super) fn latency(&self, to: Site) -> Option<u32> {
        let us = self.estimate.latency_us.get(to.index()).copied();
        us.filter(|us| *us != LATENCY_UNKNOWN)
    }
}
