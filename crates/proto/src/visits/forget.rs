//! Forgetting of what a node remembers: when it is settled, at the latest when nothing of it
//! can come any more.

use std::collections::BTreeMap;

use crate::id::CallId;
use crate::links::Links;
use crate::mutant::{self, Mutant};
use crate::share::{PeerIndex, Pool, Shares};
use crate::time::{Timestamp, earliest};
use crate::wire::Cause;

use super::origins::{Origin, OriginIndex};
use super::records::{Accounts, Over, Record, State};
use super::settle::is_short;
use super::{Left, Place, RingIndex, Visits};

impl Visits {
    /// Turns a task that is over and has sent all into what is remembered of it, or nothing.
    pub(super) fn bury(&mut self, now: Timestamp, place: &Place, links: &mut Links) {
        let Some(record) = self.record_mut(place) else { return };
        let State::Running(task) = &mut record.state else { return };
        if !task.is_drained() {
            return;
        }
        let over = Over::of(task);
        let ended = std::mem::replace(&mut record.state, State::Gone);
        let accounts = record.end(over);
        if let State::Running(ended) = ended {
            self.spare.keep(ended);
        }
        if mutant::is(Mutant::GrownKeepsShare) {
            links.shares_mut().take(accounts.payer, Pool::Running, 1);
        }
        self.note_over(now, (place.0, place.1.0), accounts, || place.clone(), links);
    }

    /// A task that ran is over. If that is known of its call, nothing of it is kept.
    pub(super) fn note_over(
        &mut self,
        now: Timestamp,
        (ring, seq): (RingIndex, u64),
        Accounts { origin, payer, request_bytes }: Accounts,
        place: impl FnOnce() -> Place,
        links: &mut Links,
    ) {
        self.running -= 1;
        links.shares_mut().give(payer, Pool::Running, 1);
        if request_bytes > 0 {
            links.shares_mut().give(payer, Pool::Requests, request_bytes);
        }
        let ask_min = self.limits.ask_min;
        let mut is_worth_asking = false; // As after few tasks.
        if let Some(of_ring) = self.origins.ring_mut(ring) {
            of_ring.over += 1;
            is_worth_asking = of_ring.over > ask_min;
            if of_ring.again.at.is_none() && (is_worth_asking || is_short(links.shares())) {
                self.ask_later(now, ring);
            }
        }
        let of_origin = self.origins.get_mut(origin);
        of_origin.over += 1;
        is_worth_asking |= of_origin.over > ask_min;
        if of_origin.is_settled(seq) {
            if let Some(record) = self.take_out(&place()) {
                self.forget_settled(ring, &record, links);
            }
        } else if is_worth_asking {
            self.ask_if_many(now, ring, origin, links);
        }
    }

    fn take_out(&mut self, place: &Place) -> Option<Record> {
        self.origins.ring_mut(place.0)?.records.remove(&place.1)
    }

    /// Undoes what a record that was just taken out of its ring is counted in. The call it was of.
    /// With `is_settled`, that it has been dropped must be known for as long as it would have been
    /// remembered.
    pub(super) fn let_go(
        &mut self,
        ring: RingIndex,
        record: &Record,
        is_settled: bool,
        links: &mut Links,
    ) -> CallId {
        let call = CallId { origin: self.origins.get(record.origin).name.life, seq: record.seq };
        let mut gone = Gone::of(record.origin);
        gone.add(record, links.shares_mut());
        forget_left(&mut self.left, (call, ring), record);
        self.count_gone(ring, gone, is_settled, links);
        call
    }

    /// Lets go of what is over at the front of a ring, of calls of an origin in `[from, to)` that
    /// are settled.
    pub(super) fn let_go_of_front(
        &mut self,
        ring: RingIndex,
        index: OriginIndex,
        calls: (u64, u64),
        links: &mut Links,
    ) {
        let life = self.origins.get(index).name.life;
        let Self { origins, left, .. } = self;
        let Some(of_ring) = origins.ring_mut(ring) else { return };
        let (mut gone, shares) = (Gone::of(index), links.shares_mut());
        let is_meant = |record: &Record| record.origin == index;
        of_ring.records.drop_front_over(calls, is_meant, |record| {
            gone.add(record, shares);
            forget_left(left, (CallId { origin: life, seq: record.seq }, ring), record);
        });
        self.count_gone(ring, gone, true, links);
    }

    /// Undoes what all of these, of one ring, are counted in.
    fn count_gone(&mut self, ring: RingIndex, gone: Gone, is_settled: bool, links: &mut Links) {
        let Gone { origin: index, count, forget_at, .. } = gone;
        if count == 0 {
            return;
        }
        gone.give_back(links.shares_mut());
        let origin = self.origins.get_mut(index);
        origin.held -= count;
        origin.over -= count;
        if is_settled {
            let before = match mutant::is(Mutant::IntervalsLiveAsLastRecord) {
                true => Timestamp::ZERO,
                false => origin.keep_until,
            };
            origin.keep_until = before.max(forget_at);
        }
        if origin.held == 0 && !origin.is_idle {
            origin.is_idle = true;
            let at = match mutant::is(Mutant::IntervalsGoWithLastRecord) {
                true => Timestamp::ZERO,
                false => origin.keep_until,
            };
            self.idle.push(at, index);
        }
        if let Some(ring) = self.origins.ring_mut(ring) {
            ring.over -= count;
        }
    }

    /// Sets the timer of a ring itself: for what grows old in it, and for its stubs.
    pub(super) fn arm_ring(&mut self, index: RingIndex) {
        let worry_min = self.limits.worry_min;
        let Some(ring) = self.origins.ring_mut(index) else { return };
        let ages = ring.records.oldest_recent().map(|since| since + worry_min);
        let at = earliest([ages, ring.stubs.next_timeout(), ring.again.at]);
        let Some(at) = at else { return };
        if ring.armed_at.is_none_or(|armed_at| at < armed_at) {
            ring.armed_at = Some(at);
            self.timers.push(at, (index, None));
        }
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let dial = self.dials.next_end().map(|(at, _)| at);
        earliest([self.timers.next(), self.idle.next(), self.refusals.poll_timeout(), dial])
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &mut Links) {
        self.settle_risen(now, links);
        self.give_up_late_dials(now, links);
        self.refusals.expire(now, |payer| links.shares_mut().give(payer, Pool::Records, 1));
        while let Some((_, (ring, name))) = self.timers.pop_due(now) {
            match name {
                None => self.look_at_ring(now, ring, links),
                Some(name) => self.look_at_record(now, (ring, name), links),
            }
        }
        while let Some((_, origin)) = self.idle.pop_due(now) {
            self.forget_origin(now, origin, links);
        }
    }

    /// Moves what is old out of the way of the rest, and drops stubs whose time has come.
    fn look_at_ring(&mut self, now: Timestamp, index: RingIndex, links: &mut Links) {
        let worry_min = self.limits.worry_min;
        let Some(ring) = self.origins.ring_mut(index) else { return };
        if ring.armed_at.is_none_or(|at| at > now) {
            return;
        }
        ring.armed_at = None;
        let before = stub_cost(ring.stubs.len());
        ring.stubs.expire(now);
        let after = stub_cost(ring.stubs.len());
        links.shares_mut().adjust(ring.payer, Pool::Records, before, after);
        let mut aged = Vec::new();
        ring.records.age(|since| since + worry_min <= now, |name| aged.push(name));
        let is_due = ring.again.at.is_some_and(|at| at <= now) || !aged.is_empty();
        for name in aged {
            self.look_at_record(now, (index, name), links);
        }
        if is_due {
            self.ask_if_old(now, index, links);
        }
        self.arm_ring(index);
        self.forget_ring(now, index, links);
    }

    /// Stops a task that is late, forgets one that can be, and looks again when it is due.
    fn look_at_record(&mut self, now: Timestamp, place: Place, links: &mut Links) {
        let Some(of_ring) = self.origins.ring(place.0) else { return };
        let call = CallId { origin: of_ring.name.life, seq: place.1.0 };
        if self.record(&place).is_some_and(|record| record.due_at() <= now) {
            self.stop(now, call, &place, Cause::Deadline, links);
            let forgets = |record: &Record| record.is_over() && record.forget_at <= now;
            if self.record(&place).is_some_and(forgets)
                && let Some(record) = self.take_out(&place)
            {
                self.let_go(place.0, &record, false, links);
            }
        }
        let ring = place.0;
        if let Some(at) = self.record(&place).map(Record::due_at) {
            self.timers.push(at, (ring, Some(place.1)));
            self.sweep_timers(links);
        }
        self.forget_ring(now, ring, links);
    }

    /// Drops timers of what has been settled since, once they are the most.
    fn sweep_timers(&mut self, links: &Links) {
        if !self.timers.is_crowded(links.shares().used(Pool::Records)) {
            return;
        }
        let rings = self.origins.rings_with_index();
        let armed = rings.flat_map(|(index, ring)| {
            let itself = ring.armed_at.map(|at| (at, (index, None)));
            let records = ring.records.iter().map(move |r| (r.due_at(), (index, Some(r.name()))));
            itself.into_iter().chain(records)
        });
        let armed: Vec<_> = armed.collect();
        self.timers.sweep(armed.into_iter());
    }

    /// Drops a ring that nothing is in, unless the answer to a question may still come: a new ring
    /// would take it for the answer to its own.
    fn forget_ring(&mut self, now: Timestamp, index: RingIndex, links: &mut Links) {
        let timeout = self.limits.keep_alive_timeout;
        let Some(ring) = self.origins.ring_mut(index) else { return };
        if !ring.records.is_empty() || ring.stubs.len() > 0 {
            return;
        }
        if let Some(at) = ring.asked.open_until(links, timeout).filter(|at| now < *at) {
            if ring.armed_at.is_none_or(|armed_at| at < armed_at) {
                ring.armed_at = Some(at);
                self.timers.push(at, (index, None));
            }
        } else if let Some(ring) = self.origins.remove_ring(index) {
            links.shares_mut().give(ring.payer, Pool::Records, 1);
        }
    }

    fn forget_origin(&mut self, now: Timestamp, index: OriginIndex, links: &mut Links) {
        let origin = self.origins.get_mut(index);
        let Origin { held, keep_until, payer, paid, .. } = *origin;
        if held > 0 {
            origin.is_idle = false; // It is looked at again when that has gone.
            return;
        }
        if keep_until > now && !mutant::is(Mutant::IntervalsGoWithLastRecord) {
            self.idle.push(keep_until, index);
            return;
        }
        self.origins.remove(index);
        links.shares_mut().give(payer, Pool::Records, paid);
    }
}

/// Records of one ring and one origin that were taken out, in all.
struct Gone {
    origin: OriginIndex,
    count: usize,
    /// When the last of them would have been forgotten.
    forget_at: Timestamp,
    /// Peer that pays for the latest of them, most often for all.
    payer: Option<PeerIndex>,
    /// Records that it is still to be given back.
    cost: usize,
}

impl Gone {
    const fn of(origin: OriginIndex) -> Self {
        Self { origin, count: 0, forget_at: Timestamp::ZERO, payer: None, cost: 0 }
    }

    fn add(&mut self, record: &Record, shares: &mut Shares) {
        debug_assert!(record.is_over(), "what runs is kept");
        if self.payer != Some(record.payer) {
            self.give_back(shares);
            (self.payer, self.cost) = (Some(record.payer), 0);
        }
        self.cost += record.cost();
        self.count += 1;
        self.forget_at = self.forget_at.max(record.forget_at);
    }

    fn give_back(&self, shares: &mut Shares) {
        if let Some(payer) = self.payer {
            shares.give(payer, Pool::Records, self.cost);
        }
    }
}

/// The branches of a task that is forgotten are not noted as sent any more.
fn forget_left(
    noted: &mut BTreeMap<Left, usize>,
    (call, ring): (CallId, RingIndex),
    record: &Record,
) {
    for child in record.children().iter().filter(|child| child.link.is_some()) {
        let left = (child.node, call, ring);
        if let Some(count) = noted.get_mut(&left) {
            *count -= 1;
            if *count == 0 {
                noted.remove(&left);
            }
        }
    }
}

impl Record {
    /// When it is to be looked at next.
    fn due_at(&self) -> Timestamp {
        match &self.state {
            State::Quiet(task) => task.deadline,
            State::Running(task) => task.deadline,
            State::Over(_) | State::Gone => self.forget_at,
        }
    }
}

/// Four stubs are counted as one record.
pub(super) const fn stub_cost(count: usize) -> usize {
    count.div_ceil(4)
}
