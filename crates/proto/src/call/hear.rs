//! What the initiator hears: replies, entries, failures, reports and answers, each taken only from whom
//! may say it, and applied to the tree.

use std::collections::BTreeSet;

use crate::id::{NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, Entry, Executed, Fail, LinkDown, Outcome, Reply, Status, TaskStatus};

use super::super::admission::{self, Standing};
use super::super::failure::Failure;
use super::super::inbox::InboxFault;
use super::super::trace::{EntryBy, TraceEvent, Traced};
use super::super::tree::{Branch, BranchState, Holder, TreeFault};
use super::super::{Arrival, key};
use super::{Call, CallEvent, Delivered, End, LinkView};

impl Call {
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        reply: Reply,
    ) {
        if !self.is_counting() || !self.may_speak_for(by, task) {
            return;
        }
        self.apply_inherited(now, task, &reply.inherited, EntryBy::Descendant);
        if !self.touch(now, by, task) {
            return;
        }
        let is_new = self.tree.get(&task.path).is_some_and(|b| !b.received.contains(reply.index));
        let (from, bytes) = (by.from, reply.payload.len());
        self.note(now, task, || Traced::Reply { from, bytes });
        if is_new {
            self.take_reply(now, by, task, &reply);
        }
        if reply.is_final {
            if self.close(now, task, 0, 1) {
                self.note(now, task, || implied_entry(task));
            }
        } else if let Some(entry) = &reply.own_entry
            && entry.task == *task
        {
            self.apply_entry(now, entry, EntryBy::Reply);
        }
        self.settle(now);
    }

    fn take_reply(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, reply: &Reply) {
        let accepted = match self.inbox.accept(&task.path, reply) {
            Ok(accepted) => accepted,
            Err(fault) => {
                self.inbox.forget(&task.path);
                self.fail_reply(task, fault);
                return;
            }
        };
        if accepted.is_whole
            && let Err(fault) = self.tree.receive(&task.path, reply.index)
        {
            for (_, payload) in &accepted.messages {
                self.inbox.consume(&task.path, reply.index, payload.len());
            }
            self.contradict(now, task, fault);
            return;
        }
        let is_news = !accepted.messages.is_empty() || accepted.is_whole;
        for (item, payload) in accepted.messages {
            self.deliver(Delivered {
                path: task.path.clone(),
                index: reply.index,
                item,
                from: by.from,
                is_authenticated: by.from == by.via,
                payload,
            });
        }
        if is_news {
            self.liveness.note_progress(now);
        }
    }

    fn deliver(&mut self, delivered: Delivered) {
        if self.end.is_none() {
            self.events.push_back(CallEvent::Reply(delivered));
        } else {
            self.inbox.consume(&delivered.path, delivered.index, delivered.payload.len());
        }
    }

    pub(crate) fn handle_manifest(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        entries: &[Entry],
    ) {
        if !self.is_counting() || !self.may_speak_for(by, task) {
            return;
        }
        if entries.iter().any(|entry| entry.task == *task) {
            self.touch(now, by, task);
        }
        for entry in entries {
            if entry.task == *task {
                self.apply_entry(now, entry, EntryBy::Manifest);
            } else {
                self.apply_inherited(now, task, std::slice::from_ref(entry), EntryBy::Descendant);
            }
        }
        self.settle(now);
    }

    pub(crate) fn handle_fail(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, fail: Fail) {
        if !self.is_counting() {
            return;
        }
        let standing = match fail.node {
            None if self.may_speak_for(by, task) => Standing::Sender,
            None => Standing::Stranger,
            Some(node) => {
                let root = self.root_of(&task.path);
                admission::standing_of_unsent(by, task, node, root, &self.tree)
            }
        };
        if standing == Standing::Stranger {
            return;
        }
        self.apply_inherited(now, task, &fail.inherited, EntryBy::Descendant);
        let is_own = fail.node.is_none();
        let is_known = if is_own { self.touch(now, by, task) } else { self.ensure(now, task) };
        if !is_known {
            return;
        }
        let executed = match standing {
            Standing::Unproven => Executed::Maybe,
            Standing::Sender | Standing::Stranger => fail.executed,
        };
        let entry = fail.entry.filter(|entry| is_own && entry.task == *task);
        let children = entry.as_ref().map_or(0, |entry| entry.children);
        match self.tree.fail_with_children(task, children) {
            Ok(true) => {
                if let Some(entry) = &entry {
                    self.note_holders(entry);
                }
                self.record(Failure {
                    task: task.clone(),
                    node: fail.node.or(Some(by.from)),
                    cause: fail.cause,
                    executed,
                    code: fail.code,
                    text: fail.text,
                    details: fail.details,
                });
                self.liveness.note_progress(now);
            }
            Ok(false) => {}
            Err(fault) => self.contradict(now, task, fault),
        }
        // Also when the failure is old news: a STATUS may have told of it before, without this word.
        let is_over =
            |branch: &Branch| branch.state == BranchState::Failed && branch.hop <= task.hop;
        if fail.aborts_children && self.tree.get(&task.path).is_some_and(is_over) {
            (0..children).for_each(|index| self.prune_child(&task.path, index));
        }
        self.settle(now);
    }

    pub(super) fn prune_child(&mut self, path: &Path, index: u32) {
        if let Ok(child) = path.child(index) {
            self.tree.prune(&child);
        }
    }

    pub(crate) fn handle_link_down_report(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        report: &LinkDown,
    ) {
        if !self.is_counting() || !self.may_speak_for(by, task) {
            return;
        }
        self.touch(now, by, task);
        for entry in &report.entries {
            if entry.task == *task {
                self.apply_entry(now, entry, EntryBy::Recovered);
            } else {
                self.apply_inherited(now, task, std::slice::from_ref(entry), EntryBy::Recovered);
            }
        }
        let asked: Vec<TaskKey> =
            report.children.iter().filter(|c| admission::is_child(c, task)).cloned().collect();
        for child in &asked {
            if self.ensure(now, child) {
                self.tree.hold(child, Holder { node: report.node, relay: None });
                self.liveness.allow_fence(&child.path);
            }
        }
        self.probe_now(now, report.node, asked);
        self.settle(now);
    }

    pub(crate) fn handle_status(
        &mut self,
        now: Timestamp,
        by: Arrival,
        status: &Status,
        links: &dyn LinkView,
    ) {
        if !self.is_counting() {
            return;
        }
        let is_held = |task: &TaskKey| {
            let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
            let holder = branch.and_then(|branch| branch.holder);
            holder.is_some_and(|holder| holder.node == by.from) && self.may_speak_for(by, task)
        };
        let held: Vec<&(TaskKey, TaskStatus)> =
            status.tasks.iter().filter(|(task, _)| is_held(task)).collect();
        let parents = held.iter().filter_map(|(task, _)| task.path.parent());
        let above: BTreeSet<Path> =
            parents.flat_map(|(parent, _)| parent.prefixes().collect::<Vec<_>>()).collect();
        for entry in &status.inherited {
            if above.contains(&entry.task.path) {
                self.apply_entry(now, entry, EntryBy::Recovered);
            }
        }
        let moved = held
            .into_iter()
            .filter_map(|(task, state)| self.apply_status(now, by, task, state, links))
            .collect();
        self.follow(now, moved, links);
        self.settle(now);
    }

    pub(super) fn may_speak_for(&self, by: Arrival, task: &TaskKey) -> bool {
        let (root, branch) = (self.root_of(&task.path), self.tree.get(&task.path));
        admission::may_speak_for(by, task, root, branch)
    }

    /// The node that the root branch above this path was sent to.
    pub(super) fn root_of(&self, path: &Path) -> Option<NodeId> {
        path.prefixes().next().and_then(|root| self.roots.get(&root)).copied()
    }

    /// Registers a frame's sender as the holder of its branch. False when nothing about the branch can
    /// be news.
    pub(super) fn touch(&mut self, now: Timestamp, by: Arrival, task: &TaskKey) -> bool {
        let is_known = self.ensure(now, task);
        if is_known {
            let relay = (by.via != by.from).then_some(by.via);
            if self.tree.hear(task, Holder { node: by.from, relay }) {
                self.liveness.forget_root_link(task);
            }
            self.liveness.note_news(&task.path);
        }
        is_known
    }

    pub(super) fn ensure(&mut self, now: Timestamp, task: &TaskKey) -> bool {
        match self.tree.ensure(&task.path) {
            Ok(branch) => branch.is_some(),
            Err(fault) => {
                self.contradict(now, task, fault);
                false
            }
        }
    }

    /// The entries among these that a frame of `task` may carry.
    pub(super) fn apply_inherited(
        &mut self,
        now: Timestamp,
        task: &TaskKey,
        entries: &[Entry],
        by: EntryBy,
    ) {
        let inherited = entries.iter().filter(|entry| admission::is_inherited(entry, task));
        inherited.for_each(|entry| self.apply_entry(now, entry, by));
    }

    pub(super) fn apply_entry(&mut self, now: Timestamp, entry: &Entry, by: EntryBy) {
        match entry.outcome {
            Outcome::Finished => {
                if self.close(now, &entry.task, entry.children, entry.replies) {
                    self.note(now, &entry.task, || Traced::Ended { entry: entry.clone(), by });
                    self.note_holders(entry);
                }
            }
            Outcome::Failed(cause) => {
                match self.tree.fail_with_children(&entry.task, entry.children) {
                    Ok(true) => {
                        self.note_holders(entry);
                        // An entry does not say; some tasks fail without having run.
                        let executed = match cause {
                            Cause::Application | Cause::Panicked | Cause::Dropped => Executed::Yes,
                            _ => Executed::Maybe,
                        };
                        self.record_found(&entry.task, cause, executed);
                    }
                    Ok(false) => {}
                    Err(fault) => self.contradict(now, &entry.task, fault),
                }
            }
        }
    }

    pub(super) fn close(
        &mut self,
        now: Timestamp,
        task: &TaskKey,
        children: u32,
        replies: u32,
    ) -> bool {
        match self.tree.close(task, children, replies) {
            Ok(is_news) => {
                if is_news {
                    self.liveness.note_progress(now);
                    self.liveness.note_news(&task.path);
                    if children == 0 && replies == 0 {
                        self.tell_silent(&task.path);
                    }
                }
                is_news
            }
            Err(fault) => {
                self.contradict(now, task, fault);
                false
            }
        }
    }

    fn tell_silent(&mut self, path: &Path) {
        if self.options.tells_silent && self.end.is_none() {
            self.events.push_back(CallEvent::Silent(path.clone()));
        }
    }

    pub(super) fn note_holders(&mut self, entry: &Entry) {
        for (index, holder) in (0..entry.children).zip(&entry.holders) {
            if let (Some(node), Ok(path)) = (holder, entry.task.path.child(index)) {
                self.tree.hold(&key(path, 0), Holder { node: *node, relay: None });
            }
        }
    }

    pub(super) fn contradict(&mut self, now: Timestamp, task: &TaskKey, fault: TreeFault) {
        match fault {
            TreeFault::TooManyBranches => self.finish(now, End::Exhausted),
            TreeFault::Contradiction => {
                // A branch its parent never declared has no place of its own: the parent is blamed.
                let known =
                    task.path.prefixes().filter(|path| self.tree.get(path).is_some()).last();
                if let Some(path) = known {
                    let hop = self.tree.get(&path).map_or(0, |branch| branch.hop);
                    self.fail(&key(path, hop), Cause::Protocol, Executed::Maybe);
                }
            }
        }
    }

    /// Fails a branch whose reply cannot be taken.
    fn fail_reply(&mut self, task: &TaskKey, fault: InboxFault) {
        let InboxFault::TooLarge { size, limit } = fault else {
            self.fail(task, Cause::Protocol, Executed::Yes);
            return;
        };
        if self.tree.fail(&task.path) {
            let mut failure = self.found(task, Cause::ResourceExhausted, Executed::Yes);
            failure.text =
                format!("a reply of {size} bytes is larger than its message_bytes_max, {limit}");
            self.record(failure);
        }
    }

    /// Fails a branch for a cause this side found. Whether that is news.
    pub(super) fn fail(&mut self, task: &TaskKey, cause: Cause, executed: Executed) -> bool {
        let is_news = self.tree.fail(&task.path);
        if is_news {
            self.record_found(task, cause, executed);
        }
        is_news
    }

    pub(super) fn record_found(&mut self, task: &TaskKey, cause: Cause, executed: Executed) {
        let failure = self.found(task, cause, executed);
        self.record(failure);
    }

    pub(super) fn found(&self, task: &TaskKey, cause: Cause, executed: Executed) -> Failure {
        let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
        let node = branch.and_then(|branch| branch.holder).map(|holder| holder.node);
        Failure::found(task.clone(), node, cause, executed)
    }

    pub(super) fn note(&mut self, at: Timestamp, task: &TaskKey, what: impl FnOnce() -> Traced) {
        if self.options.traces {
            self.trace.push(TraceEvent { at, task: task.clone(), what: what() });
        }
    }

    pub(super) fn record(&mut self, failure: Failure) {
        let cause = failure.cause;
        self.note(self.liveness.last_seen(), &failure.task, || Traced::Failed { cause });
        self.liveness.note_failed(&self.tree, &failure);
        if self.end.is_none() {
            self.failures.push(failure.clone());
            self.events.push_back(CallEvent::Failure(failure));
        } else {
            // After the end only whether everything went well matters, for the call's number.
            self.failures.push(failure);
        }
    }
}

/// What a sole reply stands for.
fn implied_entry(task: &TaskKey) -> Traced {
    let outcome = Outcome::Finished;
    let entry = Entry { task: task.clone(), children: 0, replies: 1, outcome, holders: Vec::new() };
    Traced::Ended { entry, by: EntryBy::Elided }
}
