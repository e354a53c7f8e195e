//! Own bulk that has no way yet.
//!
//! A chunk chooses its way as late as it can: when the first link of that way has little left to
//! send. Chosen at once, a backlog would go the way that was open when it was broadcast, such as
//! direct because a relay's credit was used up, and not the ways that the plan gives it.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::relay::cost;
use crate::routes::Relayed;
use crate::site::{Site, SiteSet};

use super::OverlayNode;

/// Bytes of own chunks that a link has queued before more choose it: two of the largest, so that it
/// never waits for the next.
const QUEUED_BYTES: usize = 128 << 10;

/// Time that the first in line waits for the credit of its relay. Then that relay is passed over
/// until it grants some.
const CREDIT_WAIT: Duration = Duration::from_millis(250);

/// Chunks in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Line {
    seqs: VecDeque<u64>,
    /// The way of the first; none before it was chosen. No relay is the direct way.
    way: Option<Option<Relayed>>,
    /// Since when its relay grants nothing.
    waits_since: Option<Timestamp>,
    /// Relays that are passed over.
    starved: SiteSet,
}

impl Line {
    pub(super) fn push(&mut self, seq: u64) {
        self.seqs.push_back(seq);
    }

    pub(super) fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Lets the first in line choose again, as what is known of relays has changed.
    pub(super) fn choose_again(&mut self) {
        self.way = None;
        self.waits_since = None;
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.waits_since.map(|since| since + CREDIT_WAIT)
    }

    fn pop(&mut self) {
        self.seqs.pop_front();
        self.choose_again();
    }

    /// The first waits for credit. Whether it has waited long enough.
    fn waits_in_vain(&mut self, now: Timestamp) -> bool {
        let since = *self.waits_since.get_or_insert(now);
        now >= since + CREDIT_WAIT
    }
}

/// Readiness of a way to take a chunk now.
enum Room {
    Yes,
    /// Its links have enough to send.
    Later,
    /// Its relay has to grant more first.
    NoCredit(Site),
}

impl OverlayNode {
    /// Sends chunks on their ways, as long as there is room.
    pub(super) fn move_line(&mut self, now: Timestamp) {
        while let Some(seq) = self.line.seqs.front().copied() {
            let Some(len) = self.sender.len_of(seq) else {
                self.line.pop(); // Nobody is owed it any more.
                continue;
            };
            let way = self.way_of_first(now, seq, len);
            match self.room_on(way, len) {
                Room::Yes => {
                    self.line.pop();
                    self.dispatch_by(now, seq, len, way);
                }
                Room::Later => {
                    self.line.waits_since = None;
                    return;
                }
                Room::NoCredit(relay) if self.line.waits_in_vain(now) => {
                    self.line.starved.insert(relay);
                    self.counters.starved += 1;
                    self.line.choose_again();
                }
                Room::NoCredit(_) => return,
            }
        }
    }

    fn way_of_first(&mut self, now: Timestamp, seq: u64, len: usize) -> Option<Relayed> {
        if let Some(way) = self.line.way {
            return way;
        }
        self.ask_relays_again(now, cost(len));
        let (credits, line) = (&self.credits, &mut self.line);
        let is_fed = |relay: &Site| credits[relay.index()].0.covers(cost(len));
        line.starved = line.starved.difference(line.starved.iter().filter(is_fed).collect());
        let starved = line.starved;
        let receivers = self.sender.receivers(seq).difference(starved);
        let way = self.choose(now, len, |_, relay| receivers.contains(relay));
        self.line.way = Some(way);
        way
    }

    fn room_on(&self, way: Option<Relayed>, len: usize) -> Room {
        let is_short = |site: Site| {
            let uplink = &self.uplinks[site.index()];
            !uplink.is_blocked() && uplink.bulk_bytes(self.me.index()) < QUEUED_BYTES
        };
        let has_room = match way {
            Some(Relayed { relay, .. }) if !self.credits[relay.index()].0.covers(cost(len)) => {
                return Room::NoCredit(relay);
            }
            Some(Relayed { relay, .. }) => is_short(relay),
            // One receiver that is slow holds up nobody else.
            None => self.reach.up().is_empty() || self.reach.up().iter().any(is_short),
        };
        if has_room { Room::Yes } else { Room::Later }
    }
}
