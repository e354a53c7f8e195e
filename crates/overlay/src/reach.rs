//! Who reaches whom, as far as one site knows: by its own links, and by what the others say of theirs.
//!
//! ```text
//!            frames come            none for quiet_after
//!   down ──▶ reached ──────────────────────────────────▶ quiet ──▶ a frame comes: reached
//!     ▲ Up      │ its view says that it does not reach this site
//!     └─ Down   ▼
//!            not reached
//! ```
//! Sites tell each other whom they do not reach, and whom they suspect, whenever that changes. All sites leave the same
//! relays out of their plans on that account: so rates fit while relays are down. A site that complains of more than
//! half of the others is most likely cut off itself, and is not believed.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::site::{Site, SiteSet};
use crate::wire::View;

/// What is known of all links.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    me: Site,
    links: Vec<Link>,
    /// Those with a link.
    up: SiteSet,
    /// Of them, those that have not been heard for too long.
    quiet: SiteSet,
    /// And those that say that they do not reach this site.
    deaf: SiteSet,
    quiet_after: Duration,
    ping_period: Duration,
    next_ping: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    heard_at: Timestamp,
    view: View,
}

impl Reach {
    pub(crate) fn new(
        me: Site,
        sites: usize,
        quiet_after: Duration,
        ping_period: Duration,
        now: Timestamp,
    ) -> Self {
        let links = vec![Link::default(); sites];
        let (up, quiet, deaf) = Default::default();
        Self { me, links, up, quiet, deaf, quiet_after, ping_period, next_ping: now }
    }

    pub(crate) fn on_up(&mut self, now: Timestamp, site: Site) {
        self.up.insert(site);
        self.links[site.index()].heard_at = now;
    }

    pub(crate) fn on_down(&mut self, site: Site) {
        self.up.remove(site);
        self.quiet.remove(site);
        self.deaf.remove(site);
        let link = &mut self.links[site.index()];
        *link = Link::default();
    }

    /// A frame has come. Whether the site was quiet.
    pub(crate) fn on_heard(&mut self, now: Timestamp, from: Site) -> bool {
        self.links[from.index()].heard_at = now;
        self.quiet.remove(from)
    }

    /// A site says whom it suspects and does not reach. Whether that is news.
    pub(crate) fn on_view(&mut self, from: Site, view: View) -> bool {
        let link = &mut self.links[from.index()];
        if view.version < link.view.version {
            return false;
        }
        if !view.unreached.contains(self.me) {
            self.deaf.remove(from);
        } else {
            self.deaf.insert(from);
        }
        std::mem::replace(&mut link.view, view) != view
    }

    /// Sites that have been silent for too long, and were not before.
    pub(crate) fn expire(&mut self, now: Timestamp) -> SiteSet {
        let is_silent = |site: &Site| self.links[site.index()].heard_at + self.quiet_after <= now;
        let silent: SiteSet = self.up.difference(self.quiet).iter().filter(is_silent).collect();
        self.quiet = self.quiet.union(silent);
        silent
    }

    /// Whether all that are up are to be asked for a sign of life now.
    pub(crate) fn poll_ping(&mut self, now: Timestamp) -> bool {
        let is_due = self.next_ping <= now && !self.up.is_empty();
        if is_due {
            self.next_ping = now + self.ping_period;
        }
        is_due
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let heard = self.up.difference(self.quiet);
        let quiet_at = heard.iter().map(|it| self.links[it.index()].heard_at + self.quiet_after);
        quiet_at.min().into_iter().chain((!self.up.is_empty()).then_some(self.next_ping)).min()
    }

    /// Sites with a link.
    pub(crate) fn up(&self) -> SiteSet {
        self.up
    }

    /// Sites that what is sent to them reaches.
    pub(crate) fn reached(&self) -> SiteSet {
        self.up.difference(self.quiet).difference(self.deaf)
    }

    /// Whom this site does not hear.
    pub(crate) fn unheard(&self) -> SiteSet {
        let heard = self.up.difference(self.quiet);
        SiteSet::first(self.links.len()).without(self.me).difference(heard)
    }

    /// Whom a site suspects, as it says.
    pub(crate) fn suspects_of(&self, site: Site) -> SiteSet {
        self.links[site.index()].view.suspects
    }

    /// Whom a site does not reach, as it says.
    pub(crate) fn unreached_by(&self, site: Site) -> SiteSet {
        self.links[site.index()].view.unreached
    }

    /// Sites that no plan should have as relays: suspects, and of each two that do not reach each other one, the one
    /// with more such others. All sites that have heard the same come to the same.
    pub(crate) fn failing(&self, suspects: SiteSet) -> SiteSet {
        let others = self.links.len().saturating_sub(1);
        let credible = |set: SiteSet| {
            if set.len() * 2 > others.max(2) { SiteSet::EMPTY } else { set }
        };
        let mut broken: Vec<SiteSet> =
            self.links.iter().map(|link| credible(link.view.unreached)).collect();
        broken[self.me.index()] = credible(self.unheard());
        let told = self.links.iter().map(|link| credible(link.view.suspects));
        let mut failing = told.fold(suspects, SiteSet::union);
        for index in 0..broken.len() {
            let site = self.site(index);
            broken[index].iter().filter(|it| it.index() < self.links.len()).for_each(|other| {
                broken[other.index()].insert(site);
            });
        }
        loop {
            let left = |index: usize| broken[index].difference(failing).len();
            let open = (0..broken.len()).filter(|index| !failing.contains(self.site(*index)));
            match open.max_by_key(|index| left(*index)).filter(|index| left(*index) > 0) {
                Some(worst) => failing.insert(self.site(worst)),
                None => return failing.without(self.me),
            };
        }
    }

    fn site(&self, index: usize) -> Site {
        Site(u16::try_from(index).expect("sites are at most 128"))
    }
}
