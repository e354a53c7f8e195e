//! Pull repair: what is kept for others, and what is asked of them.
//!
//! If a source dies with an operation half sent, some have it and others only know its name. Who
//! misses it asks those that can be reached, one after the other, the source first.

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
    /// In the order they came.
    age: VecDeque<OpId>,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
}

impl Holdings {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            ops: BTreeMap::new(),
            age: VecDeque::new(),
            bytes: 0,
            bytes_max: limits.held_bytes_max,
            count_max: limits.held_max,
        }
    }

    /// Keeps an operation; the oldest go for it.
    pub(crate) fn insert(&mut self, op: OpId, payload: Payload) {
        self.bytes += payload.len();
        if let Some(old) = self.ops.insert(op, payload) {
            self.bytes -= old.len();
        } else {
            self.age.push_back(op);
        }
        while self.bytes > self.bytes_max || self.ops.len() > self.count_max {
            let Some(oldest) = self.age.pop_front() else { break };
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
        self.age.retain(|op| self.ops.contains_key(op));
    }

    fn remove(&mut self, op: OpId) {
        if let Some(payload) = self.ops.remove(&op) {
            self.bytes -= payload.len();
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
    /// Most that may be put together here at once.
    own_max: usize,
    rounds: u32,
    timeout: Duration,
    /// Time in which a holder sends all that it keeps, at the least rate.
    all_within: Duration,
    /// When each site brought something that was asked for last.
    brought_at: BTreeMap<Site, Timestamp>,
}

#[derive(Clone, Debug)]
struct Fetching {
    asked: Option<Site>,
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
    /// Chunks of an operation that no stream brings, and its first sequence number.
    own: Option<(u64, Assembly)>,
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
            own_max: (limits.reorder_bytes_max / limits.payload_bytes_max).max(1),
            rounds: limits.fetch_rounds,
            timeout: limits.fetch_timeout,
            all_within: all_within.min(TIME_MAX),
            brought_at: BTreeMap::new(),
        }
    }

    /// Begins to ask for an operation, or goes on. False: too many are asked for.
    pub(crate) fn start(&mut self, now: Timestamp, op: OpId, is_pull: bool) -> bool {
        if let Some(fetching) = self.table.get_mut(&op) {
            fetching.is_pull &= is_pull;
            return true;
        }
        if self.table.len() >= self.max {
            return false;
        }
        let fetching = Fetching {
            asked: None,
            tried: SiteSet::EMPTY,
            asked_ever: SiteSet::EMPTY,
            denied: SiteSet::EMPTY,
            nothing_until: u64::MAX,
            rounds_left: self.rounds,
            round_at: now,
            waits_until: now + self.all_within,
            due: now,
            is_pull,
            own: None,
        };
        self.table.insert(op, fetching);
        true
    }

    /// The next step that is due. Those in `up` can be asked, the source first.
    pub(crate) fn poll(&mut self, now: Timestamp, up: SiteSet) -> Option<Step> {
        let due = |(_, fetching): &(&OpId, &Fetching)| fetching.due <= now;
        let op = *self.table.iter().find(due)?.0;
        let fetching = self.table.get_mut(&op).expect("it was found above");
        fetching.due = now + self.timeout;
        let candidates = up.difference(fetching.tried);
        let first = Some(op.source).filter(|source| candidates.contains(*source));
        if let Some(holder) = first.or_else(|| candidates.iter().next()) {
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
            return self.poll(now, up);
        }
        let (is_pull, until) = (fetching.is_pull, fetching.nothing_until);
        let until = if is_hopeless { until.max(op.seq + 1) } else { op.seq + 1 };
        self.table.remove(&op);
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

    /// A chunk came through a stream: whoever sends it is given more time.
    pub(crate) fn on_progress(&mut self, now: Timestamp, op: OpId, count: u32, from: Site) {
        let due = now + self.timeout;
        let mut is_asked = false;
        for fetching in self.range_mut(op, u64::from(count)) {
            fetching.due = fetching.due.max(due);
            is_asked = true;
        }
        if is_asked {
            self.brought_at.insert(from, now);
        }
    }

    /// An operation is complete. Whether it was asked for.
    pub(crate) fn on_complete(&mut self, op: OpId, count: u64) -> bool {
        let end = OpId { seq: op.seq + count, ..op };
        let done: Vec<OpId> = self.table.range(op..end).map(|(op, _)| *op).collect();
        done.iter().for_each(|op| {
            self.table.remove(op);
        });
        !done.is_empty()
    }

    /// Gives up what is missing up to here: only the user may still want it, out of its order.
    pub(crate) fn cancel_pulls(&mut self, from: OpId, to: u64) {
        let end = OpId { seq: to, ..from };
        self.table.retain(|op, fetching| !fetching.is_pull || !(from..end).contains(op));
    }

    fn range_mut(&mut self, op: OpId, count: u64) -> impl Iterator<Item = &mut Fetching> {
        let end = OpId { seq: op.seq + count, ..op };
        self.table.range_mut(op..end).map(|(_, fetching)| fetching)
    }

    /// A chunk of an operation that no stream brings. The operation, with its last chunk; once.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        from: Site,
        data: Data,
    ) -> Result<Option<(OpId, Payload)>, Fault> {
        let (op, due) = (data.op, now + self.timeout);
        if self.done.contains(&op) {
            self.on_complete(op, u64::from(data.count));
            return Ok(None);
        }
        let (rounds, own_max) = (self.rounds, self.own_max);
        let own_count = self.table.values().filter(|fetching| fetching.own.is_some()).count();
        let Some(fetching) = self.range_mut(op, u64::from(data.count)).next() else {
            return Ok(None);
        };
        if fetching.own.is_none() && own_count >= own_max {
            fetching.rounds_left = rounds; // There is no room: its turn comes.
            return Ok(None);
        }
        let (first, assembly) =
            fetching.own.get_or_insert_with(|| (op.seq, Assembly::new(data.count, data.is_body)));
        if *first != op.seq || !assembly.fits(&data) {
            return Err(Fault::Chunks { op });
        }
        let is_new = assembly.insert(data.index, data.payload);
        fetching.due = due;
        let is_complete = assembly.is_complete();
        let assembly = fetching.own.take_if(|_| is_complete).map(|(_, assembly)| assembly);
        if is_new {
            self.brought_at.insert(from, now);
        }
        if !is_complete {
            return Ok(None);
        }
        self.on_complete(op, u64::from(data.count));
        self.done.push_back(op);
        if self.done.len() > DONE_MAX {
            self.done.pop_front();
        }
        Ok(assembly.map(|assembly| (op, assembly.finish())))
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

    /// Chunks that are here of an operation that no stream brings.
    pub(crate) fn present(&self, op: OpId) -> Option<Bytes> {
        let (_, assembly) = self.table.get(&op)?.own.as_ref()?;
        Some(assembly.present())
    }

    /// Number of operations that are being asked for.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.table.values().map(|fetching| fetching.due).min()
    }
}

/// Operations remembered that came by a fetch alone. One of an earlier life may be delivered again
/// after so many others.
const DONE_MAX: usize = 1_024;
