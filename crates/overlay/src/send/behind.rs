//! Receivers that keep the room of what the others have: how much of it, and for how long they may.
//!
//! A receiver that says nothing is found by its silence. One that takes a little now and then, or
//! nothing but what it is told that it does not get any more, is found here. While it holds up what
//! is new it uses up the patience there is with it, and earns it again with what it acknowledges:
//! all of it stays as long as the receiver takes the whole room within the time that an operation
//! may wait.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::limits::Limits;
use crate::site::{Site, SiteSet};
use crate::wire::WINDOW;

use super::Sender;

/// Part of its patience that a receiver has left once it was given up. With nothing, one that is
/// far away would not be waited for until its first acknowledgement comes; with much, one that
/// acknowledges no data would hold up the others again each time.
const PATIENCE_SHARE: u32 = 8;

/// One receiver, as the others go.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    /// Bytes of operations that as many receivers have as lack them, and that it lacks.
    bytes: usize,
    /// And their chunks.
    chunks: u64,
    /// Time for which it may hold up what is new.
    patience: Duration,
    /// Since when it does.
    since: Option<Timestamp>,
}

impl Behind {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { bytes: 0, chunks: 0, patience: limits.stall_max, since: None }
    }

    fn is_given_up_at(&self) -> Option<Timestamp> {
        self.since.map(|since| since + self.patience)
    }

    fn turn(&mut self, now: Timestamp, holds_up: bool) {
        let held_up = self.since.map_or(Duration::ZERO, |since| now - since);
        self.patience = self.patience.saturating_sub(held_up);
        self.since = holds_up.then_some(now);
    }
}

impl Sender {
    /// Lets time count against those of `sites` that keep half of the room: none of them unless
    /// something waits for room.
    pub(crate) fn measure(&mut self, now: Timestamp, sites: SiteSet) {
        for site in sites.union(self.holding).iter() {
            let holds_up = sites.contains(site) && self.keeps_room(site);
            self.behind[site.index()].turn(now, holds_up);
            match holds_up {
                true => self.holding.insert(site),
                false => self.holding.remove(site),
            };
        }
    }

    /// True for a site that lacks what takes half of the room, and that no relay is to bring it.
    fn keeps_room(&mut self, site: Site) -> bool {
        let Behind { bytes, chunks, .. } = self.behind[site.index()];
        if bytes <= self.unacked_max / 2 && chunks <= WINDOW / 2 {
            return false;
        }
        let first = self.first_owed(site);
        self.chunk(first).is_some_and(|chunk| chunk.goes_directly(site))
    }

    /// Sites that have held up what is new for too long, and when each will have.
    pub(super) fn held_up_by(&self) -> impl Iterator<Item = (Site, Timestamp)> {
        let sites = self.holding.iter();
        sites.filter_map(|site| Some((site, self.behind[site.index()].is_given_up_at()?)))
    }

    /// A site is given up that had a link: it is waited for again as it takes something.
    pub(crate) fn on_stalled(&mut self, site: Site) {
        let behind = &mut self.behind[site.index()];
        behind.since = None;
        behind.patience = self.limits.stall_max / PATIENCE_SHARE;
        self.holding.remove(site);
    }

    /// A site has acknowledged a chunk.
    pub(super) fn earn(&mut self, site: Site, bytes: usize) {
        let Limits { lag_max, stall_max, .. } = self.limits;
        let behind = &mut self.behind[site.index()];
        if behind.patience < stall_max {
            let part = lag_max.as_nanos() * bytes as u128 / self.unacked_max.max(1) as u128;
            let nanos = part.max(lag_max.as_nanos() / u128::from(WINDOW));
            let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            behind.patience = behind.patience.saturating_add(earned).min(stall_max);
        }
    }

    /// Counts an operation against those who lack it, once as many others have it.
    pub(super) fn note_most(&mut self, first: u64) {
        let Some(op) = self.ops.get_mut(&first) else { return };
        if !op.turns_late() {
            return;
        }
        let (bytes, chunks) = (op.payload.len(), u64::from(op.count()));
        for site in op.owed().iter() {
            let behind = &mut self.behind[site.index()];
            behind.bytes += bytes;
            behind.chunks += chunks;
        }
    }

    /// Some are not owed an operation any more.
    pub(super) fn catch_up(&mut self, first: u64, sites: SiteSet) {
        let Some(op) = self.ops.get(&first).filter(|op| op.is_late()) else { return };
        let (bytes, chunks) = (op.payload.len(), u64::from(op.count()));
        for site in sites.iter() {
            let behind = &mut self.behind[site.index()];
            behind.bytes -= bytes;
            behind.chunks -= chunks;
        }
    }
}
