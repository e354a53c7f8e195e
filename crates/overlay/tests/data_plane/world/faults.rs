//! Sites and links that come and go.

use convoke_overlay::{LinkEvent, Site};

use super::{Event, Link, World, incarnation, pair};

impl World {
    pub(crate) fn crash(&mut self, site: Site) {
        let host = &mut self.hosts[site.index()];
        if host.node.take().is_none() {
            return;
        }
        self.ended.insert((site, host.life), self.now);
        host.backlog.clear();
        host.unread.clear();
        host.waiting.clear();
        host.is_reading = true;
        host.is_taking = true;
        self.oracle.on_crash(site);
        for peer in self.sites().filter(|peer| *peer != site).collect::<Vec<_>>() {
            self.cut(site, peer);
        }
    }

    pub(crate) fn restart(&mut self, site: Site) {
        if self.hosts[site.index()].node.is_none() {
            self.start(site);
        }
    }

    pub(crate) fn cut(&mut self, a: Site, b: Site) {
        let link = self.links.entry(pair(a, b)).or_default();
        if !link.is_up {
            return;
        }
        *link = Link { generation: link.generation + 1, is_up: false };
        let generation = link.generation;
        for (at, peer) in [(a, b), (b, a)] {
            self.in_flight.remove(&(at, peer));
            self.blocked.remove(&(at, peer));
            let event = Event::Link { at, peer, generation, event: LinkEvent::Down };
            self.after(self.conditions.notice, event);
        }
    }

    pub(crate) fn join(&mut self, a: Site, b: Site) {
        let are_up = [a, b].map(|site| self.hosts[site.index()].node.is_some());
        let link = self.links.entry(pair(a, b)).or_default();
        if link.is_up || are_up != [true, true] {
            return;
        }
        *link = Link { generation: link.generation + 1, is_up: true };
        let generation = link.generation;
        for (at, peer) in [(a, b), (b, a)] {
            let incarnation = incarnation(peer, self.hosts[peer.index()].life);
            let event = LinkEvent::Up { incarnation };
            self.on_link(at, peer, generation, event);
        }
    }

    /// Lets everything that is cut off or down come back.
    pub(crate) fn heal(&mut self) {
        self.conditions.loss_per_mille = 0;
        self.conditions.copy_per_mille = 0;
        self.conditions.reading = None;
        let sites: Vec<Site> = self.sites().collect();
        for site in &sites {
            self.restart(*site);
            self.set_reading(*site, true);
            self.handle(Event::Take { site: *site, is_taking: true });
        }
        for (a, b) in sites.iter().flat_map(|a| sites.iter().map(move |b| (*a, *b))) {
            if a < b {
                self.join(a, b);
            }
        }
    }

    pub(super) fn on_link(&mut self, at: Site, peer: Site, generation: u64, event: LinkEvent) {
        // A link that came back meanwhile was told of when it did, which says that the earlier one
        // is down.
        if self.links[&pair(at, peer)].generation != generation {
            return;
        }
        let (host, now) = (&mut self.hosts[at.index()], self.now);
        let Some(node) = &mut host.node else { return };
        node.handle_link(now, peer, event);
        self.settle(at);
    }

    pub(super) fn set_reading(&mut self, site: Site, is_reading: bool) {
        self.hosts[site.index()].is_reading = is_reading;
        if is_reading {
            for flight in std::mem::take(&mut self.hosts[site.index()].backlog) {
                self.arrive(flight);
            }
        }
    }
}
