//! Cancels, probes, fences, lost connections: what reaches tasks from outside.

use std::time::Duration;

use bytes::Bytes;

use crate::id::{CallId, LinkNonce, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{
    Cancel, CancelReason, Cause, Entry, Executed, Fail, Header, LinkDown, Manifest, Message, Probe,
    Status, TASKS_MAX, TaskStatus,
};

use super::super::links::Links;
use super::super::mutant::{self, Mutant};
use super::super::task::TaskFailure;
use super::super::visit::{CancelMark, Route};
use super::super::{Arrival, Outbound};
use super::{Participant, ParticipantEvent, TaskRef};

/// Cancels remembered for one call. What else is cancelled is stopped where it runs; where it has not
/// come yet, it ends by its deadline.
pub(super) const CANCEL_MARKS_MAX: usize = 1_024;

impl Participant {
    /// A CANCEL: marks the prefix, stops tasks below it that its sender may cancel, passes it on. A mark
    /// is kept, so that the request it cancels may come later.
    pub(crate) fn handle_cancel(
        &mut self,
        now: Timestamp,
        by: NodeId,
        is_initiators: bool,
        header: &Header,
        cancel: &Cancel,
        links: &mut Links,
    ) {
        let call = header.call;
        let budget = Duration::from_micros(cancel.budget_us).min(self.limits.deadline_max);
        let is_full = self.remembered + self.running >= self.limits.remembered_max;
        if is_full && self.visit_mut(call).is_none() {
            return; // No room for a mark: the task, if it comes, ends by its deadline.
        }
        let origin = self.initiator_of(call).unwrap_or(by);
        let visit = self.visit(call, origin, now + budget);
        let mark = CancelMark { prefix: header.task.path.clone(), by, is_initiators };
        if visit.cancelled.iter().any(|earlier| earlier.includes(&mark)) {
            return;
        }
        let (children, tasks) = (visit.children_under(&mark), visit.tasks_under(&mark));
        let has_room = !is_full && visit.cancelled.len() < CANCEL_MARKS_MAX;
        if has_room {
            visit.cancelled.push(mark);
            self.remembered += 1;
        } else if !tasks.iter().any(|task| visit.is_running(task)) {
            // Without a mark only what ends a task here is passed on, so that it cannot go in circles.
            return;
        }
        for task in tasks {
            self.stop(now, &TaskRef { call, task }, Cause::Cancelled, links);
        }
        for node in children {
            self.out.push_back(Outbound::new(
                node,
                header.clone(),
                Message::Cancel(cancel.clone()),
            ));
        }
        self.arm(call);
    }

    /// A failed task takes the branches it opened with it.
    pub(super) fn cancel_children(&mut self, now: Timestamp, task: &TaskRef, links: &mut Links) {
        let TaskRef { call, task } = task;
        let Some(visit) = self.visit_mut(*call) else { return };
        let Some(record) = visit.tasks.get(task) else { return };
        let (reason, deadline) = (CancelReason::ParentFailed, visit.deadline);
        let children: Vec<(NodeId, Path)> = record.children_with_paths(&task.path).collect();
        let budget_us = u64::try_from(deadline.since(now).as_micros()).unwrap_or(u64::MAX);
        for (node, path) in children {
            let header = Header { call: *call, task: TaskKey { path, hop: 0 } };
            let cancel = Cancel { reason, budget_us };
            if node == self.me {
                self.handle_cancel(now, node, false, &header, &cancel, links);
            } else {
                self.out.push_back(Outbound::new(node, header, Message::Cancel(cancel)));
            }
        }
    }

    /// A PROBE of the initiator: answers for each task, fencing unknown ones if asked.
    pub(crate) fn handle_probe(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: &Header,
        probe: &Probe,
        links: &mut Links,
    ) {
        let call = header.call;
        let budget = Duration::from_micros(probe.budget_us).min(self.limits.deadline_max);
        let mut inherited = Vec::new();
        let mut tasks = Vec::new();
        for task in &probe.tasks {
            let mut status =
                self.visit_mut(call).map_or(TaskStatus::Unknown, |visit| visit.status(task));
            // Without room to remember the fence there is none.
            let asks_for_fence = probe.fence || mutant::is(Mutant::FenceOnPlainProbe);
            let may_fence = asks_for_fence && self.has_room_for_fence(by.via);
            if status == TaskStatus::Unknown && may_fence {
                let visit = self.visit(call, by.from, now + budget);
                visit.fence(task, by.via);
                status = visit.status(task);
                self.remembered += 1;
                *self.fences_of.entry(by.via).or_default() += 1;
                self.arm(call);
            }
            if let Some(visit) = self.visit_mut(call) {
                let ancestors = visit.ancestors(task).iter();
                // Siblings were given the same entries: each is said once.
                let new: Vec<Entry> =
                    ancestors.filter(|e| !inherited.contains(*e)).cloned().collect();
                inherited.extend(new);
            }
            tasks.push((task.clone(), status));
        }
        let message = Message::Status(Status { tasks, inherited });
        self.answer_probe(now, by, header, message, links);
    }

    /// One peer's fences take a quarter of the memory at most: there is room for the tasks of others.
    fn has_room_for_fence(&self, peer: NodeId) -> bool {
        let max = self.limits.remembered_max;
        let of_peer = self.fences_of.get(&peer).copied().unwrap_or(0);
        self.remembered + self.running < max && of_peer < max / 4
    }

    /// By the way the replies take, so that this cannot overtake them; else back where it came from.
    fn answer_probe(
        &mut self,
        now: Timestamp,
        by: Arrival,
        header: &Header,
        message: Message,
        links: &mut Links,
    ) {
        let call = header.call;
        let route = self.visit_mut(call).map(|visit| &visit.route);
        let by_route = match route {
            Some(Route::Link(link)) => links.is_up(by.from, *link),
            Some(Route::Local) => true,
            Some(Route::Relay | Route::Unset | Route::Dialling { .. }) | None => false,
        };
        if by_route || by.via != by.from {
            self.send_up(now, call, &header.task, message, links);
        } else {
            let mut outbound = Outbound::new(by.via, header.clone(), message);
            outbound.link = Some(by.link);
            self.out.push_back(outbound);
        }
    }

    /// A connection to a node ended: initiators with branches that left by it are told.
    pub(crate) fn handle_link_lost(
        &mut self,
        now: Timestamp,
        node: NodeId,
        link: LinkNonce,
        links: &mut Links,
    ) {
        if !self.branch_visits.contains_key(&node) {
            return;
        }
        self.grow_handed_over(node);
        let mut reports = Vec::new();
        for (origin, of_origin) in &self.origins {
            for (seq, visit) in &of_origin.visits {
                // An initiator sees the end of its own connection itself.
                if visit.origin != node {
                    let call = CallId { origin: *origin, seq: *seq };
                    let of_visit = visit.link_down_reports(node, link);
                    reports.extend(of_visit.into_iter().map(|(task, report)| (call, task, report)));
                }
            }
        }
        for (call, task, report) in reports {
            let LinkDown { node, children, mut entries } = report;
            for children in children.chunks(TASKS_MAX) {
                // The entries are said once, in the first.
                let (children, entries) = (children.to_vec(), std::mem::take(&mut entries));
                let report = LinkDown { node, children, entries };
                self.send_up(now, call, &task, Message::LinkDown(report), links);
            }
        }
    }

    /// The request of a branch never left this node: the initiator is told in the child's name.
    pub(crate) fn handle_unsent(
        &mut self,
        now: Timestamp,
        header: &Header,
        to: NodeId,
        request_entries: Vec<Entry>,
        links: &mut Links,
    ) {
        let fail = Fail {
            cause: Cause::Unreachable,
            executed: Executed::No,
            code: 0,
            node: Some(to),
            text: crate::wire::cut(links.why_unreachable(to)).to_owned(),
            entry: None,
            aborts_children: false,
            inherited: request_entries,
            details: Bytes::new(),
        };
        self.send_up(now, header.call, &header.task, Message::Fail(fail), links);
    }

    /// Ends a task that is not wanted any more, from outside its handler.
    pub(super) fn stop(&mut self, now: Timestamp, task: &TaskRef, cause: Cause, links: &mut Links) {
        let Some(running) = self.visit_mut(task.call).and_then(|v| v.running(&task.task)) else {
            return;
        };
        if running.finished().is_none() {
            let stop = ParticipantEvent::Stop { task: task.clone(), cause };
            if cause == Cause::Deadline {
                running.fail(TaskFailure::new(cause, Executed::Maybe, ""));
            }
            self.events.push_back(stop);
        }
        self.drain_task(now, task, links);
        if let Some(running) = self.visit_mut(task.call).and_then(|v| v.running(&task.task)) {
            let entries = running.abandon(cause);
            self.drain_task(now, task, links);
            let me = self.me;
            let record = self.visit_mut(task.call).and_then(|v| v.tasks.get(&task.task));
            let sender = record.map_or(me, |record| record.from);
            let entries = self.still_wanted(task.call, sender, entries);
            if !entries.is_empty() {
                let message = Message::Manifest(Manifest { entries });
                self.send_up(now, task.call, &task.task, message, links);
            }
        }
    }

    /// The entries among these that describe ancestors which are not cancelled themselves.
    pub(super) fn still_wanted(
        &mut self,
        call: CallId,
        sender: NodeId,
        mut entries: Vec<Entry>,
    ) -> Vec<Entry> {
        if let Some(visit) = self.visit_mut(call) {
            entries.retain(|entry| !visit.is_cancelled(&entry.task.path, sender));
        }
        entries
    }
}
