//! Reachability: what follows when links come, go or fall silent.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::bounds::RTT_MAX;
use crate::event::{Event, Evidence, Fault};
use crate::receive::Ended;
use crate::relay::cost;
use crate::site::{Site, SiteSet};
use crate::wire::{Data, Forward, Frame, Life, Passed, View};

use super::{Control, OverlayNode};

/// Helpers bring things to a site that is not reached directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Helpers {
    /// Chunks.
    pub(super) data: Site,
    /// Control frames, by each of the two, so that no single one keeps two sites apart. Others than
    /// that of chunks as far as there are, so that who could change a chunk could not change what
    /// is said of it.
    pub(super) control: [Site; 2],
}

/// Helpers that have not brought a site what they were given for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unhelpful {
    sites: SiteSet,
    /// When the last of them was left.
    left_at: Timestamp,
}

/// Control frames of others that wait to be passed on. What comes beyond it is dropped; timers
/// repeat what mattered.
const PASSES_MAX: usize = 1 << 10;

/// A site that misses more chunks than the first of what was sent while it was away relays nothing
/// until it misses no more than the second.
const BEHIND: u64 = 64;
const CAUGHT_UP: u64 = 8;
/// Time that it has for that: what sources say that it misses may never have been.
const CATCHES_UP_FOR: Duration = Duration::from_secs(60);

/// Least time between two changes of the helper of a site: what it complains of until then has been
/// sent again.
const HELPER_TURN: Duration = Duration::from_secs(1);

/// Time after a site is reached again in which what helpers have passed on before may come.
const IN_FLIGHT: Duration = Duration::from_secs(1);

impl OverlayNode {
    /// Says to all others that this site is about to leave: all turn to the plan without it. It
    /// still forwards what it is sent, and sends again what it owes, until its driver stops.
    pub fn leave(&mut self, now: Timestamp) {
        self.is_leaving = true;
        self.on_reach_changed(now);
    }

    /// Sites that have said that they do not relay: they are about to leave, or catch up.
    pub fn leaving(&self) -> SiteSet {
        self.reach.leaving()
    }

    /// The longest of the round trips to the sites with a link.
    pub(crate) fn round_trip_max(&self) -> Duration {
        let rtts = self.reach.up().iter().filter_map(|site| self.reach.rtt(site));
        rtts.max().unwrap_or_default().min(RTT_MAX)
    }

    /// Sites that this one does not want as relays: suspects, and itself while it leaves or catches
    /// up.
    pub(super) fn distrusted(&self) -> SiteSet {
        let suspects = self.trust.suspects();
        if self.is_leaving || self.is_behind { suspects.with(self.me) } else { suspects }
    }

    /// Notes whether much is missing here since this site was away. What comes again takes the
    /// links over which others would be relayed.
    pub(super) fn note_behind(&mut self, now: Timestamp) {
        let is_back = self.back_at.is_none_or(|at| now < at + CATCHES_UP_FOR);
        // A site that was not away may have that from a source that lies.
        let missing = if is_back { self.receiver.missing_before() } else { 0 };
        let least = if self.is_behind { CAUGHT_UP } else { BEHIND };
        let is_behind = missing > least;
        if is_behind != self.is_behind {
            self.is_behind = is_behind;
            self.on_reach_changed(now);
        }
    }

    /// Links came, went or fell silent, or somebody is suspected or trusted again: the others are
    /// told, and all sites turn to the plan that does without those that fail.
    pub(super) fn on_reach_changed(&mut self, now: Timestamp) {
        self.on_routes_changed(now);
        let reached = self.reach.reached();
        // No single other site, whatever becomes of its link, has this one taken for away.
        self.back_at = match reached.len() * 2 < self.sites - 1 {
            true => None,
            false => self.back_at.or(Some(now)),
        };
        for site in self.reach.up().iter() {
            self.uplinks[site.index()].set_held(!reached.contains(site));
        }
        self.find_helpers(now);
        let (suspects, unreached) = (self.distrusted(), self.reach.unheard());
        if (suspects, unreached) != (self.view.suspects, self.view.unreached) {
            let version = self.view.version.saturating_add(1);
            self.view = View { version, suspects, unreached };
            self.tell(Control::View);
        }
    }

    /// Looks for sites that reach those that this one does not. What is owed to those that can be
    /// reached now is due.
    fn find_helpers(&mut self, now: Timestamp) {
        let unreached =
            SiteSet::first(self.sites).without(self.me).difference(self.reach.reached());
        let helpers = |site: Site| {
            let helper = |except| self.reach.helper(site, except);
            let unhelpful = self.unhelpful.get(&site).map_or(SiteSet::EMPTY, |it| it.sites);
            let data = helper(unhelpful).or_else(|| helper(SiteSet::EMPTY))?;
            let first = helper(SiteSet::EMPTY.with(data)).unwrap_or(data);
            let second = helper(SiteSet::EMPTY.with(data).with(first)).unwrap_or(data);
            Some((site, Helpers { data, control: [first, second] }))
        };
        let found: BTreeMap<Site, Helpers> = unreached.iter().filter_map(helpers).collect();
        self.unhelpful.retain(|site, _| found.contains_key(site));
        let before = std::mem::replace(&mut self.helpers, found);
        let is_new = |site: &Site| !before.contains_key(site);
        let new: Vec<Site> = self.helpers.keys().copied().filter(is_new).collect();
        for (site, old) in before {
            self.helped_until.insert(site, now + IN_FLIGHT);
            // What one was to pass on that does not reach the site any more goes another way.
            if self.helpers.get(&site).is_none_or(|new| new.data != old.data) {
                let items = self.uplinks[old.data.index()].take_through();
                self.drop_items(items);
            }
        }
        new.into_iter().for_each(|site| self.send_through(now, site));
    }

    fn send_through(&mut self, now: Timestamp, site: Site) {
        let items = self.uplinks[site.index()].clear().collect();
        self.sender.on_queue_lost(site);
        self.drop_items(items);
        self.gone.remove(site);
        if self.receiver.life_of(site).is_some() {
            self.control.insert((site, Control::Ack));
        }
        self.sender.tell_again(site);
        if self.sender.next_seq() > 0 {
            self.control.insert((site, Control::Floor));
        }
        for seq in self.sender.owed_to(site) {
            self.send_again(seq, SiteSet::EMPTY.with(site));
        }
        self.announce_again(site);
        self.move_line(now);
    }

    /// A helper has not brought a site what it was given for it: if it is the one that does so
    /// now, another one takes its place, and all that is owed there goes by that one.
    pub(super) fn leave_helper(&mut self, now: Timestamp, helper: Site, of: Site) {
        if self.helpers.get(&of).is_none_or(|helpers| helpers.data != helper) {
            return;
        }
        let before = self.unhelpful.get(&of).copied();
        if before.is_some_and(|before| now < before.left_at + HELPER_TURN) {
            return;
        }
        let sites = before.map_or(SiteSet::EMPTY, |before| before.sites).with(helper);
        // Each has its turn again when all have failed.
        let is_last = self.reach.helper(of, sites).is_none();
        let sites = if is_last { SiteSet::EMPTY.with(helper) } else { sites };
        self.unhelpful.insert(of, Unhelpful { sites, left_at: now });
        self.find_helpers(now);
        for seq in self.sender.owed_to(of) {
            self.send_again(seq, SiteSet::EMPTY.with(of));
        }
    }

    /// Sites that something can be sent to, directly or by a helper.
    pub(super) fn sendable(&self) -> SiteSet {
        self.helpers.keys().copied().fold(self.reach.up(), SiteSet::with)
    }

    /// A chunk for a site by way of a helper.
    pub(super) fn take_through(
        &mut self,
        now: Timestamp,
        seq: u64,
        to: Site,
        helper: Site,
    ) -> Option<Data> {
        let data = self.sender.transmit(now, seq, to)?;
        self.credits[helper.index()].0.spend(cost(data.payload.len()));
        // Whoever passes it on does not know whether it was sent before.
        let forward = Forward::To(SiteSet::EMPTY.with(to));
        Some(Data { forward, is_repair: false, ..data })
    }

    /// A control frame on its way: to whom, and in what. None when it cannot be sent.
    pub(super) fn address(&mut self, to: Site, frame: Frame) -> Option<(Site, Frame)> {
        let is_passed =
            matches!(frame, Frame::Ack(_) | Frame::Floor(_) | Frame::Notice(_) | Frame::Missed(_));
        match self.helpers.get(&to).filter(|_| is_passed) {
            Some(Helpers { control: [first, second], .. }) => {
                let passed = Passed { from: self.me, to, frame: frame.to_bytes() };
                if first != second && self.passes.len() < PASSES_MAX {
                    self.passes.push_back((*second, passed.clone()));
                }
                Some((*first, Frame::Passed(passed)))
            }
            None => self.reach.up().contains(to).then_some((to, frame)),
        }
    }

    /// A frame to pass on, or one of a site that this one does not reach itself.
    pub(super) fn on_passed(
        &mut self,
        now: Timestamp,
        by: Site,
        passed: Passed,
    ) -> Result<(), Fault> {
        let Passed { from, to, .. } = passed;
        if from == self.me || from.index() >= self.sites || to.index() >= self.sites {
            return Err(Fault::Site { site: from });
        }
        if to != self.me {
            if from != by {
                return Err(Fault::SecondRelay { source_site: from });
            }
            if self.reach.reached().contains(to) && self.passes.len() < PASSES_MAX {
                self.passes.push_back((to, passed));
            }
            return Ok(());
        }
        // Between two that reach each other nobody else has a word.
        let is_late = self.helped_until.get(&from).is_some_and(|until| now <= *until);
        if self.reach.reached().contains(from) && !is_late {
            // It does not know that it is heard: what it was told of that is lost.
            self.control.insert((from, Control::View));
            return Ok(());
        }
        if self.reach.unreached_by(by).contains(from) {
            return Ok(()); // It has said itself that it does not hear that site.
        }
        match Frame::decode(&passed.frame) {
            Ok(Frame::Ack(ack)) => self.on_ack(now, from, &ack),
            Ok(Frame::Floor(floor)) => {
                self.learn_life(from, floor.life);
                self.on_floor(now, from, &floor);
                Ok(())
            }
            Ok(Frame::Notice(notice)) => {
                self.learn_life(from, notice.life);
                self.on_notice(now, from, notice)
            }
            Ok(Frame::Missed(missed)) => {
                self.on_missed(now, from, missed);
                Ok(())
            }
            _ => Err(Fault::Site { site: from }),
        }
    }

    /// A source without a link is heard of by others: they are believed as to which life it is in,
    /// unless that has ended.
    pub(super) fn learn_life(&mut self, source: Site, life: Life) {
        if self.reach.up().contains(source) || self.receiver.has_ended(source, life) {
            return;
        }
        if let Some(Ended { life, holes, delivered }) = self.receiver.begin_as_told(source, life) {
            self.note_gaps(source, life, holes);
            self.deliver_all(source, delivered);
        }
    }

    fn tell(&mut self, control: Control) {
        let up = self.reach.up().iter();
        self.control.extend(up.map(|site| (site, control)));
    }

    /// Asks for signs of life, and notices who gives none.
    pub(super) fn poll_reach(&mut self, now: Timestamp) {
        if self.reach.poll_ping(now) {
            self.tell(Control::Ping);
            // Who waits for what it is not owed says nothing more. One that was given up is owed
            // what is new once it acknowledges where to go on. What told them may have been lost.
            for site in self.sendable().iter() {
                let told = self.floors[site.index()];
                let is_due = told.is_none_or(|(_, at)| now.since(at) >= self.limits.fetch_timeout);
                if is_due && (self.gone.contains(site) || self.sender.waits_in_vain(site)) {
                    self.sender.tell_again(site);
                    self.tell_floor(now, site);
                }
            }
        }
        let quiet = self.reach.expire(now);
        if !quiet.is_empty() {
            self.on_reach_changed(now);
            for site in quiet.iter() {
                self.drop_forwards(site);
                self.leave_relay(now, site);
            }
        }
    }

    pub(super) fn on_view(&mut self, now: Timestamp, from: Site, view: View) -> Result<(), Fault> {
        let all = SiteSet::first(self.sites);
        let strangers = view.suspects.union(view.unreached).difference(all);
        if let Some(site) = strangers.iter().next() {
            return Err(Fault::Site { site });
        }
        let before = self.reach.suspects_of(from);
        let was_reached = self.reach.reached().contains(from);
        if !self.reach.on_view(now, from, view) {
            self.find_helpers(now);
            return Ok(());
        }
        for relay in view.suspects.difference(before).without(from).iter() {
            self.events.push_back(Event::Suspect { relay, by: from, evidence: Evidence::Told });
        }
        for relay in before.difference(view.suspects).without(from).iter() {
            self.events.push_back(Event::Trusted { relay, by: from });
        }
        if was_reached && !self.reach.reached().contains(from) {
            self.leave_relay(now, from);
        }
        // What it cannot bring to some goes to them another way, and what it was sent is due to
        // them at once.
        self.route_around(now, from);
        for (seq, late) in self.sender.take_for(from, view.unreached) {
            self.send_again(seq, late);
        }
        self.on_reach_changed(now);
        // Whoever complains wants to know who helps.
        if !view.unreached.is_empty() {
            self.control.insert((from, Control::View));
        }
        Ok(())
    }

    pub(super) fn on_pong(&mut self, now: Timestamp, from: Site, at: u64) {
        let Some(took) = now.as_nanos().checked_sub(at) else { return };
        if self.reach.on_answer(from, Timestamp::from_nanos(at)) {
            self.on_reach_changed(now);
        }
        let rtt = Duration::from_nanos(took);
        let before = self.reach.rtt(from);
        self.reach.on_rtt(now, from, rtt);
        let is_other = |before: Duration| before.abs_diff(rtt) > before / 8;
        if self.reach.rtt(from) != before && before.is_none_or(is_other) {
            self.set_bounds();
        }
        self.events.push_back(Event::RoundTrip { site: from, rtt });
    }
}
