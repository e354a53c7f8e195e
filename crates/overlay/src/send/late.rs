//! Receivers that do not acknowledge in time: how long that is, who is sent to again, and whose
//! doing it is.

use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::ack_time::AckTime;
use crate::site::{Site, SiteSet};

use super::Sender;
use super::chunk::Chunk;

/// Time that a relay may take beyond what the direct way does.
const RELAY_PATIENCE: Duration = Duration::from_secs(1);

/// Pause after which a relay that acknowledged one chunk after the other does not any more. Over a
/// link that carries ten chunks a second to four relays each acknowledges one in 0.4 s; with a
/// second here sources did not leave a relay that had stopped reading.
const PROGRESS: Duration = Duration::from_millis(500);

/// Receivers that have not acknowledged in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) seq: u64,
    /// Sites that are to get it again.
    pub(crate) to: SiteSet,
    /// The relay whose doing it seems to be.
    pub(crate) blamed: Option<Site>,
    /// The relay that should have brought it, and those that have said early that it did not.
    pub(crate) missed: Option<(Site, SiteSet)>,
}

/// Times of the last acknowledgements of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// Time at which the latest left of what it has acknowledged and had come to it directly: all
    /// that was sent to it directly before has come, too.
    pub(super) of: Timestamp,
    /// When it acknowledged something new last.
    pub(super) at: Timestamp,
}

impl Heard {
    pub(super) fn note(&mut self, now: Timestamp, left_at: Option<Timestamp>) {
        self.at = now;
        self.of = left_at.map_or(self.of, |left_at| self.of.max(left_at));
    }
}

impl Sender {
    /// Takes what is overdue, one chunk at a time.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Option<Late> {
        let (at, seq) = *self.due.first()?;
        if at > now {
            return None;
        }
        let silent = self.silent(seq);
        let direct_timer = self.direct_timer(seq, self.me);
        let waits_until =
            self.chunk(seq).and_then(|chunk| self.in_transit_until(chunk, chunk.relay_timer));
        let heard = &self.heard;
        let index = usize::try_from(seq - self.base).expect("what is due is retained");
        let chunk = &mut self.chunks[index];
        let (mut to, mut blamed, mut missed) = (SiteSet::EMPTY, None, None);
        let is_due = chunk.relay_due.is_some_and(|due| due <= now);
        if let Some(until) = waits_until.filter(|until| is_due && *until > now) {
            chunk.relay_due = Some(until);
        } else if let Some(route) = chunk.route.filter(|_| is_due) {
            let late = chunk.missing.intersection(chunk.behind_relay());
            // Receivers say themselves what a relay does not bring. One that acknowledges what it
            // gets may be slow.
            let is_mute = Some(heard[route.relay.index()].at) <= chunk.left_at;
            blamed = (is_mute && late.contains(route.relay)).then_some(route.relay);
            // The relay's own copy is on a link that loses nothing.
            to = late.without(route.relay);
            let by = late.intersection(std::mem::take(&mut chunk.missed_by));
            missed = (!by.is_empty()).then_some((route.relay, by));
            chunk.route = None;
            chunk.relay_due = None;
        }
        if chunk.direct_due.is_some_and(|due| due <= now) {
            let direct = chunk.missing.difference(chunk.behind_relay()).difference(silent);
            to = to.union(direct);
            if !direct.is_empty() {
                chunk.attempts += 1;
            }
            chunk.direct_due = Some(now + direct_timer);
        }
        self.arm(seq);
        Some(Late { seq, to, blamed, missed })
    }

    /// The time until which a chunk may be on its way to its relay still. Links keep their order,
    /// so it is as long as the relay acknowledges what left before, and nothing that left later.
    /// A miss behind it until then is not the relay's doing, and a second copy would wait behind
    /// the first; but there is an end to it, as with all that a relay is late with.
    fn in_transit_until(&self, chunk: &Chunk, pause: Duration) -> Option<Timestamp> {
        let (relay, left_at) = (chunk.route?.relay, chunk.left_at?);
        let heard = self.heard[relay.index()];
        let is_there = !chunk.missing.contains(relay) || heard.of > left_at;
        let until = (heard.at + pause).min(left_at + self.relay_patience(relay));
        (!is_there).then_some(until)
    }

    /// True when a chunk has not reached the relay that is to bring it to a site that misses it.
    /// The site is remembered, until it is certain that the relay has it.
    pub(super) fn is_in_transit(
        &mut self,
        now: Timestamp,
        seq: u64,
        (relay, by): (Site, Site),
    ) -> bool {
        let goes_by = |it: &&Chunk| it.route.is_some_and(|route| route.relay == relay);
        let chunk = self.chunk(seq).filter(goes_by);
        let until = chunk.and_then(|chunk| self.in_transit_until(chunk, PROGRESS));
        let is_in_transit = until.is_some_and(|until| until > now);
        if let Some(chunk) = self.chunk_mut(seq).filter(|_| is_in_transit) {
            chunk.missed_by.insert(by);
        }
        is_in_transit
    }

    /// Sites that have not acknowledged anything that left after the chunk did: more would not
    /// help. But each is sent the first that it is owed, so that it is heard of again.
    fn silent(&mut self, seq: u64) -> SiteSet {
        let Some(chunk) = self.chunk(seq) else { return SiteSet::EMPTY };
        let (missing, left_at) = (chunk.missing, chunk.left_at);
        let is_silent = |it: &Site| Some(self.heard[it.index()].of) <= left_at;
        let silent: SiteSet = missing.iter().filter(is_silent).collect();
        silent.iter().filter(|site| self.first_owed(*site) != seq).collect()
    }

    /// The first sequence number that a site is owed.
    pub(super) fn first_owed(&mut self, site: Site) -> u64 {
        let first = self.owed_after(site, self.owed_from[site.index()]);
        self.owed_from[site.index()] = first;
        first
    }

    pub(super) fn owed_after(&self, site: Site, from: u64) -> u64 {
        let is_owed = |seq: &u64| self.chunk(*seq).is_some_and(|it| it.missing.contains(site));
        let end = self.next_seq();
        (from.max(self.base)..end).find(is_owed).unwrap_or(end)
    }

    /// A relay fails: its timer is longer for the next probation.
    pub(crate) fn back_off(&mut self, relay: Site) {
        self.relay_times[relay.index()].back_off();
    }

    /// Time that those behind a relay may take.
    pub(crate) fn relay_timer(&self, relay: Site) -> Duration {
        let limits = &self.limits;
        let time = &self.relay_times[relay.index()];
        time.timer(limits.relay_timer_initial, limits.relay_timer_margin, limits.relay_timer_max)
    }

    /// Time that a relay may take at most. One that brings everything, and late, nobody misses
    /// anything of. Where the direct way takes long, too, or every other relay, it is not the
    /// relay.
    pub(super) fn relay_patience(&self, relay: Site) -> Duration {
        let direct = of_others(&self.direct_times, relay).max();
        let fastest = of_others(&self.relay_times, relay).min();
        RELAY_PATIENCE + direct.max(fastest).unwrap_or_default() * 2
    }

    pub(super) fn direct_timer(&self, seq: u64, to: Site) -> Duration {
        let limits = &self.limits;
        let measured = self.direct_times[to.index()].p99().unwrap_or_default() * 3;
        let attempts = self.chunk(seq).map_or(0, |chunk| chunk.attempts.min(16));
        let timer = measured.max(limits.direct_timer_min).saturating_mul(1 << attempts);
        timer.min(limits.direct_timer_max)
    }

    pub(super) fn arm(&mut self, seq: u64) {
        self.disarm(seq);
        let Some(chunk) = self.chunk_mut(seq).filter(|chunk| !chunk.missing.is_empty()) else {
            return;
        };
        chunk.due = [chunk.relay_due, chunk.direct_due].into_iter().flatten().min();
        if let Some(due) = chunk.due {
            self.due.insert((due, seq));
        }
    }

    pub(super) fn disarm(&mut self, seq: u64) {
        if let Some(due) = self.chunk_mut(seq).and_then(|chunk| chunk.due.take()) {
            self.due.remove(&(due, seq));
        }
    }
}

/// Times of the ways by all sites but one, of which 99 in 100 are not above them.
fn of_others(times: &[AckTime], site: Site) -> impl Iterator<Item = Duration> {
    let others = times.iter().enumerate().filter(move |(index, _)| *index != site.index());
    others.filter_map(|(_, time)| time.p99())
}
