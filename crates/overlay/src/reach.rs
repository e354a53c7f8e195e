//! Reachability as one site knows it: by its own links, and by what the others say of theirs.
//!
//! ```text
//!            frames come            none for quiet_after
//!   down ──▶ reached ──────────────────────────────────▶ quiet ──▶ a frame comes: reached
//!     ▲ Up      │ its view says that it does not reach this site
//!     └─ Down   ▼
//!            not reached: by a helper, a site that reaches both
//! ```
//! Sites tell each other whom they do not reach, and whom they suspect, whenever that changes. All
//! sites leave the same relays out of their plans on that account: so rates fit while relays are
//! down. A site that complains of more than half of the others is most likely cut off itself, and
//! is not believed.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::site::{Site, SiteSet};
use crate::wire::View;

/// Knowledge of all links.
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
    /// When it ceased to be usable last.
    lost_at: Timestamp,
    /// When its site last said that it does not reach this one.
    deaf_at: Timestamp,
    view: View,
    /// When the view came; none since the link is up.
    told_at: Option<Timestamp>,
    rtt: Rtt,
}

/// The shortest round trip of the last minute or two.
#[derive(Clone, Copy, Debug, Default)]
struct Rtt {
    best: Option<Duration>,
    before: Option<Duration>,
    since: Timestamp,
}

/// Time that the shortest round trip counts, at least.
const RTT_WINDOW: Duration = Duration::from_secs(60);

impl Reach {
    pub(crate) fn new(
        me: Site,
        sites: usize,
        quiet_after: Duration,
        ping_period: Duration,
        now: Timestamp,
    ) -> Self {
        let links = vec![Link { lost_at: now, ..Link::default() }; sites];
        let (up, quiet, deaf) = Default::default();
        Self { me, links, up, quiet, deaf, quiet_after, ping_period, next_ping: now }
    }

    pub(crate) fn on_up(&mut self, now: Timestamp, site: Site) {
        self.up.insert(site);
        self.links[site.index()].heard_at = now;
    }

    pub(crate) fn on_down(&mut self, now: Timestamp, site: Site) {
        self.up.remove(site);
        self.quiet.remove(site);
        self.deaf.remove(site);
        let link = &mut self.links[site.index()];
        *link = Link { lost_at: now, rtt: link.rtt, ..Link::default() };
    }

    /// A frame has come. Whether the site was quiet.
    pub(crate) fn on_heard(&mut self, now: Timestamp, from: Site) -> bool {
        self.links[from.index()].heard_at = now;
        self.quiet.remove(from)
    }

    /// A site says whom it suspects and does not reach. Whether that is news.
    pub(crate) fn on_view(&mut self, now: Timestamp, from: Site, view: View) -> bool {
        let link = &mut self.links[from.index()];
        if view.version < link.view.version {
            return false;
        }
        link.told_at = Some(now);
        if !view.unreached.contains(self.me) {
            self.deaf.remove(from);
        } else {
            link.deaf_at = now;
            if self.deaf.insert(from) {
                link.lost_at = now;
            }
        }
        std::mem::replace(&mut link.view, view) != view
    }

    /// Takes an answer of a site to what it was asked at this time: then it reaches this one,
    /// though its word that it does again may have been lost. Whether that is news.
    pub(crate) fn on_answer(&mut self, from: Site, asked_at: Timestamp) -> bool {
        let link = &mut self.links[from.index()];
        let is_news = asked_at > link.deaf_at && self.deaf.remove(from);
        if is_news {
            link.view.unreached.remove(self.me);
        }
        is_news
    }

    /// A round trip was measured.
    pub(crate) fn on_rtt(&mut self, now: Timestamp, site: Site, rtt: Duration) {
        let it = &mut self.links[site.index()].rtt;
        if now.since(it.since) >= RTT_WINDOW {
            *it = Rtt { before: it.best, best: None, since: now };
        }
        it.best = Some(it.best.map_or(rtt, |best| best.min(rtt)));
    }

    /// The shortest round trip to a site; none before it was measured.
    pub(crate) fn rtt(&self, site: Site) -> Option<Duration> {
        let Rtt { best, before, .. } = self.links[site.index()].rtt;
        best.into_iter().chain(before).min()
    }

    /// Sites that have been silent for too long, and were not before.
    pub(crate) fn expire(&mut self, now: Timestamp) -> SiteSet {
        let is_silent = |site: &Site| self.links[site.index()].heard_at + self.quiet_after <= now;
        let silent: SiteSet = self.up.difference(self.quiet).iter().filter(is_silent).collect();
        self.quiet = self.quiet.union(silent);
        silent.iter().for_each(|site| self.links[site.index()].lost_at = now);
        silent
    }

    /// True when all that are up are to be asked for a sign of life.
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

    /// Sites that this one does not hear.
    pub(crate) fn unheard(&self) -> SiteSet {
        let heard = self.up.difference(self.quiet);
        SiteSet::first(self.links.len()).without(self.me).difference(heard)
    }

    /// Relays that a site suspects, as it says.
    pub(crate) fn suspects_of(&self, site: Site) -> SiteSet {
        self.links[site.index()].view.suspects
    }

    /// Sites that say of themselves that they are not to relay: they are about to leave, or catch
    /// up.
    pub(crate) fn leaving(&self) -> SiteSet {
        let all = SiteSet::first(self.links.len());
        all.iter().filter(|site| self.suspects_of(*site).contains(*site)).collect()
    }

    /// Sites that a site does not reach, as it says.
    pub(crate) fn unreached_by(&self, site: Site) -> SiteSet {
        self.links[site.index()].view.unreached
    }

    /// A site that reaches one that this site does not, as it has said since; not one of these. Its
    /// turn goes by the site to be reached, so that not all ways go over one helper.
    pub(crate) fn helper(&self, to: Site, except: SiteSet) -> Option<Site> {
        let lost_at = self.links[to.index()].lost_at;
        let helps = |site: &Site| {
            let link = &self.links[site.index()];
            !link.view.unreached.contains(to) && link.told_at.is_some_and(|at| at >= lost_at)
        };
        let candidates = self.reached().difference(except).without(to);
        let mut order = candidates.iter().filter(|site| site.0 > to.0).chain(candidates.iter());
        order.find(helps)
    }

    /// Sites that no plan should have as relays, this one may be among them: suspects, and of each
    /// two that do not reach each other one, the one with more such others. All sites that have
    /// heard the same come to the same.
    pub(crate) fn failing(&self, suspects: SiteSet) -> SiteSet {
        let others = self.links.len().saturating_sub(1);
        let credible = |set: SiteSet| {
            if set.len() * 2 > others.max(2) { SiteSet::EMPTY } else { set }
        };
        let mut broken: Vec<SiteSet> =
            self.links.iter().map(|link| credible(link.view.unreached)).collect();
        broken[self.me.index()] = credible(self.unheard());
        let mut failing = self.accused(suspects, credible);
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
                None => return failing,
            };
        }
    }

    /// Sites that others suspect. Whoever is suspected by more of them, or by one that nobody
    /// suspects, may be what is wrong, and is not believed itself.
    fn accused(&self, suspects: SiteSet, credible: impl Fn(SiteSet) -> SiteSet) -> SiteSet {
        let told = |site: &Site| {
            if *site == self.me { suspects } else { credible(self.suspects_of(*site)) }
        };
        let all = SiteSet::first(self.links.len());
        let accusers = |of: Site| all.iter().filter(|by| told(by).contains(of)).collect();
        let accusers: Vec<SiteSet> = all.iter().map(accusers).collect();
        let is_clean = |site: &Site| accusers[site.index()].is_empty();
        // Those that leave or catch up say so of themselves.
        let mut failing: SiteSet = all.iter().filter(|site| told(site).contains(*site)).collect();
        loop {
            let left = |site: &Site| accusers[site.index()].difference(failing);
            let weight =
                |site: &Site| (left(site).len(), left(site).iter().any(|by| is_clean(&by)));
            let open = all.difference(failing);
            match open.iter().filter(|site| !left(site).is_empty()).max_by_key(weight) {
                Some(worst) => failing.insert(worst),
                None => return failing,
            };
        }
    }

    fn site(&self, index: usize) -> Site {
        Site(u16::try_from(index).expect("sites are at most 128"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn sites(sites: &[u16]) -> SiteSet {
        sites.iter().copied().map(Site).collect()
    }

    fn unreached(version: u32, unreached: &[u16]) -> View {
        View { version, suspects: SiteSet::EMPTY, unreached: sites(unreached) }
    }

    /// The first of five, with links to all.
    fn reach() -> Reach {
        let [quiet_after, ping_period] = [750, 250].map(Duration::from_millis);
        let mut reach = Reach::new(Site(0), 5, quiet_after, ping_period, at(0));
        (1..5).for_each(|site| reach.on_up(at(0), Site(site)));
        reach
    }

    #[test]
    fn who_says_nothing_for_a_while_is_not_reached_until_it_does() {
        let mut reach = reach();
        assert!([1, 2, 3].into_iter().all(|site| !reach.on_heard(at(100), Site(site))));
        assert_eq!(reach.expire(at(749)), SiteSet::EMPTY);
        assert_eq!(reach.expire(at(750)), sites(&[4]));
        assert_eq!(reach.expire(at(751)), SiteSet::EMPTY, "it is no news");
        assert_eq!((reach.unheard(), reach.reached()), (sites(&[4]), sites(&[1, 2, 3])));
        assert!(reach.on_heard(at(800), Site(4)) && !reach.on_heard(at(801), Site(4)));
        assert_eq!(reach.reached(), sites(&[1, 2, 3, 4]));
    }

    #[test]
    fn a_helper_has_said_since_the_link_was_lost_that_it_reaches_the_other() {
        let mut reach = reach();
        reach.on_view(at(5), Site(1), unreached(1, &[]));
        reach.on_down(at(10), Site(3));
        assert_eq!(reach.helper(Site(3), SiteSet::EMPTY), None, "it may have lost it, too");
        reach.on_view(at(20), Site(2), unreached(1, &[3]));
        reach.on_view(at(20), Site(1), unreached(1, &[]));
        reach.on_view(at(21), Site(4), unreached(1, &[]));
        assert_eq!(reach.helper(Site(3), SiteSet::EMPTY), Some(Site(4)));
        assert_eq!(reach.helper(Site(3), sites(&[4])), Some(Site(1)));
        assert_eq!(reach.helper(Site(3), sites(&[1, 4])), None);
    }

    #[test]
    fn a_view_that_was_overtaken_by_a_later_one_is_no_news() {
        let mut reach = reach();
        assert!(reach.on_view(at(1), Site(1), unreached(2, &[])));
        assert!(!reach.on_view(at(2), Site(1), unreached(1, &[0])));
        assert!(reach.reached().contains(Site(1)));
        assert!(reach.on_view(at(3), Site(1), unreached(3, &[0])));
        assert!(!reach.reached().contains(Site(1)));
    }

    #[test]
    fn who_answers_what_it_was_asked_since_hears_again() {
        let mut reach = reach();
        assert!(!reach.on_answer(Site(1), at(1)), "it was not deaf");
        for (version, millis) in [(1, 5), (2, 9)] {
            reach.on_view(at(millis), Site(1), unreached(version, &[0]));
        }
        assert!(!reach.on_answer(Site(1), at(9)) && !reach.reached().contains(Site(1)));
        assert_eq!(reach.failing(SiteSet::EMPTY), sites(&[1]));
        assert!(reach.on_answer(Site(1), at(10)) && reach.reached().contains(Site(1)));
        assert_eq!(reach.failing(SiteSet::EMPTY), SiteSet::EMPTY);
    }

    #[test]
    fn of_two_that_do_not_reach_each_other_one_fails_and_of_a_dead_one_nobody_else() {
        let mut reach = reach();
        reach.on_view(at(1), Site(1), unreached(1, &[3]));
        reach.on_view(at(1), Site(3), unreached(1, &[1]));
        assert_eq!(reach.failing(SiteSet::EMPTY), sites(&[3]));
        // All others have lost the second.
        reach.on_down(at(2), Site(2));
        [1, 3, 4].into_iter().for_each(|site| {
            reach.on_view(at(2), Site(site), unreached(2, &[2]));
        });
        assert_eq!(reach.failing(SiteSet::EMPTY), sites(&[2]));
        assert_eq!(reach.failing(sites(&[4])), sites(&[2, 4]));
    }

    #[test]
    fn who_is_suspected_by_others_is_not_believed() {
        let mut reach = reach();
        let suspects = |sites: SiteSet| View { version: 1, suspects: sites, ..View::default() };
        reach.on_view(at(1), Site(2), suspects(sites(&[1])));
        assert_eq!(reach.failing(SiteSet::EMPTY), sites(&[1]));
        assert_eq!(reach.failing(sites(&[2])), sites(&[2]));
        // Each other: the one with more against it, or the last.
        reach.on_view(at(1), Site(1), suspects(sites(&[2])));
        assert_eq!(reach.failing(SiteSet::EMPTY), sites(&[2]));
        // Who leaves says so of itself, and may have been right about others.
        reach.on_view(at(1), Site(3), suspects(sites(&[3])));
        assert_eq!(reach.failing(sites(&[4])), sites(&[2, 3, 4]));
    }

    #[test]
    fn who_complains_of_most_is_not_believed() {
        let mut reach = reach();
        reach.on_view(at(1), Site(1), unreached(1, &[2, 3, 4]));
        let suspects = View { version: 1, suspects: sites(&[1, 3, 4]), ..View::default() };
        reach.on_view(at(1), Site(2), suspects);
        assert_eq!(reach.failing(SiteSet::EMPTY), SiteSet::EMPTY);
    }
}
