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

mod event;
mod hear;
mod liveness;

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{
    Cancel, CancelReason, Cause, Credit, Executed, Extension, Header, Message, Reply, ReplyRoute,
    Request,
};

use super::failure::Failure;
use super::inbox::Inbox;
use super::limits::Limits;
use super::mutant::{self, Mutant};
use super::slot::{Answer, Errand, Fan, Reading};
use super::trace::{TraceEvent, Traced};
use super::tree::{BranchState, Holder, Tree};
use super::{Outbound, key};
use liveness::Liveness;

pub use event::{CallEvent, CallOptions, Decision, Delivered, End, Predicate, RootBranch, Tally};
pub(crate) use liveness::LinkView;

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
    /// Its reader waits for this many replies that it has not read.
    wake_after: usize,
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
            wake_after: 1,
            roots: BTreeMap::new(),
            out: VecDeque::new(),
            reply_bytes_max: limits.reply_bytes_max,
            branches_max: limits.branches_max,
        }
    }

    /// The call that a flat one would be by now, had it begun as this.
    pub(crate) fn from_errand(id: CallId, errand: Errand, limits: &Limits) -> Self {
        let options = CallOptions::default();
        let mut call = Self::new(id, errand.opened_at, errand.deadline, options, limits);
        let path = call.add_root(errand.to).expect("a new call takes a branch");
        call.handle_sent(&path, errand.link, errand.life);
        call.seal(errand.opened_at);
        if let Some(Answer { by, hop, payload }) = errand.answer {
            call.handle_reply(errand.opened_at, by, &key(path, hop), Reply::sole(payload));
        }
        call
    }

    /// The call that a flat one of several branches would be by now, had it begun as this.
    pub(crate) fn from_fan(id: CallId, fan: Fan, limits: &Limits) -> Self {
        let mut call = Self::new(id, fan.opened_at, fan.deadline, fan.options, limits);
        for leg in &fan.legs {
            let path = call.add_root(leg.to).expect("a new call takes as many branches as its fan");
            if let Some(link) = leg.link {
                call.handle_sent(&path, link, leg.life);
            }
        }
        call.seal(fan.opened_at);
        for (index, answer) in fan.answers {
            let task = key(root_path(index), answer.hop);
            call.handle_reply(fan.heard_at, answer.by, &task, Reply::sole(answer.payload));
        }
        (0..fan.read).for_each(|_| drop(call.poll_event()));
        call.wake_after = fan.wake_after;
        match fan.reading {
            Reading::Replies => {}
            Reading::Ended => drop(call.poll_event()),
            Reading::Decided => call.decide(fan.heard_at, false),
        }
        call
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
        let path = self.add_root(to)?;
        let floor = self.id.seq - floor;
        let request = root_request(self.budget_us(now), floor, (method, extensions, payload));
        self.note(now, &key(path.clone(), 0), || Traced::Opened { node: to });
        self.send(to, key(path.clone(), 0), Message::Request(request));
        Ok(path)
    }

    fn add_root(&mut self, to: NodeId) -> Result<Path, CallMisuse> {
        if self.is_sealed || self.end.is_some() {
            return Err(CallMisuse::Sealed);
        }
        if self.root_count >= self.branches_max {
            return Err(CallMisuse::TooManyBranches);
        }
        let path = root_path(self.root_count);
        let branch = self.tree.ensure(&path).map_err(|_| CallMisuse::TooManyBranches)?;
        let branch = branch.expect("a new branch is not drained");
        branch.holder = Some(Holder { node: to, relay: None });
        self.root_count += 1;
        self.roots.insert(path.clone(), to);
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
        if self.options.tells_sent && self.end.is_none() {
            self.events.push_back(CallEvent::Sent(path.clone()));
        }
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

    /// The caller has enough and holds the call no longer.
    pub(crate) fn decide(&mut self, now: Timestamp, cancels_late: bool) {
        self.options.cancels_late = cancels_late;
        if self.end.is_none() {
            self.finish(now, End::Decided);
        }
        self.detach(now);
    }

    /// Its reader is to be woken when this many replies wait, a branch has failed, or the call has ended; once it
    /// reads, for each.
    pub(crate) fn wake_after(&mut self, count: usize) {
        self.wake_after = count.max(1);
    }

    /// The caller holds the call no longer: an undecided one is cancelled, a decided one counts on.
    pub(crate) fn detach(&mut self, now: Timestamp) {
        self.cancel(now);
        self.is_detached = true;
        self.events.clear();
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
            match self.ask() {
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

    fn ask(&mut self) -> Decision {
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
            self.wake_after = 1;
            self.inbox.consume(&delivered.path, delivered.index, delivered.payload.len());
            self.drain_credits();
        }
        Some(event)
    }

    /// Whether there is enough for the application to be told.
    pub(crate) fn is_worth_waking(&self) -> bool {
        let is_plain = matches!(self.events.back(), None | Some(CallEvent::Reply(_)));
        let is_plenty = !is_plain || self.events.len() >= self.wake_after;
        // What has no credit comes only once what is there has been read.
        is_plenty || (!self.events.is_empty() && self.inbox.is_starved())
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

/// The path of the root branch with this index.
#[allow(clippy::missing_panics_doc, reason = "one level fits every path")]
pub fn root_path(index: u32) -> Path {
    Path::root().child(index).expect("one level fits")
}

/// The request of a root branch.
pub(crate) fn root_request(
    budget_us: u64,
    floor: u64,
    (method, extensions, payload): (MethodId, Vec<Extension>, Bytes),
) -> Request {
    Request {
        budget_us,
        outlasted_us: 0,
        floor,
        method,
        reply_route: ReplyRoute::Sender,
        inherited: Vec::new(),
        extensions,
        payload,
    }
}
