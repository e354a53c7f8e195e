//! State of one life of one source: what has come of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::event::{Fault, Order};
use crate::payload::{Assembly, PLACE_BYTES, Payload};
use crate::site::Site;
use crate::wire::{Ack, Data, Life, OpId, WINDOW, bits_beyond};

use super::Taken;
use super::ranges::Ranges;

/// Ranges of sequence numbers, ascending: the first of each and the one after its last.
pub(crate) type Holes = Vec<(u64, u64)>;

/// The stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) source: Site,
    pub(super) life: Life,
    /// There was a link to the source in this life.
    pub(super) is_certain: bool,
    /// All below has come or was skipped.
    next: u64,
    /// Below this its source owes nothing.
    pub(super) floor: u64,
    /// The first chunk that came new, since there is a link to the source: what is missing below
    /// it was sent before.
    resumed_at: Option<u64>,
    /// Sequence numbers that have come above.
    beyond: Ranges,
    /// Operations that miss chunks, by their first sequence number.
    partial: BTreeMap<u64, Assembly>,
    /// Whole operations that wait for their turn.
    ready: BTreeMap<u64, Payload>,
    /// Bytes that both take in memory.
    bytes: usize,
    /// Sequence numbers that were skipped; the last of them only.
    skipped: Holes,
    /// Skipped ones that the source has not given up: not acknowledged, and not taken either.
    refused: BTreeSet<u64>,
    /// Chunks that the source has sent and there was no room for, with their bytes; the lowest.
    turned_away: BTreeMap<u64, usize>,
}

/// Chunks that were turned away and are remembered. Others come when the timers of their source say
/// so.
const TURNED_AWAY_MAX: usize = 1 << 10;

/// Ranges of skipped sequence numbers remembered. An operation in a forgotten one counts as
/// delivered.
const SKIPPED_MAX: usize = 64;

impl Stream {
    pub(super) fn new(source: Site, life: Life) -> Self {
        Self {
            source,
            life,
            is_certain: false,
            next: 0,
            floor: 0,
            resumed_at: None,
            beyond: Ranges::default(),
            partial: BTreeMap::new(),
            ready: BTreeMap::new(),
            bytes: 0,
            skipped: Vec::new(),
            refused: BTreeSet::new(),
            turned_away: BTreeMap::new(),
        }
    }

    pub(super) fn take(
        &mut self,
        data: Data,
        order: Order,
        bytes_max: usize,
    ) -> Result<Taken, Fault> {
        let (first, count) = (data.op.seq, u64::from(data.count));
        let is_ahead = first + count > self.acked() + WINDOW;
        if !data.is_repair && !is_ahead {
            self.resumed_at.get_or_insert(data.seq());
        }
        if self.has(data.seq()) {
            return Ok(Taken::Duplicate);
        }
        let bytes = self.cost(&data);
        let has_room = self.bytes + bytes <= bytes_max || self.is_urgent(&data, order);
        if is_ahead || !has_room {
            return Ok(Taken::NoRoom);
        }
        let (id, seq) = (data.op, data.seq());
        let new = || Assembly::new(data.count, data.is_body);
        let assembly = self.partial.entry(first).or_insert_with(new);
        if !assembly.fits(&data) {
            return Err(Fault::Chunks { op: id });
        }
        self.bytes += bytes;
        assembly.insert(data.index, data.payload);
        let complete = if assembly.is_complete() { self.partial.remove(&first) } else { None };
        self.beyond.insert(seq, seq + 1);
        self.advance();
        let complete = complete.map(|assembly| (id, assembly.finish()));
        if let Some((id, payload)) = &complete {
            self.ready.insert(id.seq, payload.clone());
        }
        let delivered = self.deliver(order);
        Ok(Taken::New { complete, delivered })
    }

    /// True if these chunks, of which `one` is one, are all that is missing of their operation, and
    /// no other has any of its numbers.
    pub(super) fn fits_whole(&self, one: &Data, chunks: &[Data]) -> bool {
        let (first, end) = (one.op.seq, one.op.seq + u64::from(one.count));
        let overlaps = self.has_other_within(first, end);
        let here = self.partial.get(&first);
        let is_same = here.is_none_or(|it| it.is_of(one.count, one.is_body));
        let left = here.map_or(one.count as usize, Assembly::left);
        let is_missing = chunks.iter().all(|chunk| !self.has(chunk.seq()));
        !overlaps && is_same && is_missing && left == chunks.len()
    }

    /// True if another operation than the one of these numbers has some of them.
    pub(super) fn has_other_within(&self, first: u64, end: u64) -> bool {
        let is_other = |it: u64| it != first;
        self.partial_with(first).is_some_and(is_other)
            || self.partial.range(first..end).any(|(it, _)| is_other(*it))
    }

    /// True if there is room for all of them.
    pub(super) fn has_room_for(
        &self,
        one: &Data,
        chunks: &[Data],
        order: Order,
        bytes_max: usize,
    ) -> bool {
        let payloads: usize = chunks.iter().map(|chunk| chunk.payload.len()).sum();
        let bytes = self.cost(one) - one.payload.len() + payloads;
        let is_near = one.op.seq + u64::from(one.count) <= self.acked() + WINDOW;
        is_near && (self.bytes + bytes <= bytes_max || self.is_urgent(one, order))
    }

    /// Bytes of memory that taking it would cost.
    fn cost(&self, data: &Data) -> usize {
        let is_new = !self.partial.contains_key(&data.op.seq);
        data.payload.len() + if is_new { data.count as usize * PLACE_BYTES } else { 0 }
    }

    /// The operation that all others wait for is always taken: so a full stream empties. One that
    /// is delivered at once needs no room.
    fn is_urgent(&self, data: &Data, order: Order) -> bool {
        // Of those that claim to be the oldest, which a liar may say of many, the one that came
        // first.
        let is_oldest = data.op.seq <= self.next
            && self.partial_with(self.next).is_none_or(|first| first == data.op.seq);
        is_oldest || (data.count == 1 && order == Order::Unordered)
    }

    /// Remembers a chunk that its source has sent and there was no room for.
    pub(super) fn turn_away(&mut self, seq: u64, bytes: usize) {
        if self.wants(seq) {
            self.turned_away.insert(seq, bytes);
            if self.turned_away.len() > TURNED_AWAY_MAX {
                self.turned_away.pop_last();
            }
        }
    }

    pub(super) fn has_turned_away(&self) -> bool {
        !self.turned_away.is_empty()
    }

    /// Takes those of what was turned away for which there is room now, of so many bytes at most.
    pub(super) fn recall(&mut self, room: usize, bytes_max: usize) -> Vec<u64> {
        let (mut room, mut left) = (room, bytes_max.saturating_sub(self.bytes));
        let mut recalled = Vec::new();
        while room > 0
            && let Some((seq, bytes)) = self.turned_away.pop_first()
        {
            if !self.wants(seq) {
                continue;
            }
            // Of what waits, that for which all others do is taken in any case.
            let is_oldest = self.partial_with(seq).unwrap_or(seq) <= self.next;
            if bytes > left && !is_oldest {
                self.turned_away.insert(seq, bytes);
                break;
            }
            (room, left) = (room.saturating_sub(bytes), left.saturating_sub(bytes));
            recalled.push(seq);
        }
        recalled
    }

    fn has(&self, seq: u64) -> bool {
        seq < self.next || self.beyond.contains(seq)
    }

    /// True for a chunk that is not here, and not too far ahead.
    pub(super) fn wants(&self, seq: u64) -> bool {
        !self.has(seq) && seq < self.acked() + WINDOW
    }

    fn advance(&mut self) {
        self.next = self.beyond.advance(self.next);
    }

    fn deliver(&mut self, order: Order) -> Vec<(OpId, Payload)> {
        let due = match order {
            Order::Unordered => std::mem::take(&mut self.ready),
            Order::SourceFifo => {
                let later = self.ready.split_off(&self.next);
                std::mem::replace(&mut self.ready, later)
            }
        };
        self.bytes -= due.values().map(waiting_cost).sum::<usize>();
        let (source, life) = (self.source, self.life);
        due.into_iter().map(|(seq, payload)| (OpId { source, life, seq }, payload)).collect()
    }

    /// Nothing below `seq` will come. Operations that miss chunks there go, all of them.
    pub(super) fn skip_to(&mut self, seq: u64, order: Order) -> (Holes, Vec<(OpId, Payload)>) {
        if seq <= self.next {
            self.refused = self.refused.split_off(&seq);
            return Default::default();
        }
        let mut holes: Holes = self.missing_below(seq).collect();
        let kept = self.partial.split_off(&seq);
        for (first, assembly) in std::mem::replace(&mut self.partial, kept) {
            holes.push((first, first + assembly.count() as u64));
            self.bytes -= assembly.bytes();
            self.beyond.insert(first, first + assembly.count() as u64);
        }
        self.refused = self.refused.split_off(&seq);
        self.next = self.beyond.advance(seq);
        let holes = merged(holes);
        self.note_skipped(&holes);
        (holes, self.deliver(order))
    }

    /// Nothing more will come. What was missing, and what had waited for it.
    pub(super) fn end(&mut self, order: Order) -> (Holes, Vec<(OpId, Payload)>) {
        self.turned_away.clear();
        self.skip_to(self.end_of_holes(), order)
    }

    /// The operation with this sequence number will not come: this receiver gives it up, the source
    /// may not have.
    pub(super) fn skip(
        &mut self,
        seq: u64,
        until: u64,
        order: Order,
    ) -> (Holes, Vec<(OpId, Payload)>) {
        if seq < self.floor && seq <= self.next {
            return self.skip_to(until.min(self.floor), order);
        }
        // What may not come yet is no hole: somebody has made up its name.
        let is_ahead = seq >= self.acked() + WINDOW;
        if is_ahead || (self.has(seq) && self.partial_with(seq).is_none()) {
            return Default::default();
        }
        let first = self.partial_with(seq);
        let assembly = first.and_then(|first| self.partial.remove(&first));
        self.bytes -= assembly.as_ref().map_or(0, Assembly::bytes);
        let count = assembly.map_or(1, |assembly| assembly.count() as u64);
        let first = first.unwrap_or(seq);
        let gone = first.max(self.next)..first + count;
        self.beyond.insert(gone.start, gone.end);
        self.refused.extend(gone);
        self.advance();
        let holes = vec![(first, first + count)];
        self.note_skipped(&holes);
        (holes, self.deliver(order))
    }

    /// These are for others. What is delivered now.
    pub(super) fn leave_out(&mut self, ranges: &Holes, order: Order) -> Vec<(OpId, Payload)> {
        let end = self.acked() + WINDOW;
        for (from, to) in ranges.iter().copied().filter(|(_, to)| *to <= end) {
            let new = from.max(self.next)..to;
            let within = self.partial.range(new.start..to.max(new.start));
            let first = self.partial_with(new.start).filter(|_| !new.is_empty());
            let firsts: BTreeSet<u64> = within.map(|(first, _)| *first).chain(first).collect();
            // Some of it may have come, by an answer, and not again.
            let missing = self.missing_below(to).map(|(first, end)| (first.max(from), end));
            let mut skipped: Holes = missing.filter(|(first, end)| first < end).collect();
            for first in firsts {
                let Some(assembly) = self.partial.remove(&first) else { continue };
                self.bytes -= assembly.bytes();
                skipped.push((first, first + assembly.count() as u64));
            }
            self.beyond.insert(new.start, new.end);
            self.note_skipped(&merged(skipped));
        }
        self.advance();
        self.deliver(order)
    }

    /// An operation has come whole by another way than its chunks. What is delivered now: it waits
    /// for its turn as if they had come.
    pub(super) fn take_whole(
        &mut self,
        first: u64,
        payload: Payload,
        order: Order,
    ) -> Vec<(OpId, Payload)> {
        let end = first + payload.chunks().len() as u64;
        self.bytes += waiting_cost(&payload);
        self.ready.insert(first, payload);
        self.leave_out(&vec![(first, end)], order)
    }

    /// True if it is its turn, or there is room for so many bytes until it is.
    pub(super) fn may_take_whole(&self, first: u64, bytes: usize, bytes_max: usize) -> bool {
        first <= self.next || self.bytes + bytes <= bytes_max
    }

    fn note_skipped(&mut self, holes: &Holes) {
        self.skipped.extend(holes);
        let surplus = self.skipped.len().saturating_sub(SKIPPED_MAX);
        self.skipped.drain(..surplus);
    }

    /// Holes up to the last that is known of.
    pub(super) fn holes(&self) -> Holes {
        self.missing_below(self.end_of_holes()).collect()
    }

    /// True when there are any.
    pub(super) fn has_holes(&self) -> bool {
        self.missing_below(self.end_of_holes()).next().is_some()
    }

    /// There is a link to the source again.
    pub(super) fn resume(&mut self) {
        self.resumed_at = None;
    }

    /// Number of the chunks that are missing and have been sent before there was a link, or are not
    /// owed any more.
    pub(super) fn missing_before(&self) -> u64 {
        let end = self.resumed_at.unwrap_or(0).max(self.floor);
        self.missing_below(end).map(|(from, to)| to - from).sum()
    }

    /// Its source owes nothing below `seq`.
    pub(super) fn set_floor(&mut self, seq: u64) {
        self.floor = self.floor.max(seq);
        self.refused = self.refused.split_off(&self.floor);
    }

    pub(super) fn is_below_floor(&self) -> bool {
        self.next < self.floor
    }

    /// The first sequence number of which it is not known that it was sent.
    fn end_of_holes(&self) -> u64 {
        self.end_of_all().max(self.floor)
    }

    /// The first sequence number that nothing here speaks of.
    fn end_of_all(&self) -> u64 {
        let end_of = |(first, assembly): (&u64, &Assembly)| first + assembly.count() as u64;
        let partial = self.partial.iter().next_back().map_or(self.next, end_of);
        self.beyond.end().unwrap_or(self.next).max(partial)
    }

    fn missing_below(&self, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.beyond.gaps(self.next, end)
    }

    /// True when the operation is still to come; none when it was skipped.
    pub(super) fn expects(&self, seq: u64) -> Option<bool> {
        if self.skipped.iter().any(|(from, to)| (*from..*to).contains(&seq)) {
            return None;
        }
        Some(!self.has(seq) || self.partial_with(seq).is_some())
    }

    /// Chunks that are here of the operation with this sequence number.
    pub(super) fn present(&self, seq: u64) -> Bytes {
        let assembly = self.partial_with(seq).and_then(|first| self.partial.get(&first));
        assembly.map(Assembly::present).unwrap_or_default()
    }

    /// The first sequence number of the operation that misses chunks and has this one.
    fn partial_with(&self, seq: u64) -> Option<u64> {
        let (first, assembly) = self.partial.range(..=seq).next_back()?;
        (seq - first < assembly.count() as u64).then_some(*first)
    }

    pub(super) fn ack(&self) -> Ack {
        let next = self.acked();
        let come = (next + 1..self.next).chain(self.beyond.iter());
        let beyond = bits_beyond(next, come.filter(|seq| !self.refused.contains(seq)));
        Ack { life: self.life, next, beyond }
    }

    /// All below is acknowledged.
    fn acked(&self) -> u64 {
        self.refused.first().map_or(self.next, |seq| self.next.min(*seq))
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes that a whole operation takes in memory.
fn waiting_cost(payload: &Payload) -> usize {
    payload.len() + payload.chunks().len() * PLACE_BYTES
}

/// Ranges as few as possible.
fn merged(mut holes: Holes) -> Holes {
    holes.sort_unstable();
    let mut merged: Holes = Vec::new();
    for (from, to) in holes {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}
