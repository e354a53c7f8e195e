//! The initiator's side of one call: counts replies and manifests until the request tree is complete,
//! decided or given up.
//!
//! ```text
//!  Building ──seal──▶ Sealed ──tree complete──▶ Ended(Complete | Partial)
//!      │                │ ├────predicate──────▶ Ended(Decided | Impossible)   late tasks run on
//!      └──cancel, bound─┴─┴────deadline───────▶ Ended(Partial | Cancelled | Exhausted)
//! ```
//! An end is final: nothing is delivered after it, but for late replies where they were asked for. After
//! a decision the call counts on in silence, so that its number can be declared settled (see
//! [`crate::wire::Request::floor`]).

mod liveness;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{
    Cancel, CancelReason, Cause, Credit, Entry, Executed, Extension, Fail, Header, LinkDown,
    Message, Outcome, Reply, ReplyRoute, Request, Status, TaskStatus,
};

use super::admission::{self, Standing};
use super::failure::Failure;
use super::inbox::{Inbox, MESSAGE_BYTES};
use super::limits::Limits;
use super::mutant::{self, Mutant};
use super::trace::{EntryBy, TraceEvent, Traced};
use super::tree::{BranchState, Holder, Tree, TreeFault};
use super::{Arrival, Outbound, key};
use liveness::Liveness;

pub(crate) use liveness::LinkView;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Every task finished and every reply is here.
    Complete,
    /// Everything that will come has come; some branches failed, or the deadline passed.
    Partial,
    /// The predicate was satisfied.
    Decided,
    /// The predicate can no longer be satisfied.
    Impossible,
    /// The caller cancelled it.
    Cancelled,
    /// It outgrew a bound of its initiator.
    Exhausted,
}

/// A reply, or an item of a streamed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The branch whose task sent it.
    pub path: Path,
    /// Which reply of that task.
    pub index: u32,
    /// Which item, if the reply is a stream.
    pub item: Option<u64>,
    /// Who sent it.
    pub from: NodeId,
    /// Whether `from` is the peer of the connection it came by, not what a relay says.
    pub is_authenticated: bool,
    /// The message.
    pub payload: Bytes,
}

/// What the application learns of its call, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A reply.
    Reply(Delivered),
    /// A branch failed.
    Failure(Failure),
    /// The end. Nothing follows but `Late`.
    Ended(End),
    /// A reply after the decision, where the caller asked for them.
    Late(Delivered),
}

/// What a predicate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not yet.
    Continue,
    /// Enough.
    Done,
    /// It can never be enough.
    Impossible,
}

/// What a predicate decides on.
#[derive(Debug)]
pub struct Tally<'a> {
    /// Every reply and item delivered so far, in order.
    pub replies: &'a [Delivered],
    /// Every failure so far.
    pub failures: &'a [Failure],
    /// Branches whose task has not ended.
    pub open: u64,
    /// Replies that ended tasks still owe.
    pub missing: u64,
    /// Most replies that can still come; `None` when there is no telling, because an open branch may
    /// reply many times or open others.
    pub max_remaining: Option<u64>,
}

/// Decides early. Called after every reply and failure. If it panics, the call is undecidable.
pub type Predicate = Box<dyn FnMut(&Tally<'_>) -> Decision + Send>;

/// How a call is opened.
#[derive(Default)]
pub struct CallOptions {
    /// Decides early; without one the call runs until its tree is complete.
    pub predicate: Option<Predicate>,
    /// Every branch sends at most one reply and opens no other branch (a flat quorum call): makes
    /// [`Tally::max_remaining`] exact.
    pub is_flat: bool,
    /// Cancel what still runs once the call is decided. Only for methods without effects: a quorum
    /// write must still reach the slow member.
    pub cancels_late: bool,
    /// Deliver replies after the decision as [`CallEvent::Late`].
    pub keeps_late: bool,
    /// Keep what the initiator learns, for [`Call::trace`].
    pub traces: bool,
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("has_predicate", &self.predicate.is_some())
            .field("is_flat", &self.is_flat)
            .field("cancels_late", &self.cancels_late)
            .field("keeps_late", &self.keeps_late)
            .field("traces", &self.traces)
            .finish()
    }
}

/// One call of this node.
#[derive(Debug)]
pub struct Call {
    id: CallId,
    deadline: Timestamp,
    options: CallOptions,
    tree: Tree,
    inbox: Inbox,
    liveness: Liveness,
    root_count: u32,
    is_sealed: bool,
    end: Option<End>,
    /// The deadline has passed.
    is_expired: bool,
    /// Nobody reads it any more.
    is_detached: bool,
    failures: Vec<Failure>,
    trace: Vec<TraceEvent>,
    /// What the predicate has seen; empty without one.
    replies: Vec<Delivered>,
    /// Bytes of these.
    kept_bytes: u64,
    events: VecDeque<CallEvent>,
    /// Where CANCEL goes: the nodes root branches were sent to.
    roots: BTreeMap<Path, NodeId>,
    out: VecDeque<Outbound>,
    reply_bytes_max: u64,
    branches_max: u32,
}

/// A command that does not fit the call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallMisuse {
    /// The call is sealed, ended or gone.
    #[error("the call takes no more branches: it is sealed or has ended")]
    Sealed,
    /// The call has as many branches as it may.
    #[error("the call has as many branches as it may have")]
    TooManyBranches,
}

impl Call {
    pub(crate) fn new(
        id: CallId,
        now: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        limits: &Limits,
    ) -> Self {
        Self {
            id,
            deadline,
            options,
            tree: Tree::new(limits.branches_max),
            inbox: Inbox::new(limits),
            liveness: Liveness::new(now, limits),
            root_count: 0,
            is_sealed: false,
            end: None,
            is_expired: false,
            is_detached: false,
            failures: Vec::new(),
            trace: Vec::new(),
            replies: Vec::new(),
            kept_bytes: 0,
            events: VecDeque::new(),
            roots: BTreeMap::new(),
            out: VecDeque::new(),
            reply_bytes_max: limits.reply_bytes_max,
            branches_max: limits.branches_max,
        }
    }

    /// Opens a root branch.
    pub(crate) fn branch(
        &mut self,
        now: Timestamp,
        to: NodeId,
        floor: u64,
        method: MethodId,
        extensions: Vec<Extension>,
        payload: Bytes,
    ) -> Result<Path, CallMisuse> {
        if self.is_sealed || self.end.is_some() {
            return Err(CallMisuse::Sealed);
        }
        if self.root_count >= self.branches_max {
            return Err(CallMisuse::TooManyBranches);
        }
        let path = Path::root().child(self.root_count).expect("one level fits");
        let branch = self.tree.ensure(&path).map_err(|_| CallMisuse::TooManyBranches)?;
        let branch = branch.expect("a new branch is not drained");
        branch.holder = Some(Holder { node: to, relay: None });
        self.root_count += 1;
        self.roots.insert(path.clone(), to);
        let request = Request {
            budget_us: self.budget_us(now),
            floor: self.id.seq - floor,
            method,
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions,
            payload,
        };
        self.note(now, &key(path.clone(), 0), || Traced::Opened { node: to });
        self.send(to, key(path.clone(), 0), Message::Request(request));
        Ok(path)
    }

    /// No more root branches come: the call may now be complete.
    pub(crate) fn seal(&mut self, now: Timestamp) {
        self.is_sealed = true;
        // What can still come is known exactly from now on, so the predicate may be able to tell.
        self.evaluate(now, true);
    }

    /// The request of a root branch has been handed to this connection.
    pub(crate) fn handle_sent(&mut self, path: &Path, link: LinkNonce, life: Option<Incarnation>) {
        self.liveness.note_root_link(path, link, life);
    }

    /// The request of a root branch could not be handed to any connection.
    pub(crate) fn handle_unsent(&mut self, now: Timestamp, path: &Path, text: &str) {
        if self.tree.fail(path) {
            let task = key(path.clone(), 0);
            let mut failure = self.found(&task, Cause::Unreachable, Executed::No);
            text.clone_into(&mut failure.text);
            self.record(failure);
        }
        self.evaluate(now, true);
    }

    /// The caller gives up.
    pub(crate) fn cancel(&mut self, now: Timestamp) {
        if self.end.is_none() {
            self.finish(now, End::Cancelled);
        }
    }

    /// The caller holds the call no longer: an undecided one is cancelled, a decided one counts on.
    pub(crate) fn detach(&mut self, now: Timestamp) {
        self.cancel(now);
        self.is_detached = true;
        self.events.clear();
    }

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
        let is_news = is_new && self.take_reply(now, by, task, &reply);
        if reply.is_final {
            if self.close(now, task, 0, 1) {
                self.note(now, task, || implied_entry(task));
            }
        } else if let Some(entry) = &reply.own_entry
            && entry.task == *task
        {
            self.apply_entry(now, entry, EntryBy::Reply);
        }
        self.settle(now, is_news);
    }

    fn take_reply(&mut self, now: Timestamp, by: Arrival, task: &TaskKey, reply: &Reply) -> bool {
        let accepted = match self.inbox.accept(&task.path, reply) {
            Ok(accepted) => accepted,
            Err(_) => {
                self.inbox.forget(&task.path);
                self.fail(task, Cause::Protocol, Executed::Yes);
                return true;
            }
        };
        if accepted.is_whole
            && let Err(fault) = self.tree.receive(&task.path, reply.index)
        {
            for (_, payload) in &accepted.messages {
                self.inbox.consume(&task.path, reply.index, payload.len());
            }
            self.contradict(now, task, fault);
            return true;
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
        is_news
    }

    fn deliver(&mut self, delivered: Delivered) {
        if self.end.is_none() {
            if self.options.predicate.is_some() {
                self.kept_bytes += delivered.payload.len() as u64 + MESSAGE_BYTES;
                self.replies.push(delivered.clone());
            }
            self.events.push_back(CallEvent::Reply(delivered));
        } else if self.options.keeps_late && !self.is_detached {
            self.events.push_back(CallEvent::Late(delivered));
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
        self.settle(now, true);
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
                if fail.aborts_children {
                    (0..children).for_each(|index| self.prune_child(&task.path, index));
                }
                self.liveness.note_progress(now);
            }
            Ok(false) => {}
            Err(fault) => self.contradict(now, task, fault),
        }
        self.settle(now, true);
    }

    fn prune_child(&mut self, path: &Path, index: u32) {
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
        self.settle(now, false);
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
        for (task, state) in held {
            self.apply_status(now, by, task, state, links);
        }
        self.settle(now, true);
    }

    fn may_speak_for(&self, by: Arrival, task: &TaskKey) -> bool {
        let (root, branch) = (self.root_of(&task.path), self.tree.get(&task.path));
        admission::may_speak_for(by, task, root, branch)
    }

    /// The node that the root branch above this path was sent to.
    fn root_of(&self, path: &Path) -> Option<NodeId> {
        path.prefixes().next().and_then(|root| self.roots.get(&root)).copied()
    }

    /// Registers a frame's sender as the holder of its branch. False when nothing about the branch can
    /// be news.
    fn touch(&mut self, now: Timestamp, by: Arrival, task: &TaskKey) -> bool {
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

    fn ensure(&mut self, now: Timestamp, task: &TaskKey) -> bool {
        match self.tree.ensure(&task.path) {
            Ok(branch) => branch.is_some(),
            Err(fault) => {
                self.contradict(now, task, fault);
                false
            }
        }
    }

    /// The entries among these that a frame of `task` may carry.
    fn apply_inherited(&mut self, now: Timestamp, task: &TaskKey, entries: &[Entry], by: EntryBy) {
        let inherited = entries.iter().filter(|entry| admission::is_inherited(entry, task));
        inherited.for_each(|entry| self.apply_entry(now, entry, by));
    }

    fn apply_entry(&mut self, now: Timestamp, entry: &Entry, by: EntryBy) {
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

    fn close(&mut self, now: Timestamp, task: &TaskKey, children: u32, replies: u32) -> bool {
        match self.tree.close(task, children, replies) {
            Ok(is_news) => {
                if is_news {
                    self.liveness.note_progress(now);
                    self.liveness.note_news(&task.path);
                }
                is_news
            }
            Err(fault) => {
                self.contradict(now, task, fault);
                false
            }
        }
    }

    fn note_holders(&mut self, entry: &Entry) {
        for (index, holder) in (0..entry.children).zip(&entry.holders) {
            if let (Some(node), Ok(path)) = (holder, entry.task.path.child(index)) {
                self.tree.hold(&key(path, 0), Holder { node: *node, relay: None });
            }
        }
    }

    fn contradict(&mut self, now: Timestamp, task: &TaskKey, fault: TreeFault) {
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

    /// Fails a branch for a cause this side found. Whether that is news.
    fn fail(&mut self, task: &TaskKey, cause: Cause, executed: Executed) -> bool {
        let is_news = self.tree.fail(&task.path);
        if is_news {
            self.record_found(task, cause, executed);
        }
        is_news
    }

    fn record_found(&mut self, task: &TaskKey, cause: Cause, executed: Executed) {
        let failure = self.found(task, cause, executed);
        self.record(failure);
    }

    fn found(&self, task: &TaskKey, cause: Cause, executed: Executed) -> Failure {
        let branch = self.tree.get(&task.path).filter(|branch| branch.hop == task.hop);
        let node = branch.and_then(|branch| branch.holder).map(|holder| holder.node);
        Failure::found(task.clone(), node, cause, executed)
    }

    fn note(&mut self, at: Timestamp, task: &TaskKey, what: impl FnOnce() -> Traced) {
        if self.options.traces {
            self.trace.push(TraceEvent { at, task: task.clone(), what: what() });
        }
    }

    fn record(&mut self, failure: Failure) {
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

    /// After any input: bounds, early decision, completion.
    fn settle(&mut self, now: Timestamp, is_news: bool) {
        // A predicate is shown all replies, read ones too, so these are bounded by themselves. It is asked
        // first: what it was shown may be enough.
        self.evaluate(now, is_news);
        let is_over = self.inbox.is_over() || self.kept_bytes > self.reply_bytes_max;
        if self.end.is_none() && is_over {
            self.finish(now, End::Exhausted);
        }
        self.drain_credits();
    }

    fn drain_credits(&mut self) {
        while let Some(((path, index), limit_bytes)) = self.inbox.poll_credit() {
            let Some(branch) = self.tree.get(&path) else { continue };
            let Some(holder) = branch.holder else { continue };
            let task = key(path, branch.hop);
            let message = Message::Credit(Credit { index, limit_bytes });
            self.send_to_holder(holder, task, message);
        }
    }

    fn evaluate(&mut self, now: Timestamp, is_news: bool) {
        if self.end.is_some() {
            return;
        }
        let is_complete = self.is_sealed && self.tree.is_complete();
        if is_news || is_complete {
            match self.decide() {
                Decision::Continue => {}
                Decision::Done => return self.finish(now, End::Decided),
                Decision::Impossible => return self.finish(now, End::Impossible),
            }
        }
        if is_complete {
            let end = match (&self.options.predicate, self.failures.is_empty()) {
                (Some(_), _) => End::Impossible,
                (None, true) => End::Complete,
                (None, false) => End::Partial,
            };
            self.finish(now, end);
        }
    }

    fn decide(&mut self) -> Decision {
        let (open, missing) = (self.tree.open(), self.tree.missing());
        let is_exact = self.is_sealed && (self.options.is_flat || open == 0);
        let Some(predicate) = &mut self.options.predicate else { return Decision::Continue };
        let tally = Tally {
            replies: &self.replies,
            failures: &self.failures,
            open,
            missing,
            max_remaining: is_exact.then_some(open + missing),
        };
        // The caller's code runs in the middle of ours: a panic in it ends its own call only.
        let decide = AssertUnwindSafe(|| predicate(&tally));
        std::panic::catch_unwind(decide).unwrap_or(Decision::Impossible)
    }

    fn finish(&mut self, now: Timestamp, end: End) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        self.events.push_back(CallEvent::Ended(end));
        self.replies = Vec::new();
        let reason = match end {
            End::Cancelled => Some(CancelReason::Caller),
            End::Exhausted => Some(CancelReason::ResourceExhausted),
            End::Decided | End::Impossible
                if self.options.cancels_late || mutant::is(Mutant::CancelAfterDecision) =>
            {
                Some(CancelReason::Late)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            self.send_cancel(now, reason);
        }
    }

    fn send_cancel(&mut self, now: Timestamp, reason: CancelReason) {
        let roots: Vec<(Path, NodeId)> = self
            .roots
            .iter()
            .filter(|(path, _)| self.tree.get(path).is_some())
            .map(|(path, node)| (path.clone(), *node))
            .collect();
        let budget_us = self.budget_us(now);
        for (path, node) in roots {
            self.send(node, key(path, 0), Message::Cancel(Cancel { reason, budget_us }));
        }
    }

    /// Time passes: grace, worry, deadline.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &dyn LinkView) {
        if now >= self.deadline {
            self.expire(now);
            return;
        }
        if self.is_counting() {
            self.end_grace(now);
            self.worry(now, links);
            self.settle(now, true);
        }
    }

    fn expire(&mut self, now: Timestamp) {
        if self.end.is_none() {
            let was_sealed = std::mem::replace(&mut self.is_sealed, true);
            let late: Vec<(TaskKey, BranchState)> = self
                .tree
                .iter()
                .filter(|(_, branch)| branch.is_unsettled())
                .map(|(path, branch)| (key(path.clone(), branch.hop), branch.state))
                .collect();
            for (task, state) in late {
                let executed = match state {
                    BranchState::Closed { .. } => Executed::Yes,
                    BranchState::Open | BranchState::Failed => Executed::Maybe,
                };
                self.fail(&task, Cause::Deadline, executed);
            }
            if was_sealed || self.options.predicate.is_some() {
                self.evaluate(now, true);
            } else {
                // Nobody said that these were all: it cannot be complete.
                self.finish(now, End::Partial);
            }
        }
        self.is_expired = true;
    }

    /// The next time [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        if !self.is_counting() {
            return None;
        }
        let is_waiting = !self.tree.is_complete();
        let wake = is_waiting.then(|| self.liveness.next_timeout()).flatten();
        Some(wake.map_or(self.deadline, |wake| wake.min(self.deadline)))
    }

    /// What the application learns next.
    pub(crate) fn poll_event(&mut self) -> Option<CallEvent> {
        let event = self.events.pop_front()?;
        if let CallEvent::Reply(delivered) | CallEvent::Late(delivered) = &event {
            self.inbox.consume(&delivered.path, delivered.index, delivered.payload.len());
            self.drain_credits();
        }
        Some(event)
    }

    /// Whether there is something for the application.
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    /// Whether frames still matter: until the end, and after a decision until the tree is complete.
    fn is_counting(&self) -> bool {
        match self.end {
            None => true,
            Some(End::Decided | End::Impossible) => !self.is_expired && !self.tree.is_complete(),
            Some(_) => false,
        }
    }

    /// Whether nothing of the call can be in flight any more: all its tasks ended as they should.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_sealed
            && self.tree.is_complete()
            && self.failures.is_empty()
            && self.end != Some(End::Cancelled)
    }

    /// Whether nothing is left to do for it: it has ended and nobody reads it.
    pub(crate) fn is_done(&self) -> bool {
        self.end.is_some() && !self.is_counting() && self.is_detached
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// What the initiator has learnt, in order, if the call was opened with `traces`.
    pub fn trace(&self) -> &[TraceEvent] {
        &self.trace
    }

    /// How it ended, once it has.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Whether the call has come to its end, read or not.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The request tree, for inspection.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn budget_us(&self, now: Timestamp) -> u64 {
        u64::try_from(self.deadline.since(now).as_micros()).unwrap_or(u64::MAX)
    }

    fn send(&mut self, to: NodeId, task: TaskKey, message: Message) {
        let header = Header { call: self.id, task };
        self.out.push_back(Outbound::new(to, header, message));
    }

    /// A relayed holder is spoken to through its relay.
    fn send_to_holder(&mut self, holder: Holder, task: TaskKey, message: Message) {
        let header = Header { call: self.id, task };
        let mut outbound = Outbound::new(holder.relay.unwrap_or(holder.node), header, message);
        outbound.relayed_from = holder.relay.map(|_| holder.node);
        self.out.push_back(outbound);
    }
}

/// What a sole reply stands for.
fn implied_entry(task: &TaskKey) -> Traced {
    let outcome = Outcome::Finished;
    let entry = Entry { task: task.clone(), children: 0, replies: 1, outcome, holders: Vec::new() };
    Traced::Ended { entry, by: EntryBy::Elided }
}
