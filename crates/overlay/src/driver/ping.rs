//! Round trips between sites, which latencies are estimated from.
//!
//! ```text
//! PING = 1c | nanoseconds u64      PONG = 1d | the same
//! ```
//! Little-endian, and of the asking site's own clock: the other end gives back what came. Both take the control lane.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke_core::time::Timestamp;

use crate::site::{Site, SiteSet};

/// How often each site is asked.
const EVERY: Duration = Duration::from_secs(1);

const PING: u8 = 0x1c;
const PONG: u8 = 0x1d;

/// A frame of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ping {
    /// To be given back.
    Ask(u64),
    /// Given back.
    Answer(u64),
}

impl Ping {
    pub(super) fn encode(self) -> Bytes {
        let (kind, at) = match self {
            Self::Ask(at) => (PING, at),
            Self::Answer(at) => (PONG, at),
        };
        let mut frame = BytesMut::with_capacity(9);
        frame.put_u8(kind);
        frame.put_u64_le(at);
        frame.freeze()
    }

    /// `None` when it is another frame.
    pub(super) fn decode(mut frame: &[u8]) -> Option<Self> {
        let kind = frame.first().copied().filter(|_| frame.len() == 9)?;
        frame.advance(1);
        match kind {
            PING => Some(Self::Ask(frame.get_u64_le())),
            PONG => Some(Self::Answer(frame.get_u64_le())),
            _ => None,
        }
    }
}

/// Whom to ask when.
#[derive(Debug)]
pub(super) struct Pings {
    /// By site; none while it is down.
    next: Vec<Option<Timestamp>>,
    is_on: bool,
}

impl Pings {
    pub(super) fn new(sites: usize, is_on: bool) -> Self {
        Self { next: vec![None; sites], is_on }
    }

    /// A site can be reached.
    pub(super) fn begin(&mut self, now: Timestamp, site: Site) {
        self.next[site.index()] = Some(now);
    }

    /// What is to be sent now.
    pub(super) fn poll(&mut self, now: Timestamp, up: SiteSet) -> Vec<(Site, Bytes)> {
        if !self.is_on {
            return Vec::new();
        }
        let due = up.iter().filter(|site| self.next[site.index()].is_some_and(|at| at <= now));
        let due: Vec<Site> = due.collect();
        let ping = |site: Site| {
            self.next[site.index()] = Some(now + EVERY);
            (site, Ping::Ask(nanos(now)).encode())
        };
        due.into_iter().map(ping).collect()
    }

    /// How long the round trip took. None when this site was not asked, or in the future.
    pub(super) fn answered(&self, now: Timestamp, from: Site, at: u64) -> Option<Duration> {
        let asked = self.next[from.index()].is_some() && self.is_on;
        let took = nanos(now).checked_sub(at).filter(|_| asked)?;
        Some(Duration::from_nanos(took))
    }

    pub(super) fn poll_timeout(&self, up: SiteSet) -> Option<Timestamp> {
        let next = up.iter().filter_map(|site| self.next[site.index()]);
        next.min().filter(|_| self.is_on)
    }
}

fn nanos(now: Timestamp) -> u64 {
    u64::try_from(now.since(Timestamp::ZERO).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_and_others_are_none() {
        for ping in [Ping::Ask(7), Ping::Answer(u64::MAX)] {
            assert_eq!(Ping::decode(&ping.encode()), Some(ping));
        }
        assert_eq!(Ping::decode(&[]), None);
        assert_eq!(Ping::decode(&[PING; 8]), None);
        assert_eq!(Ping::decode(&[0x11; 9]), None);
    }

    #[test]
    fn each_site_that_is_up_is_asked_once_a_second() {
        let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
        let mut pings = Pings::new(3, true);
        let up = SiteSet::EMPTY.with(Site(1)).with(Site(2));
        assert_eq!(pings.poll_timeout(up), None);
        pings.begin(at(5), Site(1));
        assert_eq!(pings.poll(at(5), up).len(), 1);
        assert_eq!(pings.poll(at(5), up).len(), 0);
        assert_eq!(pings.poll_timeout(up), Some(at(6)));
        assert_eq!(pings.poll(at(6), SiteSet::EMPTY).len(), 0);
        let asked = nanos(at(6));
        assert_eq!(pings.answered(at(7), Site(1), asked), Some(Duration::from_secs(1)));
        assert_eq!(pings.answered(at(7), Site(2), asked), None);
        assert_eq!(pings.answered(at(5), Site(1), asked), None);
    }
}
