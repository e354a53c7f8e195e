//! The own stream: operations in, a way for each chunk, and what is sent again.

use bytes::Bytes;
use convoke_core::time::Timestamp;

use crate::event::{BroadcastError, Evidence, FetchError, Fetched};
use crate::payload::Payload;
use crate::relay::{Credit, cost};
use crate::routes::Relayed;
use crate::site::{Site, SiteSet};
use crate::uplink::Item;
use crate::wire::{Life, OpId, SEQ_MAX};

use super::reachability::Helpers;
use super::{Control, OverlayNode};

impl OverlayNode {
    /// Sends an operation to all other sites; it is not delivered at this one. Its memory is shared
    /// until nobody is owed it any more and it was displaced from what is kept for repair.
    ///
    /// [`Event::Acked`](crate::Event::Acked) says who has it,
    /// [`Event::AllAcked`](crate::Event::AllAcked) that nothing more comes of it.
    ///
    /// # Errors
    /// [`BroadcastError::NotReady`] when too much is unacknowledged;
    /// [`Event::Ready`](crate::Event::Ready) follows. [`BroadcastError::TooLarge`] beyond
    /// [`Limits::payload_bytes_max`](crate::Limits::payload_bytes_max).
    pub fn broadcast(&mut self, now: Timestamp, payload: Bytes) -> Result<OpId, BroadcastError> {
        let payload = Payload::cut(payload);
        let size = (payload.chunks().len(), payload.len());
        let sent = self.send(now, payload, SiteSet::first(self.sites));
        if sent == Err(BroadcastError::NotReady) {
            self.refused = Some(size);
            self.measure(now);
        }
        sent
    }

    /// Takes back what was not ready: no site is given up for its sake.
    pub fn withdraw(&mut self, now: Timestamp) {
        self.refused = None;
        self.measure(now);
    }

    /// Brings the body of requests to some sites, as [`Self::broadcast`] does to all. Those that
    /// relay it are among them. One that was away may be given what is not for it, by
    /// [`Event::Delivered`](crate::Event::Delivered).
    ///
    /// # Errors
    /// As [`Self::broadcast`], but no [`Event::Ready`](crate::Event::Ready) follows.
    pub fn bring(
        &mut self,
        now: Timestamp,
        body: Bytes,
        to: SiteSet,
    ) -> Result<OpId, BroadcastError> {
        self.send(now, Payload::cut_body(body), to)
    }

    fn send(
        &mut self,
        now: Timestamp,
        payload: Payload,
        to: SiteSet,
    ) -> Result<OpId, BroadcastError> {
        let (size, limit) = (payload.len(), self.limits.payload_bytes_max);
        if size > limit {
            return Err(BroadcastError::TooLarge { size, limit });
        }
        self.make_room(now, payload.chunks().len(), size)?;
        let seqs = self.sender.push(payload, to, self.gone);
        let id = self.sender.id(seqs.start);
        let others = SiteSet::first(self.sites).without(self.me).difference(to);
        for site in others.intersection(self.sendable()).iter() {
            self.control.insert((site, Control::Floor));
        }
        for seq in seqs.clone() {
            let len = self.sender.len_of(seq).unwrap_or(0);
            if len > self.limits.small_bytes {
                self.line.push(seq);
            } else {
                self.dispatch_by(now, seq, len, None);
            }
        }
        self.move_line(now);
        let finished = self.sender.settle(seqs.start, &mut self.events);
        self.hold(finished);
        Ok(id)
    }

    /// True when an operation of so many bytes would be taken now.
    pub fn is_ready(&self, bytes: usize) -> bool {
        self.sender.has_room(bytes.div_ceil(crate::wire::CHUNK_BYTES).max(1), bytes)
    }

    /// Sites that cannot be reached, or do not read, hold nobody up: if there is no room, they are
    /// not owed anything any more.
    fn make_room(
        &mut self,
        now: Timestamp,
        chunks: usize,
        bytes: usize,
    ) -> Result<(), BroadcastError> {
        let down = SiteSet::first(self.sites).without(self.me).difference(self.sendable());
        let stalled = self.sender.stalled(now, self.limits.stall_max);
        for site in down.union(stalled).difference(self.gone).iter() {
            if self.sender.has_room(chunks, bytes) {
                break;
            }
            self.give_up_site(site);
            if stalled.contains(site) {
                self.sender.on_stalled(site);
            }
            if self.sendable().contains(site) {
                // It acknowledges that once it reads, and is owed what is new again.
                self.control.insert((site, Control::Floor));
            }
        }
        if self.sender.has_room(chunks, bytes) { Ok(()) } else { Err(BroadcastError::NotReady) }
    }

    /// Lets time count against receivers that hold up what waits for room.
    pub(super) fn measure(&mut self, now: Timestamp) {
        let waits = self.refused.is_some();
        let measured = self.sendable().difference(self.gone);
        self.sender.measure(now, if waits { measured } else { SiteSet::EMPTY });
    }

    /// Makes room for what was not ready, as soon as that may be.
    pub(super) fn make_room_for_refused(&mut self, now: Timestamp) {
        if let Some((chunks, bytes)) = self.refused {
            let _ = self.make_room(now, chunks, bytes); // `Ready` says so.
        }
        self.measure(now);
    }

    /// Nothing is owed to a site any more, and nothing new until it can be reached again.
    pub(super) fn give_up_site(&mut self, site: Site) {
        self.gone.insert(site);
        let finished = self.sender.give_up_site(site, &mut self.events);
        self.hold(finished);
        self.drop_given_up(site);
    }

    /// Empties the queue of a link of what its site is not owed any more, and is not to pass on.
    pub(super) fn drop_given_up(&mut self, site: Site) {
        let sender = &self.sender;
        self.uplinks[site.index()].remove_own(|seq| !sender.is_to_leave(seq, site));
    }

    /// The application does not need the operations of a source's life below a sequence number any
    /// more, neither here nor for others: they are not kept for repair, and own ones are not sent
    /// any more to those who miss them.
    pub fn release(&mut self, source: Site, life: Life, below: u64) {
        if source == self.me && life == self.sender.id(0).life {
            let (owed, _) = self.sender.give_up_below(below, &mut self.events);
            owed.intersection(self.reach.up()).iter().for_each(|site| {
                self.control.insert((site, Control::Floor));
            });
            self.note_room();
        }
        self.holdings.release(OpId { source, life, seq: below });
    }

    /// Asks others for an operation that this site was told of and has not received, such as by the
    /// ordering layer after its source died. Any sequence number of the operation names it. One of
    /// a life that ended eight lives ago, or that this site has never met, may be delivered a
    /// second time if it is fetched a second time.
    ///
    /// # Errors
    /// [`FetchError::UnknownSite`], [`FetchError::OutOfRange`], or [`FetchError::Busy`] with the
    /// share of its source of [`Limits::fetches_max`](crate::Limits::fetches_max) being fetched.
    pub fn fetch(&mut self, now: Timestamp, op: OpId) -> Result<Fetched, FetchError> {
        if op.source.index() >= self.sites {
            return Err(FetchError::UnknownSite { site: op.source, sites: self.sites });
        }
        if op.seq > SEQ_MAX {
            // Others would take the question for no frame.
            return Err(FetchError::OutOfRange { seq: op.seq });
        }
        if let Some((_, payload)) = self.held(op) {
            return Ok(Fetched::Held(payload.clone()));
        }
        let is_own = self.sender.id(op.seq) == op;
        if is_own || self.receiver.expects(op) == Some(false) || self.fetches.is_done(op) {
            return Ok(Fetched::Delivered);
        }
        if !self.fetches.start(now, op, false) {
            return Err(FetchError::Busy { limit: self.limits.fetches_max });
        }
        self.poll_fetches(now);
        Ok(Fetched::Asked)
    }

    /// An own operation, while it is kept.
    pub(crate) fn own(&self, op: OpId) -> Option<&Payload> {
        let is_own = self.sender.id(op.seq) == op;
        self.held(op).filter(|(held, _)| is_own && *held == op).map(|(_, payload)| payload)
    }

    /// The operation with this sequence number, if it is still here.
    pub(super) fn held(&self, op: OpId) -> Option<(OpId, &Payload)> {
        let own = if self.sender.id(op.seq) == op { self.sender.find(op.seq) } else { None };
        own.or_else(|| self.holdings.find(op))
    }

    /// Up to which sequence number nothing is here of the stream of an operation that is not here.
    pub(super) fn nothing_until(&self, op: OpId) -> u64 {
        let own = if self.sender.id(op.seq) == op { self.sender.next_op(op.seq) } else { None };
        let held = self.holdings.next_op(op);
        own.into_iter().chain(held).min().unwrap_or(2 * SEQ_MAX)
    }

    /// Chooses a way that is open now for a chunk that has lost its way, and queues it.
    fn dispatch_again(&mut self, now: Timestamp, seq: u64) {
        let Some(len) = self.sender.len_of(seq) else { return };
        self.ask_relays_again(now, cost(len));
        let receivers = self.sender.receivers(seq);
        let way = self.choose(now, len, |credits, relay| {
            receivers.contains(relay) && credits[relay.index()].0.covers(cost(len))
        });
        self.dispatch_by(now, seq, len, way);
    }

    /// Queues a chunk on its way.
    pub(super) fn dispatch_by(
        &mut self,
        now: Timestamp,
        seq: u64,
        len: usize,
        way: Option<Relayed>,
    ) {
        let cost = cost(len);
        let session = way.and_then(|it| self.credits[it.relay.index()].0.spend(cost));
        let epoch = self.routes.epoch();
        let (to, is_relayed) = self.sender.route(now, seq, epoch, self.sendable(), way, session);
        if let Some(Relayed { relay, .. }) = way {
            if is_relayed {
                self.trust.on_given(now, relay, seq);
            } else {
                self.credits[relay.index()].0.refund(session, cost);
            }
        }
        self.enqueue(seq, len, to, self.me.index());
    }

    /// The way of the next chunk, of `len` bytes, over relays that `is_open`; none: direct. A relay
    /// that may prove itself again is given a frame before all others are.
    pub(super) fn choose(
        &mut self,
        now: Timestamp,
        len: usize,
        is_open: impl Fn(&[(Credit, Option<Timestamp>)], Site) -> bool,
    ) -> Option<Relayed> {
        let (trust, uplinks, credits) = (&self.trust, &self.uplinks, &self.credits);
        let reached = self.reach.reached().difference(self.reach.leaving());
        let is_open = |relay: Site| {
            reached.contains(relay) && !uplinks[relay.index()].is_stuck() && is_open(credits, relay)
        };
        let suspects = trust.suspects();
        let may_prove = |relay: &Site| {
            trust.is_usable(now, *relay)
                && is_open(*relay)
                && credits[relay.index()].0.covers(cost(len))
        };
        let way = match suspects.iter().find(may_prove) {
            Some(relay) => Some(self.routes.over(relay)),
            None => self.routes.choose(len, |relay| !suspects.contains(relay) && is_open(relay)),
        };
        let narrowed = way.and_then(|way| {
            let forward = way.forward.difference(self.reach.unreached_by(way.relay));
            (!forward.is_empty()).then_some(Relayed { forward, ..way })
        });
        narrowed.or_else(|| self.over_a_helper(suspects))
    }

    /// The direct way, but for sites that are not reached directly: one of the others passes it on
    /// to them, each in its turn. None when there is nobody to be helped, or to help.
    fn over_a_helper(&mut self, suspects: SiteSet) -> Option<Relayed> {
        if self.helpers.is_empty() {
            return None;
        }
        let helped: SiteSet = self.helpers.keys().copied().collect();
        let over = |relay: Site| {
            let forward = helped.difference(self.reach.unreached_by(relay));
            (!forward.is_empty()).then_some(Relayed { relay, forward })
        };
        let reached = self.reach.reached().difference(suspects.union(self.reach.leaving()));
        let ways: Vec<Relayed> = reached.iter().filter_map(over).collect();
        self.helper_turn = self.helper_turn.wrapping_add(1);
        ways.get(self.helper_turn % ways.len().max(1)).copied()
    }

    /// Relays that have granted nothing for a while are asked again: a grant may have been lost.
    pub(super) fn ask_relays_again(&mut self, now: Timestamp, cost: u64) {
        let relays = self.routes.relays().union(self.trust.suspects());
        for relay in relays.intersection(self.reach.up()).iter() {
            let (credit, heard_at) = &self.credits[relay.index()];
            let is_old = heard_at.is_none_or(|at| at + self.limits.credit_retry <= now);
            if is_old && !credit.covers(cost) {
                self.ask_for_credit(now, relay);
            }
        }
    }

    pub(super) fn ask_for_credit(&mut self, now: Timestamp, relay: Site) {
        self.credits[relay.index()].1 = Some(now);
        self.control.insert((relay, Control::Open));
    }

    /// Queues copies of a chunk.
    fn enqueue(&mut self, seq: u64, len: usize, to: SiteSet, class: usize) {
        for site in to.iter() {
            if let Some(Helpers { data, .. }) = self.helpers.get(&site) {
                self.uplinks[data.index()].push(class, Item::Through(seq, site), len);
                continue;
            }
            let uplink = &mut self.uplinks[site.index()];
            if len <= self.limits.small_bytes {
                uplink.push_small(seq);
            } else {
                uplink.push(class, Item::Own(seq), len);
            }
        }
    }

    /// Sends a chunk again, directly, to those who can be reached and have not acknowledged it.
    pub(super) fn send_again(&mut self, seq: u64, to: SiteSet) {
        let Some(len) = self.sender.len_of(seq) else { return };
        let to = self.sender.queue_again(seq, to.intersection(self.sendable()));
        // A class of its own, so that what is late does not wait behind all that is new.
        self.enqueue(seq, len, to, self.sites);
    }

    /// Sends what was queued for a relay another way.
    pub(super) fn route_around(&mut self, now: Timestamp, relay: Site) {
        for seq in self.sender.waiting_for(relay) {
            let Some((_, session)) = self.sender.unroute(seq) else { continue };
            let len = self.sender.len_of(seq).unwrap_or(0);
            self.credits[relay.index()].0.refund(session, cost(len));
            self.trust.on_withdrawn(now, relay, seq);
            self.dispatch_again(now, seq);
        }
    }

    /// A relay is not reached any more: what it was to forward goes another way, and what it has
    /// been sent is due again.
    pub(super) fn leave_relay(&mut self, now: Timestamp, relay: Site) {
        self.route_around(now, relay);
        for (seq, late) in self.sender.take_from(relay) {
            self.trust.on_withdrawn(now, relay, seq);
            self.send_again(seq, late);
        }
    }

    /// Chunks whose receivers are late.
    pub(super) fn expire(&mut self, now: Timestamp) {
        while let Some(late) = self.sender.expire(now) {
            if let Some(relay) = late.blamed {
                self.blame(now, relay, late.seq);
            }
            if let Some((relay, sites)) = late.missed {
                for by in sites.iter() {
                    self.blame_missed(now, late.seq, (relay, by), Evidence::Missed { by });
                }
            }
            self.send_again(late.seq, late.to);
        }
    }

    pub(super) fn blame(&mut self, now: Timestamp, relay: Site, seq: u64) {
        let is_new = self.trust.on_timeout(now, relay, seq);
        self.suspect(now, relay, is_new, Evidence::Late);
    }
}
