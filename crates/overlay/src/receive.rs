//! The receiver's side: each operation of each life of each source once, and what to tell the
//! source.

mod ranges;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::event::{Fault, Order};
use crate::limits::Limits;
use crate::payload::Payload;
use crate::site::Site;
use crate::wire::{Ack, CHUNK_BYTES, Data, Life, OpId, WHOLE_BYTES_MAX, WINDOW};

pub(crate) use stream::Holes;
use stream::Stream;

/// The streams of all sources.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    order: Order,
    reorder_max: usize,
    ack_delay: Duration,
    streams: BTreeMap<Site, Stream>,
    /// Those of sources of which others say that they are in another life, until their links say
    /// so. What comes of them is taken.
    parked: BTreeMap<Site, Stream>,
    /// The last lives of each source that have ended: what came of them does not come again by a
    /// fetch.
    ended: BTreeMap<Site, VecDeque<Stream>>,
    /// When a source was told last, and is to be told again.
    acks: BTreeMap<Site, AckClock>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AckClock {
    told_at: Option<Timestamp>,
    due: Option<Timestamp>,
}

/// Outcome of a chunk.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is new. With the last one of an operation: which it was, and what is delivered now, in
    /// order.
    New { complete: Option<(OpId, Payload)>, delivered: Vec<(OpId, Payload)> },
    /// It was here already.
    Duplicate,
    /// It is too far ahead, or there is no room for it.
    NoRoom,
    /// It is of a life of its source that is not the present one.
    Stale,
}

/// Rest of a life of a source.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) life: Life,
    pub(crate) holes: Holes,
    pub(crate) delivered: Vec<(OpId, Payload)>,
}

/// Sequence numbers that are asked of others after a source has given them up: half of what may
/// come ahead of them.
const PULLED_MAX: u64 = WINDOW / 2;

/// Ended lives of one source that are remembered. What came of one before them may come again by a
/// fetch.
const LIVES_MAX: usize = 8;

impl Receiver {
    pub(crate) fn new(order: Order, limits: &Limits) -> Self {
        Self {
            order,
            reorder_max: limits.reorder_bytes_max,
            ack_delay: limits.ack_delay,
            streams: BTreeMap::new(),
            parked: BTreeMap::new(),
            ended: BTreeMap::new(),
            acks: BTreeMap::new(),
        }
    }

    /// A source began, or went on with, this life, as its link says. Of others, which end: what is
    /// missing, and what had waited for it and is delivered now.
    pub(crate) fn begin(&mut self, source: Site, life: Life) -> Vec<Ended> {
        let mut ended = Vec::new();
        match self.parked.remove(&source) {
            Some(parked) if parked.life == life => ended.extend(self.replace(source, parked)),
            parked => ended.extend(parked.map(|parked| self.end(parked))),
        }
        ended.extend(self.turn_to(source, life));
        self.streams.get_mut(&source).into_iter().for_each(|stream| stream.is_certain = true);
        ended
    }

    /// The same, as others say of a source without a link. They may be wrong: a life that had a
    /// link does not end by that, and goes on where it was if the source says so itself.
    pub(crate) fn begin_as_told(&mut self, source: Site, life: Life) -> Option<Ended> {
        if let Some(parked) = self.parked.remove(&source) {
            if parked.life == life {
                return self.replace(source, parked);
            }
            self.parked.insert(source, parked);
        }
        if self.streams.get(&source).is_some_and(|it| it.is_certain && it.life != life) {
            let before = self.streams.insert(source, Stream::new(source, life));
            self.parked.extend(before.map(|before| (source, before)));
            return None;
        }
        self.turn_to(source, life)
    }

    fn turn_to(&mut self, source: Site, life: Life) -> Option<Ended> {
        if self.life_of(source) == Some(life) {
            return None;
        }
        let lives = self.ended.entry(source).or_default();
        let index = lives.iter().position(|stream| stream.life == life);
        let known = index.and_then(|index| lives.remove(index));
        self.replace(source, known.unwrap_or_else(|| Stream::new(source, life)))
    }

    fn replace(&mut self, source: Site, stream: Stream) -> Option<Ended> {
        let before = self.streams.insert(source, stream)?;
        Some(self.end(before))
    }

    fn end(&mut self, mut stream: Stream) -> Ended {
        let (holes, delivered) = stream.end(self.order);
        let ended = Ended { life: stream.life, holes, delivered };
        let lives = self.ended.entry(stream.source).or_default();
        lives.push_back(stream);
        if lives.len() > LIVES_MAX {
            // Nobody can displace what has been by what others make up.
            let made_up = lives.iter().position(|stream| !stream.is_certain);
            lives.remove(made_up.unwrap_or(0));
        }
        ended
    }

    /// There is a link to a source again.
    pub(crate) fn resume(&mut self, source: Site) {
        self.streams.get_mut(&source).into_iter().for_each(Stream::resume);
    }

    /// Number of the chunks that are missing and no source will send for the first time any more:
    /// this site was away, or they were given up.
    pub(crate) fn missing_before(&self) -> u64 {
        self.streams.values().map(Stream::missing_before).sum()
    }

    /// The present life of a source, once it was reached.
    pub(crate) fn life_of(&self, source: Site) -> Option<Life> {
        self.streams.get(&source).map(|stream| stream.life)
    }

    /// A chunk has come, by whatever way.
    pub(crate) fn take(&mut self, now: Timestamp, data: Data) -> Result<Taken, Fault> {
        let source = data.op.source;
        let (order, reorder_max) = (self.order, self.reorder_max);
        let Some(stream) = self.stream_mut(source, data.op.life) else { return Ok(Taken::Stale) };
        let taken = stream.take(data, order, reorder_max)?;
        if matches!(taken, Taken::New { .. } | Taken::Duplicate) {
            self.wants_ack(now, source);
        }
        Ok(taken)
    }

    /// Remembers a chunk that its source has sent and there was no room for.
    pub(crate) fn turn_away(&mut self, source: Site, life: Life, seq: u64, bytes: usize) {
        if let Some(stream) = self.stream_mut(source, life) {
            stream.turn_away(seq, bytes);
        }
    }

    /// True while something of the present life of a source was turned away.
    pub(crate) fn has_turned_away(&self, source: Site) -> bool {
        self.streams.get(&source).is_some_and(Stream::has_turned_away)
    }

    /// Takes those of what was turned away for which there is room now, of so many bytes at most.
    pub(crate) fn recall(&mut self, source: Site, room: usize) -> Vec<u64> {
        let stream = self.streams.get_mut(&source);
        stream.map_or(Vec::new(), |stream| stream.recall(room, self.reorder_max))
    }

    /// A source owes nothing below `seq`: what is missing there is to be asked of others. What is
    /// too far below for that, and what is delivered now.
    pub(crate) fn floor(
        &mut self,
        now: Timestamp,
        source: Site,
        life: Life,
        seq: u64,
    ) -> (Holes, Vec<(OpId, Payload)>) {
        let order = self.order;
        let Some(stream) = self.stream_mut(source, life) else { return Default::default() };
        stream.set_floor(seq);
        let gone = stream.skip_to(seq.saturating_sub(PULLED_MAX), order);
        self.wants_ack(now, source);
        gone
    }

    /// A source says what of its stream is for others, and not for this site. What is delivered
    /// now.
    pub(crate) fn leave_out(
        &mut self,
        now: Timestamp,
        source: Site,
        life: Life,
        ranges: &Holes,
    ) -> Vec<(OpId, Payload)> {
        let order = self.order;
        let stream = self.stream_mut(source, life).filter(|_| !ranges.is_empty());
        let Some(stream) = stream else { return Vec::new() };
        let delivered = stream.leave_out(ranges, order);
        self.wants_ack(now, source);
        delivered
    }

    /// Waits no more for what is missing of an operation that has come whole by another way. Unless
    /// that is sure, its source must owe nothing of it any more. What is delivered now: it, too, if
    /// it is its turn.
    pub(crate) fn leave_whole(
        &mut self,
        now: Timestamp,
        op: OpId,
        payload: Payload,
        is_sure: bool,
    ) -> Vec<(OpId, Payload)> {
        let (order, end) = (self.order, op.seq + payload.chunks().len() as u64);
        let is_fit = |stream: &&mut Stream| {
            !stream.has_other_within(op.seq, end) && (is_sure || end <= stream.floor)
        };
        let Some(stream) = self.stream_mut(op.source, op.life).filter(is_fit) else {
            return vec![(op, payload)];
        };
        let delivered = stream.take_whole(op.seq, payload, order);
        self.wants_ack(now, op.source);
        delivered
    }

    /// True if an operation that comes whole by another way, of so many chunks, is delivered at
    /// once, or has room to wait for its turn.
    pub(crate) fn may_take_whole(&self, op: OpId, count: u32) -> bool {
        let bytes = (count as usize * CHUNK_BYTES).max(WHOLE_BYTES_MAX);
        let stream = self.stream_of(op).filter(|_| self.order == Order::SourceFifo);
        stream.is_none_or(|stream| stream.may_take_whole(op.seq, bytes, self.reorder_max))
    }

    /// True for a life of a source that is over.
    pub(crate) fn has_ended(&self, source: Site, life: Life) -> bool {
        self.ended.get(&source).is_some_and(|lives| lives.iter().any(|it| it.life == life))
    }

    /// True if its source does not owe the operation with this sequence number any more.
    pub(crate) fn is_given_up(&self, op: OpId) -> bool {
        self.stream_of(op).is_some_and(|stream| op.seq < stream.floor)
    }

    /// True if it is of the present life of its source, which has not given it up.
    pub(crate) fn is_owed(&self, op: OpId) -> bool {
        self.stream_of(op).is_some_and(|stream| op.seq >= stream.floor)
    }

    /// True if something is missing of a source that it does not owe any more.
    pub(crate) fn owes_nothing(&self, source: Site) -> bool {
        self.streams.get(&source).is_some_and(Stream::is_below_floor)
    }

    /// Nobody has the operation with this sequence number, and its source is gone or has given it
    /// up; if it is the first that is missing, then nor what follows up to `until` and was given
    /// up. What is delivered now.
    pub(crate) fn skip(&mut self, op: OpId, until: u64) -> (Holes, Vec<(OpId, Payload)>) {
        let order = self.order;
        let stream = self.stream_mut(op.source, op.life);
        stream.map(|stream| stream.skip(op.seq, until, order)).unwrap_or_default()
    }

    /// Sequence numbers that are missing of a source, up to the last that has come.
    pub(crate) fn holes(&self, source: Site) -> Holes {
        self.streams.get(&source).map(Stream::holes).unwrap_or_default()
    }

    /// True when there are any.
    pub(crate) fn has_holes(&self, source: Site) -> bool {
        self.streams.get(&source).is_some_and(Stream::has_holes)
    }

    /// True when the operation with this sequence number is still to come by the stream of its
    /// source; none when the stream will not bring it: it is of another life, or was skipped.
    pub(crate) fn expects(&self, op: OpId) -> Option<bool> {
        if let Some(stream) = self.stream_of(op) {
            return stream.expects(op.seq);
        }
        let ended = self.ended.get(&op.source)?.iter().find(|stream| stream.life == op.life)?;
        ended.expects(op.seq).filter(|is_to_come| !is_to_come)
    }

    /// True for a chunk of the present life of a source that is not here, and may be taken.
    pub(crate) fn wants(&self, source: Site, life: Life, seq: u64) -> bool {
        self.stream_of(OpId { source, life, seq }).is_some_and(|stream| stream.wants(seq))
    }

    /// True if these chunks of one operation, and no others, are missing of it as its source has
    /// begun it.
    pub(crate) fn fits_whole(&self, chunks: &[Data]) -> bool {
        let one = chunks.first();
        one.is_some_and(|one| self.stream_of(one.op).is_some_and(|it| it.fits_whole(one, chunks)))
    }

    /// True if there is room for all of them.
    pub(crate) fn has_room_for(&self, chunks: &[Data]) -> bool {
        let one = chunks.first();
        let has_room = |stream: &Stream, one: &Data| {
            stream.has_room_for(one, chunks, self.order, self.reorder_max)
        };
        one.is_some_and(|one| self.stream_of(one.op).is_some_and(|it| has_room(it, one)))
    }

    /// Its life goes on, as far as its source has said.
    fn stream_of(&self, op: OpId) -> Option<&Stream> {
        let mut streams = [&self.streams, &self.parked].into_iter();
        streams.find_map(|it| it.get(&op.source).filter(|stream| stream.life == op.life))
    }

    fn stream_mut(&mut self, source: Site, life: Life) -> Option<&mut Stream> {
        let mut streams = [&mut self.streams, &mut self.parked].into_iter();
        streams.find_map(|it| it.get_mut(&source).filter(|stream| stream.life == life))
    }

    /// Chunks that are here of an operation that is not complete.
    pub(crate) fn present(&self, op: OpId) -> bytes::Bytes {
        self.stream_of(op).map(|stream| stream.present(op.seq)).unwrap_or_default()
    }

    /// Bytes that wait for others, of one source.
    pub(crate) fn waiting_bytes(&self, source: Site) -> usize {
        self.streams.get(&source).map_or(0, Stream::waiting_bytes)
    }

    fn wants_ack(&mut self, now: Timestamp, source: Site) {
        let delay = self.ack_delay;
        let clock = self.acks.entry(source).or_default();
        clock.due.get_or_insert(clock.told_at.map_or(now, |at| now.max(at + delay)));
    }

    /// Tells a source again what is here, as it does not seem to know.
    pub(crate) fn note_copy(&mut self, now: Timestamp, source: Site, life: Life) {
        if self.life_of(source) == Some(life) {
            self.wants_ack(now, source);
        }
    }

    /// A source that is to be told now.
    pub(crate) fn poll_ack(&mut self, now: Timestamp) -> Option<Site> {
        let due = |clock: &AckClock| clock.due.is_some_and(|due| due <= now);
        let (source, clock) = self.acks.iter_mut().find(|(_, clock)| due(clock))?;
        *clock = AckClock { told_at: Some(now), due: None };
        Some(*source)
    }

    /// Acknowledgement to send to the source.
    pub(crate) fn ack(&self, source: Site) -> Option<Ack> {
        self.streams.get(&source).map(Stream::ack)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.acks.values().filter_map(|clock| clock.due).min()
    }
}
