//! Pull repair: what is kept for others, and what is asked of them.
//!
//! If a source dies with an operation half sent, some have it and others only know its name. Who
//! misses it asks those that can be reached, one after the other, the source first. A source that
//! is reached itself and owes the operation is asked alone, until it says that it has nothing or
//! has not answered for long. What others say of its operations nobody vouches for: as long as it
//! is reached and owes them they are not believed.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::proto::limits::TIME_MAX;
use convoke_core::time::Timestamp;

use crate::event::Fault;
use crate::limits::Limits;
use crate::payload::{Assembly, Payload};
use crate::site::{Site, SiteSet};
use crate::wire::{Data, OpId};

/// Operations kept after they were delivered, or acknowledged by all: the last ones, up to a bound.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    ops: BTreeMap<OpId, Payload>,
    sources: BTreeMap<Site, Share>,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
}

/// Operations of one source that are kept, in the order they came.
#[derive(Clone, Debug, Default)]
struct Share {
    age: VecDeque<OpId>,
    bytes: usize,
}

impl Holdings {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            ops: BTreeMap::new(),
            sources: BTreeMap::new(),
            bytes: 0,
            bytes_max: limits.held_bytes_max,
            count_max: limits.held_max,
        }
    }

    /// Keeps an operation. For it go the oldest of the source that has most, so that no source
    /// displaces what others have kept within an equal share.
    pub(crate) fn insert(&mut self, op: OpId, payload: Payload) {
        self.remove(op);
        let share = self.sources.entry(op.source).or_default();
        share.bytes += payload.len();
        share.age.push_back(op);
        self.bytes += payload.len();
        self.ops.insert(op, payload);
        while self.bytes > self.bytes_max {
            self.remove_oldest(|share| share.bytes);
        }
        while self.ops.len() > self.count_max {
            self.remove_oldest(|share| share.age.len());
        }
    }

    fn remove_oldest(&mut self, size: impl Fn(&Share) -> usize) {
        let largest = self.sources.values().max_by_key(|share| size(share));
        if let Some(oldest) = largest.and_then(|share| share.age.front().copied()) {
            self.remove(oldest);
        }
    }

    /// The operation with this sequence number in it.
    pub(crate) fn find(&self, op: OpId) -> Option<(OpId, &Payload)> {
        let (id, payload) = self.ops.range(..=op).next_back()?;
        let is_same = (id.source, id.life) == (op.source, op.life);
        (is_same && op.seq - id.seq < payload.chunks().len() as u64).then_some((*id, payload))
    }

    /// The first sequence number of the first that is kept of a stream, from there on.
    pub(crate) fn next_op(&self, op: OpId) -> Option<u64> {
        let (id, _) = self.ops.range(op..).next()?;
        ((id.source, id.life) == (op.source, op.life)).then_some(id.seq)
    }

    /// Forgets the operations of a source's life below a sequence number.
    pub(crate) fn release(&mut self, below: OpId) {
        let gone: Vec<OpId> =
            self.ops.range(OpId { seq: 0, ..below }..below).map(|(op, _)| *op).collect();
        gone.into_iter().for_each(|op| self.remove(op));
    }

    fn remove(&mut self, op: OpId) {
        let Some(payload) = self.ops.remove(&op) else { return };
        self.bytes -= payload.len();
        let share = self.sources.get_mut(&op.source).expect("what is kept is in its share");
        share.bytes -= payload.len();
        // The oldest, but for what its source releases or sends again.
        if let Some(index) = share.age.iter().position(|it| *it == op) {
            share.age.remove(index);
        }
    }

    /// Payload bytes kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Operations that are being asked of others.
#[derive(Clone, Debug)]
pub(crate) struct Fetches {
    table: BTreeMap<OpId, Fetching>,
    /// The last operations that came here and not through a stream.
    done: VecDeque<OpId>,
    max: usize,
    /// Chunks that others than the source have brought, by who did.
    answers: BTreeMap<Site, Answers>,
    /// Bytes that all of them may take.
    answers_max: usize,
    rounds: u32,
    timeout: Duration,
    /// Time that a source is asked alone.
    alone_for: Duration,
    /// Time in which a holder sends all that it keeps, at the least rate.
    all_within: Duration,
    /// When each site brought something that was asked for last.
    brought_at: BTreeMap<Site, Timestamp>,
}

/// Operations that one site has brought a part of. Nothing is made of it before it is whole, so
/// that what one makes up is in the way of nothing.
#[derive(Clone, Debug, Default)]
struct Answers {
    ops: BTreeMap<OpId, Assembly>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Fetching {
    asked: Option<Site>,
    /// Since when its source is reached and owes it, and is asked alone.
    alone_since: Option<Timestamp>,
    tried: SiteSet,
    /// Sites that were asked, in any round: nobody else has an answer.
    asked_ever: SiteSet,
    /// Holders that have said that they have nothing.
    denied: SiteSet,
    /// Up to where all that have, say so.
    nothing_until: u64,
    rounds_left: u32,
    /// When the present round began.
    round_at: Timestamp,
    /// Time until which a round does not count while those who were asked bring what was asked for
    /// before.
    waits_until: Timestamp,
    due: Timestamp,
    /// By its own hand, because the source is gone; not asked for by the user.
    is_pull: bool,
}

/// Next step for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask this site.
    Ask(OpId, Site),
    /// Nobody has it, nor what follows in its stream up to a sequence number.
    Unavailable { op: OpId, until: u64, is_pull: bool },
}

impl Fetches {
    pub(crate) fn new(limits: &Limits) -> Self {
        let kept_bits = (limits.held_bytes_max as u64).saturating_mul(8);
        let all_within = Duration::from_millis(kept_bits / limits.repair_rate_min); // At kbit/s.
        Self {
            table: BTreeMap::new(),
            done: VecDeque::new(),
            max: limits.fetches_max,
            answers: BTreeMap::new(),
            answers_max: limits.reorder_bytes_max.max(limits.payload_bytes_max * 2),
            rounds: limits.fetch_rounds,
            timeout: limits.fetch_timeout,
            alone_for: limits.lag_max,
            all_within: all_within.min(TIME_MAX),
            brought_at: BTreeMap::new(),
        }
    }

    /// Begins to ask for an operation, or goes on. False: too many are asked for. Half of them may
    /// be pulls and half what the user wants, and of either half each source has a share: of what
    /// one makes up nobody else has less than as many.
    pub(crate) fn start(&mut self, now: Timestamp, op: OpId, is_pull: bool) -> bool {
        if let Some(fetching) = self.table.get_mut(&op) {
            fetching.is_pull &= is_pull;
            return true;
        }
        let half = if is_pull { self.max / 2 } else { self.max.div_ceil(2) };
        let alike = || self.table.iter().filter(move |(_, it)| it.is_pull == is_pull);
        let of_source = alike().filter(|(other, _)| other.source == op.source).count();
        if self.table.len() >= self.max || of_source >= half.saturating_sub(alike().count()) {
            return false;
        }
        let fetching = Fetching {
            asked: None,
            alone_since: None,
            tried: SiteSet::EMPTY,
            asked_ever: SiteSet::EMPTY,
            denied: SiteSet::EMPTY,
            nothing_until: u64::MAX,
            rounds_left: self.rounds,
            round_at: now,
            waits_until: now + self.all_within,
            due: now,
            is_pull,
        };
        self.table.insert(op, fetching);
        true
    }

    /// The next step that is due. Those in `up` can be asked: the source first, or alone while it
    /// `owes` the operation and has not denied it.
    pub(crate) fn poll(
        &mut self,
        now: Timestamp,
        up: SiteSet,
        owes: &dyn Fn(OpId) -> bool,
    ) -> Option<Step> {
        let due = |(_, fetching): &(&OpId, &Fetching)| fetching.due <= now;
        let op = *self.table.iter().find(due)?.0;
        let fetching = self.table.get_mut(&op).expect("it was found above");
        fetching.due = now + self.timeout;
        let is_reached = up.contains(op.source) && !fetching.denied.contains(op.source);
        let may_answer = is_reached && owes(op);
        fetching.alone_since = may_answer.then(|| fetching.alone_since.unwrap_or(now));
        let is_alone = fetching.alone_since.is_some_and(|since| now < since + self.alone_for);
        let candidates = up.difference(fetching.tried);
        let source = Some(op.source).filter(|it| is_alone || candidates.contains(*it));
        if let Some(holder) = source.or_else(|| candidates.iter().next()) {
            fetching.tried.insert(holder);
            fetching.asked_ever.insert(holder);
            fetching.asked = Some(holder);
            return Some(Step::Ask(op, holder));
        }
        fetching.tried = SiteSet::EMPTY;
        fetching.asked = None;
        // What is pulled is not waited for once all have said that they do not have it: others wait
        // behind it. Where nobody could be asked, nobody has said so.
        let is_denied = !up.is_empty() && up.difference(fetching.denied).is_empty();
        let is_hopeless = fetching.is_pull && is_denied;
        // What those who may have it send first takes its time.
        let has_brought =
            |site: &Site| self.brought_at.get(site).is_some_and(|at| *at > fetching.round_at);
        let may_have = fetching.asked_ever.intersection(up).difference(fetching.denied);
        let is_served = now < fetching.waits_until && may_have.iter().any(|it| has_brought(&it));
        fetching.round_at = now;
        if is_hopeless {
            fetching.rounds_left = 0;
        } else if !is_served {
            fetching.rounds_left -= 1;
        }
        if fetching.rounds_left > 0 {
            return self.poll(now, up, owes);
        }
        let (is_pull, until) = (fetching.is_pull, fetching.nothing_until);
        let until = if is_hopeless { until.max(op.seq + 1) } else { op.seq + 1 };
        self.table.remove(&op);
        self.forget_answers();
        Some(Step::Unavailable { op, until, is_pull })
    }

    /// A holder has nothing of a stream from there up to a sequence number.
    pub(crate) fn on_have_not(&mut self, now: Timestamp, op: OpId, until: u64, from: Site) {
        let end = OpId { seq: until.max(op.seq + 1), ..op };
        for (_, fetching) in self.table.range_mut(op..end) {
            fetching.denied.insert(from);
            fetching.tried.insert(from);
            fetching.nothing_until = fetching.nothing_until.min(until);
            if fetching.asked == Some(from) {
                fetching.asked = None;
                fetching.due = now;
            }
        }
    }

    /// A chunk came through a stream, or finds no room yet: whoever sends it is given more time.
    /// True if it was asked for.
    pub(crate) fn on_progress(&mut self, now: Timestamp, op: OpId, count: u32, from: Site) -> bool {
        let due = now + self.timeout;
        let mut is_asked = false;
        for fetching in self.range_mut(op, u64::from(count)) {
            fetching.due = fetching.due.max(due);
            is_asked = true;
        }
        if is_asked {
            self.brought_at.insert(from, now);
        }
        is_asked
    }

    /// An operation is complete. Whether it was asked for.
    pub(crate) fn on_complete(&mut self, op: OpId, count: u64) -> bool {
        let end = OpId { seq: op.seq + count, ..op };
        let done: Vec<OpId> = self.table.range(op..end).map(|(op, _)| *op).collect();
        done.iter().for_each(|op| {
            self.table.remove(op);
        });
        if !done.is_empty() {
            self.forget_answers();
        }
        !done.is_empty()
    }

    /// Gives up what is missing up to here: only the user may still want it, out of its order.
    pub(crate) fn cancel_pulls(&mut self, from: OpId, to: u64) {
        let within = from..OpId { seq: to.max(from.seq), ..from };
        let pulls = self.table.range(within).filter(|(_, fetching)| fetching.is_pull);
        let gone: Vec<OpId> = pulls.map(|(op, _)| *op).collect();
        gone.iter().for_each(|op| {
            self.table.remove(op);
        });
        if !gone.is_empty() {
            self.forget_answers();
        }
    }

    /// Drops what came of operations that are not asked for any more.
    fn forget_answers(&mut self) {
        let table = &self.table;
        for answers in self.answers.values_mut() {
            answers.ops.retain(|op, assembly| {
                let end = OpId { seq: op.seq + assembly.count() as u64, ..*op };
                table.range(*op..end).next().is_some()
            });
            answers.bytes = answers.ops.values().map(Assembly::bytes).sum();
        }
        self.answers.retain(|_, answers| !answers.ops.is_empty());
    }

    fn range_mut(&mut self, op: OpId, count: u64) -> impl Iterator<Item = &mut Fetching> {
        let end = OpId { seq: op.seq + count, ..op };
        self.table.range_mut(op..end).map(|(_, fetching)| fetching)
    }

    /// A chunk that a site brings of what it was asked for. All that it has brought of the
    /// operation, once no more is missing of it than is `here` by [`Assembly::present`].
    ///
    /// # Errors
    /// [`Fault::Chunks`]: it has brought others of an operation that these would be a part of.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        from: Site,
        data: Data,
        here: &[u8],
    ) -> Result<Option<Vec<Data>>, Fault> {
        let (op, due) = (data.op, now + self.timeout);
        let mut is_wanted = false;
        for fetching in self.range_mut(op, u64::from(data.count)) {
            fetching.due = fetching.due.max(due);
            is_wanted = true;
        }
        if !is_wanted {
            return Ok(None);
        }
        let answers = self.answers.entry(from).or_default();
        if answers.insert(data)? {
            self.brought_at.insert(from, now);
        }
        let whole = answers.take_whole(op, here);
        self.make_room();
        Ok(whole)
    }

    /// Chunks of an operation that a site has brought, if they are all that is missing: more is
    /// `here` now. And which site.
    pub(crate) fn take_whole(&mut self, op: OpId, here: &[u8]) -> Option<(Site, Vec<Data>)> {
        let whole = |(from, it): (&Site, &mut Answers)| Some((*from, it.take_whole(op, here)?));
        self.answers.iter_mut().find_map(whole)
    }

    /// The last in order make room, of whom there is most: of those who are asked now only where
    /// there is nothing of others, for they are about to bring the rest.
    fn make_room(&mut self) {
        let asked: SiteSet = self.table.values().filter_map(|it| it.asked).collect();
        while self.answers.values().map(|it| it.bytes).sum::<usize>() > self.answers_max {
            let some = self.answers.iter_mut().filter(|(_, it)| it.bytes > 0);
            let most = some.max_by_key(|(site, it)| (!asked.contains(**site), it.bytes));
            let Some((_, most)) = most else { return };
            most.bytes -= most.ops.pop_last().map_or(0, |(_, last)| last.bytes());
        }
    }

    /// A chunk of an operation that no stream brings. The operation, with its last chunk; once.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(crate) fn take_own(
        &mut self,
        now: Timestamp,
        from: Site,
        data: Data,
    ) -> Result<Option<(OpId, Payload)>, Fault> {
        let (op, count, is_body) = (data.op, u64::from(data.count), data.is_body);
        if self.done.contains(&op) {
            self.on_complete(op, count);
            return Ok(None);
        }
        let Some(chunks) = self.take(now, from, data, &[])? else { return Ok(None) };
        self.on_complete(op, count);
        self.done.push_back(op);
        if self.done.len() > DONE_MAX {
            self.done.pop_front();
        }
        let chunks = chunks.into_iter().map(|chunk| chunk.payload).collect();
        Ok(Some((op, Payload::of(chunks, is_body))))
    }

    /// True when it came here and not through a stream.
    pub(crate) fn is_done(&self, op: OpId) -> bool {
        self.done.contains(&op)
    }

    /// True when an operation with this sequence number is being asked for.
    pub(crate) fn wants(&self, op: OpId, count: u32) -> bool {
        let end = OpId { seq: op.seq + u64::from(count), ..op };
        self.table.range(op..end).next().is_some()
    }

    /// True if a site has been asked for an operation with this sequence number.
    pub(crate) fn asks(&self, op: OpId, count: u32, holder: Site) -> bool {
        let end = OpId { seq: op.seq + u64::from(count), ..op };
        self.table.range(op..end).any(|(_, fetching)| fetching.asked_ever.contains(holder))
    }

    /// All that a site has brought of an operation cannot be it: it is not waited for.
    pub(crate) fn on_useless(&mut self, from: Site) {
        self.brought_at.remove(&from);
    }

    /// Chunks of an operation that need not be asked of a site: it has brought them, or they are
    /// `here`.
    pub(crate) fn present(&self, op: OpId, holder: Site, here: Bytes) -> Bytes {
        match self.answers.get(&holder).and_then(|answers| answers.over(op)) {
            Some((_, assembly)) => assembly.present_beside(&here),
            None => here,
        }
    }

    /// Number of operations that are being asked for.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.table.values().map(|fetching| fetching.due).min()
    }
}

impl Answers {
    /// The operation with this sequence number in it.
    fn over(&self, op: OpId) -> Option<(OpId, &Assembly)> {
        let (id, assembly) = self.ops.range(..=op).next_back()?;
        let is_same = (id.source, id.life) == (op.source, op.life);
        (is_same && op.seq - id.seq < assembly.count() as u64).then_some((*id, assembly))
    }

    /// Takes a chunk. Whether it was missing.
    fn insert(&mut self, data: Data) -> Result<bool, Fault> {
        let op = data.op;
        let last = OpId { seq: op.seq + u64::from(data.count) - 1, ..op };
        let is_other = |(id, assembly): (OpId, &Assembly)| id != op || !assembly.fits(&data);
        let is_within = self.ops.range(op..=last).any(|(id, _)| *id != op);
        if is_within || self.over(op).is_some_and(is_other) {
            return Err(Fault::Chunks { op });
        }
        let new = || Assembly::new(data.count, data.is_body);
        let before = self.ops.get(&op).map_or(0, Assembly::bytes);
        let assembly = self.ops.entry(op).or_insert_with(new);
        let is_new = assembly.insert(data.index, data.payload);
        self.bytes += assembly.bytes() - before;
        Ok(is_new)
    }

    fn take_whole(&mut self, op: OpId, here: &[u8]) -> Option<Vec<Data>> {
        self.ops.get(&op).filter(|assembly| assembly.is_complete_beside(here))?;
        let assembly = self.ops.remove(&op)?;
        self.bytes -= assembly.bytes();
        Some(assembly.into_answer(op))
    }
}

/// Operations remembered that came by a fetch alone. One of an earlier life may be delivered again
/// after so many others.
const DONE_MAX: usize = 1_024;
