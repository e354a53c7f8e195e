//! Giving up operations for some sites: they were gone for too long, or the application does not
//! need them.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::event::Event;
use crate::payload::Payload;
use crate::site::{Site, SiteSet};
use crate::wire::OpId;

use super::Sender;
use super::chunk::Op;

impl Sender {
    /// A site is not owed anything any more.
    pub(crate) fn give_up_site(
        &mut self,
        site: Site,
        events: &mut VecDeque<Event>,
    ) -> Vec<(OpId, Payload)> {
        let owing = self.ops.iter().filter(|(_, op)| op.owed().contains(site));
        let firsts: Vec<u64> = owing.map(|(first, _)| *first).collect();
        let mut finished = Vec::new();
        for first in firsts {
            self.give_up(first, SiteSet::EMPTY.with(site), &mut finished, events);
        }
        self.trim();
        finished
    }

    /// Nobody is owed what lies below `seq`.
    pub(crate) fn give_up_below(
        &mut self,
        seq: u64,
        events: &mut VecDeque<Event>,
    ) -> (SiteSet, Vec<(OpId, Payload)>) {
        let below: Vec<(u64, SiteSet)> =
            self.ops.range(..seq).map(|(first, op)| (*first, op.owed())).collect();
        let mut finished = Vec::new();
        let mut owed = SiteSet::EMPTY;
        for (first, sites) in below {
            owed = owed.union(sites);
            self.give_up(first, sites, &mut finished, events);
        }
        self.trim();
        (owed, finished)
    }

    /// The oldest operation has waited for too long. Who does not get it.
    pub(crate) fn give_up_lagging(
        &mut self,
        now: Timestamp,
        events: &mut VecDeque<Event>,
    ) -> (SiteSet, Vec<(OpId, Payload)>) {
        let lag = self.limits.lag_max;
        let is_young = |op: &Op| op.queued_at.is_none_or(|at| at + lag > now);
        let old = self.ops.iter().find(|(_, op)| is_young(op)).map(|(first, _)| *first);
        self.give_up_below(old.unwrap_or(self.next_seq()), events)
    }

    /// Sites that the oldest operation waits for, that were sent what they miss and by no relay,
    /// and when each will have acknowledged nothing for so long.
    fn stalls(&self, after: Duration) -> impl Iterator<Item = (Site, Timestamp)> {
        let oldest = self.ops.iter().next();
        oldest.into_iter().flat_map(move |(first, op)| {
            op.owed().iter().filter_map(move |site| {
                let chunk = self.chunk(self.owed_after(site, *first))?;
                let is_sent = chunk.sent.contains(site) && !chunk.behind_relay().contains(site);
                let at = chunk.last_left_at.max(self.heard[site.index()].at) + after;
                is_sent.then_some((site, at))
            })
        })
    }

    /// Sites that have acknowledged nothing for so long, although they are owed the oldest
    /// operation, and those that have held up what is new for too long.
    pub(crate) fn stalled(&self, now: Timestamp, after: Duration) -> SiteSet {
        let stalls = self.stalls(after).chain(self.held_up_by());
        stalls.filter(|(_, at)| *at <= now).map(|(site, _)| site).collect()
    }

    /// The time at which there will be another one.
    pub(crate) fn stalls_at(&self, after: Duration) -> Option<Timestamp> {
        self.stalls(after).chain(self.held_up_by()).map(|(_, at)| at).min()
    }

    fn give_up(
        &mut self,
        first: u64,
        sites: SiteSet,
        finished: &mut Vec<(OpId, Payload)>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(op) = self.ops.get_mut(&first) else { return };
        let (given_up, count) = (op.owed().intersection(sites), u64::from(op.count()));
        op.give_up(sites);
        self.catch_up(first, given_up);
        self.note_most(first);
        for seq in first..first + count {
            let Some(chunk) = self.chunk_mut(seq) else { continue };
            chunk.missing = chunk.missing.difference(sites);
            if chunk.missing.is_empty() {
                self.disarm(seq);
            }
        }
        self.finish_if_done(first, finished, events);
    }

    /// Start of the first operation that a site is still owed. It may have acknowledged chunks of
    /// it.
    pub(crate) fn floor(&self, site: Site) -> u64 {
        let first = self.owed_after(site, self.owed_from[site.index()]);
        self.chunk(first).map_or(first, |chunk| chunk.op)
    }
}
