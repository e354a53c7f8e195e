//! Frames that the initiator hears: replies, entries, failures, reports and answers, each applied
//! to the tree if it counts (see [`admission`]).

use crate::id::{NodeId, Path, TaskKey};
use crate::key::Key;
use crate::time::Timestamp;
use crate::wire::{
    CancelReason, Cause, Credit, Credited, Entry, Executed, Fail, LinkDown, Manifest, Message,
    Outcome, Reply, ReplyKind, Sealed, Status, TaskStatus,
};

use super::super::admission;
use super::super::failure::Failure;
use super::super::flow::{PieceFault, Whole};
use super::super::inbox::{InboxFault, Sender};
use super::super::mutant::{self, Mutant};
use super::super::trace::{EVENTS_MAX, EntryBy, TraceEvent, Traced};
use super::super::tree::{Branch, BranchState, Holder, Tree, TreeFault};
use super::super::{Arrival, key};
use super::{Call, CallEvent, Delivered, End, LinkView};

/// Standing of who says that a task is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Its node says so, over a connection of its own.
    Own,
    /// Others have brought what its node has said.
    Passed,
    /// The same, where that ends no branch (`CallOptions::ignores_hearsay`).
    Hearsay,
}

impl Call {
    /// True when a frame counts for what it says of a task: it shows the key of the branch, or
    /// comes over the very connection that the request of a root branch took.
    pub(crate) fn admits(&self, by: &Arrival, task: &TaskKey) -> bool {
        match by.key {
            Some(key) => self.is_key_of(key, &task.path),
            None => {
                let mut root = self.root(&task.path).filter(|_| task.hop == 0);
                if mutant::is(Mutant::AnyAskedSpeaksForRoots) {
                    root = self.roots.iter().find(|root| root.link == Some(by.link));
                }
                !by.is_relayed() && root.is_some_and(|root| root.link == Some(by.link))
            }
        }
    }

    fn is_key_of(&self, key: Key, path: &Path) -> bool {
        self.secret.branch(self.id, path) == Some(key)
    }

    /// A REPLY that counts.
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        reply: Reply,
    ) {
        self.apply_inherited(now, task, &reply.inherited, EntryBy::Descendant);
        if !self.touch(now, by, task) {
            self.refuse_rest(&by, task, &reply);
            return self.settle(now); // There may have been no room for it.
        }
        let branch = self.tree.get(&task.path);
        let is_new = branch.is_some_and(|branch| {
            let takes = match branch.state {
                BranchState::GivenUp => false,
                // Nothing ends what is not waited for: what is not whole would keep its room.
                BranchState::Failed | BranchState::Named => reply.is_simple(),
                _ => true,
            };
            let is_copy = || branch.received.contains(reply.index);
            takes && (mutant::is(Mutant::CopiesDelivered) || !is_copy())
        });
        // Where nothing else is missing, no failure would give back what has come of it.
        let is_undeclared =
            !reply.is_simple() && branch.is_some_and(|branch| branch.is_undeclared(reply.index));
        if is_new && !reply.is_mark() {
            let (from, bytes) = (by.from, reply.payload.len());
            self.note(now, task, || Traced::Reply { from, bytes });
        }
        // One that another passes on would stand in the way of what the task itself sends.
        let voice = self.voice_of(&by);
        if !is_new || !self.takes_replies() || voice == Voice::Hearsay {
            // A mark that is passed on says that the task waits: it may come to send that itself.
            if !(voice == Voice::Hearsay && reply.is_mark()) {
                self.refuse_rest(&by, task, &reply);
            }
        } else if is_undeclared {
            self.refuse_rest(&by, task, &reply);
            self.refuse_begun(holder_of(&by), task);
            self.contradict(now, task, TreeFault::Contradiction);
        } else {
            self.take_reply(now, by, task, &reply);
        }
        if reply.is_final {
            if self.close(now, task, (0, 1), voice) {
                self.note(now, task, || implied_entry(task));
            }
        } else if let Some(entry) = &reply.own_entry
            && entry.task == *task
        {
            self.apply_entry(now, entry, (EntryBy::Reply, voice));
        }
        self.settle(now);
    }

    fn take_reply(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, reply: &Reply) {
        let mut sender = Sender { node: by.from, is_authenticated: by.from == by.via };
        let accepted = match self.inbox.accept(&task.path, &mut sender, reply) {
            Ok(accepted) => accepted,
            Err(fault) => {
                self.refuse_rest(&by, task, reply);
                self.refuse_begun(holder_of(&by), task);
                self.fail_reply(now, task, fault);
                return;
            }
        };
        if self.inbox.has_lost_piece(&task.path, reply.index) {
            self.refuse_begun(holder_of(&by), task);
        }
        if self.options.tells_silent && reply.kind != ReplyKind::Message {
            self.tree.note_streaming(&task.path);
        }
        if reply.part.is_some() || reply.kind != ReplyKind::Message {
            let (liveness, inbox) = (&mut self.liveness, &mut self.inbox);
            liveness.note_piece(now, (&task.path, reply.index), &accepted, inbox);
        }
        let was_streaming = self.is_streaming(&task.path);
        if accepted.is_whole
            && let Err(fault) = self.receive(&task.path, reply.index)
        {
            self.inbox.consume_all(accepted.messages.iter().map(|message| {
                (&task.path, reply.index, message.payload.len(), message.extensions.as_slice())
            }));
            self.contradict(now, task, fault);
            return;
        }
        let is_news = !accepted.messages.is_empty() || accepted.is_whole;
        for Whole { item, extensions, payload } in accepted.messages {
            // Those of a decided call are dropped where they are put together.
            self.events.push_back(CallEvent::Reply(Delivered {
                path: task.path.clone(),
                index: reply.index,
                item,
                from: sender.node,
                is_authenticated: sender.is_authenticated,
                extensions: extensions.into(),
                payload,
            }));
        }
        if is_news {
            self.liveness.note_progress(now);
        }
        if was_streaming && self.tree.get(&task.path).is_none() {
            self.tell_silent(&task.path, Some(by.from));
        }
    }

    /// Records that a reply is here, and what the gaps before it take.
    fn receive(&mut self, path: &Path, index: u32) -> Result<(), TreeFault> {
        let gaps = |tree: &Tree| tree.get(path).map_or(0, |branch| branch.received.gap_count());
        let before = gaps(&self.tree);
        self.tree.receive(path, index)?;
        self.inbox.note_gaps(path, before, gaps(&self.tree));
        Ok(())
    }

    /// True when a reply of a branch is known to be a stream.
    fn is_streaming(&self, path: &Path) -> bool {
        self.options.tells_silent && self.tree.get(path).is_some_and(|branch| branch.is_streaming)
    }

    /// A reply was read.
    pub(super) fn consume(&mut self, delivered: &Delivered) {
        self.inbox.consume_all([delivered.read()]);
    }

    /// A MANIFEST that counts.
    pub(crate) fn handle_manifest(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        manifest: &Manifest,
    ) {
        self.apply_inherited(now, task, &manifest.inherited, EntryBy::Descendant);
        if let Some(entry) = manifest.own.as_ref().filter(|entry| entry.task == *task) {
            self.hear_end(now, by, task);
            self.apply_entry(now, entry, (EntryBy::Manifest, self.voice_of(&by)));
        }
        self.settle(now);
    }

    /// A FAIL that counts.
    pub(crate) fn handle_fail(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, fail: Fail) {
        self.apply_inherited(now, task, &fail.inherited, EntryBy::Descendant);
        let is_own = fail.node.is_none();
        // Before the sender is taken for the holder.
        let is_proof = match is_own {
            true => self.is_holder(&by, task),
            false => self.is_sender(&by, task),
        };
        let is_known = if is_own { self.hear_end(now, by, task) } else { self.know(now, task) };
        if !is_known {
            return self.settle(now); // There may have been no room for it.
        }
        let entry = fail.entry.filter(|entry| is_own && entry.task == *task);
        let children = entry.as_ref().map_or(0, |entry| entry.children);
        let voice = if is_own { self.voice_of(&by) } else { self.voice_of_others() };
        if voice == Voice::Hearsay {
            self.note_hearsay(task, children);
            if let Some(node) = fail.node {
                // Its sender could not reach it: it is asked from here.
                self.note_cut_off(now, &by, task, node);
                self.probe_now(now, node, vec![task.clone()]);
            }
            return self.settle(now);
        }
        let executed = match fail.executed {
            Executed::No if !is_proof && !mutant::is(Mutant::NotRunFromAnyHolder) => {
                Executed::Maybe
            }
            executed => executed,
        };
        match self.fail_by_word(task, children) {
            Ok(true) => {
                // First: it is told at this time, and what is below looked at soon after it.
                self.liveness.note_progress(now);
                if let Some(entry) = &entry {
                    self.note_holders(now, entry);
                }
                self.record(Failure {
                    task: task.clone(),
                    node: fail.node.or(Some(by.from)),
                    cause: fail.cause,
                    executed,
                    code: fail.code,
                    text: fail.text,
                    details: fail.details,
                    extensions: fail.extensions.into(),
                });
            }
            Ok(false) => {}
            Err(fault) => self.contradict(now, task, fault),
        }
        // Also when the failure is old news: a STATUS may have told of it before, without this
        // word.
        let is_over =
            |branch: &Branch| branch.state == BranchState::Failed && branch.hop <= task.hop;
        // Its children run on until they say something else themselves, where its word is hearsay.
        let gives_up = fail.aborts_children && !self.ignores_hearsay();
        if gives_up && self.tree.get(&task.path).is_some_and(is_over) {
            let given_up = self.tree.give_up_children(&task.path, children);
            given_up.iter().for_each(|path| drop(self.inbox.forget(path)));
        }
        self.settle(now);
    }

    fn ignores_hearsay(&self) -> bool {
        self.options.ignores_hearsay && !mutant::is(Mutant::HearsayEndsBranch)
    }

    /// Standing of who says how the task of a frame is. A task above knows its key, and so may pass
    /// on what it has not said. A call that has ended takes all, to be settled.
    pub(super) fn voice_of(&self, by: &Arrival) -> Voice {
        if by.is_relayed() { self.voice_of_others() } else { Voice::Own }
    }

    fn voice_of_others(&self) -> Voice {
        match self.ignores_hearsay() && self.end.is_none() {
            true => Voice::Hearsay,
            false => Voice::Passed,
        }
    }

    /// A task is said to have opened so many branches and to be over, which ends nothing. What that
    /// contradicts is nothing that the task has said.
    fn note_hearsay(&mut self, task: &TaskKey, children: u32) {
        if !(self.options.is_flat && children > 0) {
            let _ = self.tree.note_hearsay(task, children);
        }
    }

    /// True when a frame comes from the node known to hold exactly this task, over its connection:
    /// another that has the key cannot know that the task did not run.
    pub(super) fn is_holder(&self, by: &Arrival, task: &TaskKey) -> bool {
        let of_root = self.root(&task.path).filter(|_| task.hop == 0);
        let branch = self.tree.get(&task.path);
        !by.is_relayed()
            && (of_root.is_some_and(|root| root.node == by.from)
                || branch.is_some_and(|branch| branch.is_named(task.hop, by.from)))
    }

    /// True when a frame comes from the node that would have sent the request of this task.
    fn is_sender(&self, by: &Arrival, task: &TaskKey) -> bool {
        self.sent_by(task).is_some_and(|before| self.is_holder(by, &before))
    }

    /// The task that sent the request of this one: the hop before, or the branch above as far as it
    /// is known.
    pub(super) fn sent_by(&self, task: &TaskKey) -> Option<TaskKey> {
        match task.hop.checked_sub(1) {
            Some(hop) => Some(key(task.path.clone(), hop)),
            None => task.path.parent().map(|(parent, _)| {
                let hop = self.tree.get(&parent).map_or(0, |branch| branch.hop);
                key(parent, hop)
            }),
        }
    }

    /// A LINK_DOWN that counts.
    pub(crate) fn handle_link_down_report(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        report: &LinkDown,
    ) {
        self.touch(now, by, task);
        self.apply_inherited(now, task, &report.inherited, EntryBy::Recovered);
        if let Some(entry) = report.own.as_ref().filter(|entry| entry.task == *task) {
            self.apply_entry(now, entry, (EntryBy::Recovered, self.voice_of(&by)));
        }
        let asked: Vec<TaskKey> =
            report.children.iter().filter(|c| admission::is_child(c, task)).cloned().collect();
        asked.iter().for_each(|child| self.note_cut_off(now, &by, child, report.node));
        self.probe_now(now, report.node, asked);
        self.settle(now);
    }

    /// The sender of a branch says that it cannot reach the node that it sent it to.
    fn note_cut_off(&mut self, now: Timestamp, by: &Arrival, task: &TaskKey, node: NodeId) {
        if !self.ensure(now, task) {
            return;
        }
        self.liveness.note_cut(now, &task.path, &self.inbox);
        self.hold(now, task, Holder { node, relay: None });
        // Who passed on what it said has lost it: there is no way but the straight one.
        self.tree.lose_relay(task, Holder { node, relay: Some(by.via) });
        let Some(branch) = self.tree.get(&task.path) else { return };
        // One that went on since was sent on by another, which may be at the same node.
        if branch.hop == task.hop {
            self.liveness.note_request_lost(&task.path);
        }
        if branch.holder.is_some_and(|holder| holder.node == node) {
            self.liveness.lose_others(now, &task.path);
        }
    }

    /// True when anything in a STATUS counts.
    pub(crate) fn admits_any(&self, status: &Status) -> bool {
        let mut tasks = status.tasks.iter().map(|(asked, _)| asked);
        tasks.any(|asked| self.secret.is_answer(self.id, asked))
    }

    /// A STATUS of which something counts.
    pub(crate) fn handle_status(
        &mut self,
        now: Timestamp,
        by: Arrival,
        status: &Status,
        links: &dyn LinkView,
    ) {
        let answered =
            status.tasks.iter().filter(|(asked, _)| self.secret.is_answer(self.id, asked));
        let answered: Vec<_> = answered.map(|(asked, state)| (&asked.task, state)).collect();
        for (task, state) in &answered {
            let is_unknown = **state == TaskStatus::Unknown;
            self.liveness.note_answer(task, (by.from, by.is_relayed()), is_unknown);
            self.meet(now, by, task, state);
        }
        let is_held = |task: &TaskKey| {
            let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
            let holder = branch.and_then(|branch| branch.holder);
            holder.is_some_and(|holder| holder.node == by.from)
        };
        let (held, others): (Vec<_>, Vec<_>) =
            answered.into_iter().partition(|(task, _)| is_held(task));
        for sealed in &status.inherited {
            let entry = &sealed.entry;
            if held.iter().any(|(task, _)| admission::is_inherited(entry, task)) {
                self.apply_sealed(now, sealed, EntryBy::Recovered);
            }
        }
        let moved = held
            .into_iter()
            .filter_map(|(task, state)| self.apply_status(now, by, task, state, links));
        let mut moved: Vec<TaskKey> = moved.collect();
        if self.end.is_none() {
            let unknown = others.into_iter().filter(|(_, state)| **state == TaskStatus::Unknown);
            let elsewhere = unknown.filter(|(task, _)| self.lose_relay(now, by, task, links));
            moved.extend(elsewhere.map(|(task, _)| task.clone()));
            self.follow(now, moved, links);
        }
        self.settle(now);
    }

    /// A node says unasked, as it closes, how a task has ended that has not been heard of: it holds
    /// that, as its key proves, and nobody else may be left who would say so.
    fn meet(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, state: &TaskStatus) {
        let has_ended = matches!(state, TaskStatus::Tailed { .. } | TaskStatus::Closed { .. });
        let is_news = || self.tree.get(&task.path).is_none_or(|branch| branch.hop < task.hop);
        if self.end.is_none() && has_ended && is_news() {
            self.touch(now, by, task);
        }
    }

    /// The node that the root branch above this path was sent to.
    pub(super) fn root_of(&self, path: &Path) -> Option<NodeId> {
        let index = path.indices().next()?;
        self.roots.get(index as usize).map(|root| root.node)
    }

    /// Registers a frame's sender as the holder of its branch. False when nothing about the branch
    /// can be news.
    pub(super) fn touch(&mut self, now: Timestamp, by: Arrival, task: &TaskKey) -> bool {
        self.ensure(now, task) && self.hear(now, by, task)
    }

    /// The same of a frame that says that its task is over: that does not open a branch that nobody
    /// wants.
    fn hear_end(&mut self, now: Timestamp, by: Arrival, task: &TaskKey) -> bool {
        self.know(now, task) && self.hear(now, by, task)
    }

    fn hear(&mut self, now: Timestamp, by: Arrival, task: &TaskKey) -> bool {
        match self.tree.hear(task, holder_of(&by)) {
            Ok(true) => self.liveness.forget_root_link(task),
            Ok(false) => {}
            Err(fault) => {
                self.contradict(now, task, fault);
                return false;
            }
        }
        self.note_node(by.via);
        self.liveness.note_news(&self.tree, task);
        true
    }

    /// Registers where a branch was sent, as its sender says. True when it was news.
    pub(super) fn hold(&mut self, now: Timestamp, task: &TaskKey, holder: Holder) -> bool {
        match self.tree.hold(task, holder) {
            Ok(true) => {
                self.note_node(holder.node);
                self.liveness.forget_root_link(task);
                true
            }
            Ok(false) => {
                // Heard of through another alone, it has not been noted yet.
                let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
                let known = branch.and_then(|branch| branch.holder);
                if known.is_some_and(|of| of.relay.is_some() && of.node == holder.node) {
                    self.note_node(holder.node);
                }
                false
            }
            Err(fault) => {
                self.contradict(now, task, fault);
                false
            }
        }
    }

    pub(super) fn ensure(&mut self, now: Timestamp, task: &TaskKey) -> bool {
        let ensured = self.tree.ensure(&task.path).map(|branch| branch.is_some());
        self.is_there(now, task, ensured)
    }

    fn know(&mut self, now: Timestamp, task: &TaskKey) -> bool {
        let known = self.tree.known(&task.path).map(|branch| branch.is_some());
        self.is_there(now, task, known)
    }

    fn is_there(&mut self, now: Timestamp, task: &TaskKey, known: Result<bool, TreeFault>) -> bool {
        let known = match known {
            // It was said that no branch of this call opens another.
            Ok(_) if self.options.is_flat && task.path.level_count() > 1 => {
                Err(TreeFault::Contradiction)
            }
            known => known,
        };
        known.unwrap_or_else(|fault| {
            self.contradict(now, task, fault);
            false
        })
    }

    /// The entries among these that a frame of `task` may carry, and that their own tasks' holders
    /// have sealed.
    pub(super) fn apply_inherited(
        &mut self,
        now: Timestamp,
        task: &TaskKey,
        entries: &[Sealed],
        by: EntryBy,
    ) {
        let inherited =
            entries.iter().filter(|sealed| admission::is_inherited(&sealed.entry, task));
        inherited.for_each(|sealed| self.apply_sealed(now, sealed, by));
    }

    fn apply_sealed(&mut self, now: Timestamp, sealed: &Sealed, by: EntryBy) {
        if self.tree.has_entry(&sealed.entry) {
            return; // As of all copies but the first: whoever sealed it, nothing of it is news.
        }
        let key = self.secret.branch(self.id, &sealed.entry.task.path);
        if key.is_some_and(|key| sealed.is_of(key)) || mutant::is(Mutant::NoSeals) {
            // The key of a root branch is known to nobody above it.
            let voice = match sealed.entry.task.path.level_count() {
                1 => Voice::Passed,
                _ => self.voice_of_others(),
            };
            self.apply_entry(now, &sealed.entry, (by, voice));
        }
    }

    fn fail_by_word(&mut self, task: &TaskKey, children: u32) -> Result<bool, TreeFault> {
        if self.options.is_flat && children > 0 {
            return Err(TreeFault::Contradiction);
        }
        self.tree.fail_with_children(task, children)
    }

    pub(super) fn apply_entry(
        &mut self,
        now: Timestamp,
        entry: &Entry,
        (by, voice): (EntryBy, Voice),
    ) {
        match entry.outcome {
            Outcome::Finished => {
                if self.close(now, &entry.task, (entry.children, entry.replies), voice) {
                    self.note(now, &entry.task, || Traced::Ended { entry: entry.clone(), by });
                    self.note_holders(now, entry);
                }
            }
            Outcome::Failed(_) if voice == Voice::Hearsay => {
                self.note_hearsay(&entry.task, entry.children);
            }
            Outcome::Failed(cause) => {
                match self.fail_by_word(&entry.task, entry.children) {
                    Ok(true) => {
                        self.liveness.note_progress(now);
                        self.note_holders(now, entry);
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

    /// Closes a branch that has so many children and replies. True when that is news.
    fn close(
        &mut self,
        now: Timestamp,
        task: &TaskKey,
        (children, replies): (u32, u32),
        voice: Voice,
    ) -> bool {
        if voice == Voice::Hearsay {
            self.note_hearsay(task, children);
            return false;
        }
        let was_streaming = self.is_streaming(&task.path);
        // It is forgotten where it ends. Its own frame has made its sender the holder.
        let is_silent = children == 0 && replies == 0;
        let holder = match is_silent || was_streaming {
            true => self.holder_of(task),
            false => None,
        };
        let closed = match self.options.is_flat && children > 0 {
            true => Err(TreeFault::Contradiction),
            false => self.tree.close(task, children, replies),
        };
        match closed {
            Ok(is_news) => {
                if is_news {
                    self.liveness.note_progress(now);
                    // Others may have carried it: of the node where the branch is, it says nothing,
                    // only that the branch has left an earlier one.
                    if self.tree.get(&task.path).is_some_and(|branch| branch.hop < task.hop) {
                        self.liveness.note_news(&self.tree, task);
                    }
                    let has_streamed = was_streaming && self.tree.get(&task.path).is_none();
                    if has_streamed || is_silent {
                        let counts = voice == Voice::Own || !self.ignores_hearsay();
                        let holder = holder.filter(|_| counts);
                        self.tell_silent(&task.path, holder.map(|holder| holder.node));
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

    fn tell_silent(&mut self, path: &Path, node: Option<NodeId>) {
        if self.options.tells_silent && self.end.is_none() {
            self.events.push_back(CallEvent::Silent { path: path.clone(), node });
        }
    }

    /// The holder of a task, as far as it is known.
    fn holder_of(&self, task: &TaskKey) -> Option<Holder> {
        let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
        branch.and_then(|branch| branch.holder)
    }

    pub(super) fn note_holders(&mut self, now: Timestamp, entry: &Entry) {
        for (index, holder) in (0..entry.children).zip(&entry.holders) {
            if let (Some(node), Ok(path)) = (holder, entry.task.path.child(index)) {
                self.hold(now, &key(path, 0), Holder { node: *node, relay: None });
            }
        }
    }

    pub(super) fn contradict(&mut self, now: Timestamp, task: &TaskKey, fault: TreeFault) {
        match fault {
            TreeFault::TooManyBranches
                if self.roots.len() == 1 || mutant::is(Mutant::BoundsShared) =>
            {
                self.finish(now, End::Exhausted);
            }
            TreeFault::TooManyBranches => self.exhaust(now, &task.path),
            TreeFault::Contradiction if mutant::is(Mutant::ContradictionEndsCall) => {
                self.finish(now, End::Exhausted);
            }
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

    /// Gives up what is at and below a branch that asks for more of the call than its root may have
    /// (`trust.md` T10), or below the nearest known one where there was no room for it. What is
    /// beside it goes on, also where the branch itself is over.
    fn exhaust(&mut self, now: Timestamp, path: &Path) {
        let is_known = |path: &Path| self.tree.get(path).is_some();
        let Some(top) = path.prefixes().filter(is_known).last() else { return };
        let hop = self.tree.get(&top).map_or(0, |branch| branch.hop);
        if self.end.is_none()
            && self.fail(&key(top.clone(), hop), Cause::ResourceExhausted, Executed::Maybe)
        {
            self.cancel_branch(now, &top, CancelReason::ResourceExhausted);
        }
        self.give_up(&top);
    }

    /// Wants nothing more of what is at and below a branch but its word.
    pub(super) fn give_up(&mut self, top: &Path) {
        for path in self.tree.give_up(top) {
            self.inbox.forget(&path);
        }
    }

    /// Nothing more of a reply is taken: what waits of it at its sender need not.
    fn refuse_rest(&mut self, by: &Arrival, task: &TaskKey, reply: &Reply) {
        let len = reply.payload.len() as u64;
        let is_part = reply.part.is_some_and(|part| part.offset + len < part.total);
        let is_last = !matches!(reply.kind, ReplyKind::Item { is_last: false, .. });
        if (is_part || !is_last) && matches!(self.end, None | Some(End::Decided)) {
            self.refuse(holder_of(by), task, reply.index);
        }
    }

    /// Gives up the replies of a task that have begun and are not whole: it need not wait with
    /// them.
    pub(super) fn refuse_begun(&mut self, holder: Holder, task: &TaskKey) {
        for index in self.inbox.forget(&task.path) {
            self.refuse(holder, task, index);
        }
    }

    /// Tells a task to send no more of one of its replies.
    fn refuse(&mut self, holder: Holder, task: &TaskKey, index: u32) {
        let credit = Credit { of: Credited::Reply(index), limit_bytes: Credit::NO_MORE };
        self.send_to_holder(holder, task.clone(), Message::Credit(credit));
    }

    /// Fails a branch whose reply cannot be taken.
    fn fail_reply(&mut self, now: Timestamp, task: &TaskKey, fault: InboxFault) {
        let (cause, text) = match fault {
            InboxFault::OverShare => return self.exhaust(now, &task.path),
            InboxFault::Reply(PieceFault::TooLarge { size, limit }) => (
                Cause::ResourceExhausted,
                format!("a reply of {size} bytes is larger than its message_bytes_max, {limit}"),
            ),
            InboxFault::Reply(PieceFault::Overrun) => (
                Cause::Protocol,
                "it sent more of a reply than it was granted: unscheduled_bytes must be the same \
                 at both ends"
                    .to_owned(),
            ),
            InboxFault::Reply(PieceFault::Malformed) => {
                (Cause::Protocol, "the frames of its reply do not fit together".to_owned())
            }
        };
        if self.tree.fail(&task.path) {
            self.record(Failure { text, ..self.found(task, cause, Executed::Yes) });
        }
    }

    /// Fails a branch for a cause this side found. True when that is news.
    pub(super) fn fail(&mut self, task: &TaskKey, cause: Cause, executed: Executed) -> bool {
        !mutant::is(Mutant::LossIgnored) && self.fail_saying(task, cause, executed, "")
    }

    /// As [`Self::fail`], with words for people.
    pub(super) fn fail_saying(
        &mut self,
        task: &TaskKey,
        cause: Cause,
        executed: Executed,
        text: &str,
    ) -> bool {
        let is_news = self.tree.fail(&task.path);
        if is_news {
            let mut failure = self.found(task, cause, executed);
            text.clone_into(&mut failure.text);
            self.record(failure);
        }
        is_news
    }

    pub(super) fn record_found(&mut self, task: &TaskKey, cause: Cause, executed: Executed) {
        let failure = self.found(task, cause, executed);
        self.record(failure);
    }

    pub(super) fn found(&self, task: &TaskKey, cause: Cause, executed: Executed) -> Failure {
        let node = self.holder_of(task).map(|holder| holder.node);
        Failure::found(task.clone(), node, cause, executed)
    }

    pub(super) fn note(&mut self, at: Timestamp, task: &TaskKey, what: impl FnOnce() -> Traced) {
        if self.options.traces && self.trace.len() < EVENTS_MAX {
            self.trace.push(TraceEvent { at, task: task.clone(), what: what() });
        }
    }

    /// A branch has failed. What of its replies has come in part is not wanted, and makes room.
    pub(super) fn record(&mut self, mut failure: Failure) {
        // Lost is what did not run and never will: not so by the word of one who cannot know.
        if failure.cause == Cause::Lost && failure.executed != Executed::No {
            failure.cause = Cause::NodeDown;
        }
        let cause = failure.cause;
        self.inbox.forget(&failure.task.path);
        self.note(self.liveness.last_seen(), &failure.task, || Traced::Failed { cause });
        self.liveness.note_failed(&self.tree, &failure);
        if self.end.is_none() {
            self.words.admit(&mut failure);
            self.failures.push(failure.clone());
            self.events.push_back(CallEvent::Failure(failure));
        }
    }
}

/// Entry that a sole reply stands for.
fn implied_entry(task: &TaskKey) -> Traced {
    Traced::Ended { entry: Entry::sole_reply(task.clone()), by: EntryBy::Elided }
}

/// The node that a frame about a task comes from, and who relays what is for it.
fn holder_of(by: &Arrival) -> Holder {
    Holder { node: by.from, relay: by.is_relayed().then_some(by.via) }
}
