//! Cancels, probes, fences, lost connections: what reaches tasks from outside.

use std::time::Duration;

use crate::id::{CallId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{
    Cancel, CancelReason, Cause, Entry, Executed, Fail, Header, Message, Probe, Status, TaskStatus,
};

use super::super::links::Links;
use super::super::mutant::{self, Mutant};
use super::super::visit::Route;
use super::super::{Arrival, Outbound};
use super::{Participant, TaskRef};
use bytes::Bytes;

impl Participant {
    /// A CANCEL: marks the prefix, stops tasks below it, passes it on. A mark is kept, so that the
    /// request it cancels may come later.
    pub(crate) fn handle_cancel(
        &mut self,
        now: Timestamp,
        origin: NodeId,
        header: &Header,
        cancel: &Cancel,
        links: &mut Links,
    ) {
        let (call, prefix) = (header.call, &header.task.path);
        let budget = Duration::from_micros(cancel.budget_us).min(self.limits.deadline_max);
        if self.remembered + self.running >= self.limits.remembered_max {
            return; // No room for a mark: the task, if it comes, ends by its deadline.
        }
        let visit = self.visit(call, origin, now + budget);
        if visit.is_cancelled(prefix) {
            return;
        }
        visit.cancelled.push(prefix.clone());
        let children = visit.children_below(prefix);
        let tasks: Vec<TaskKey> =
            visit.tasks.keys().filter(|task| prefix.is_prefix_of(&task.path)).cloned().collect();
        self.remembered += 1;
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
                let origin = self.initiator_of(*call).unwrap_or(self.me);
                self.handle_cancel(now, origin, &header, &cancel, links);
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
            let may_fence =
                asks_for_fence && self.remembered + self.running < self.limits.remembered_max;
            if status == TaskStatus::Unknown && may_fence {
                self.visit(call, by.from, now + budget).fences.insert(task.clone());
                self.remembered += 1;
                self.arm(call);
                status = TaskStatus::Fenced;
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

    /// The connection to a node ended: initiators with branches there are told.
    pub(crate) fn handle_link_lost(&mut self, now: Timestamp, node: NodeId, links: &mut Links) {
        let mut reports = Vec::new();
        for (origin, of_origin) in &self.origins {
            for (seq, visit) in &of_origin.visits {
                // An initiator sees the end of its own connection itself.
                if visit.origin != node {
                    let call = CallId { origin: *origin, seq: *seq };
                    let of_visit = visit.link_down_reports(node);
                    reports.extend(of_visit.into_iter().map(|(task, report)| (call, task, report)));
                }
            }
        }
        for (call, task, report) in reports {
            self.send_up(now, call, &task, Message::LinkDown(report), links);
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
}
