//! Counts of a site as metrics of the `metrics` facade: sampled, because the data plane has no
//! recorder.

use std::sync::Weak;
use std::time::Duration;

use convoke_core::seam::Rising;
use metrics::{Gauge, Label, Unit};

use crate::driver::Driver;
use crate::event::Counters;
use crate::node::{Load, Traffic};
use crate::plan::Plan;
use crate::site::{Site, SiteSet};

/// The metrics of one site, registered with the recorder that is installed.
#[derive(Debug)]
pub(crate) struct Meters {
    bytes: [Rising; KINDS.len()],
    frames: [Rising; KINDS.len()],
    counted: [Rising; COUNTED.len()],
    held: [Gauge; HELD.len()],
    plan_epoch: Gauge,
    planned: Gauge,
    relays_failing: Gauge,
    short_of_credit: Gauge,
    /// Those of each other site; none of this one.
    sites: Vec<Option<SiteMeters>>,
}

/// Metrics of what one other site has to do with this one.
#[derive(Debug)]
struct SiteMeters {
    relayed_by: Rising,
    relayed_for: Rising,
    planned_by: Gauge,
    suspected: Gauge,
}

/// Sample of the driver.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) counters: Counters,
    pub(crate) load: Load,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) suspects: SiteSet,
    pub(crate) failing: SiteSet,
}

impl Meters {
    /// For a site of these nodes.
    pub(crate) fn new(me: Site, nodes: &[String]) -> Self {
        describe();
        let node = &nodes[me.index()];
        let label = || vec![Label::new("node", node.clone())];
        let kinds = |name: &'static str| {
            KINDS.map(|(kind, ..)| {
                let labels = [("node", node.clone()), ("kind", kind.to_owned())];
                Rising::new(metrics::counter!(name, &labels))
            })
        };
        let gauge = |name: &'static str| metrics::gauge!(name, label());
        let of_site = |(index, site): (usize, &String)| {
            (index != me.index()).then(|| {
                let labels = |role: &'static str| {
                    vec![Label::new("node", node.clone()), Label::new(role, site.clone())]
                };
                SiteMeters {
                    relayed_by: Rising::new(metrics::counter!(RELAYED_BY, labels("relay"))),
                    relayed_for: Rising::new(metrics::counter!(RELAYED_FOR, labels("root"))),
                    planned_by: metrics::gauge!(PLANNED_BY, labels("relay")),
                    suspected: metrics::gauge!(SUSPECTED, labels("relay")),
                }
            })
        };
        Self {
            bytes: kinds("convoke_overlay_bytes_total"),
            frames: kinds("convoke_overlay_frames_total"),
            counted: COUNTED.map(|(name, ..)| Rising::new(metrics::counter!(name, label()))),
            held: HELD.map(|(name, ..)| gauge(name)),
            plan_epoch: gauge("convoke_overlay_plan_epoch"),
            planned: gauge("convoke_overlay_planned_kbit"),
            relays_failing: gauge("convoke_overlay_relays_failing"),
            short_of_credit: gauge("convoke_overlay_streams_short_of_credit"),
            sites: nodes.iter().enumerate().map(of_site).collect(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "no gauge needs more than 52 bits")]
    pub(crate) fn sample(&self, me: Site, plan: &Plan, seen: &Seen) {
        let Seen { counters, load, traffic, suspects, failing } = seen;
        for (at, (_, frames, bytes)) in KINDS.iter().enumerate() {
            self.frames[at].rise_to(frames(counters));
            self.bytes[at].rise_to(bytes(counters));
        }
        for ((_, _, read), counter) in COUNTED.iter().zip(&self.counted) {
            counter.rise_to(read(counters));
        }
        for ((_, _, read), gauge) in HELD.iter().zip(&self.held) {
            gauge.set(read(load) as f64);
        }
        self.plan_epoch.set(f64::from(plan.epoch()));
        self.planned.set(plan.rate(me) as f64);
        self.relays_failing.set(failing.len() as f64);
        self.short_of_credit.set(counters.short_of_credit as f64);
        for (index, site) in self.sites.iter().enumerate() {
            let (Some(meters), Some(traffic)) = (site, traffic.get(index)) else { continue };
            let site = crate::driver::site_of(index);
            meters.relayed_by.rise_to(traffic.relayed_by_bytes);
            meters.relayed_for.rise_to(traffic.relayed_for_bytes);
            let by_site = plan.trees(me).iter().filter(|tree| tree.relay == Some(site));
            meters.planned_by.set(by_site.map(|tree| tree.rate).sum::<u64>() as f64);
            meters.suspected.set(f64::from(u8::from(suspects.contains(site))));
        }
    }
}

/// Samples every second, until the overlay is gone.
pub(crate) async fn run(driver: Weak<Driver>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match driver.upgrade().filter(|driver| !driver.is_closed()) {
            Some(driver) => driver.sample_metrics(),
            None => return,
        }
    }
}

const RELAYED_BY: &str = "convoke_overlay_relayed_by_bytes_total";
const RELAYED_FOR: &str = "convoke_overlay_relayed_for_bytes_total";
const PLANNED_BY: &str = "convoke_overlay_planned_by_kbit";
const SUSPECTED: &str = "convoke_overlay_suspected";

type Read = fn(&Counters) -> u64;

/// Kinds of frames: the label, and the fields to read.
const KINDS: [(&str, Read, Read); 5] = [
    ("own", |all| all.own_frames, |all| all.own_bytes),
    ("forwarded", |all| all.forwarded_frames, |all| all.forwarded_bytes),
    ("resent", |all| all.resent_frames, |all| all.resent_bytes),
    ("repair", |all| all.repair_frames, |all| all.repair_bytes),
    ("control", |all| all.control_frames, |all| all.control_bytes),
];

/// Counts: name, meaning, and the field to read.
const COUNTED: [(&str, &str, Read); 9] = [
    ("convoke_overlay_delivered_total", "operations that came", |all| all.delivered),
    ("convoke_overlay_missed_total", "chunks that relays did not bring in time", |all| all.missed),
    ("convoke_overlay_changed_total", "chunks that came changed", |all| all.changed),
    ("convoke_overlay_suspicions_total", "times a relay became a suspect", |all| all.suspicions),
    ("convoke_overlay_starved_total", "waits for a relay's credit in vain", |all| all.starved),
    ("convoke_overlay_gaps_total", "chunks of others that nobody has any more", |all| all.gaps),
    ("convoke_overlay_given_up_total", "operations that somebody missed", |all| all.given_up),
    ("convoke_overlay_no_room_total", "chunks for which there was no room", |all| all.no_room),
    ("convoke_overlay_relay_overruns_total", "frames beyond the credit of their root", |all| {
        all.relay_overruns
    }),
];

type ReadLoad = fn(&Load) -> usize;

/// Amounts that are held: name, meaning, and the field to read.
const HELD: [(&str, &str, ReadLoad); 4] = [
    ("convoke_overlay_unacked_bytes", "own payloads that not all have", |load| load.unacked_bytes),
    ("convoke_overlay_forward_bytes", "bytes that wait to be forwarded", |load| {
        usize::try_from(load.forward_bytes).unwrap_or(usize::MAX)
    }),
    ("convoke_overlay_held_bytes", "payloads kept for the repair of others", |load| {
        load.held_bytes
    }),
    ("convoke_overlay_fetches", "operations being asked of others", |load| load.fetches),
];

/// Tells the recorder units and meanings.
fn describe() {
    use metrics::{describe_counter as counter, describe_gauge as gauge};
    counter!("convoke_overlay_bytes_total", Unit::Bytes, "sent to other sites, by kind");
    counter!("convoke_overlay_frames_total", Unit::Count, "sent to other sites, by kind");
    counter!(RELAYED_BY, Unit::Bytes, "own frames given to a relay to be passed on");
    counter!(RELAYED_FOR, Unit::Bytes, "frames of a root that were passed on here");
    gauge!(PLANNED_BY, Unit::Count, "kbit/s that the plan has a relay pass on for this site");
    gauge!(SUSPECTED, Unit::Count, "1 while this site suspects a relay");
    gauge!("convoke_overlay_plan_epoch", Unit::Count, "version of the plan in use");
    gauge!("convoke_overlay_planned_kbit", Unit::Count, "kbit/s that this site may broadcast");
    gauge!("convoke_overlay_relays_failing", Unit::Count, "relays that all sites do without");
    gauge!(
        "convoke_overlay_streams_short_of_credit",
        Unit::Count,
        "streams with less credit than the plan needs"
    );
    for (name, meaning, _) in COUNTED {
        counter!(name, Unit::Count, meaning);
    }
    for (name, meaning, _) in HELD {
        gauge!(name, Unit::Count, meaning);
    }
}
