//! Frames that go out, events, and time.

use convoke_core::time::Timestamp;

use crate::event::{Event, Transmit, TransmitKind};
use crate::repair::Step;
use crate::site::Site;
use crate::uplink::{Item, Next, Repair};
use crate::wire::{Data, Fetch, Forward, Frame, OpId, SEQ_MAX};

use super::{Control, DELIVERY_BYTES, OverlayNode};

/// Sequence numbers of one range that are asked for at once.
const PULL_AHEAD: u64 = 16;

impl OverlayNode {
    /// A frame to send, until there is none. Not to be called for links that take nothing: say that
    /// they are blocked.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit> {
        // Looking for data may make control frames due.
        let first = self.poll_control(now).or_else(|| self.poll_data(now));
        first.or_else(|| self.poll_control(now))
    }

    fn poll_control(&mut self, now: Timestamp) -> Option<Transmit> {
        self.ask_again();
        if let Some((to, passed)) = self.passes.pop_front() {
            return Some(Transmit {
                to,
                kind: TransmitKind::Control,
                frame: Frame::Passed(passed),
            });
        }
        while let Some((to, control)) = self.control.pop_first() {
            let Some(frame) = self.make(now, to, control) else { continue };
            let Some((to, frame)) = self.address(to, frame) else { continue };
            self.counters.control_frames += 1;
            self.counters.control_bytes += frame.encoded_len() as u64;
            return Some(Transmit { to, kind: TransmitKind::Control, frame });
        }
        None
    }

    fn make(&mut self, now: Timestamp, to: Site, control: Control) -> Option<Frame> {
        Some(match control {
            Control::Floor => {
                let (floor, is_more) = self.sender.make_floor(to);
                if is_more {
                    self.control.insert((to, Control::Floor));
                }
                Frame::Floor(floor)
            }
            Control::Open => Frame::RelayOpen,
            Control::Credit => {
                let (session, limit_bytes) = self.forwards.grant(to);
                Frame::RelayCredit { session, limit_bytes }
            }
            Control::Ack => Frame::Ack(self.receiver.ack(to)?),
            Control::View => Frame::View(self.view),
            Control::Notice(relay) => self.make_notice(to, relay)?,
            Control::Missed(relay, flaw) => self.make_missed(to, relay, flaw)?,
            Control::Ping => Frame::Ping { at: now.as_nanos() },
            Control::Pong(at) => Frame::Pong { at },
            Control::Fetch(op) => {
                let present = self.fetches.present(op, to, self.receiver.present(op));
                Frame::Fetch(Fetch { op, present })
            }
            Control::HaveNot(op) => Frame::HaveNot { op, until: self.nothing_until(op) },
        })
    }

    /// Links take turns.
    fn poll_data(&mut self, now: Timestamp) -> Option<Transmit> {
        self.move_line(now);
        for _ in 0..self.sites {
            let to = Self::site(self.turn);
            self.turn = (self.turn + 1) % self.sites;
            if let Some(data) = self.next_data(now, to) {
                return Some(Transmit { to, kind: TransmitKind::Data, frame: Frame::Data(data) });
            }
        }
        None
    }

    fn next_data(&mut self, now: Timestamp, to: Site) -> Option<Data> {
        loop {
            let may_repair = self.repair_bucket.is_open(now);
            let may_borrow = self.site_bucket.is_open(now);
            let next = self.uplinks[to.index()].pop(now, may_borrow, may_repair)?;
            let data = match next {
                Next::Small(seq) | Next::Bulk(Item::Own(seq)) => self.sender.transmit(now, seq, to),
                Next::Bulk(Item::Forward(id)) => self.take_forward(id),
                Next::Bulk(Item::Through(seq, site)) => self.take_through(now, seq, site, to),
                Next::Repair(repair) => self.make_repair(repair),
            };
            // Some chunks have been acknowledged, or displaced, while they waited.
            let Some(data) = data else { continue };
            if data.op.source == self.me {
                self.announce(to, &data);
            }
            self.count(now, to, next, &data);
            return Some(data);
        }
    }

    fn take_forward(&mut self, id: u64) -> Option<Data> {
        let data = self.forwards.release(id)?;
        self.note_credit(data.op.source);
        Some(data)
    }

    fn make_repair(&self, repair: Repair) -> Option<Data> {
        let (op, payload) = self.held(repair.op)?;
        let count = u32::try_from(payload.chunks().len()).ok()?;
        let (is_repair, is_body) = (true, payload.is_body());
        let payload = payload.chunks().get(repair.index as usize)?.clone();
        let (index, epoch, forward) = (repair.index, self.routes.epoch(), Forward::Nobody);
        Some(Data { op, index, count, epoch, forward, is_repair, is_body, payload })
    }

    fn count(&mut self, now: Timestamp, to: Site, next: Next, data: &Data) {
        let bytes = Frame::Data(data.clone()).encoded_len();
        if !matches!(next, Next::Small(_)) {
            self.uplinks[to.index()].spend(now, bytes);
            self.site_bucket.spend(now, bytes);
        }
        let counters = &mut self.counters;
        let (frames, sum) = match next {
            Next::Repair(_) => {
                self.repair_bucket.spend(now, bytes);
                (&mut counters.repair_frames, &mut counters.repair_bytes)
            }
            Next::Bulk(Item::Forward(_)) => {
                (&mut counters.forwarded_frames, &mut counters.forwarded_bytes)
            }
            _ if data.is_repair => (&mut counters.resent_frames, &mut counters.resent_bytes),
            _ => (&mut counters.own_frames, &mut counters.own_bytes),
        };
        *frames += 1;
        *sum += bytes as u64;
        let source = data.op.source;
        if source == self.me && data.forward != Forward::Nobody {
            self.traffic[to.index()].relayed_by_bytes += bytes as u64;
        } else if matches!(next, Next::Bulk(Item::Forward(_))) {
            self.traffic[source.index()].relayed_for_bytes += bytes as u64;
        }
    }

    /// Something for the user, until there is nothing.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::AllAcked { missed, .. } = &event {
            self.counters.given_up += u64::from(!missed.is_empty());
        }
        if let Event::Delivered { op, payload } = &event {
            self.undelivered.take(op.source, payload.len() + DELIVERY_BYTES);
            self.roomier.insert(op.source);
        }
        Some(event)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest; none: not before the
    /// next input.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let (borrow_at, repair_at) = (self.site_bucket.opens_at(), self.repair_bucket.opens_at());
        let links = self.uplinks.iter();
        let links = links.filter_map(|link| link.poll_timeout(borrow_at, repair_at)).min();
        let gone = self.waiting_for_links().map(|(_, at)| at).min();
        let pulls = self.pulls.values().copied().min();
        let line = self.line.poll_timeout();
        let parts = [self.sender.poll_timeout(), self.receiver.poll_timeout(), line];
        let parts = parts.into_iter().chain([self.fetches.poll_timeout(), links, gone, pulls]);
        let stall = self.refused.and_then(|_| self.sender.stalls_at(self.limits.stall_max));
        let parts = parts.chain([self.reach.poll_timeout(), self.proofs.poll_timeout(), stall]);
        parts.flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.poll_reach(now);
        self.poll_missed(now);
        self.expire(now);
        self.leave_stuck(now);
        self.give_up(now);
        self.poll_acks(now);
        self.poll_pulls(now);
        self.poll_fetches(now);
        if self.is_behind {
            self.note_behind(now);
        }
    }

    fn give_up(&mut self, now: Timestamp) {
        let late = self.waiting_for_links().filter(|(_, at)| *at <= now);
        for site in late.map(|(site, _)| site).collect::<Vec<_>>() {
            self.give_up_site(site);
        }
        let (lagging, finished) = self.sender.give_up_lagging(now, &mut self.events);
        self.hold(finished);
        self.make_room_for_refused(now);
        for site in lagging.intersection(self.reach.up()).iter() {
            self.drop_given_up(site);
            self.control.insert((site, Control::Floor));
        }
    }

    /// Sites without a link, and until when they are owed what they miss.
    fn waiting_for_links(&self) -> impl Iterator<Item = (Site, Timestamp)> {
        let owed_for = self.limits.owed_for;
        let down = self.uplinks.iter().enumerate().filter_map(move |(index, link)| {
            link.down_since.map(|at| (Self::site(index), at + owed_for))
        });
        let keeps = |site: &Site| self.gone.contains(*site) || self.helpers.contains_key(site);
        down.filter(move |(site, _)| *site != self.me && !keeps(site))
    }

    pub(super) fn poll_acks(&mut self, now: Timestamp) {
        while let Some(source) = self.receiver.poll_ack(now) {
            if self.sendable().contains(source) {
                self.control.insert((source, Control::Ack));
            }
        }
    }

    pub(super) fn poll_fetches(&mut self, now: Timestamp) {
        while let Some(step) = self.next_fetch(now) {
            match step {
                Step::Ask(op, holder) => {
                    self.control.insert((holder, Control::Fetch(op)));
                }
                Step::Unavailable { op, until, is_pull } => {
                    self.on_unavailable(now, op, until, is_pull);
                }
            }
        }
    }

    fn next_fetch(&mut self, now: Timestamp) -> Option<Step> {
        let (receiver, reached) = (&self.receiver, self.reach.reached());
        self.fetches.poll(now, reached, &|op| receiver.is_owed(op))
    }

    /// The stream goes on without the operation once its source has been gone for so long that it
    /// owes nothing here. A site that reaches none of several others is cut off itself: it asks
    /// them once it is back.
    fn on_unavailable(&mut self, now: Timestamp, op: OpId, until: u64, is_pull: bool) {
        if !is_pull {
            self.events.push_back(Event::Unavailable { op });
        }
        let down_since = self.uplinks[op.source.index()].down_since;
        let is_gone = down_since.is_some_and(|at| at + self.limits.owed_for <= now);
        let is_over = is_gone && !self.helpers.contains_key(&op.source);
        let is_cut_off = self.reach.reached().is_empty() && self.sites > 2;
        if (is_over || self.receiver.is_given_up(op)) && !is_cut_off {
            let (holes, delivered) = self.receiver.skip(op, until);
            self.note_gaps(op.source, op.life, holes);
            self.deliver_all(op.source, delivered);
        }
        self.watch_holes(now, op.source);
    }

    /// Plans to ask others for holes in the stream of a source that has no link, or has given them
    /// up.
    pub(super) fn watch_holes(&mut self, now: Timestamp, source: Site) {
        let at = match self.receiver.owes_nothing(source) {
            true => now,
            false if self.reach.reached().contains(source) => return,
            false => now + self.limits.pull_after,
        };
        if self.receiver.has_holes(source) {
            self.pulls.entry(source).or_insert(at);
        }
    }

    fn poll_pulls(&mut self, now: Timestamp) {
        let due = self.pulls.iter().filter(|(_, at)| **at <= now);
        for source in due.map(|(source, _)| *source).collect::<Vec<_>>() {
            self.pulls.remove(&source);
            self.pull(now, source);
        }
    }

    /// Asks for the first few of each range that is missing: they may be of one operation that
    /// fills the rest.
    fn pull(&mut self, now: Timestamp, source: Site) {
        let Some(life) = self.receiver.life_of(source) else { return };
        let holes = self.receiver.holes(source).into_iter();
        let missing = holes.flat_map(|(from, to)| from..to.min(from + PULL_AHEAD));
        for seq in missing.filter(|seq| *seq <= SEQ_MAX) {
            if !self.fetches.start(now, OpId { source, life, seq }, true) {
                break;
            }
        }
        if self.receiver.has_holes(source) {
            self.pulls.insert(source, now + self.limits.fetch_timeout);
        }
    }
}
