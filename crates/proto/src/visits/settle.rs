//! Calls that are over for everybody, and how this node learns of them (`settlement.md`).
//!
//! The initiator's own word, over a connection that proves it, settles calls: their records go at
//! once, and requests of them are refused for ever. Another node's word refuses nothing: it turns
//! the finished tasks whose requests it sent into stubs. A node that remembers much asks.

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use crate::id::{CallId, Incarnation, LinkId, NodeId, NodeLife, TaskKey};
use crate::intervals::Intervals;
use crate::key::Key;
use crate::limits::Limits;
use crate::links::Links;
use crate::mutant::{self, Mutant};
use crate::share::{Pool, Shares};
use crate::time::Timestamp;
use crate::wire::{Ask, Cause, Header, Message, NAMED_MAX, Statement};
use crate::{Arrival, Outbound};

use super::forget::stub_cost;
use super::origins::{Again, Asked, OriginIndex, Question, RingName};
use super::records::{Name, NameRef, Record, by};
use super::{Leaving, Place, RingIndex, Visits};

/// Factor by which a node other than the initiator is left alone longer. One that is asked a little
/// sooner than it answers says nothing, and is not asked again before an answer could no longer
/// come.
const SENDER_FACTOR: u32 = 2;
/// Least time between searches for replies that have no way any more.
const ORPHANS_SOUGHT_EVERY: Duration = Duration::from_millis(500);
/// From 5 ms this leads to 1.28 s.
const DOUBLINGS_MAX: u32 = 8;

impl Visits {
    /// A REQUEST of the initiator says that every call of it below `floor` is settled. That of
    /// another node says nothing: a request that it sent later may have come before this one.
    pub(super) fn hear_floor(&mut self, index: OriginIndex, floor: u64) {
        let origin = self.origins.get_mut(index);
        let floor = floor.min(origin.settles_below());
        if floor > origin.floor {
            let is_first = origin.floor == 0; // Once it has had its effect, it is 0 again.
            origin.floor = floor;
            if is_first {
                self.risen.push(index);
            }
        }
    }

    /// Lets go of what the floors that were heard settle: once for all requests of a read, as most
    /// raise it by one.
    #[inline]
    pub(crate) fn settle_risen(&mut self, now: Timestamp, links: &mut Links) {
        // None has after most inputs.
        if !self.risen.is_empty() {
            self.settle_all_risen(now, links);
        }
    }

    fn settle_all_risen(&mut self, now: Timestamp, links: &mut Links) {
        for index in std::mem::take(&mut self.risen) {
            let floor = std::mem::take(&mut self.origins.get_mut(index).floor);
            if mutant::is(Mutant::StatementReplaces) {
                self.origins.get_mut(index).settled = Intervals::default();
            }
            self.settle(now, index, (0, floor), links);
        }
    }

    /// True when the call of a CANCEL or a PROBE is known to be settled. A node that passes one on
    /// does not say whose call it is: it is of the only node that has said the life, if this one
    /// has sent requests of its calls. Else nobody knows which call is meant.
    pub(super) fn is_settled_for(&self, by: &Arrival, call: CallId) -> bool {
        let origin = if by.life.is_life_of(call.origin) {
            self.origins.find(NodeLife { node: by.via, life: call.origin })
        } else {
            let ring = self.origins.ring_of(RingName { life: call.origin, sender: by.sender() });
            let ring = ring.filter(|ring| !ring.records.is_empty());
            ring.and_then(|_| self.origins.sole_of(call.origin))
        };
        origin.is_some_and(|origin| self.origins.get(origin).is_settled(call.seq))
    }

    /// True when all that is known of a task that is not here is that it is over.
    pub(super) fn is_forgotten(
        &self,
        by: &Arrival,
        call: CallId,
        task: &TaskKey,
        key: Key,
    ) -> bool {
        let name = (call.seq, task, key);
        let mut rings = self.origins.rings_of(call.origin);
        self.is_settled_for(by, call)
            || rings.any(|(_, ring)| {
                ring.stubs.len() > 0 && ring.stubs.contains(call.seq, self.stub_name(name))
            })
    }

    /// The initiator's own word that its calls in `[from, to)` are settled.
    fn settle(
        &mut self,
        now: Timestamp,
        index: OriginIndex,
        (from, to): (u64, u64),
        links: &mut Links,
    ) {
        let origin = self.origins.get_mut(index);
        if !origin.settled.add(from, to) {
            return;
        }
        let (life, payer) = (origin.name.life, origin.payer);
        let cost = 1 + origin.settled.len() / 64;
        let before = std::mem::replace(&mut origin.paid, cost);
        links.shares_mut().adjust(payer, Pool::Records, before, cost);
        let rings = self.origins.rings_of(life).map(|(ring, _)| ring);
        let rings = rings.collect::<SmallVec<[RingIndex; 4]>>();
        if mutant::is(Mutant::RunningDropped) {
            self.stop_settled(&rings, (from, to), links);
        }
        if links.shares().used(Pool::Replies) > 0 {
            let ended = self.ended_of(index, &rings, from..to);
            self.drop_replies(now, ended, links);
        }
        for ring in rings {
            let is_meant = |record: &Record| record.origin == index;
            // Most often all are the oldest, one with each request, and there are no refusals.
            if self.refusals.len() == 0 {
                self.let_go_of_front(ring, index, (from, to), links);
            }
            let mut gone = Vec::new();
            if let Some(of_ring) = self.origins.ring_mut(ring) {
                of_ring.records.drain_over((from, to), is_meant, |record| gone.push(record));
            }
            gone.iter().for_each(|record| self.forget_settled(ring, record, links));
        }
    }

    /// Tasks of an initiator whose handlers have ended, and whose replies wait: those of settled
    /// calls, for example, for which there is nobody.
    fn ended_of(&self, index: OriginIndex, rings: &[RingIndex], calls: Range<u64>) -> Vec<Place> {
        let rings = rings.iter().filter_map(|ring| Some((*ring, self.origins.ring(*ring)?)));
        let ended = rings.flat_map(|(ring, of_ring)| {
            let records = of_ring.records.in_range(calls.clone());
            let meant = records.filter(|r| r.origin == index && r.has_ended());
            meant.map(move |record| (ring, record.name()))
        });
        ended.collect()
    }

    /// Drops replies that wait: what is left of their tasks is over.
    fn drop_replies(&mut self, now: Timestamp, ended: Vec<Place>, links: &mut Links) {
        for place in ended {
            let Some(of_ring) = self.origins.ring(place.0) else { continue };
            let call = CallId { origin: of_ring.name.life, seq: place.1.0 };
            if let Some(task) = self.task_mut(&place) {
                task.drop_replies();
                self.drain_task(now, call, &place, links);
            }
        }
    }

    /// A peer has its share of waiting replies. Those that cannot get to their initiators, as their
    /// connections have ended, make room for others: their calls miss them should they be back.
    pub(super) fn drop_orphaned(&mut self, now: Timestamp, links: &mut Links) {
        if now < self.orphans_sought_at + ORPHANS_SOUGHT_EVERY {
            return; // It looks at all there is, for every peer that has its share.
        }
        self.orphans_sought_at = now;
        let ended = self.origins.rings_with_index().flat_map(|(ring, of_ring)| {
            let ended = of_ring.records.iter().filter(|r| r.waiting_bytes > 0 && r.has_ended());
            let ended = ended.filter(|r| !links.shares().may_take(r.payer, Pool::Replies));
            ended.map(move |record| (ring, record.name()))
        });
        let mut ended: Vec<Place> = ended.collect();
        ended.retain(|place| self.has_no_way_up(now, place, links));
        self.drop_replies(now, ended, links);
    }

    /// A task of a settled call is forgotten, and with it the refusals that are of this call for
    /// certain: those that its initiator has asked for, and that of this task by who sent its
    /// request. Others may be of the call of another node that says the same life.
    pub(super) fn forget_settled(&mut self, ring: RingIndex, record: &Record, links: &mut Links) {
        let call = self.let_go(ring, record, true, links);
        if self.refusals.len() == 0 {
            return; // As most often.
        }
        let mut give = |payer| links.shares_mut().give(payer, Pool::Records, 1);
        let NodeLife { node, life } = self.origins.get(record.origin).name;
        let initiator = NodeLife { node, life: life.of_stream(0) };
        self.refusals.drop_of_asker(call, initiator, &mut give);
        if let Some(sender) = self.origins.ring(ring).map(|ring| ring.name.sender) {
            let name = (call, record.task.clone(), record.key);
            self.refusals.drop_one(&name, sender).into_iter().for_each(give);
        }
    }

    /// Stops the running tasks of settled calls: only [`Mutant::RunningDropped`] does.
    fn stop_settled(&mut self, rings: &[RingIndex], (from, to): (u64, u64), links: &mut Links) {
        let running = rings.iter().filter_map(|ring| Some((*ring, self.origins.ring(*ring)?)));
        let running = running.flat_map(|(index, ring)| {
            let life = ring.name.life;
            let meant = ring.records.iter().filter(move |r| (from..to).contains(&r.seq));
            meant.filter(|r| r.is_running()).map(move |r| (life, (index, r.name())))
        });
        for (origin, place) in running.collect::<Vec<_>>() {
            let call = CallId { origin, seq: place.1.0 };
            self.stop(Timestamp::ZERO, call, &place, Cause::Cancelled, links);
        }
    }

    /// The word of who sent these requests that those of calls in `[from, to)` are over, where
    /// `is_over`, which it had sent when it was asked, that is, those that had come by then.
    fn make_stubs(
        &mut self,
        now: Timestamp,
        (ring, asked_at): (RingIndex, Timestamp),
        (from, to): (u64, u64),
        is_over: impl Fn(&Record) -> bool,
        links: &mut Links,
    ) {
        let Some(of_ring) = self.origins.ring_mut(ring) else { return };
        if of_ring.over == 0 {
            return;
        }
        let mut gone = Vec::new();
        let is_meant = |record: &Record| record.since <= asked_at && is_over(record);
        of_ring.records.drain_over((from, to), is_meant, |record| gone.push(record));
        gone.iter().for_each(|record| self.leave_stub(now, ring, record, links));
        self.arm_ring(ring);
    }

    /// A record that was just taken out of its ring leaves a stub.
    fn leave_stub(&mut self, now: Timestamp, ring: RingIndex, record: &Record, links: &mut Links) {
        if record.forget_at > now && !mutant::is(Mutant::NoStubs) {
            self.keep_stub(ring, &record.name(), record.forget_at, links);
        }
        self.let_go(ring, record, false, links);
    }

    fn keep_stub(&mut self, ring: RingIndex, name: &Name, until: Timestamp, links: &mut Links) {
        let stub = self.stub_name(by(name));
        let Some(ring) = self.origins.ring_mut(ring) else { return };
        let before = stub_cost(ring.stubs.len());
        ring.stubs.insert(name.0, stub, until);
        let after = stub_cost(ring.stubs.len());
        links.shares_mut().adjust(ring.payer, Pool::Records, before, after);
    }

    /// Hash that a stub remembers of a task besides its call.
    pub(super) fn stub_name(&self, (_, task, key): NameRef<'_>) -> u64 {
        let mut bytes = SmallVec::<[u8; 48]>::new();
        bytes.extend_from_slice(&key.0.to_le_bytes());
        bytes.extend_from_slice(&task.hop.to_le_bytes());
        bytes.extend_from_slice(task.path.as_wire());
        self.secret.name(&bytes)
    }

    /// Asks what is settled once much is remembered: the initiator if there is a connection to it,
    /// else the node that sent the requests.
    pub(super) fn ask_if_many(
        &mut self,
        now: Timestamp,
        ring: RingIndex,
        origin: OriginIndex,
        links: &mut Links,
    ) {
        let (of_origin, of_ring) = (self.origins.get(origin), self.origins.ring(ring));
        let Limits { ask_min, ask_every, .. } = self.limits;
        let is_many = |over: usize, asked: &Asked, every: Duration| {
            over > ask_min.max(2 * asked.left) && asked.is_due(now, every)
        };
        let (asks_origin, asks_sender) = (
            is_many(of_origin.over, &of_origin.asked, ask_every),
            of_ring.is_some_and(|ring| is_many(ring.over, &ring.asked, SENDER_FACTOR * ask_every)),
        );
        if !asks_origin && !asks_sender {
            return;
        }
        match links.to_life(of_origin.name) {
            Some(_) if asks_origin => self.ask_origin(now, origin, links),
            None if asks_sender => self.ask_sender(now, ring, links),
            _ => {}
        }
    }

    /// Sees to it that what has ended is asked for once it is old, also where its task was old by
    /// then: the answer to the question that follows at once says of most that they are not
    /// settled.
    pub(super) fn ask_later(&mut self, now: Timestamp, index: RingIndex) {
        let Limits { worry_min, ask_every: pause, .. } = self.limits;
        let Some(ring) = self.origins.ring_mut(index) else { return };
        ring.again = Again { at: Some(now + worry_min), pause, over: ring.over };
        self.arm_ring(index);
    }

    /// Asks for the origins of a ring in which something has grown old: while more is over than is
    /// worth a question, though nothing ends that would ask, and whatever is over when memory runs
    /// short.
    ///
    /// The rule of [`Self::ask_if_many`] alone would let each server of a chain keep twice as much
    /// as the one before it, for as long as no further call comes.
    pub(super) fn ask_if_old(&mut self, now: Timestamp, ring: RingIndex, links: &mut Links) {
        let Limits { ask_min, ask_every: every, worry_max, .. } = self.limits;
        let is_short = is_short(links.shares());
        let Some(of_ring) = self.origins.ring_mut(ring) else { return };
        let (over, again) = (of_ring.over, &mut of_ring.again);
        if over <= ask_min && !(is_short && over > 0) {
            again.at = None;
            return;
        }
        let was_due = again.at;
        if was_due.is_some_and(|at| at > now) {
            return;
        }
        let has_helped = was_due.is_none() || over < again.over;
        again.pause = if has_helped { every } else { (2 * again.pause).min(worry_max) };
        (again.at, again.over) = (Some(now + again.pause), over);
        let Some(of_ring) = self.origins.ring(ring) else { return };
        let is_due = |asked: &Asked, every| asked.is_due(now, every);
        let mut origins: Vec<OriginIndex> =
            of_ring.records.iter().filter(|r| r.is_over()).map(|r| r.origin).collect();
        origins.sort_unstable();
        origins.dedup();
        for origin in origins {
            let of_origin = self.origins.get(origin);
            if links.to_life(of_origin.name).is_none() {
                if self
                    .origins
                    .ring(ring)
                    .is_some_and(|ring| is_due(&ring.asked, SENDER_FACTOR * every))
                {
                    self.ask_sender(now, ring, links);
                }
            } else if is_due(&of_origin.asked, every) {
                self.ask_origin(now, origin, links);
            }
        }
    }

    fn ask_origin(&mut self, now: Timestamp, index: OriginIndex, links: &Links) {
        let name = self.origins.get(index).name;
        let lowest = self.lowest_over(name.life, |record| record.origin == index);
        let origin = self.origins.get_mut(index);
        origin.asked.ask(now);
        let from = origin.asked.next.take();
        let from = from.unwrap_or_else(|| origin.settled.known_below(lowest.unwrap_or(0)));
        self.send_ask(name, name.life, from, links);
    }

    fn ask_sender(&mut self, now: Timestamp, index: RingIndex, links: &Links) {
        let Some(ring) = self.origins.ring_mut(index) else { return };
        let Some(link) = links.to_life(ring.name.sender) else { return };
        // One question at a time: which of them an answer is to, and so what it is about, would not
        // be known.
        if ring.asked.open_until(links, self.limits.keep_alive_timeout).is_some_and(|at| now < at) {
            return;
        }
        ring.asked.ask(now);
        let from = ring.asked.next.take().or_else(|| ring.records.first_seq()).unwrap_or(0);
        let RingName { life, sender } = ring.name;
        let number = self.send_ask(sender, life, from, links);
        if let Some(ring) = self.origins.ring_mut(index) {
            ring.asked.open = Some(Question { over: link, number, since: now });
        }
    }

    /// Sends a question, and answers its number.
    fn send_ask(&mut self, whom: NodeLife, life: Incarnation, from: u64, links: &Links) -> u64 {
        self.question += 1;
        let number = self.question;
        let message = Message::Ask(Ask { origins: vec![(life, from)] });
        let mut outbound = Outbound::new(whom.node, Header::of_question(number), message);
        outbound.link = links.to_life(whom);
        if outbound.link.is_some() && !mutant::is(Mutant::NobodyAsked) {
            self.out.push_back(Leaving::Frame(outbound));
        }
        number
    }

    fn lowest_over(&self, life: Incarnation, is_meant: impl Fn(&Record) -> bool) -> Option<u64> {
        let rings = self.origins.rings_of(life);
        let lowest = rings.filter_map(|(_, ring)| {
            let records = ring.records.iter().filter(|record| record.is_over() && is_meant(record));
            records.map(|record| record.seq).min()
        });
        lowest.min()
    }

    /// This node's word about the calls of another origin, for a neighbour that it sent requests of
    /// them: what none of its tasks is left of that have sent any there is over. Of calls in which
    /// all is old it names the tasks that are left: two servers that a call passes to and fro would
    /// each wait for the other's word about the whole.
    pub(crate) fn statement(
        &self,
        now: Timestamp,
        to: NodeId,
        (origin, from): (Incarnation, u64),
        named_max: usize,
    ) -> Statement {
        let most = self.limits.exceptions_max;
        let least = (to, CallId { origin, seq: from }, RingIndex::LEAST);
        let sent = self.left.range(least..);
        let sent = sent.take_while(|((node, call, _), _)| *node == to && call.origin == origin);
        let mut held: Vec<(u64, SmallVec<[RingIndex; 2]>)> = Vec::new();
        for ((_, call, ring), _) in sent {
            // Each once: one call must not hide those that come after it.
            if let Some((_, rings)) = held.last_mut().filter(|(seq, _)| *seq == call.seq) {
                rings.push(*ring);
            } else if held.len() > most {
                break;
            } else {
                held.push((call.seq, SmallVec::from_elem(*ring, 1)));
            }
        }
        let numbers = held.iter().map(|(seq, _)| *seq);
        let mut statement = Statement::of(origin, (from, u64::MAX), numbers, most);
        if mutant::is(Mutant::TasksNotNamed) {
            return statement;
        }
        for (seq, rings) in held.iter().take(statement.exceptions.len()) {
            let Some(tasks) = self.old_tasks(now, *seq, rings) else { continue };
            if statement.open.len() + tasks.len() > named_max {
                statement.cut(*seq); // The rest is asked for next.
                break;
            }
            statement.open.extend(tasks.into_iter().map(|task| (*seq, task)));
        }
        statement
    }

    /// The tasks of a call in some rings that have opened branches, ascending. `None` when one of
    /// them is young, or there are more than any answer has room for.
    fn old_tasks(&self, now: Timestamp, seq: u64, rings: &[RingIndex]) -> Option<Vec<TaskKey>> {
        let mut tasks = Vec::new();
        for ring in rings.iter().filter_map(|ring| self.origins.ring(*ring)) {
            let open = ring.records.of_call(seq).filter(|record| !record.children().is_empty());
            for record in open {
                if record.since + self.limits.worry_min > now || tasks.len() == NAMED_MAX {
                    return None;
                }
                tasks.push(record.task.clone());
            }
        }
        tasks.sort_unstable();
        tasks.dedup();
        Some(tasks)
    }

    /// A statement of another node, about its own calls or those of somebody else.
    pub(crate) fn handle_statement(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        (number, statement): (u64, &Statement),
        links: &mut Links,
    ) {
        let Statement { origin, from, to, exceptions, open } = statement;
        let exceptions = match mutant::is(Mutant::ExceptionsIgnored) {
            true => &[],
            false => exceptions.as_slice(),
        };
        let bounds = exceptions.iter().copied().chain([*to]);
        let starts = [*from].into_iter().chain(exceptions.iter().map(|seq| seq + 1));
        let gaps = starts.zip(bounds);
        if by.life.is_life_of(*origin) {
            let name = NodeLife { node: by.via, life: *origin };
            let Some(index) = self.origins.find(name) else { return };
            if mutant::is(Mutant::StatementReplaces) {
                self.origins.get_mut(index).settled = Intervals::default();
            }
            let end = self.origins.get(index).settles_below();
            gaps.for_each(|(from, to)| self.settle(now, index, (from, to.min(end)), links));
            let is_cut = exceptions.len() >= self.limits.exceptions_max;
            let origin = self.origins.get_mut(index);
            origin.asked.note(origin.over, is_cut.then_some(*to));
        } else {
            let name = RingName { life: *origin, sender: by.sender() };
            let Some(ring) = self.origins.find_ring(name) else { return };
            let asked_at = self.origins.ring_mut(ring);
            let Some(asked_at) = asked_at.and_then(|of| of.asked.take(by.link, number)) else {
                return;
            };
            for gap in gaps {
                self.make_stubs(now, (ring, asked_at), gap, |_| true, links);
            }
            for of_call in open.chunk_by(|(one, _), (next, _)| one == next) {
                let seq = of_call[0].0;
                let is_over = |record: &Record| !is_of_one(&record.task, of_call);
                self.make_stubs(now, (ring, asked_at), (seq, seq + 1), is_over, links);
            }
            if let Some(ring) = self.origins.ring_mut(ring) {
                ring.asked.note(ring.over, (*to < u64::MAX).then_some(*to));
            }
        }
    }
}

/// True when a branch is of one of these tasks, ascending, of its call: what goes on at the next
/// hop is of the task before, and what begins is of the task of its parent's path, at whichever
/// hop.
fn is_of_one(branch: &TaskKey, open: &[(u64, TaskKey)]) -> bool {
    let (path, hop) = match (branch.hop.checked_sub(1), branch.path.parent()) {
        (Some(hop), _) => (branch.path.clone(), Some(hop)),
        (None, Some((path, _))) => (path, None),
        (None, None) => return true,
    };
    let at = open.partition_point(|(_, task)| (&task.path, Some(task.hop)) < (&path, hop));
    let is_it = |task: &TaskKey| task.path == path && hop.is_none_or(|hop| task.hop == hop);
    open.get(at).is_some_and(|(_, task)| is_it(task))
}

/// True when so much is remembered that whatever is over is asked for.
pub(super) fn is_short(shares: &Shares) -> bool {
    shares.used(Pool::Records) > shares.max(Pool::Records) / 16
}

impl Asked {
    /// True when it is time to ask again. A node that does not answer is asked ever more rarely,
    /// for a question looks at all that is over.
    fn is_due(&self, now: Timestamp, every: Duration) -> bool {
        let pause = every * 2_u32.pow(self.unanswered.min(DOUBLINGS_MAX));
        self.at.is_none_or(|at| now.since(at) >= pause)
    }

    fn ask(&mut self, now: Timestamp) {
        self.at = Some(now);
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Until when the answer to the open question may come. A connection that brings nothing for a
    /// keep-alive timeout ends, so none lives with a question and an answer that late.
    pub(super) fn open_until(&self, links: &Links, timeout: Duration) -> Option<Timestamp> {
        let asked = self.open.filter(|asked| links.is_up(asked.over))?;
        Some(self.at.unwrap_or(asked.since) + 2 * timeout)
    }

    /// When the question was asked that an answer over this connection is to.
    fn take(&mut self, link: LinkId, number: u64) -> Option<Timestamp> {
        let asked = self.open.take_if(|asked| (asked.over, asked.number) == (link, number))?;
        Some(asked.since)
    }

    /// An answer came, and what it had no room for begins at `rest`.
    fn note(&mut self, over: usize, rest: Option<u64>) {
        self.unanswered = 0;
        match rest {
            Some(_) => self.next = rest,
            None => self.left = over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_of_the_task_that_sent_it() {
        let task = |path: &str, hop| TaskKey { path: path.parse().unwrap(), hop };
        let open = [("/0", 1), ("/0/1", 0), ("/0/1", 2), ("/0/1/3", 4), ("/2", 0)];
        let open = open.map(|(path, hop)| (7, task(path, hop)));
        assert!(open.is_sorted());
        let of_one = [("/0/0", 0), ("/0/7", 0), ("/0/1", 1), ("/0/1", 3), ("/0/1/9", 0), ("/2", 1)];
        for (path, hop) in of_one {
            assert!(is_of_one(&task(path, hop), &open), "{path} {hop}");
        }
        let of_none = [("/0", 0), ("/0", 1), ("/0/1", 2), ("/1/0", 0), ("/2/0/0", 0), ("/2", 2)];
        for (path, hop) in of_none {
            assert!(!is_of_one(&task(path, hop), &open), "{path} {hop}");
        }
        assert!(is_of_one(&task("/", 0), &open), "of it nothing is known");
    }
}
