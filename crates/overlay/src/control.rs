//! Agreement of the sites on the same plan without a controller.
//!
//! ```text
//!   Estimator ──▶ own report ──▶ everybody keeps the latest report of everybody
//!                                              │ lowest live site
//!                                              ▼
//!                    worth a new plan? ── no ──▶ nothing happens
//!                                              │ yes
//!                                              ▼
//!                           Snapshot{epoch} ──▶ everybody ──▶ plan(snapshot), the same at each
//! ```
//! Every site tells all others what it knows of itself. Of the sites that are heard of, the lowest
//! one *proposes*: it decides when what is known now is worth another plan, and sends all inputs as
//! one snapshot with a later epoch. Everybody plans from the snapshot by itself. The proposer holds
//! nothing that the others do not have, and when it falls silent the next one goes on. Two sites
//! may propose at the same time, such as during a partition; the later epoch wins, and epochs of
//! two sites are never the same. Until it has come to everybody sites use different plans, which is
//! safe: a frame says by itself who forwards it to whom, so plans that do not match cost efficiency
//! and nothing else.
//!
//! A site that lies can have the others plan from what is not so: as the proposer for as long as it
//! is heard, as any other for a moment every few seconds, until the proposer has made another plan.
//! That costs efficiency, too.
//!
//! Sites that know of a relay that fails do not wait for anybody: their data planes change to the
//! plan from the same snapshot without that relay, which they have beforehand, so that they still
//! have the same plan.
//!
//! Plans change seldom. An input must differ by a tenth from that of the plan in use before another
//! plan is looked for, at most twice a second, and it must then be better by 5 %, or the one in use
//! no longer fit. The numbers are those of [`ControlConfig`].

mod config;
mod decide;
mod fault;
mod planner;
mod report;
mod snapshot;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;

use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;

use self::planner::Planner;
use crate::estimate::Estimate;
use crate::hose::sites;
use crate::plan::{Plan, is_later};
use crate::site::{SITES_MAX, Site, SiteSet};

pub use self::config::ControlConfig;
pub use self::fault::ControlFault;
pub use self::report::{ReportVersion, SiteReport};
pub use self::snapshot::Snapshot;
pub use self::wire::ControlMessage;

/// The control part of one site. It has no clock and does no I/O: after any input drain
/// [`Control::poll_transmit`] and [`Control::poll_event`], and call [`Control::handle_timeout`] at
/// [`Control::poll_timeout`].
#[derive(Debug)]
pub struct Control {
    config: ControlConfig,
    me: Site,
    incarnation: Incarnation,
    start: Timestamp,
    own: Option<Estimate>,
    suspects: SiteSet,
    sequence: u32,
    reported: Option<Reported>,
    heard: Vec<Option<Heard>>,
    /// When a snapshot of each site was taken last.
    taken: Vec<Option<Timestamp>>,
    /// When each site was sent the one in use last, for it had an older one.
    taught: Vec<Option<Timestamp>>,
    planner: Planner,
    /// Something has changed that another plan might follow from.
    is_dirty: bool,
    next_plan_at: Timestamp,
    /// Relays of the plan that fail, which it is to be made without.
    failing: SiteSet,
    /// Those that such a plan was made without last, and when there may be another.
    made_without: SiteSet,
    next_without_at: Timestamp,
    transmits: VecDeque<ControlTransmit>,
    events: VecDeque<ControlEvent>,
}

/// A message and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlTransmit {
    /// Never this site itself.
    pub to: SiteSet,
    /// The message to send.
    pub message: ControlMessage,
}

/// News for the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// The plan to use from now on: for [`OverlayNode::set_plan`](crate::OverlayNode::set_plan).
    Plan(Arc<Plan>),
    /// The plan to use while these relays fail, of the same epoch: for
    /// [`OverlayNode::set_contingency`](crate::OverlayNode::set_contingency).
    Contingency(SiteSet, Arc<Plan>),
}

#[derive(Debug)]
struct Reported {
    at: Timestamp,
    report: SiteReport,
}

#[derive(Debug)]
struct Heard {
    at: Timestamp,
    /// No connection since: silent before its time.
    is_down: bool,
    report: SiteReport,
}

/// A report is sent at once when a number differs by more from the last one, in thousandths.
const REPORT_PERMILLE: u64 = 50;

impl Control {
    /// For one of `sites` sites, 1 to [`SITES_MAX`]. `incarnation` is that of the node.
    ///
    /// # Panics
    /// If there are too many sites or none, or `me` is not one of them.
    pub fn new(
        config: ControlConfig,
        me: Site,
        sites: usize,
        incarnation: Incarnation,
        now: Timestamp,
    ) -> Self {
        assert!((1..=SITES_MAX).contains(&sites), "an overlay has 1 to {SITES_MAX} sites");
        assert!(me.index() < sites, "{me:?} is one of {sites} sites");
        let planner = Planner::new(sites, &config);
        let mut control = Self {
            me,
            incarnation,
            start: now,
            own: None,
            suspects: SiteSet::EMPTY,
            sequence: 0,
            reported: None,
            heard: (0..sites).map(|_| None).collect(),
            taken: vec![None; sites],
            taught: vec![None; sites],
            planner,
            is_dirty: false,
            next_plan_at: now,
            failing: SiteSet::EMPTY,
            made_without: SiteSet::EMPTY,
            next_without_at: now,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            config,
        };
        if control.planner.snapshot().is_some() {
            control.tell_plan();
        }
        control
    }

    /// Takes what this site knows of itself now, as
    /// [`Estimator::estimate`](crate::Estimator::estimate) has it.
    pub fn handle_estimate(&mut self, now: Timestamp, estimate: Estimate) {
        if estimate.latency_us.len() == self.heard.len() {
            self.own = Some(estimate);
            self.changed(now);
        }
    }

    /// This site begins or ceases to suspect a relay.
    pub fn handle_suspicion(&mut self, now: Timestamp, relay: Site, is_suspect: bool) {
        if relay == self.me || relay.index() >= self.heard.len() {
            return;
        }
        let before = self.suspects;
        self.suspects = if is_suspect { before.with(relay) } else { before.without(relay) };
        if self.suspects != before {
            self.changed(now);
        }
    }

    /// These relays of the plan fail: the plan without them follows, the same at every site. Of
    /// several such plans in one [`ControlConfig::replan_period`] the first is made at once, and of
    /// the others the last when it is over, so that no site has others plan as often as it says
    /// another thing. None fail: no such plan is needed any more.
    ///
    /// [`OverlayNode::lacking`](crate::OverlayNode::lacking) has them.
    pub fn handle_failing(&mut self, now: Timestamp, relays: SiteSet) {
        self.failing = relays;
        self.plan_without(now);
    }

    /// No connection to a site is left: it counts as silent until it reports again.
    pub fn handle_down(&mut self, now: Timestamp, site: Site) {
        if let Some(Some(heard)) = self.heard.get_mut(site.index()) {
            heard.is_down = true;
            self.changed(now);
        }
    }

    /// A message of another site, known by its connection.
    ///
    /// # Errors
    /// When it cannot be: the sender's doing. Nothing of it was used.
    pub fn handle_message(
        &mut self,
        now: Timestamp,
        from: Site,
        message: ControlMessage,
    ) -> Result<(), ControlFault> {
        match message {
            ControlMessage::Report(report) => self.handle_report(now, from, report),
            ControlMessage::Snapshot(snapshot) => self.handle_snapshot(now, from, snapshot),
        }
    }

    /// Reports and plans, when it is time to.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.plan_without(now);
        // Also when nothing has changed: who has fallen silent shows by nothing else.
        self.changed(now);
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<ControlTransmit> {
        self.transmits.pop_front()
    }

    /// The next thing that the data plane must know.
    pub fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop_front()
    }

    /// When to call [`Control::handle_timeout`]; none before the first estimate, and for a fixed
    /// plan that no other is to stand in for.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let report = self.reported.as_ref().map(|reported| reported.at + self.config.report_period);
        let plan = self.is_dirty.then_some(self.next_plan_at);
        let without = self.lacks_plan().then_some(self.next_without_at);
        report.into_iter().chain(plan).chain(without).min()
    }

    /// The plan of the last snapshot.
    pub fn plan(&self) -> &Arc<Plan> {
        self.planner.plan()
    }

    /// Snapshot that the plan in use was made from; none before the first.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.planner.snapshot()
    }

    /// Epoch of the plan in use; 0 before the first.
    pub fn epoch(&self) -> u32 {
        self.planner.epoch()
    }

    /// The largest uplink that another live site has reported, kbit/s; 0 before there is one.
    pub fn largest_uplink(&self, now: Timestamp) -> u64 {
        let live = sites(self.heard.len()).filter(|site| self.is_live(now, *site));
        let heard = live.filter_map(|site| self.heard[site.index()].as_ref());
        heard.map(|heard| heard.report.estimate.uplink).max().unwrap_or(0)
    }

    /// Site that decides when there is another plan, as far as this site knows.
    pub fn proposer(&self, now: Timestamp) -> Site {
        sites(self.heard.len()).find(|site| self.is_live(now, *site)).unwrap_or(self.me)
    }

    fn handle_report(
        &mut self,
        now: Timestamp,
        from: Site,
        report: SiteReport,
    ) -> Result<(), ControlFault> {
        report.check(self.heard.len())?;
        if report.site != from || from == self.me {
            return Err(ControlFault::NotItsOwn { from, site: report.site });
        }
        if self.planner.is_fixed() {
            return Ok(());
        }
        let (epoch, heard) = (report.plan_epoch, &mut self.heard[from.index()]);
        let is_old = |heard: &Heard| {
            let (had, got) = (heard.report.version, report.version);
            had.incarnation == got.incarnation && had.sequence >= got.sequence
        };
        if heard.as_ref().is_some_and(is_old) {
            return Ok(());
        }
        let is_new = heard.as_ref().is_none_or(|heard| heard.is_down);
        *heard = Some(Heard { at: now, is_down: false, report });
        if self.teacher_of(now, from) == Some(self.me) {
            self.teach(now, from, epoch);
        }
        if is_new {
            // It has nothing of this site yet.
            self.reported = None;
        }
        self.changed(now);
        Ok(())
    }

    fn handle_snapshot(
        &mut self,
        now: Timestamp,
        from: Site,
        snapshot: Snapshot,
    ) -> Result<(), ControlFault> {
        snapshot.check(self.heard.len())?;
        if self.planner.is_fixed() {
            return Ok(());
        }
        let epoch = snapshot.model.epoch;
        if !is_later(epoch, self.epoch()) {
            self.teach(now, from, epoch);
        } else if self.takes_of(now, from) {
            self.taken[from.index()] = Some(now);
            self.adopt(snapshot);
        }
        Ok(())
    }

    /// True when a snapshot of a site is taken now. One that is not comes again from the site that
    /// brings this one up to date. That one may send plan after plan; others have a new one seldom.
    fn takes_of(&self, now: Timestamp, from: Site) -> bool {
        let pause = match self.teacher_of(now, self.me) == Some(from) {
            true => self.config.replan_period / 2,
            false => self.config.silence,
        };
        self.taken[from.index()].is_none_or(|at| now >= at + pause)
    }

    /// Site that it falls to to bring another one up to date: one does, and not all at once.
    fn teacher_of(&self, now: Timestamp, site: Site) -> Option<Site> {
        let mut live = sites(self.heard.len()).filter(|other| self.is_live(now, *other));
        live.find(|other| *other != site)
    }

    /// Sends the snapshot in use to a site that has an older one. Not twice in a short time: it is
    /// far larger than what asks for it, and a site that has not got it reports again.
    fn teach(&mut self, now: Timestamp, site: Site, epoch: u32) {
        let pause = self.config.replan_period / 2;
        let is_taught = self.taught[site.index()].is_some_and(|at| now < at + pause);
        let snapshot = self.planner.snapshot().filter(|it| is_later(it.model.epoch, epoch));
        if let Some(snapshot) = snapshot.filter(|_| !is_taught) {
            self.taught[site.index()] = Some(now);
            let message = ControlMessage::Snapshot(snapshot.clone());
            let to = SiteSet::EMPTY.with(site);
            self.transmits.push_back(ControlTransmit { to, message });
        }
    }

    fn changed(&mut self, now: Timestamp) {
        if self.planner.is_fixed() {
            return;
        }
        self.report(now);
        self.is_dirty = true;
        self.replan(now);
    }

    fn others(&self) -> SiteSet {
        SiteSet::first(self.heard.len()).without(self.me)
    }

    fn own_report(&self) -> Option<SiteReport> {
        let version = ReportVersion { incarnation: self.incarnation, sequence: self.sequence };
        let (plan_epoch, suspects) = (self.epoch(), self.suspects);
        let own = self.own.clone();
        own.map(|estimate| SiteReport { site: self.me, version, plan_epoch, estimate, suspects })
    }

    /// Tells the others when it is time to, or when it matters to them now.
    fn report(&mut self, now: Timestamp) {
        let Some(mut report) = self.own_report() else { return };
        let is_due = self.reported.as_ref().is_none_or(|last| {
            let age = now.since(last.at);
            age >= self.config.report_period
                || last.report.suspects != report.suspects
                || (age >= self.config.replan_period && differs(&last.report, &report))
        });
        if !is_due {
            return;
        }
        self.sequence = self.sequence.saturating_add(1);
        report.version.sequence = self.sequence;
        self.reported = Some(Reported { at: now, report: report.clone() });
        let to = self.others();
        if !to.is_empty() {
            self.transmits
                .push_back(ControlTransmit { to, message: ControlMessage::Report(report) });
        }
    }

    fn is_live(&self, now: Timestamp, site: Site) -> bool {
        if site == self.me {
            return self.own.is_some();
        }
        let heard = self.heard[site.index()].as_ref();
        heard.is_some_and(|heard| !heard.is_down && now.since(heard.at) < self.config.silence)
    }

    /// Looks for a better plan if it is this site's turn to.
    fn replan(&mut self, now: Timestamp) {
        if now < self.next_plan_at {
            return;
        }
        self.is_dirty = false;
        let is_complete = sites(self.heard.len()).all(|site| self.is_live(now, site));
        let has_waited = now.since(self.start) >= self.config.start_grace;
        let may_begin = self.planner.snapshot().is_some() || is_complete || has_waited;
        if self.own.is_none() || self.proposer(now) != self.me || !may_begin {
            return;
        }
        self.next_plan_at = now + self.config.replan_period;
        let candidate = self.candidate(now);
        if let Some(snapshot) = self.planner.improve(candidate, self.me) {
            self.adopt(snapshot.clone());
            let (to, message) = (self.others(), ControlMessage::Snapshot(snapshot));
            if !to.is_empty() {
                self.transmits.push_back(ControlTransmit { to, message });
            }
        }
    }

    /// Snapshot of what is known now, of an epoch that is not decided yet.
    fn candidate(&self, now: Timestamp) -> Snapshot {
        let own = self.own_report();
        let reports: Vec<_> = sites(self.heard.len())
            .map(|site| {
                let heard = self.heard[site.index()].as_ref().map(|heard| &heard.report);
                if site == self.me { own.as_ref() } else { heard }
            })
            .collect();
        let is_live = |site: &Site| self.is_live(now, *site);
        let live: SiteSet = sites(reports.len()).filter(is_live).collect();
        let believed = live.iter().filter_map(|site| reports[site.index()]);
        let suspects =
            believed.map(SiteReport::credible_suspects).fold(SiteSet::EMPTY, SiteSet::union);
        let excluded = suspects.union(SiteSet::first(reports.len()).difference(live));
        let (demands, unknown) = self.config.assumptions();
        Snapshot::of(&reports, excluded, demands, unknown)
    }

    fn adopt(&mut self, snapshot: Snapshot) {
        self.planner.adopt(snapshot);
        self.tell_plan();
    }

    fn tell_plan(&mut self) {
        // Those before it are of no use any more.
        self.events.clear();
        self.failing = SiteSet::EMPTY;
        self.made_without = SiteSet::EMPTY;
        self.next_without_at = Timestamp::ZERO; // What was made was for the plan before.
        self.events.push_back(ControlEvent::Plan(Arc::clone(self.plan())));
        if self.planner.is_ready_beforehand() {
            let relays = self.plan().relays();
            relays.iter().for_each(|relay| self.tell_contingency(SiteSet::EMPTY.with(relay)));
        }
    }

    fn lacks_plan(&self) -> bool {
        !self.failing.is_empty() && self.failing != self.made_without
    }

    fn plan_without(&mut self, now: Timestamp) {
        if self.lacks_plan() && now >= self.next_without_at {
            self.made_without = self.failing;
            self.next_without_at = now + self.config.replan_period;
            self.tell_contingency(self.failing);
        }
    }

    fn tell_contingency(&mut self, relays: SiteSet) {
        if let Some(plan) = self.planner.without(relays) {
            self.events.push_back(ControlEvent::Contingency(relays, plan));
        }
    }
}

/// True when a report says something that is worth telling before its time.
fn differs(a: &SiteReport, b: &SiteReport) -> bool {
    let far = |a: u64, b: u64| a.abs_diff(b) > a.max(b) / 1_000 * REPORT_PERMILLE + 1;
    let rates = |report: &SiteReport| {
        [report.estimate.uplink, report.estimate.downlink, report.estimate.demand]
    };
    let latencies = a.estimate.latency_us.iter().zip(&b.estimate.latency_us);
    rates(a).into_iter().zip(rates(b)).any(|(a, b)| far(a, b))
        || latencies.into_iter().any(|(a, b)| far((*a).into(), (*b).into()))
        || a.plan_epoch != b.plan_epoch
}
