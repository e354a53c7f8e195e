//! Cancels, probes, fences, credit, lost connections: what reaches tasks from outside.
//!
//! CANCEL, PROBE and CREDIT name a task and show its key, and bind exactly that task (`trust.md`
//! T8): only the initiator, who can derive every key, and those who hold the task or a branch above
//! it know it. What binds nothing here changes nothing, but for the fence or the mark that a
//! request may still run into.
//!
//! Departs from `trust.md` T8, where the connection of the request speaks in place of the key: a
//! CANCEL of everything below a prefix could then reach tasks that another node asked the same
//! neighbour for.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{CallId, LinkId, NodeId, TaskKey};
use crate::key::Key;
use crate::links::Links;
use crate::mutant::{self, Mutant};
use crate::share::Pool;
use crate::task::TaskFailure;
use crate::time::Timestamp;
use crate::wire::{
    Asked, CHILDREN_MAX, Cancel, CancelReason, Cause, Credit, Credited, Entry, Executed, Header,
    LinkDown, Manifest, Message, Outcome, Probe, Relayed, ReplyPath, Rung, Sealed, Status,
    TASKS_MAX, TaskStatus, fit_one_frame,
};
use crate::{Arrival, Outbound};

use super::records::{Over, Record, State, by, refused_entry};
use super::refusals::Refusal;
use super::route::Back;
use super::{Leaving, Place, RingIndex, TaskRef, VisitEvent, Visits};

impl Visits {
    /// A CANCEL: stops the task, passes it on to its branches, and keeps a mark, so that the
    /// request it cancels may come later. False when it does not count.
    pub(crate) fn handle_cancel(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        header: &Header,
        cancel: &Cancel,
        links: &mut Links,
    ) -> bool {
        let (call, task) = (header.call, &header.task);
        let anybodys = mutant::is(Mutant::CancelByPrefix)
            || (mutant::is(Mutant::CancelByLife) && by.life.is_life_of(call.origin));
        if anybodys {
            let below = self.records_of(call).filter(|(_, r)| task.path.is_prefix_of(&r.task.path));
            let below: Vec<Place> = below.map(|(ring, record)| (ring, record.name())).collect();
            below.iter().for_each(|place| self.stop(now, call, place, Cause::Cancelled, links));
        }
        let Some(key) = by.key else { return false };
        if self.refusals.cause(call, task, key).is_some() || self.is_settled_for(by, call) {
            return true;
        }
        let places = self.places(call, task, key);
        let is_running = places.iter().any(|p| self.record(p).is_some_and(Record::is_running));
        if links.shares().may_take(by.peer, Pool::Records) {
            links.shares_mut().take(by.peer, Pool::Records, 1);
            let forget_at = self.forget_at(now, cancel.budget_us);
            let refusal = refusal_by(by, Cause::Cancelled, forget_at);
            self.refusals.refuse((call, task.clone(), key), refusal);
        } else if !is_running {
            // Without a mark only what ends a task here is passed on, so that it cannot go in
            // circles.
            return true;
        }
        for place in places {
            self.stop(now, call, &place, Cause::Cancelled, links);
            self.cancel_children(now, call, &place, cancel.reason, links);
        }
        true
    }

    /// Until when a fence or a mark is kept for a call that has this much time.
    fn forget_at(&self, now: Timestamp, budget_us: u64) -> Timestamp {
        now + self.budget(budget_us) + self.limits.keep_alive_timeout
    }

    /// Tells the nodes of a task's branches that these are not wanted.
    pub(super) fn cancel_children(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: &Place,
        reason: CancelReason,
        links: &mut Links,
    ) {
        let Some(record) = self.record(place) else { return };
        let time = record.forget_at.since(now + self.limits.keep_alive_timeout);
        let budget_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let branches: Vec<_> = record.branches().collect();
        for (task, key, child) in branches {
            let message = Message::Cancel(Cancel { reason, budget_us });
            let mut outbound = Outbound::new(child.node, Header { call, task }, message);
            outbound.link = child.link.filter(|link| links.is_up(*link));
            outbound.show(Some(key));
            self.out.push_back(Leaving::Frame(outbound));
        }
    }

    /// The task that a key is of: one, unless its sender had it run twice.
    fn places(&self, call: CallId, task: &TaskKey, key: Key) -> Vec<Place> {
        let name = (call.seq, task.clone(), key);
        let rings = self.origins.rings_of(call.origin);
        let there = rings.filter(|(_, ring)| ring.records.get(by(&name)).is_some());
        there.map(|(ring, _)| (ring, name.clone())).collect()
    }

    /// A CREDIT of the initiator. False when it does not count.
    pub(crate) fn handle_credit(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        header: &Header,
        credit: Credit,
        links: &mut Links,
    ) -> bool {
        let Header { call, task } = header;
        let (Some(key), Credited::Reply(index)) = (by.key, credit.of) else { return false };
        if let Some(place) = self.places(*call, task, key).pop()
            && let Some(running) = self.task_mut(&place)
            && running.handle_credit(index, credit.limit_bytes)
        {
            let (ring, (_, task, key)) = place.clone();
            self.events.push_back(VisitEvent::Writable(TaskRef { call: *call, task, key, ring }));
            self.drain_task(now, *call, &place, links);
        }
        true
    }

    /// A PROBE of the initiator, which came by this branch if it was relayed: answers for each
    /// task, fencing unknown ones if asked. One that has failed says so again before its status,
    /// which has only the cause: the first may have been lost with a connection.
    pub(crate) fn handle_probe(
        &mut self,
        now: Timestamp,
        by: &Arrival,
        (header, at): (&Header, Rung),
        probe: &Probe,
        links: &mut Links,
    ) {
        let call = header.call;
        let forget_at = self.forget_at(now, probe.budget_us);
        // A fence is the initiator's own to ask for: a relay's order is not that of the request.
        let fences = (probe.fence && !by.is_relayed()) || mutant::is(Mutant::FenceOnPlainProbe);
        let (mut seen, mut inherited) = (BTreeSet::<Place>::new(), Gathered::default());
        let mut tasks = Vec::new();
        let (mut way, mut last, mut parents) = (None, None, Vec::new());
        let (mut running, mut failed) = (Vec::new(), Vec::new());
        for asked in &probe.tasks {
            let place = self.places(call, &asked.task, asked.key).pop();
            let mut status = match &place {
                Some(place) => self.status_of(place),
                None => self.status_of_absent(by, call, asked),
            };
            let may_fence = fences && links.shares().may_take(by.peer, Pool::Records);
            let of = || (call, asked.task.clone(), asked.key);
            if fences && status == TaskStatus::Fenced {
                self.refusals.refuse_again(&of(), by.sender(), forget_at);
            } else if status == TaskStatus::Unknown && may_fence {
                if !mutant::is(Mutant::FenceNotKept) {
                    self.refusals.refuse(of(), refusal_by(by, Cause::Lost, forget_at));
                    links.shares_mut().take(by.peer, Pool::Records, 1);
                }
                status = TaskStatus::Fenced;
            }
            // A task that is named several times is looked at once.
            if let Some(place) = place.as_ref().filter(|place| seen.insert((*place).clone()))
                && let Some(record) = self.record(place)
            {
                inherited.add(record.ancestors());
                way = way.or_else(|| self.way_of_replies(record, links));
                parents.extend((!record.children().is_empty()).then(|| place.clone()));
                running.extend((status == TaskStatus::Running).then(|| place.clone()));
                let is_told = matches!(status, TaskStatus::Closed { .. });
                let fail = record.failure().filter(|_| is_told);
                failed.extend(fail.map(|fail| (place.clone(), fail)));
            }
            inherited.bound(&mut status);
            last = place;
            tasks.push((asked.clone(), status));
        }
        let message = Message::Status(Status { tasks, inherited: inherited.entries });
        // To the initiator by the way the replies take, so that this cannot overtake them; else, as
        // where those have no way, back where it came from.
        let is_of_initiator = by.life.is_life_of(call.origin);
        let way = way.filter(|_| is_of_initiator);
        let relayed = Relayed { node: self.me.node, at };
        let back = by.is_relayed().then_some(Back { to: by.via, link: by.link, relayed });
        for (place, fail) in failed {
            if by.is_relayed() {
                let upward = self.own(&place, Message::Fail(fail));
                if let Some(upward) = self.say_back(now, call, (&place, back), upward, links) {
                    self.send_upward(now, call, &place, upward, links);
                }
            } else if is_of_initiator {
                let (_, (_, task, key)) = place;
                let mut outbound =
                    Outbound::new(by.via, Header { call, task }, Message::Fail(fail));
                outbound.link = Some(way.unwrap_or(by.link));
                outbound.show(Some(key));
                self.out.push_back(Leaving::Frame(outbound));
            }
        }
        let has_way = |place: &Place| !self.has_no_way_up(now, place, links);
        match last.filter(|place| by.is_relayed() && has_way(place)) {
            Some(place) => self.send_up(now, call, &place, message, links),
            None => {
                let mut outbound = Outbound::new(by.via, header.clone(), message);
                outbound.link = Some(way.unwrap_or(by.link));
                outbound.frame.relayed = back.map(|back| back.relayed);
                self.out.push_back(Leaving::Frame(outbound));
            }
        }
        let mut room = TASKS_MAX;
        for place in parents {
            self.report_ended(now, call, (&place, back), &mut room, links);
        }
        for place in running {
            self.mark_replies(now, call, &place, links);
        }
    }

    /// Says how far the replies of a task have left that are not sent wholly. What was lost of them
    /// with a connection would not be missed before more comes, and that may wait for credit.
    fn mark_replies(&mut self, now: Timestamp, call: CallId, place: &Place, links: &mut Links) {
        if !self.has_room_up(now, place, links) {
            return; // It will be asked again.
        }
        let marks = self.task_mut(place).map(|task| task.marks());
        for mark in marks.into_iter().flatten() {
            self.send_up(now, call, place, Message::Reply(mark), links);
        }
    }

    /// Says again which branches of a task left by connections that have ended, or could not leave:
    /// when that was said, there may have been no way to the initiator.
    fn report_ended(
        &mut self,
        now: Timestamp,
        call: CallId,
        (place, back): (&Place, Option<Back>),
        room: &mut usize,
        links: &mut Links,
    ) {
        let has_more = self.report_all_unsent(now, call, (place, back), room, links);
        let Some(record) = self.record(place) else { return };
        // Those at the initiator, too: it has seen the end, but not what was lost with it.
        let mut ended: Vec<(NodeId, LinkId)> = record
            .children()
            .iter()
            .filter_map(|child| Some((child.node, child.link?)))
            .filter(|(_, link)| !links.is_up(*link) && (has_more || *link != LinkId::NONE))
            .collect();
        ended.sort_unstable();
        ended.dedup();
        for (node, link) in ended {
            if let Some(report) = self.record(place).and_then(|r| report(r, node, link)) {
                self.send_report(now, call, (place, back), (node, report), links);
            }
        }
    }

    /// Says again which branches of a task could not leave, in one frame each, as long as there is
    /// room. True when there are more: of these the initiator is told as of those that were lost
    /// with a connection.
    fn report_all_unsent(
        &mut self,
        now: Timestamp,
        call: CallId,
        (place, back): (&Place, Option<Back>),
        room: &mut usize,
        links: &mut Links,
    ) -> bool {
        let Some(record) = self.record(place) else { return false };
        let unsent = record.branches().filter(|(_, _, child)| child.link == Some(LinkId::NONE));
        let mut unsent: Vec<_> = unsent.take(*room + 1).collect();
        let has_more = unsent.len() > *room;
        unsent.truncate(*room);
        *room -= unsent.len();
        for (task, key, child) in unsent {
            self.say_unsent(now, call, (place, back), ((task, key), child.node), links);
        }
        has_more
    }

    /// The connection to the initiator that a task's replies leave by, while it is up.
    fn way_of_replies(&self, record: &Record, links: &Links) -> Option<LinkId> {
        let link = match &record.state {
            State::Running(task) => task.route,
            State::Over(Over::Answered(way, _)) => self.link_of(record, *way, links),
            State::Over(Over::Otherwise(over)) => self.link_of(record, over.replies_by, links),
            State::Quiet(_) | State::Over(Over::Tailed(_)) | State::Gone => None,
        };
        link.filter(|link| links.is_up(*link))
    }

    fn link_of(&self, record: &Record, way: ReplyPath, links: &Links) -> Option<LinkId> {
        let ReplyPath::Link(nonce) = way else { return None };
        links.find(self.origins.get(record.origin).name.node, nonce)
    }

    pub(super) fn status_of(&self, place: &Place) -> TaskStatus {
        let Some(record) = self.record(place) else { return TaskStatus::Unknown };
        // Replies that wait for a dial are not on their way yet.
        let waits = |node: NodeId| self.dials.holds(node, place);
        match &record.state {
            State::Quiet(_) | State::Running(_) => TaskStatus::Running,
            State::Over(_) if waits(self.origins.get(record.origin).name.node) => {
                TaskStatus::Running
            }
            State::Over(Over::Tailed(child)) => TaskStatus::Tailed { node: child.node },
            State::Over(Over::Otherwise(over)) if over.finished.tailed => {
                let node = over.children.first().map_or(self.me.node, |child| child.node);
                TaskStatus::Tailed { node }
            }
            State::Over(over) => {
                let entry = Box::new(record.entry().expect("it has ended and not tailed"));
                TaskStatus::Closed { entry, replies_by: over.replies_by() }
            }
            State::Gone => TaskStatus::Unknown,
        }
    }

    /// Status that a PROBE is told of a task that is not here.
    fn status_of_absent(&self, by: &Arrival, call: CallId, asked: &Asked) -> TaskStatus {
        let Asked { task, key } = asked;
        if self.is_forgotten(by, call, task, *key) {
            return TaskStatus::Forgotten;
        }
        match self.refusals.cause(call, task, *key) {
            None => TaskStatus::Unknown,
            Some(Cause::Lost) => TaskStatus::Fenced,
            Some(cause) => TaskStatus::Closed {
                entry: Box::new(refused_entry(task, cause)),
                replies_by: ReplyPath::Nowhere,
            },
        }
    }

    /// A connection to a node ended: initiators with branches that left by it are told. The cost is
    /// that of the branches which left for the node.
    pub(crate) fn handle_link_lost(
        &mut self,
        now: Timestamp,
        node: NodeId,
        link: LinkId,
        links: &mut Links,
    ) {
        self.lose_items(link, links);
        self.pass_otherwise(now, link, links);
        let least = (node, CallId::LEAST, RingIndex::LEAST);
        let there = self.left.range(least..).take_while(|((of, _, _), _)| *of == node);
        let there: Vec<_> = there.map(|((_, call, ring), _)| (*call, *ring)).collect();
        for (call, ring) in there {
            let Some(of_ring) = self.origins.ring(ring) else { continue };
            // An initiator sees the end of its own connection itself.
            let told = |record: &&Record| self.origins.get(record.origin).name.node != node;
            let records = of_ring.records.of_call(call.seq).filter(told);
            let reports: Vec<_> = records
                .filter_map(|record| Some(((ring, record.name()), report(record, node, link)?)))
                .collect();
            for (place, report) in reports {
                self.send_report(now, call, (&place, None), (node, report), links);
            }
        }
    }

    fn send_report(
        &mut self,
        now: Timestamp,
        call: CallId,
        (place, back): (&Place, Option<Back>),
        (node, (children, mut own, mut inherited)): (NodeId, Report),
        links: &mut Links,
    ) {
        if own.as_ref().is_some_and(|own| !fit_one_frame(own, &inherited)) {
            let inherited = std::mem::take(&mut inherited);
            let given = self.own(place, Message::Manifest(Manifest { own: None, inherited }));
            if let Some(given) = self.say_back(now, call, (place, back), given, links) {
                self.pass_up(now, call, place.clone(), given, links);
            }
        }
        for children in children.chunks(TASKS_MAX) {
            // The entries are said once, in the first.
            let (own, inherited) = (own.take(), std::mem::take(&mut inherited));
            let report = LinkDown { node, children: children.to_vec(), own, inherited };
            let upward = self.own(place, Message::LinkDown(report));
            if let Some(upward) = self.say_back(now, call, (place, back), upward, links) {
                self.pass_up(now, call, place.clone(), upward, links);
            }
        }
    }

    /// Ends a task that is not wanted any more, from outside its handler. Its closing entry says
    /// so.
    pub(super) fn stop(
        &mut self,
        now: Timestamp,
        call: CallId,
        place: &Place,
        cause: Cause,
        links: &mut Links,
    ) {
        let Some(running) = self.speaking_mut(place) else { return };
        if running.finished().is_none() {
            if cause == Cause::Deadline {
                running.fail(TaskFailure::new(cause, Executed::Maybe, ""));
            }
            let (ring, (_, task, key)) = place.clone();
            let task = TaskRef { call, task, key, ring };
            self.events.push_back(VisitEvent::Stop { task, cause });
        }
        self.drain_task(now, call, place, links);
        if let Some(running) = self.task_mut(place) {
            running.abandon(cause);
            self.drain_task(now, call, place, links);
        }
    }
}

/// A refusal that the peer of a frame asks for.
fn refusal_by(by: &Arrival, cause: Cause, forget_at: Timestamp) -> Refusal {
    Refusal { cause, forget_at, asker: Some(by.sender()), payer: by.peer }
}

/// Entries that the tasks of one PROBE were given to pass on, beside those of tasks that are over.
/// Siblings were given the same: each is said once.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) entries: Vec<Sealed>,
    /// The first of each task and seal.
    known: BTreeMap<(TaskKey, u64), usize>,
    holders: usize,
}

impl Gathered {
    pub(super) fn add(&mut self, entries: &[Sealed]) {
        for entry in entries {
            let holders = self.holders + entry.entry.holders.len();
            // Those of a liar are too many, and those beside the entries of tasks of many branches:
            // who lacks one asks for it once it knows these.
            let has_room = holders <= CHILDREN_MAX && self.entries.len() < GATHERED_MAX;
            if !has_room {
                continue;
            }
            let name = (entry.entry.task.clone(), entry.seal);
            let first = *self.known.entry(name).or_insert(self.entries.len());
            // A liar gives one with the seal of another.
            if self.entries.get(first) != Some(entry) {
                self.holders = holders;
                self.entries.push(entry.clone());
            }
        }
    }

    /// Counts the holders that the status of a task names. Beyond what a frame may name it names
    /// none, as if none were known.
    pub(super) fn bound(&mut self, status: &mut TaskStatus) {
        let TaskStatus::Closed { entry, .. } = status else { return };
        let holders = self.holders + entry.holders.len();
        match holders <= CHILDREN_MAX {
            true => self.holders = holders,
            false => entry.holders.clear(),
        }
    }
}

/// Entries that one STATUS passes on. Of the holders that they name no frame has more than
/// [`CHILDREN_MAX`].
const GATHERED_MAX: usize = 8_192;

type Report = (Vec<TaskKey>, Option<Entry>, Vec<Sealed>);

/// Report that the initiator must get when the connection to the node of some branches is lost.
/// Requests that left by another connection to the node are not lost with it, and may still be on
/// their way: a fence could overtake them. Nor does it say that the task has failed: that may not
/// have left yet, nor the replies before it, and no branch has carried it.
fn report(record: &Record, node: NodeId, link: LinkId) -> Option<Report> {
    let branches = record.branches();
    let lost = branches.filter(|(_, _, child)| child.node == node && child.link == Some(link));
    let lost: Vec<TaskKey> = lost.map(|(task, _, _)| task).collect();
    let own = record.entry().filter(|entry| entry.outcome == Outcome::Finished);
    (!lost.is_empty()).then(|| (lost, own, record.ancestors().to_vec()))
}

impl Over {
    fn replies_by(&self) -> ReplyPath {
        match self {
            Self::Answered(way, _) => *way,
            Self::Tailed(_) => ReplyPath::Nowhere,
            Self::Otherwise(over) => over.replies_by,
        }
    }
}
