//! Who reaches whom, and what follows when that changes.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::event::{Event, Fault};
use crate::site::{Site, SiteSet};
use crate::wire::View;

use super::{Control, OverlayNode};

impl OverlayNode {
    /// Links came, went or fell silent, or somebody is suspected or trusted again: the others are told, and all sites
    /// turn to the plan that does without those that fail.
    pub(super) fn on_reach_changed(&mut self, now: Timestamp) {
        self.on_routes_changed(now);
        let reached = self.reach.reached();
        for site in self.reach.up().iter() {
            self.uplinks[site.index()].set_held(!reached.contains(site));
        }
        let (suspects, unreached) = (self.trust.suspects(), self.reach.unheard());
        if (suspects, unreached) != (self.view.suspects, self.view.unreached) {
            let version = self.view.version.saturating_add(1);
            self.view = View { version, suspects, unreached };
            self.tell(Control::View);
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
        if !self.reach.on_view(from, view) {
            return Ok(());
        }
        for relay in view.suspects.difference(before).iter() {
            self.events.push_back(Event::Suspect { relay, by: from });
        }
        for relay in before.difference(view.suspects).iter() {
            self.events.push_back(Event::Trusted { relay, by: from });
        }
        if was_reached && !self.reach.reached().contains(from) {
            self.leave_relay(now, from);
        }
        // What it cannot bring to some is due to them at once.
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
        let rtt = Duration::from_nanos(took);
        self.events.push_back(Event::RoundTrip { site: from, rtt });
    }
}
