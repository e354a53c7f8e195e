//! One chunk of the own stream, and one operation, as long as someone is owed them.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::time::Timestamp;

use crate::payload::Payload;
use crate::routes::Relayed;
use crate::site::{Site, SiteSet};
use crate::wire::ChunkDigest;

/// A chunk.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// The first sequence number of its operation.
    pub(super) op: u64,
    pub(super) payload: Bytes,
    pub(super) epoch: u32,
    /// It has not chosen its way yet.
    pub(super) is_in_line: bool,
    /// Sites that are owed it and have not acknowledged it.
    pub(super) missing: SiteSet,
    /// Sites for which a copy is queued here.
    pub(super) queued: SiteSet,
    /// Sites that a copy was sent to, or by way of the relay.
    pub(super) sent: SiteSet,
    /// Sites that were sent a second copy, so that their time says nothing.
    pub(super) resent: SiteSet,
    /// The way over a relay, until those behind it have acknowledged or are late.
    pub(super) route: Option<Relayed>,
    /// The session of the relay's credit that it is charged to.
    pub(super) session: Option<u32>,
    /// Its digest, once it went by a relay.
    pub(super) digest: Option<ChunkDigest>,
    /// When the first copy left.
    pub(super) left_at: Option<Timestamp>,
    /// And the last.
    pub(super) last_left_at: Timestamp,
    /// When those behind the relay are late; none before it was sent there.
    pub(super) relay_due: Option<Timestamp>,
    /// The time that the relay was given.
    pub(super) relay_timer: Duration,
    /// Somebody behind the relay has missed it.
    pub(super) was_missed: bool,
    /// Sites that missed it while it was on its way to the relay still.
    pub(super) missed_by: SiteSet,
    /// When the others are.
    pub(super) direct_due: Option<Timestamp>,
    /// The earlier of both, as it stands in the list of timers.
    pub(super) due: Option<Timestamp>,
    /// Number of times that it was sent again directly.
    pub(super) attempts: u32,
    /// Nobody is owed any of its operation any more.
    pub(super) is_finished: bool,
}

impl Chunk {
    pub(super) fn new(op: u64, payload: Bytes, owed: SiteSet) -> Self {
        Self {
            op,
            payload,
            epoch: 0,
            is_in_line: true,
            missing: owed,
            queued: SiteSet::EMPTY,
            sent: SiteSet::EMPTY,
            resent: SiteSet::EMPTY,
            route: None,
            session: None,
            digest: None,
            left_at: None,
            last_left_at: Timestamp::ZERO,
            relay_due: None,
            relay_timer: Duration::ZERO,
            was_missed: false,
            missed_by: SiteSet::EMPTY,
            direct_due: None,
            due: None,
            attempts: 0,
            is_finished: false,
        }
    }

    /// Sites that the relay brings it to, itself included.
    pub(super) fn behind_relay(&self) -> SiteSet {
        self.route.map_or(SiteSet::EMPTY, |route| route.forward.with(route.relay))
    }

    /// The way by a relay that was not sent it yet.
    pub(super) fn relayed_by(&self, relay: Site) -> Option<Relayed> {
        self.route.filter(|it| it.relay == relay && self.relay_due.is_none())
    }

    /// It has had its turn, and goes to a site directly.
    pub(super) fn goes_directly(&self, site: Site) -> bool {
        !self.is_in_line && self.route.is_none_or(|it| !it.forward.contains(site))
    }

    /// It went by way of a relay, and all behind it have acknowledged.
    pub(super) fn is_relay_done(&self) -> bool {
        self.relay_due.is_some() && self.missing.intersection(self.behind_relay()).is_empty()
    }
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// When the last of its chunks chose its way; none before the first.
    pub(super) queued_at: Option<Timestamp>,
    pub(super) payload: Payload,
    /// Number of chunks that each site has not acknowledged; of several chunks only.
    left: Vec<u32>,
    to: SiteSet,
    owed: SiteSet,
    missed: SiteSet,
    acked: usize,
    /// As many receivers have it as are owed it.
    is_late: bool,
}

impl Op {
    pub(super) fn new(payload: Payload, to: SiteSet, sites: usize) -> Self {
        let mut op = Self {
            queued_at: None,
            payload,
            left: Vec::new(),
            to,
            owed: to,
            missed: SiteSet::EMPTY,
            acked: 0,
            is_late: false,
        };
        if op.count() > 1 {
            op.left = vec![op.count(); sites];
        }
        op
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.payload.chunks().len()).expect("chunks are few")
    }

    /// Sites that it is for.
    pub(super) fn to(&self) -> SiteSet {
        self.to
    }

    /// Sites that have not acknowledged all of it and were not given up.
    pub(super) fn owed(&self) -> SiteSet {
        self.owed
    }

    /// True once as many receivers have it as were owed it still.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// True when that has just become so.
    pub(super) fn turns_late(&mut self) -> bool {
        let turns = !self.is_late && self.acked > 0 && self.acked >= self.owed.len();
        self.is_late |= turns;
        turns
    }

    pub(super) fn missed(&self) -> SiteSet {
        self.missed
    }

    /// A site has acknowledged one more chunk. How many sites have all, if that was its last.
    pub(super) fn on_acked(&mut self, by: Site) -> Option<usize> {
        if let Some(left) = self.left.get_mut(by.index()) {
            *left -= 1;
            if *left > 0 {
                return None;
            }
        }
        if !self.owed.remove(by) {
            return None;
        }
        self.acked += 1;
        Some(self.acked)
    }

    pub(super) fn give_up(&mut self, sites: SiteSet) {
        self.missed = self.missed.union(sites.intersection(self.owed));
        self.owed = self.owed.difference(sites);
    }
}
