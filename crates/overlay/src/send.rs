//! The source's side: what is retained until all have it, and what is sent again.
//!
//! An acknowledgement comes from the receiver itself, end to end. Departs from ShallowForest,
//! section 6.3, where the relay acknowledges once its sends have completed: what is in its socket
//! buffers then dies with it, and the root does not know. So the root sends directly what a
//! receiver says that it has missed, what a relay had been sent that is down, and what nobody
//! behind a relay acknowledges in the time that they usually take, to those only that have not
//! acknowledged.

mod behind;
mod chunk;
mod give_up;
mod late;
mod others;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use convoke_core::time::Timestamp;

use crate::ack_time::AckTime;
use crate::event::{Event, Fault};
use crate::limits::Limits;
use crate::node::DELIVERY_BYTES;
use crate::payload::Payload;
use crate::routes::Relayed;
use crate::site::{Site, SiteSet};
use crate::wire::{Ack, ChunkDigest, Data, Floor, Forward, Life, OpId, WINDOW};

use behind::Behind;
use chunk::{Chunk, Op};
use late::Heard;
use others::Others;

/// All that is unacknowledged of the own stream.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    me: Site,
    life: Life,
    others: SiteSet,
    limits: Limits,
    /// The sequence number of the first of `chunks`.
    base: u64,
    chunks: VecDeque<Chunk>,
    ops: BTreeMap<u64, Op>,
    unacked_bytes: usize,
    unacked_max: usize,
    due: BTreeSet<(Timestamp, u64)>,
    /// Times that those behind a relay take, by relay; and those that are sent to directly.
    relay_times: Vec<AckTime>,
    direct_times: Vec<AckTime>,
    /// Times of the last acknowledgements of each site.
    heard: Vec<Heard>,
    /// Room that each site keeps from the others.
    behind: Vec<Behind>,
    /// Sites that hold up what is new.
    holding: SiteSet,
    /// Below this a site is owed nothing.
    owed_from: Vec<u64>,
    /// Below this each site has all that it waits for, as it has said since its link is up.
    waits_from: Vec<u64>,
    /// Sequence numbers that each site does not get.
    not_for: Vec<Others>,
    /// Bytes that each site may have sent again for having had no room: twice what it acknowledges.
    recalls: Vec<usize>,
}

/// Bytes that sending a chunk again counts for.
fn recall_cost(payload: usize) -> usize {
    payload + DELIVERY_BYTES
}

/// Effect of an acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Operations that nobody is owed any more.
    pub(crate) finished: Vec<(OpId, Payload)>,
    /// Relays behind which all have acknowledged a frame.
    pub(crate) proven: Vec<(Site, u64)>,
    /// Relays by which a frame took far longer than any takes directly.
    pub(crate) slow: Vec<(Site, u64)>,
    /// The receiver waits for something that it will not get.
    pub(crate) needs_floor: bool,
}

impl Sender {
    pub(crate) fn new(me: Site, sites: usize, life: Life, limits: &Limits) -> Self {
        Self {
            me,
            life,
            others: SiteSet::first(sites).without(me),
            limits: limits.clone(),
            base: 0,
            chunks: VecDeque::new(),
            ops: BTreeMap::new(),
            unacked_bytes: 0,
            unacked_max: limits.unacked_bytes_max,
            due: BTreeSet::new(),
            relay_times: vec![AckTime::default(); sites],
            direct_times: vec![AckTime::default(); sites],
            heard: vec![Heard::default(); sites],
            behind: vec![Behind::new(limits); sites],
            holding: SiteSet::EMPTY,
            owed_from: vec![0; sites],
            waits_from: vec![0; sites],
            not_for: vec![Others::default(); sites],
            recalls: vec![0; sites],
        }
    }

    /// True when an operation of so many chunks and bytes can be taken.
    pub(crate) fn has_room(&self, chunks: usize, bytes: usize) -> bool {
        let in_window = self.chunks.len() + chunks <= usize::try_from(WINDOW).unwrap_or(usize::MAX);
        in_window && self.unacked_bytes + bytes <= self.unacked_max
    }

    /// So many bytes may be unacknowledged from now on.
    pub(crate) fn set_unacked_max(&mut self, bytes: usize) {
        self.unacked_max = bytes;
    }

    /// Takes an operation, which is owed to these sites but those that are gone. The sequence
    /// numbers of its chunks.
    pub(crate) fn push(&mut self, payload: Payload, to: SiteSet, gone: SiteSet) -> Range<u64> {
        let first = self.next_seq();
        let to = to.intersection(self.others);
        for chunk in payload.chunks() {
            self.chunks.push_back(Chunk::new(first, chunk.clone(), to.difference(gone)));
        }
        self.unacked_bytes += payload.len();
        let mut op = Op::new(payload, to, self.direct_times.len());
        op.give_up(gone);
        self.ops.insert(first, op);
        let next = self.next_seq();
        for site in self.others.difference(to).iter() {
            self.not_for[site.index()].push(first, next);
        }
        first..next
    }

    /// Sites that a chunk is for.
    pub(crate) fn receivers(&self, seq: u64) -> SiteSet {
        let op = self.chunk(seq).and_then(|chunk| self.ops.get(&chunk.op));
        op.map_or(SiteSet::EMPTY, Op::to)
    }

    /// Sequence numbers that a site is not to wait for, and true if there are more of them.
    pub(crate) fn make_floor(&mut self, site: Site) -> (Floor, bool) {
        let (life, floor) = (self.life, self.floor(site));
        let not_for = &mut self.not_for[site.index()];
        let others = not_for.tell(Floor::RANGES_MAX);
        let untold = not_for.untold();
        // What it has not been told it would ask others for.
        let seq = untold.map_or(floor, |untold| floor.min(untold));
        (Floor { life, seq, others }, untold.is_some())
    }

    /// A site may not have heard all that it was told.
    pub(crate) fn tell_again(&mut self, site: Site) {
        self.waits_from[site.index()] = 0;
        self.not_for[site.index()].tell_again();
    }

    /// True for a site that waits for what it is not owed, as far as it has said.
    pub(crate) fn waits_in_vain(&mut self, site: Site) -> bool {
        self.first_owed(site);
        self.waits_from[site.index()] < self.floor(site)
    }

    /// Finishes what was pushed last if it is owed to nobody.
    pub(crate) fn settle(
        &mut self,
        first: u64,
        events: &mut VecDeque<Event>,
    ) -> Vec<(OpId, Payload)> {
        let mut finished = Vec::new();
        self.finish_if_done(first, &mut finished, events);
        self.trim();
        finished
    }

    /// The sequence number of the next operation.
    pub(crate) fn next_seq(&self) -> u64 {
        self.base + self.chunks.len() as u64
    }

    /// Bytes of operations that someone is still owed.
    pub(crate) fn unacked_bytes(&self) -> usize {
        self.unacked_bytes
    }

    /// Chunks retained.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// The name of the operation that begins at `seq`.
    pub(crate) fn id(&self, seq: u64) -> OpId {
        OpId { source: self.me, life: self.life, seq }
    }

    /// The retained operation with this sequence number in it.
    pub(crate) fn find(&self, seq: u64) -> Option<(OpId, &Payload)> {
        let (first, op) = self.ops.range(..=seq).next_back()?;
        (seq - first < u64::from(op.count())).then(|| (self.id(*first), &op.payload))
    }

    /// The first sequence number of the first retained operation after `seq`.
    pub(crate) fn next_op(&self, seq: u64) -> Option<u64> {
        self.ops.range(seq..).next().map(|(first, _)| *first)
    }

    /// Payload bytes of a chunk that someone is still owed.
    pub(crate) fn len_of(&self, seq: u64) -> Option<usize> {
        self.chunk(seq).filter(|chunk| !chunk.missing.is_empty()).map(|chunk| chunk.payload.len())
    }

    /// Decides how a chunk goes to those who have not been sent it: by way of a relay, or directly
    /// to those that can be reached. Whom to queue a copy for, and whether the relay's is to be
    /// forwarded: not if nobody is left for that.
    pub(crate) fn route(
        &mut self,
        now: Timestamp,
        seq: u64,
        epoch: u32,
        reachable: SiteSet,
        relayed: Option<Relayed>,
        session: Option<u32>,
    ) -> (SiteSet, bool) {
        let Some(chunk) = self.chunk_mut(seq) else { return (SiteSet::EMPTY, false) };
        let pending = chunk.missing.difference(chunk.sent).difference(chunk.queued);
        let narrow = |it: Relayed| Relayed { forward: it.forward.intersection(pending), ..it };
        chunk.epoch = epoch;
        chunk.route = relayed.map(narrow).filter(|it| !it.forward.is_empty());
        chunk.session = session;
        chunk.relay_due = None;
        let direct = pending.intersection(reachable);
        let to = chunk.route.map_or(direct, |it| direct.difference(it.forward).with(it.relay));
        chunk.queued = chunk.queued.union(to);
        let is_relayed = chunk.route.is_some();
        let is_first = std::mem::take(&mut chunk.is_in_line);
        let op = chunk.op;
        if let Some(op) = self.ops.get_mut(&op).filter(|_| is_first) {
            op.queued_at = Some(now);
        }
        (to, is_relayed)
    }

    /// Takes a chunk from a relay that it has not been sent to. The way it was to go, and in which
    /// session of credit.
    pub(crate) fn unroute(&mut self, seq: u64) -> Option<(Relayed, Option<u32>)> {
        let chunk = self.chunk_mut(seq).filter(|chunk| chunk.relay_due.is_none())?;
        let route = chunk.route.take()?;
        chunk.queued.remove(route.relay);
        Some((route, chunk.session))
    }

    /// Marks copies as queued: for those who are owed the chunk and have none queued. Who they are.
    pub(crate) fn queue_again(&mut self, seq: u64, to: SiteSet) -> SiteSet {
        let Some(chunk) = self.chunk_mut(seq) else { return SiteSet::EMPTY };
        let to = to.intersection(chunk.missing).difference(chunk.queued);
        chunk.queued = chunk.queued.union(to);
        chunk.resent = chunk.resent.union(to.intersection(chunk.sent));
        to
    }

    /// A copy leaves for `to`. The frame; none when nobody is owed it any more.
    pub(crate) fn transmit(&mut self, now: Timestamp, seq: u64, to: Site) -> Option<Data> {
        let (me, life, others) = (self.me, self.life, self.others);
        let relay_timer = self.relay_timer(to);
        let direct_timer = self.direct_timer(seq, to);
        let is_to_leave = self.is_to_leave(seq, to);
        let chunk = self.chunk_mut(seq)?;
        chunk.queued.remove(to);
        if !is_to_leave {
            return None;
        }
        let relayed = chunk.relayed_by(to);
        let reached = relayed.map_or(SiteSet::EMPTY, |it| it.forward).with(to);
        let forward = match relayed.map(|it| it.forward) {
            Some(forward) if forward == others.without(to) => Forward::AllOthers,
            Some(forward) if !forward.is_empty() => Forward::To(forward),
            _ => Forward::Nobody,
        };
        chunk.direct_due = Some(now + direct_timer);
        if forward != Forward::Nobody {
            chunk.relay_timer = relay_timer;
            chunk.relay_due = Some(now + relay_timer);
        }
        let is_repair = chunk.resent.contains(to);
        chunk.sent = chunk.sent.union(reached);
        chunk.left_at.get_or_insert(now);
        chunk.last_left_at = now;
        let op = OpId { source: me, life, seq: chunk.op };
        let (epoch, payload) = (chunk.epoch, chunk.payload.clone());
        self.arm(seq);
        let index = u32::try_from(seq - op.seq).expect("chunks are few");
        let (count, is_body) =
            self.ops.get(&op.seq).map(|op| (op.count(), op.payload.is_body()))?;
        Some(Data { op, index, count, epoch, forward, is_repair, is_body, payload })
    }

    /// True when a copy that was queued for `to` is to leave: it has not gone by another way, and
    /// somebody is owed it that this one reaches.
    pub(crate) fn is_to_leave(&self, seq: u64, to: Site) -> bool {
        self.chunk(seq).is_some_and(|chunk| {
            let forward = chunk.relayed_by(to).map_or(SiteSet::EMPTY, |it| it.forward);
            chunk.queued.contains(to) && !chunk.missing.intersection(forward.with(to)).is_empty()
        })
    }

    /// A receiver says what it has.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        from: Site,
        ack: &Ack,
        events: &mut VecDeque<Event>,
    ) -> Result<Progress, Fault> {
        let mut progress = Progress::default();
        if ack.life != self.life {
            return Ok(progress); // It speaks of this site's previous life.
        }
        let last = ack.iter_beyond().last().map_or(ack.next, |seq| seq + 1);
        if last > self.next_seq() {
            return Err(Fault::AckBeyond { seq: last, sent: self.next_seq() });
        }
        let waits_from = &mut self.waits_from[from.index()];
        *waits_from = ack.next.max(*waits_from);
        let not_for = &mut self.not_for[from.index()];
        not_for.on_acked(ack.next);
        not_for.on_waits(now, ack.next, self.limits.fetch_timeout);
        for seq in (self.first_owed(from)..ack.next).chain(ack.iter_beyond()) {
            self.acked(now, seq, from, &mut progress, events);
        }
        progress.needs_floor = ack.next < self.next_seq()
            && self.chunk(ack.next).is_none_or(|chunk| !chunk.missing.contains(from));
        self.trim();
        Ok(progress)
    }

    fn acked(
        &mut self,
        now: Timestamp,
        seq: u64,
        by: Site,
        progress: &mut Progress,
        events: &mut VecDeque<Event>,
    ) {
        // Whoever says the same again and again is not to cost more than this.
        let Some(chunk) = self.chunk(seq).filter(|chunk| chunk.missing.contains(by)) else {
            return;
        };
        let patience = self.relay_patience(chunk.route.map_or(self.me, |it| it.relay));
        let chunk = self.chunk_mut(seq).expect("it was found above");
        chunk.missing.remove(by);
        let first = chunk.op;
        let (took, route) = (chunk.left_at.map(|at| now - at), chunk.route);
        let was_resent = chunk.resent.contains(by);
        if let Some(route) = route.filter(|_| chunk.is_relay_done()) {
            if took.is_some_and(|took| took > patience) {
                progress.slow.push((route.relay, seq));
            } else if !chunk.was_missed {
                progress.proven.push((route.relay, seq));
            }
            chunk.route = None;
            chunk.relay_due = None;
        }
        let (is_done, left_at) = (chunk.missing.is_empty(), chunk.left_at);
        let len = chunk.payload.len();
        let via = route.filter(|it| it.forward.contains(by));
        // Of several copies it is not known which one came, nor which way.
        let overtakes = left_at.filter(|_| via.is_none() && !was_resent);
        self.heard[by.index()].note(now, overtakes);
        self.earn(by, len);
        let recalls = &mut self.recalls[by.index()];
        *recalls = (*recalls + 2 * recall_cost(len)).min(self.unacked_max);
        if let Some(took) = took.filter(|_| !was_resent) {
            match via {
                Some(route) => self.relay_times[route.relay.index()].sample(took),
                None => self.direct_times[by.index()].sample(took),
            }
        }
        if is_done {
            self.disarm(seq);
        }
        let id = self.id(first);
        let op = self.ops.get_mut(&first).expect("a chunk that is owed has its operation");
        if let Some(count) = op.on_acked(by) {
            events.push_back(Event::Acked { op: id, by, count });
            self.catch_up(first, SiteSet::EMPTY.with(by));
            self.note_most(first);
            self.finish_if_done(first, &mut progress.finished, events);
        }
    }

    fn finish_if_done(
        &mut self,
        first: u64,
        finished: &mut Vec<(OpId, Payload)>,
        events: &mut VecDeque<Event>,
    ) {
        if self.ops.get(&first).is_none_or(|op| !op.owed().is_empty()) {
            return;
        }
        let Some(op) = self.ops.remove(&first) else { return };
        self.unacked_bytes -= op.payload.len();
        let id = self.id(first);
        events.push_back(Event::AllAcked { op: id, missed: op.missed() });
        for seq in first..first + u64::from(op.count()) {
            self.disarm(seq);
            if let Some(chunk) = self.chunk_mut(seq) {
                chunk.payload = Bytes::new();
                chunk.is_finished = true;
            }
        }
        finished.push((id, op.payload));
    }

    /// Forgets finished chunks at the front.
    fn trim(&mut self) {
        while self.chunks.front().is_some_and(|chunk| chunk.is_finished) {
            self.chunks.pop_front();
            self.base += 1;
        }
    }

    /// The digest of a frame of this stream, made once.
    pub(crate) fn digest(&mut self, data: &Data) -> ChunkDigest {
        let of = || ChunkDigest::of(data);
        self.chunk_mut(data.seq()).map_or_else(of, |chunk| *chunk.digest.get_or_insert_with(of))
    }

    /// Chunks on their way to a site by relays, with their digests.
    pub(crate) fn relayed_to(&self, site: Site) -> Vec<(Site, (u64, ChunkDigest))> {
        let relayed = |(chunk, seq): (&Chunk, u64)| {
            let route = chunk.route.filter(|it| it.forward.contains(site))?;
            let is_due = chunk.missing.contains(site) && chunk.relay_due.is_some();
            chunk.digest.filter(|_| is_due).map(|digest| (route.relay, (seq, digest)))
        };
        self.chunks.iter().zip(self.base..).filter_map(relayed).collect()
    }

    /// A receiver has missed what a relay was to bring it. Whether it was: then it is sent
    /// directly, and what others behind the relay acknowledge proves nothing.
    pub(crate) fn on_missed(
        &mut self,
        now: Timestamp,
        seq: u64,
        (relay, by): (Site, Site),
        was_there: bool,
    ) -> bool {
        if !was_there && self.is_in_transit(now, seq, (relay, by)) {
            return false;
        }
        self.take_out(seq, (relay, by)).map(|chunk| chunk.was_missed = true).is_some()
    }

    /// A receiver had no room for what a relay has brought it: it is sent that directly. True when
    /// all others behind the relay have acknowledged, which proves it; none if the relay was not to
    /// bring it.
    pub(crate) fn on_full(&mut self, seq: u64, (relay, by): (Site, Site)) -> Option<bool> {
        let chunk = self.take_out(seq, (relay, by))?;
        let is_done = chunk.is_relay_done();
        if is_done {
            chunk.route = None;
            chunk.relay_due = None;
        }
        Some(is_done && !chunk.was_missed)
    }

    /// Takes the word of a receiver that it has room for what it was sent directly and had none
    /// for. Whether it is sent it again: if it has acknowledged half as much as it was sent again
    /// so.
    pub(crate) fn on_room(&mut self, seq: u64, by: Site) -> bool {
        let was_sent = |chunk: &&mut Chunk| {
            chunk.missing.contains(by)
                && chunk.sent.difference(chunk.queued).contains(by)
                && chunk.goes_directly(by)
        };
        let left = self.recalls[by.index()];
        let Some(chunk) = self.chunk_mut(seq).filter(was_sent) else { return false };
        let Some(left) = left.checked_sub(recall_cost(chunk.payload.len())) else { return false };
        chunk.attempts = 0;
        self.recalls[by.index()] = left;
        true
    }

    /// Takes a receiver from those that a relay was sent a chunk for. The chunk, if it was one.
    fn take_out(&mut self, seq: u64, (relay, by): (Site, Site)) -> Option<&mut Chunk> {
        let was_to = |chunk: &&mut Chunk| {
            chunk.relay_due.is_some()
                && chunk.missing.contains(by)
                && chunk.route.is_some_and(|it| it.relay == relay && it.forward.contains(by))
        };
        let chunk = self.chunk_mut(seq).filter(was_to)?;
        chunk.route = chunk.route.map(|it| Relayed { forward: it.forward.without(by), ..it });
        Some(chunk)
    }

    /// Chunks that wait to be sent to a relay.
    pub(crate) fn waiting_for(&self, relay: Site) -> Vec<u64> {
        let waits = |chunk: &Chunk| {
            chunk.relay_due.is_none() && chunk.route.is_some_and(|it| it.relay == relay)
        };
        self.seqs(waits)
    }

    /// Takes back all that a relay was sent, for it brings nothing any more. The chunks, and who
    /// has not acknowledged them.
    pub(crate) fn take_from(&mut self, relay: Site) -> Vec<(u64, SiteSet)> {
        let was_sent = |chunk: &Chunk| {
            chunk.relay_due.is_some() && chunk.route.is_some_and(|it| it.relay == relay)
        };
        let seqs = self.seqs(was_sent).into_iter();
        let taken = seqs.map(|seq| {
            let chunk = self.chunk_mut(seq).expect("it was found above");
            let late = chunk.missing.intersection(chunk.behind_relay()).without(relay);
            chunk.route = None;
            chunk.relay_due = None;
            (seq, late)
        });
        taken.collect()
    }

    /// Takes back what a relay was sent for some that it does not reach. The chunks, and to whom of
    /// them they are owed.
    pub(crate) fn take_for(&mut self, relay: Site, unreached: SiteSet) -> Vec<(u64, SiteSet)> {
        let late = |chunk: &Chunk| {
            let route = chunk.route.filter(|it| it.relay == relay && chunk.relay_due.is_some());
            route.map_or(SiteSet::EMPTY, |it| it.forward.intersection(unreached))
        };
        let seqs = self.seqs(|chunk| !late(chunk).is_empty()).into_iter();
        let taken = seqs.map(|seq| {
            let chunk = self.chunk_mut(seq).expect("it was found above");
            let late = late(chunk);
            chunk.route =
                chunk.route.map(|it| Relayed { forward: it.forward.difference(late), ..it });
            (seq, late.intersection(chunk.missing))
        });
        taken.collect()
    }

    /// Chunks owed to a site of which no copy is on its way, and that have had their turn.
    pub(crate) fn owed_to(&self, site: Site) -> Vec<u64> {
        let is_on_its_way = |chunk: &Chunk| {
            chunk.is_in_line || chunk.route.is_some_and(|it| it.forward.contains(site))
        };
        self.seqs(|chunk| chunk.missing.contains(site) && !is_on_its_way(chunk))
    }

    /// A copy that was queued for a site is not any more.
    pub(crate) fn unqueue(&mut self, seq: u64, site: Site) {
        if let Some(chunk) = self.chunk_mut(seq) {
            chunk.queued.remove(site);
        }
    }

    /// The queue of a site was emptied.
    pub(crate) fn on_queue_lost(&mut self, site: Site) {
        self.chunks.iter_mut().for_each(|chunk| {
            chunk.queued.remove(site);
        });
    }

    fn seqs(&self, matches: impl Fn(&Chunk) -> bool) -> Vec<u64> {
        let numbered = self.chunks.iter().zip(self.base..);
        numbered.filter(|(chunk, _)| matches(chunk)).map(|(_, seq)| seq).collect()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let oldest = self.ops.values().next().and_then(|op| op.queued_at);
        let lagging = oldest.map(|at| at + self.limits.lag_max);
        let due = self.due.first().map(|(at, _)| *at);
        [lagging, due].into_iter().flatten().min()
    }

    fn chunk(&self, seq: u64) -> Option<&Chunk> {
        self.chunks.get(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }

    fn chunk_mut(&mut self, seq: u64) -> Option<&mut Chunk> {
        self.chunks.get_mut(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }
}
