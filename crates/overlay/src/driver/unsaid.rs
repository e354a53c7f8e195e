//! Lines that are left to be said without the lock: a subscriber of the log may ask the overlay.

use convoke_core::seam::SUBSCRIBER;
use convoke_core::transport::{Lane, NotWritable};

use crate::event::{Evidence, PlanRefused};
use crate::site::{Site, SiteSet};

use super::Driver;

/// Line that is to be said; `left_out` others were not.
#[derive(Debug)]
pub(super) enum Unsaid {
    /// A relay is suspected.
    Suspected { relay: Site, by: Site, evidence: Evidence, left_out: u64 },
    /// A relay is trusted again.
    Trusted { relay: Site, by: Site, left_out: u64 },
    /// Relays fail.
    Failing { relays: SiteSet, left_out: u64 },
    /// So many streams of the plan need more memory than they may take.
    ShortOfCredit { streams: usize },
    /// There is another plan.
    Plan { epoch: u32, relays: SiteSet },
    /// A plan is not used.
    Refused(PlanRefused),
    /// No flow takes a frame.
    Lost { to: Site, lane: Lane, refused: NotWritable },
    /// A frame breaks the rules.
    Dropped { from: Site, fault: String, left_out: u64 },
}

impl Driver {
    pub(super) fn say(&self, unsaid: Unsaid) {
        SUBSCRIBER.call(|| self.log(unsaid));
    }

    fn log(&self, unsaid: Unsaid) {
        let names = &self.names;
        match unsaid {
            Unsaid::Suspected { relay, by, evidence, left_out } => {
                let [relay, by] = [relay, by].map(|site| names.of(site));
                let evidence = names.evidence(evidence);
                tracing::warn!(%relay, %by, %evidence, left_out, "a relay is suspected");
            }
            Unsaid::Trusted { relay, by, left_out } => {
                let [relay, by] = [relay, by].map(|site| names.of(site));
                tracing::info!(%relay, %by, left_out, "a relay is trusted again");
            }
            Unsaid::Failing { relays, left_out } => {
                tracing::info!(relays = ?names.of_all(relays), left_out, "relays fail");
            }
            Unsaid::ShortOfCredit { streams } => {
                tracing::warn!(streams, "the plan needs more memory than it may take");
            }
            Unsaid::Plan { epoch, relays } => {
                tracing::info!(epoch, relays = ?names.of_all(relays), "another plan");
            }
            Unsaid::Refused(refused) => tracing::warn!(%refused, "a plan is not used"),
            Unsaid::Lost { to, lane, refused } => {
                tracing::debug!(to = %names.of(to), ?lane, %refused, "no flow takes a frame");
            }
            Unsaid::Dropped { from, fault, left_out } => {
                tracing::warn!(from = %names.of(from), %fault, left_out, "a frame was dropped");
            }
        }
    }
}
