//! Applications that read what they were given in their own time, as those do that a driver keeps
//! an inbox for.

use std::time::Duration;

use convoke_overlay::Site;

use super::{Event, World};

/// Bytes that each delivery counts for besides its payload.
const DELIVERY_BYTES: usize = 128;

impl World {
    /// The application of a site was given something of a source.
    pub(super) fn give(&mut self, site: Site, source: Site, len: usize) {
        if self.conditions.reading.is_none() {
            return;
        }
        let host = &mut self.hosts[site.index()];
        let bytes = len + DELIVERY_BYTES;
        host.node.as_mut().expect("it gives").handle_unread(source, bytes);
        host.unread.push_back((source, bytes));
        if host.unread.len() == 1 {
            self.read_next(site);
        }
    }

    /// An application has read the first of what it has. Of a life that ended it reads nothing.
    pub(super) fn consume(&mut self, site: Site, life: u64) {
        let host = &mut self.hosts[site.index()];
        let Some(node) = host.node.as_mut().filter(|_| host.life == life) else { return };
        let (source, bytes) = host.unread.pop_front().expect("it reads what it has");
        node.handle_read(source, bytes);
        self.read_next(site);
        self.settle(site);
    }

    /// The application begins with the next, if it has one.
    fn read_next(&mut self, site: Site) {
        let host = &self.hosts[site.index()];
        let (Some((_, bytes)), life) = (host.unread.front(), host.life) else { return };
        let nanos = self.conditions.reading.map_or(0, |rate| *bytes as u64 * 8_000_000 / rate);
        self.after(Duration::from_nanos(nanos), Event::Consume { site, life });
    }
}
