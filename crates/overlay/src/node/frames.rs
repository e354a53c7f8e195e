//! Frames that come in.

use convoke_core::time::Timestamp;

use crate::event::{Event, Evidence, Fault};
use crate::payload::Payload;
use crate::proof::Proof;
use crate::receive::{Holes, Taken};
use crate::send::Progress;
use crate::site::{Site, SiteSet};
use crate::uplink::Item;
use crate::wire::{Ack, CHUNK_BYTES, Data, Fetch, Flaw, Floor, Forward, Frame, Life, OpId};

use super::{CONTROL_MAX, Control, DELIVERY_BYTES, EVENTS_MAX, OverlayNode};

/// Bytes of one source that may be unread for each that is free: one alone gets eight ninths of the
/// bound.
const UNREAD_PER_FREE: usize = 8;

impl OverlayNode {
    /// A frame has come from a site, as its connection says. One from a site without a link is
    /// ignored.
    ///
    /// # Errors
    /// [`Fault`]: the frame breaks the rules, and nothing came of it.
    pub fn handle_frame(&mut self, now: Timestamp, from: Site, frame: Frame) -> Result<(), Fault> {
        if from == self.me || from.index() >= self.sites {
            return Err(Fault::Site { site: from });
        }
        let is_full = self.events.len() >= EVENTS_MAX;
        if !self.reach.up().contains(from) {
            return Ok(());
        }
        if self.reach.on_heard(now, from) {
            self.on_reach_changed(now);
        }
        match frame {
            Frame::Floor(_) | Frame::View(_) | Frame::Pong { .. } if is_full => {}
            Frame::Data(data) => return self.on_data(now, from, data),
            Frame::Ack(ack) => return self.on_ack(now, from, &ack),
            Frame::Floor(floor) => self.on_floor(now, from, &floor),
            Frame::RelayOpen => {
                self.forwards.open(from);
                self.control.insert((from, Control::Credit));
            }
            Frame::RelayCredit { session, limit_bytes } => {
                let (credit, heard_at) = &mut self.credits[from.index()];
                credit.grant(session, limit_bytes);
                *heard_at = Some(now);
            }
            Frame::Fetch(fetch) => self.on_fetch(from, &fetch),
            Frame::HaveNot { op, until } => {
                self.fetches.on_have_not(now, op, until, from);
                self.poll_fetches(now);
                if from == op.source && self.receiver.is_owed(op) {
                    // It does not owe it, and says where to go on, as may have been lost.
                    self.receiver.note_copy(now, op.source, op.life);
                    self.poll_acks(now);
                }
            }
            Frame::View(view) => return self.on_view(now, from, view),
            Frame::Notice(notice) => return self.on_notice(now, from, notice),
            Frame::Missed(_) | Frame::Passed(_) if is_full => {}
            Frame::Missed(missed) => self.on_missed(now, from, missed),
            Frame::Passed(passed) => return self.on_passed(now, from, passed),
            Frame::Ping { at } => {
                if self.control.len() < CONTROL_MAX {
                    self.control.insert((from, Control::Pong(at)));
                }
            }
            Frame::Pong { at } => self.on_pong(now, from, at),
        }
        Ok(())
    }

    fn on_data(&mut self, now: Timestamp, from: Site, data: Data) -> Result<(), Fault> {
        let source = data.op.source;
        let is_own_life = self.sender.id(data.op.seq) == data.op;
        if source.index() >= self.sites || is_own_life {
            return Err(Fault::Site { site: source });
        }
        if data.count as usize > self.limits.payload_bytes_max.div_ceil(CHUNK_BYTES) {
            return Err(Fault::Chunks { op: data.op });
        }
        if data.forward != Forward::Nobody {
            // Only a source asks to forward: so no frame makes a third hop, whatever plans the
            // sites have.
            if from != source {
                return Err(Fault::SecondRelay { source_site: source });
            }
            self.forward(&data);
        }
        if self.is_full(source) {
            if from == source || (data.is_repair && self.proofs.check(&data) == Proof::Right) {
                self.find_no_room(now, from, data.op, data.seq(), data.payload.len());
            } else if !data.is_repair {
                // Its notice may be on its way: its source is told then.
                return self.prove(now, from, data);
            }
            return Ok(());
        }
        // Of an earlier life of this site comes what it asks for, and not the rest of it.
        let is_of_another = from != source && source != self.me;
        if is_of_another && self.receiver.life_of(source).is_none() {
            self.learn_life(source, data.op.life);
        }
        if data.is_repair && self.receiver.expects(data.op).is_none() {
            return self.take_fetched(now, from, data);
        }
        match from == source {
            true => self.receive(now, from, data),
            false if data.is_repair && self.is_answer(from, &data) => {
                self.take_answer(now, from, data)
            }
            false => self.prove(now, from, data),
        }
    }

    /// True for an answer to a fetch, where no source says what it should be: it is gone, or has
    /// given the operation up.
    fn is_answer(&self, from: Site, data: &Data) -> bool {
        let will_come =
            self.receiver.is_owed(data.op) && self.reach.reached().contains(data.op.source);
        let is_open = !will_come && self.proofs.check(data) == Proof::None;
        is_open && self.fetches.asks(data.op, data.count, from)
    }

    /// Takes a chunk of an answer. The stream gets it once it is whole.
    fn take_answer(&mut self, now: Timestamp, from: Site, data: Data) -> Result<(), Fault> {
        let here = self.receiver.present(data.op);
        match self.fetches.take(now, from, data, &here)? {
            Some(chunks) => self.take_whole(now, from, chunks),
            None => Ok(()),
        }
    }

    fn take_whole(&mut self, now: Timestamp, from: Site, chunks: Vec<Data>) -> Result<(), Fault> {
        if !self.receiver.fits_whole(&chunks) {
            self.fetches.on_useless(from);
            return Ok(());
        }
        if !self.receiver.has_room_for(&chunks) {
            self.counters.no_room += chunks.len() as u64;
            return Ok(()); // It is asked for again.
        }
        if !chunks.iter().all(|chunk| self.is_answer(from, chunk)) {
            return Ok(());
        }
        chunks.into_iter().try_for_each(|chunk| self.receive(now, from, chunk))
    }

    /// Queues a frame for those it is to be forwarded to, as far as they can be reached.
    fn forward(&mut self, data: &Data) {
        let source = data.op.source;
        let asked = match data.forward {
            Forward::Nobody => SiteSet::EMPTY,
            Forward::AllOthers => self.reach.reached(),
            Forward::To(sites) => sites.intersection(self.reach.reached()),
        };
        let is_stuck = |site: &Site| self.uplinks[site.index()].is_stuck();
        let to: SiteSet = asked.without(source).iter().filter(|site| !is_stuck(site)).collect();
        if let Some(id) = self.forwards.take(data, to.len()) {
            for site in to.iter() {
                let uplink = &mut self.uplinks[site.index()];
                uplink.push(source.index(), Item::Forward(id), data.payload.len());
            }
        }
        self.note_credit(source);
    }

    pub(super) fn receive(&mut self, now: Timestamp, from: Site, data: Data) -> Result<(), Fault> {
        let (op, count, seq) = (data.op, data.count, data.seq());
        let bytes = data.payload.len();
        match self.receiver.take(now, data)? {
            Taken::New { complete, delivered } => {
                self.proofs.on_taken(now, op.source, seq, from);
                let is_asked = self.fetches.on_progress(now, op, count, from);
                let may_complete = is_asked && complete.is_none();
                if let Some((op, payload)) = complete {
                    if self.fetches.on_complete(op, count.into()) {
                        self.pulls.insert(op.source, now); // The next of those that are missing.
                    }
                    self.holdings.insert(op, payload);
                }
                self.deliver_all(op.source, delivered);
                self.watch_holes(now, op.source);
                if may_complete {
                    self.complete_asked(now, op)?;
                }
            }
            Taken::Duplicate => self.counters.duplicates += 1,
            Taken::NoRoom => self.find_no_room(now, from, op, seq, bytes),
            Taken::Stale => self.counters.stale += 1,
        }
        self.poll_acks(now);
        Ok(())
    }

    /// A chunk has come of what others were asked for: it may be the one that they had not brought.
    fn complete_asked(&mut self, now: Timestamp, op: OpId) -> Result<(), Fault> {
        let here = self.receiver.present(op);
        match self.fetches.take_whole(op, &here) {
            Some((holder, chunks)) => self.take_whole(now, holder, chunks),
            None => Ok(()),
        }
    }

    /// True while the application leaves so much unread that nothing more is taken of a source: a
    /// multiple of what is still free, so that one that sends more than is read leaves room for
    /// others, and several come to as much each. (Choudhury and Hahne, dynamic queue length
    /// thresholds, 1998.) A part of an equal share each may have in any case.
    pub(super) fn is_full(&self, source: Site) -> bool {
        self.room_for(source) == 0
    }

    /// Bytes that are taken of a source until it is full.
    fn room_for(&self, source: Site) -> usize {
        let max = self.limits.undelivered_bytes_max;
        let waiting = self.waiting_bytes(source);
        let free = max.saturating_sub(self.undelivered.total() + self.unread.total());
        let least = max / UNREAD_PER_FREE / self.sites;
        // Each byte that is taken takes from what is free, too.
        let shared = free.saturating_mul(UNREAD_PER_FREE).saturating_sub(waiting);
        shared.div_ceil(UNREAD_PER_FREE + 1).max(least.saturating_sub(waiting))
    }

    /// A chunk of so many bytes has come that is not taken. If a relay has brought it, its source
    /// sends it again, as if that had not; what comes of the source itself, be it by a helper, is
    /// asked for once there is room.
    pub(super) fn find_no_room(
        &mut self,
        now: Timestamp,
        from: Site,
        op: OpId,
        seq: u64,
        bytes: usize,
    ) {
        self.counters.no_room += 1;
        let is_relayed = self.proofs.on_no_room(now, op.source, seq, from);
        if from == op.source || !self.reach.reached().contains(op.source) {
            self.receiver.turn_away(op.source, op.life, seq, bytes + DELIVERY_BYTES);
            // What all waits for here the source may not owe, and have said so in vain.
            self.receiver.note_copy(now, op.source, op.life);
            self.poll_acks(now);
        } else if is_relayed {
            self.note_missed(op.source, from, Flaw::Full, vec![seq]);
        }
    }

    /// Asks sources for what there was no room for, as far as there is some now.
    pub(super) fn ask_again(&mut self) {
        let roomier = std::mem::take(&mut self.roomier);
        let turned_away = roomier.iter().filter(|source| self.receiver.has_turned_away(*source));
        for source in turned_away.collect::<SiteSet>().intersection(self.sendable()).iter() {
            let seqs = self.receiver.recall(source, self.room_for(source));
            if !seqs.is_empty() {
                self.note_missed(source, source, Flaw::Full, seqs);
            }
        }
    }

    /// A chunk that no stream brings: of an earlier life of its source, or of what was skipped.
    fn take_fetched(&mut self, now: Timestamp, from: Site, data: Data) -> Result<(), Fault> {
        let is_answer = from == data.op.source || self.is_answer(from, &data);
        if !is_answer || !self.fetches.wants(data.op, data.count) {
            self.counters.stale += 1;
            return Ok(());
        }
        if !self.receiver.may_take_whole(data.op, data.count) {
            self.counters.no_room += 1;
            // It is asked for again, and whoever has it is not taken for one that has not.
            self.fetches.on_progress(now, data.op, data.count, from);
            return Ok(());
        }
        if let Some((op, payload)) = self.fetches.take_own(now, from, data)? {
            // Its first chunks were skipped, and its stream may wait for the others.
            let is_sure = from == op.source || !self.reach.reached().contains(op.source);
            let delivered = self.receiver.leave_whole(now, op, payload.clone(), is_sure);
            self.holdings.insert(op, payload);
            self.deliver_all(op.source, delivered);
            self.watch_holes(now, op.source);
        }
        Ok(())
    }

    /// Delivers operations of a source, of whose stream less may wait now.
    pub(super) fn deliver_all(&mut self, source: Site, delivered: Vec<(OpId, Payload)>) {
        delivered.into_iter().for_each(|(op, payload)| self.deliver(op, payload));
        self.roomier.insert(source);
    }

    pub(super) fn on_ack(&mut self, now: Timestamp, from: Site, ack: &Ack) -> Result<(), Fault> {
        let progress = self.sender.on_ack(now, from, ack, &mut self.events)?;
        let Progress { finished, proven, slow, needs_floor } = progress;
        self.hold(finished);
        if self.reach.up().contains(from) {
            self.gone.remove(from); // It reads again.
        }
        for (relay, seq) in proven {
            self.note_proven(now, relay, seq);
        }
        for (relay, seq) in slow {
            let is_new = self.trust.on_slow(now, relay, seq);
            self.suspect(now, relay, is_new, Evidence::Slow);
            if is_new == Some(true) {
                self.leave_relay(now, relay); // What it has would come as late.
            }
        }
        if needs_floor {
            self.tell_floor(now, from);
        }
        self.measure(now);
        Ok(())
    }

    /// Tells a site where it can go on; the same again only after a while.
    pub(super) fn tell_floor(&mut self, now: Timestamp, site: Site) {
        let floor = self.sender.floor(site);
        let is_told = self.floors[site.index()]
            .is_some_and(|(told, at)| told == floor && now.since(at) < self.limits.fetch_timeout);
        if !is_told {
            self.floors[site.index()] = Some((floor, now));
            self.control.insert((site, Control::Floor));
        }
    }

    pub(super) fn on_floor(&mut self, now: Timestamp, source: Site, floor: &Floor) {
        let Floor { life, seq, ref others } = *floor;
        let delivered = self.receiver.leave_out(now, source, life, others);
        for (from, to) in others {
            self.fetches.cancel_pulls(OpId { source, life, seq: *from }, *to);
        }
        self.deliver_all(source, delivered);
        let (holes, delivered) = self.receiver.floor(now, source, life, seq);
        self.note_gaps(source, life, holes);
        self.deliver_all(source, delivered);
        self.proofs.on_floor(source, seq);
        self.watch_holes(now, source);
        self.note_behind(now);
        self.poll_acks(now);
    }

    pub(super) fn note_gaps(&mut self, source: Site, life: Life, holes: Holes) {
        for (from, to) in holes {
            // Whoever lies says so of more than there can be.
            self.counters.gaps = self.counters.gaps.saturating_add(to - from);
            self.fetches.cancel_pulls(OpId { source, life, seq: from }, to);
            self.events.push_back(Event::Gap { source, life, from, to });
        }
    }

    /// Queues what a site asks for, or tells it that nothing is here.
    fn on_fetch(&mut self, from: Site, fetch: &Fetch) {
        let Some((op, payload)) = self.held(fetch.op) else {
            if self.control.len() < CONTROL_MAX {
                self.control.insert((from, Control::HaveNot(fetch.op)));
            }
            return;
        };
        let count = u32::try_from(payload.chunks().len()).expect("chunks are few");
        let wanted = (0..count).filter(|index| fetch.wants(*index));
        let max = self.limits.repairs_queued_max;
        self.uplinks[from.index()].push_repairs(op, count, wanted, max);
    }
}
