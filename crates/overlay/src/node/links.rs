//! Links that come and go.

use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;

use crate::event::LinkEvent;
use crate::receive::Ended;
use crate::relay::Credit;
use crate::site::{Site, SiteSet};
use crate::uplink::Item;
use crate::wire::Life;

use super::{Control, OverlayNode};

impl OverlayNode {
    /// Something happened to the link to a site. What concerns this site itself or no site is
    /// ignored.
    pub fn handle_link(&mut self, now: Timestamp, site: Site, event: LinkEvent) {
        if site == self.me || site.index() >= self.sites {
            return;
        }
        match event {
            LinkEvent::Up { incarnation } => self.on_up(now, site, incarnation),
            LinkEvent::Down => self.on_down(now, site),
            LinkEvent::Blocked => {
                let stuck_at = now + self.sender.relay_timer(site);
                self.uplinks[site.index()].set_blocked(stuck_at);
            }
            LinkEvent::Writable => self.uplinks[site.index()].set_writable(),
        }
    }

    fn on_up(&mut self, now: Timestamp, site: Site, incarnation: Incarnation) {
        // What the earlier link had in flight may be lost, even if nobody said that it is down.
        self.on_down(now, site);
        self.uplinks[site.index()].on_up();
        self.reach.on_up(now, site);
        self.control.insert((site, Control::Ping));
        self.gone.remove(site);
        self.pulls.remove(&site);
        let life = Life::of(incarnation);
        let is_known = self.receiver.life_of(site) == Some(life);
        for Ended { life, holes, delivered } in self.receiver.begin(site, life) {
            self.note_gaps(site, life, holes);
            self.deliver_all(site, delivered);
        }
        self.receiver.resume(site);
        if is_known {
            self.control.insert((site, Control::Ack));
        }
        self.sender.tell_again(site);
        if self.sender.next_seq() > 0 {
            self.control.insert((site, Control::Floor));
        }
        // Any site may become a relay, and then at once.
        self.ask_for_credit(now, site);
        for seq in self.sender.owed_to(site) {
            self.send_again(seq, SiteSet::EMPTY.with(site));
        }
        self.announce_again(site);
        self.on_reach_changed(now);
        self.control.insert((site, Control::View));
    }

    fn on_down(&mut self, now: Timestamp, site: Site) {
        if !self.reach.up().contains(site) {
            return;
        }
        self.reach.on_down(now, site);
        let lost: Vec<Item> = self.uplinks[site.index()].on_down(now).collect();
        self.control.retain(|(to, _)| *to != site);
        self.notices.retain(|(to, _), _| *to != site);
        self.missed.retain(|(source, ..), _| *source != site);
        self.credits[site.index()] = (Credit::default(), None);
        self.sender.on_queue_lost(site);
        self.on_reach_changed(now);
        self.leave_relay(now, site);
        self.drop_items(lost);
        self.pulls.insert(site, now + self.limits.pull_after);
    }

    /// Links that have taken nothing for as long as a relay may take. What was to be relayed over
    /// there goes another way. What was to be forwarded there is dropped, for it takes the credit
    /// of its root, who serves others with it; the root sends it again itself.
    pub(super) fn leave_stuck(&mut self, now: Timestamp) {
        for site in self.reach.up().iter() {
            if !self.uplinks[site.index()].note_stuck(now) {
                continue;
            }
            // The first in line may have chosen a way over it.
            self.line.choose_again();
            self.drop_forwards(site);
            if let Some(seq) = self.sender.waiting_for(site).first() {
                self.blame(now, site, *seq);
                self.route_around(now, site);
            }
        }
    }

    /// Drops all that was to be forwarded to a site.
    pub(super) fn drop_forwards(&mut self, site: Site) {
        for root in SiteSet::first(self.sites).without(self.me).iter() {
            let items: Vec<Item> = self.uplinks[site.index()].take_forwards(root.index()).collect();
            self.drop_items(items);
        }
    }

    /// Drops items that were queued for a link: those that its site was to pass on go another way.
    pub(super) fn drop_items(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Own(_) => {}
                Item::Forward(id) => {
                    if let Some(data) = self.forwards.release(id) {
                        self.note_credit(data.op.source);
                    }
                }
                Item::Through(seq, to) => {
                    self.sender.unqueue(seq, to);
                    self.send_again(seq, SiteSet::EMPTY.with(to));
                }
            }
        }
    }

    /// A root may have more queued here than it knows.
    pub(super) fn note_credit(&mut self, root: Site) {
        if self.reach.up().contains(root) && self.forwards.is_credit_due(root) {
            self.control.insert((root, Control::Credit));
        }
    }
}
