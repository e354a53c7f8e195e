//! The initiator's side of one call: counts replies and manifests until the request tree is
//! complete, decided or given up.
//!
//! ```text
//!  Open ─┬─tree complete───────────▶ Ended(Complete | Partial)
//!        ├─caller has enough───────▶ Ended(Decided)              late tasks run on
//!        └─deadline, cancel, bound─▶ Ended(Partial | Cancelled | Exhausted)
//! ```
//! An end is final: nothing is delivered after it. Then the call *winds*, in silence: it takes the
//! words of its tasks until each branch has its own, and is *settled*. Nothing of it can be on its
//! way any more, and servers may forget it (`settlement.md` S2, S3). A call that completes is
//! settled with its end.

mod event;
mod hear;
mod liveness;
mod upload;
mod words;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use crate::encoded::Encoded;
use crate::id::{CallId, Incarnation, LinkId, NodeId, Path, TaskKey};
use crate::key::{Key, Secret};
use crate::time::{Timestamp, earliest};
use crate::wire::{
    Cancel, CancelReason, Cause, Credit, Credited, Executed, Header, Item, Message, Relayed, Reply,
    ReplyRoute, RequestHead, Rung, TASKS_MAX,
};

use super::failure::Failure;
use super::flat::Flat;
use super::flow::{AHEAD_BYTES, AHEAD_ITEMS};
use super::inbox::Inbox;
use super::limits::Limits;
use super::mutant::{self, Mutant};
use super::task::SendError;
use super::trace::{TraceEvent, Traced};
use super::tree::{BranchState, Holder, Tree};
use super::{Outbound, key};
use liveness::Liveness;

pub use event::{CallEvent, CallOptions, Delivered, End, RootBranch, RootRequest, Roots};
pub(crate) use liveness::LinkView;
use upload::Upload;
use words::Words;

/// One call of this node.
#[derive(Debug)]
pub struct Call {
    id: CallId,
    secret: Secret,
    deadline: Timestamp,
    /// Then it is settled, whatever was not said: nothing of it that could still come can do harm.
    forget_at: Timestamp,
    options: CallOptions,
    tree: Tree,
    inbox: Inbox,
    liveness: Liveness,
    /// The root branches that end before the others, and when.
    early: BTreeSet<(Timestamp, Path)>,
    end: Option<End>,
    /// It was decided, and what was late then, or when its items ended unfinished, cancelled.
    cancels_late: bool,
    /// Its tasks were told to stop, for this.
    cancelled_for: Option<CancelReason>,
    /// Its time to wind is over.
    is_forgotten: bool,
    /// Nobody reads it any more.
    is_detached: bool,
    failures: Vec<Failure>,
    words: Words,
    trace: Vec<TraceEvent>,
    events: VecDeque<CallEvent>,
    /// Its reader waits for this many replies that it has not read.
    wake_after: usize,
    /// Its root branches, by index.
    roots: SmallVec<[Root; 1]>,
    /// Nodes that hold or pass on something of it, as far as nobody was told of them yet.
    new_nodes: Vec<NodeId>,
    /// The last of them, told or not: most frames of a stream come by one.
    last_node: Option<NodeId>,
    /// The items that follow its request, if any do.
    upload: Option<Box<Upload>>,
    out: VecDeque<Outbound>,
}

/// A root branch: the node it was sent to, and the connection that its request took.
#[derive(Clone, Copy, Debug)]
struct Root {
    node: NodeId,
    link: Option<LinkId>,
}

impl Call {
    /// A call of these root branches, whose requests are to be sent.
    pub(crate) fn open(
        (id, secret): (CallId, Secret),
        now: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        branches: &dyn Roots,
        limits: &Limits,
    ) -> Self {
        let count = branches.count();
        let mut call = Self::new((id, secret), count, now, deadline, options, limits);
        for index in (0..).take(count) {
            let (to, request) = branches.branch(index);
            let budget = request.budget_of(deadline.since(now));
            let path = call.add_root(index, to, now + budget);
            call.note(now, &key(path, 0), || Traced::Opened { node: to });
        }
        call.evaluate(now);
        call
    }

    /// Nothing of it has this node dial.
    pub(crate) fn never_dials(&self) -> bool {
        self.options.never_dials
    }

    /// The call that a flat one would be by now, had it begun as this.
    pub(crate) fn from_flat(name: (CallId, Secret), flat: Flat, limits: &Limits) -> Self {
        let (count, opened_at) = (flat.legs.len(), flat.opened_at);
        let mut call = Self::new(name, count, opened_at, flat.deadline, flat.options, limits);
        let mut answers = Vec::new();
        for (index, leg) in (0..).zip(flat.legs) {
            let path = call.add_root(index, leg.to, leg.deadline);
            call.handle_sent(&path, leg.link, leg.life);
            answers.extend(leg.answer.map(|answer| (path, answer)));
        }
        answers.sort_unstable_by_key(|(_, answer)| answer.nth);
        for (path, answer) in answers {
            let task = key(path, answer.hop);
            call.handle_reply(flat.heard_at, answer.by, &task, Reply::sole(answer.payload));
        }
        (0..flat.read).for_each(|_| drop(call.poll_event()));
        call.wake_after = flat.wake_after;
        if flat.is_decided {
            call.decide(flat.heard_at, false);
        }
        call
    }

    fn new(
        (id, secret): (CallId, Secret),
        root_count: usize,
        now: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        limits: &Limits,
    ) -> Self {
        Self {
            id,
            secret,
            deadline,
            forget_at: deadline + limits.keep_alive_timeout,
            options,
            tree: Tree::new(root_count, limits.branches_max),
            inbox: Inbox::new(root_count, limits),
            liveness: Liveness::new(now, limits),
            early: BTreeSet::new(),
            end: None,
            is_forgotten: false,
            is_detached: false,
            cancels_late: false,
            cancelled_for: None,
            failures: Vec::new(),
            words: Words::new(limits.reply_bytes_max),
            trace: Vec::new(),
            events: VecDeque::new(),
            wake_after: options.wake_after.max(1) as usize,
            roots: SmallVec::with_capacity(root_count),
            new_nodes: Vec::new(),
            last_node: None,
            upload: options.sends_items.then(|| Box::new(Upload::new(limits.unscheduled_bytes))),
            out: VecDeque::new(),
        }
    }

    fn add_root(&mut self, index: u32, to: NodeId, deadline: Timestamp) -> Path {
        let path = root_path(index);
        let branch = self.tree.ensure(&path).ok().flatten();
        let branch = branch.expect("a new call takes as many branches as it may have");
        branch.holder = Some(Holder { node: to, relay: None });
        self.roots.push(Root { node: to, link: None });
        self.note_node(to);
        if deadline < self.deadline {
            self.early.insert((deadline, path.clone()));
        }
        path
    }

    /// The root branch of this path.
    fn root(&self, path: &Path) -> Option<&Root> {
        self.roots.get(path.root_index()? as usize)
    }

    fn root_paths(&self) -> impl Iterator<Item = Path> + '_ {
        (0..).zip(&self.roots).map(|(index, _)| root_path(index))
    }

    /// The request of a root branch has been handed to this connection.
    pub(crate) fn handle_sent(&mut self, path: &Path, link: LinkId, life: Option<Incarnation>) {
        let index = path.root_index();
        if let Some(root) = index.and_then(|index| self.roots.get_mut(index as usize)) {
            root.link = Some(link);
        }
        self.liveness.note_root_link(path, link, life);
        if let Some(upload) = &mut self.upload {
            upload.begin(link);
        }
        if self.options.tells_sent && self.end.is_none() && link != LinkId::LOCAL {
            self.events.push_back(CallEvent::Sent(path.clone()));
        }
    }

    /// The request of a root branch could not be handed to any connection, or is not worth it.
    pub(crate) fn handle_unsent(
        &mut self,
        now: Timestamp,
        path: &Path,
        (cause, text): (Cause, &str),
    ) {
        self.fail_saying(&key(path.clone(), 0), cause, Executed::No, text);
        self.tree.rule_out(path);
        self.evaluate(now);
    }

    /// The caller gives up.
    pub(crate) fn cancel(&mut self, now: Timestamp) {
        if self.end.is_none() {
            self.finish(now, End::Cancelled);
        }
    }

    /// This node leaves: an undecided call is to stop wherever it runs, and ends here.
    pub(crate) fn leave(&mut self, now: Timestamp) {
        if self.end.is_none() {
            self.send_cancel(now, CancelReason::Caller);
            let text = "the endpoint that made the call has been shut down, or its runtime is \
                        gone: make it by another";
            self.fail_unsettled(&Path::root(), Cause::Cancelled, text);
            self.evaluate(now);
        }
    }

    /// The caller has enough and holds the call no longer.
    pub(crate) fn decide(&mut self, now: Timestamp, cancels_late: bool) {
        if self.end.is_none() {
            self.finish(now, End::Decided);
            if cancels_late || mutant::is(Mutant::CancelAfterDecision) {
                self.send_cancel(now, CancelReason::Late);
                self.cancels_late = cancels_late;
            }
        }
        self.detach(now);
    }

    /// Its reader is to be woken when this many replies wait, a branch has failed, or the call has
    /// ended; once it reads, for each.
    pub(crate) fn wake_after(&mut self, count: usize) {
        self.wake_after = count.max(1);
    }

    /// The caller holds the call no longer: an undecided one is cancelled, a decided one counts on.
    /// Replies that are unread stay so, and make room; what has come of others in part is dropped,
    /// and so is what still comes.
    pub(crate) fn detach(&mut self, now: Timestamp) {
        self.cancel(now);
        self.is_detached = true;
        let unread = std::mem::take(&mut self.events).into_iter();
        let unread = unread.filter_map(|event| match event {
            CallEvent::Reply(delivered) => Some(delivered),
            _ => None,
        });
        let unread: Vec<Delivered> = unread.collect();
        self.inbox.consume_all(unread.iter().map(Delivered::read));
        let unread = unread.into_iter();
        self.out.extend(unread.filter_map(|delivered| Outbound::spent(delivered.payload)));
        self.inbox.discard();
        self.drain_credits();
    }

    /// A connection to a node has ended, and there is another, or there is one again. What a call
    /// that has ended said there may have been lost, and nobody will [ask](liveness) for it.
    pub(crate) fn say_again(&mut self, now: Timestamp, node: NodeId) {
        match self.cancelled_for {
            Some(reason) => self.cancel_again(now, node, reason),
            None if self.end.is_some() && self.takes_replies() => self.grant_again(node),
            None => {}
        }
    }

    /// Cancels its root branches at a node again, unless all below has said its word. One whose
    /// request has not left has its cancel behind that. A node that had been told takes no notice.
    fn cancel_again(&mut self, now: Timestamp, node: NodeId, reason: CancelReason) {
        let unsaid = |path: &Path| self.tree.below(path).any(|(_, branch)| !branch.has_word);
        let there = (0..).zip(&self.roots);
        let there = there.filter(|(_, root)| root.node == node && root.link.is_some());
        let there: Vec<Path> = there.map(|(index, _)| root_path(index)).filter(unsaid).collect();
        there.iter().for_each(|path| self.cancel_branch(now, path, reason));
    }

    fn grant_again(&mut self, node: NodeId) {
        let begun = self.inbox.begun().filter(|path| {
            let holder = self.tree.get(path).and_then(|branch| branch.holder);
            holder.is_some_and(|holder| holder.is_at(node))
        });
        let begun: BTreeSet<Path> = begun.cloned().collect();
        // Only a liar begins in so many that a connection which comes and goes costs more.
        begun.iter().take(TASKS_MAX).for_each(|path| self.inbox.grant_again(path));
        self.drain_credits();
    }

    /// True when an item can leave now. If not, the writer is told once one can. Until it sends, it
    /// is told when none ever will.
    pub(crate) fn poll_items_writable(&mut self) -> Result<bool, SendError> {
        self.upload.as_mut().ok_or(SendError::Ended)?.poll_writable()
    }

    /// The connection that items take, once they may leave.
    pub(crate) fn items_link(&self) -> Option<LinkId> {
        self.upload.as_ref()?.link()
    }

    /// True while items may leave by a connection.
    pub(crate) fn needs_for_items(&self, link: LinkId) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.needs(link))
    }

    /// Takes an item of the request. One that can leave in one frame now is to leave by this
    /// connection, another for as much credit as it has by [`Self::send_granted_items`].
    pub(crate) fn send_item(
        &mut self,
        payload: &mut Encoded,
    ) -> Result<Option<(LinkId, Item, Encoded)>, SendError> {
        self.upload.as_mut().ok_or(SendError::Ended)?.send(payload)
    }

    /// No further items come.
    pub(crate) fn finish_items(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.finish();
        }
    }

    /// The items end unfinished: their task must not take what it has for the whole. That cancels
    /// the call, also one that was decided and let run, unless the task reads no more.
    pub(crate) fn abandon_items(&mut self, now: Timestamp) {
        self.cancel(now);
        if self.end == Some(End::Decided)
            && self.upload.as_ref().is_some_and(|upload| upload.is_open())
        {
            self.send_cancel(now, CancelReason::Caller);
            self.cancels_late = true;
        }
        self.stop_items(SendError::Ended);
    }

    /// The task's node grants bytes of the items. False when it is not the one they go to.
    pub(crate) fn handle_items_credit(&mut self, link: LinkId, limit: u64) -> bool {
        let Self { upload, out, .. } = self;
        let mut let_go = |payload| out.extend(Outbound::spent(payload));
        upload.as_mut().is_some_and(|upload| upload.grant(link, limit, &mut let_go))
    }

    /// The connection by which a part of its items can leave, as it has credit.
    pub(crate) fn granted_items_link(&self) -> Option<LinkId> {
        self.upload.as_ref()?.granted_link()
    }

    /// Sends a part of its items, if one has credit.
    pub(crate) fn send_granted_items(&mut self) {
        let Some(upload) = &mut self.upload else { return };
        let Some(Root { node, .. }) = self.roots.first().copied() else { return };
        let mut let_go = |payload| self.out.extend(Outbound::spent(payload));
        if let Some((link, item)) = upload.poll(&mut let_go) {
            let header = Header { call: self.id, task: key(root_path(0), 0) };
            let mut outbound = Outbound::new(node, header, Message::Item(item));
            outbound.link = Some(link);
            self.out.push_back(outbound);
        }
    }

    /// True once when the writer of items waits no longer for nothing.
    pub(crate) fn take_items_news(&mut self) -> bool {
        if self.upload.is_none() {
            return false;
        }
        let root = self.tree.get(&root_path(0)).map(|branch| branch.state);
        let takes_items = matches!(self.end, None | Some(End::Decided))
            && matches!(root, Some(BranchState::Open | BranchState::Named));
        if !takes_items {
            self.stop_items(SendError::Ended);
        }
        self.upload.as_mut().is_some_and(|upload| upload.take_news())
    }

    /// Nobody takes further items.
    pub(crate) fn stop_items(&mut self, why: SendError) {
        if let Some(upload) = &mut self.upload {
            upload.stop(why, &mut |payload| self.out.extend(Outbound::spent(payload)));
        }
    }

    /// The connection that the items take may be among those which have ended.
    fn check_items_link(&mut self, links: &dyn LinkView) {
        if self.items_link().is_some_and(|link| !links.is_up(link)) {
            self.stop_items(SendError::Lost);
        }
    }

    /// After any input: completion, bounds.
    fn settle(&mut self, now: Timestamp) {
        self.evaluate(now);
        if self.inbox.is_over() {
            match self.end {
                None => self.finish(now, End::Exhausted),
                // So many begin for a liar alone: it is settled early.
                Some(End::Decided) => self.is_forgotten = true,
                Some(_) => {}
            }
        }
        self.drain_credits();
    }

    /// Grants what the reader has made room for. After a decision tasks run on, and must not wait
    /// for credit until their deadline; after any other end nobody wants what they have (departs
    /// from `settlement.md` S3, which grants none to either).
    fn drain_credits(&mut self) {
        let takes_replies = self.takes_replies();
        while let Some(((path, index), limit_bytes)) = self.inbox.poll_credit() {
            let Some(branch) = self.tree.get(&path).filter(|_| takes_replies) else { continue };
            let Some(holder) = branch.holder else { continue };
            let task = key(path, branch.hop);
            let message = Message::Credit(Credit { of: Credited::Reply(index), limit_bytes });
            self.send_to_holder(holder, task, message);
        }
    }

    fn evaluate(&mut self, now: Timestamp) {
        if self.end.is_none() && self.tree.is_complete() {
            let end = if self.failures.is_empty() { End::Complete } else { End::Partial };
            self.finish(now, end);
        }
    }

    fn finish(&mut self, now: Timestamp, end: End) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        self.events.push_back(CallEvent::Ended(end));
        match end {
            End::Cancelled => self.send_cancel(now, CancelReason::Caller),
            End::Exhausted => self.send_cancel(now, CancelReason::ResourceExhausted),
            End::Complete | End::Partial | End::Decided => {}
        }
    }

    fn send_cancel(&mut self, now: Timestamp, reason: CancelReason) {
        self.cancelled_for = Some(reason);
        let roots = self.root_paths().filter(|path| self.tree.get(path).is_some());
        for path in roots.collect::<Vec<_>>() {
            self.cancel_branch(now, &path, reason);
        }
    }

    /// Cancels a branch and all below it. A root branch is cancelled where its request went:
    /// whoever it was handed to hears of it from there.
    fn cancel_branch(&mut self, now: Timestamp, path: &Path, reason: CancelReason) {
        let root = self.root(path).map(|root| (Holder { node: root.node, relay: None }, 0));
        let held = || self.tree.get(path).and_then(|branch| Some((branch.holder?, branch.hop)));
        if let Some((holder, hop)) = root.or_else(held) {
            let budget_us = self.budget_us(now);
            let message = Message::Cancel(Cancel { reason, budget_us });
            let holder = Holder { relay: None, ..holder };
            self.send_to_holder(holder, key(path.clone(), hop), message);
        }
    }

    /// Time passes: grace, worry, deadlines.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &dyn LinkView) {
        if self.end.is_some() {
            self.is_forgotten |= now >= self.forget_at;
        } else if now >= self.deadline {
            self.fail_unsettled(&Path::root(), Cause::Deadline, "");
            self.evaluate(now);
        } else {
            self.expire_early(now);
            self.end_grace(now, links);
            self.end_gaps(now);
            self.worry(now, links);
            self.settle(now);
        }
    }

    /// Ends the root branches whose own deadline has passed. What still comes of them is not
    /// wanted.
    fn expire_early(&mut self, now: Timestamp) {
        while self.early.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, root)) = self.early.pop_first()
        {
            self.fail_unsettled(&root, Cause::Deadline, "");
            self.give_up(&root);
        }
    }

    /// Fails all that is unsettled at or below `top`: nobody waits for it any longer.
    fn fail_unsettled(&mut self, top: &Path, cause: Cause, text: &str) {
        let unsettled = self.tree.below(top).filter(|(_, branch)| branch.is_unsettled());
        let unsettled: Vec<(TaskKey, BranchState)> =
            unsettled.map(|(path, branch)| (key(path.clone(), branch.hop), branch.state)).collect();
        for (task, state) in unsettled {
            let executed = match state {
                BranchState::Closed { .. } => Executed::Yes,
                _ if cause == Cause::Deadline && self.has_not_left(&task) => Executed::No,
                _ => Executed::Maybe,
            };
            self.fail_saying(&task, cause, executed, text);
        }
    }

    /// True of a root branch whose request was never handed to a connection. If it waits for one it
    /// may leave yet: after the deadline with no time left, so that it is refused.
    fn has_not_left(&self, task: &TaskKey) -> bool {
        task.hop == 0 && self.root(&task.path).is_some_and(|root| root.link.is_none())
    }

    /// The next time [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        if self.end.is_some() {
            return (!self.is_settled()).then_some(self.forget_at);
        }
        let is_waiting = !self.tree.is_complete();
        let wake = is_waiting.then(|| self.liveness.next_timeout()).flatten();
        let early = self.early.first().map(|(at, _)| *at);
        let deadline = (!mutant::is(Mutant::DeadlineWakesNobody)).then_some(self.deadline);
        earliest([wake, early, deadline])
    }

    /// Next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<CallEvent> {
        let event = self.events.pop_front()?;
        // Also by a failure: after it fewer replies may decide.
        self.wake_after = 1;
        if let CallEvent::Reply(delivered) = &event {
            self.consume(delivered);
            self.drain_credits();
        }
        Some(event)
    }

    /// Small replies that come next, in `ahead`: they are granted anew as if they had been read.
    pub(crate) fn poll_ahead(&mut self, ahead: &mut VecDeque<Delivered>) {
        let (before, mut room) = (ahead.len(), AHEAD_BYTES);
        while ahead.len() < AHEAD_ITEMS
            && self.events.front().is_some_and(|next| next.is_plain_reply(room))
            && let Some(CallEvent::Reply(next)) = self.events.pop_front()
        {
            room -= next.payload.len();
            ahead.push_back(next);
        }
        if ahead.len() > before {
            self.inbox.consume_all(ahead.range(before..).map(Delivered::read));
            self.drain_credits();
        }
    }

    /// True when there is enough for the application to be told.
    pub(crate) fn is_worth_waking(&self) -> bool {
        let is_plain = matches!(self.events.back(), None | Some(CallEvent::Reply(_)));
        let is_plenty = !is_plain || self.events.len() >= self.wake_after;
        // What has no credit comes only once what is there has been read.
        is_plenty || (!self.events.is_empty() && self.inbox.is_starved())
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    /// True when what replies bring is taken: until the end, and after a decision to let tasks run
    /// on.
    fn takes_replies(&self) -> bool {
        matches!(self.end, None | Some(End::Decided)) && !self.cancels_late
    }

    /// True when nothing of the call can be in flight any more, or do harm if it is.
    pub(crate) fn is_settled(&self) -> bool {
        let is_said = match self.end {
            Some(End::Cancelled) if mutant::is(Mutant::FloorPassesCancelled) => true,
            Some(End::Partial) if mutant::is(Mutant::FloorPassesFailures) => true,
            Some(_) if mutant::is(Mutant::OnlyRootsNeedWord) => {
                let mut roots = self.root_paths().filter_map(|path| self.tree.get(&path));
                roots.all(|branch| branch.has_word)
            }
            // What tasks still have to send needs credit from here.
            Some(End::Decided) if !self.cancels_late => {
                self.tree.unsaid() == 0 && self.tree.missing() == 0
            }
            _ => self.tree.unsaid() == 0,
        };
        self.end.is_some() && (is_said || self.is_forgotten)
    }

    /// True when it has ended and nobody reads it.
    pub(crate) fn is_let_go(&self) -> bool {
        self.end.is_some() && self.is_detached
    }

    /// A node holds or passes on something of the call: it is told when a connection to it ends.
    fn note_node(&mut self, node: NodeId) {
        if self.last_node != Some(node) {
            self.last_node = Some(node);
            self.new_nodes.push(node);
        }
    }

    pub(crate) fn has_new_nodes(&self) -> bool {
        !self.new_nodes.is_empty()
    }

    /// Nodes that came in since this was last asked.
    pub(crate) fn take_new_nodes(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.new_nodes)
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The first [`EVENTS_MAX`](super::trace::EVENTS_MAX) events that the initiator has learnt, in
    /// order, if the call was opened with `traces`.
    pub fn trace(&self) -> &[TraceEvent] {
        &self.trace
    }

    /// The branches that failed, for inspection.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The end that it came to, once it has.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// True when the call has come to its end, read or not.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Bytes that its replies have, and may come to have.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> u64 {
        self.inbox.committed()
    }

    /// Number of its replies that are not whole.
    #[cfg(test)]
    pub(crate) fn begun_count(&self) -> usize {
        self.inbox.begun().count()
    }

    /// The request tree, for inspection.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    fn budget_us(&self, now: Timestamp) -> u64 {
        micros(self.deadline.since(now))
    }

    /// A relayed holder is spoken to through its relay.
    fn send_to_holder(&mut self, holder: Holder, task: TaskKey, message: Message) {
        let key = self.secret.branch(self.id, &task.path);
        let header = Header { call: self.id, task };
        let mut outbound = Outbound::new(holder.via(), header, message);
        outbound.show(key);
        let relayed = Relayed { node: holder.node, at: Rung::default() };
        outbound.frame.relayed = holder.relay.map(|_| relayed);
        self.out.push_back(outbound);
    }
}

/// The path of the root branch with this index.
#[allow(clippy::missing_panics_doc, reason = "one level fits every path")]
#[inline]
pub fn root_path(index: u32) -> Path {
    match u8::try_from(index) {
        Ok(level @ 0..0x80) => Path::of_one(level),
        _ => Path::root().child(index).expect("one level fits"),
    }
}

/// The request of a root branch of a call that has this much time.
#[inline]
pub(crate) fn root_request(
    key: Key,
    budget: Duration,
    floor: u64,
    request: &RootRequest,
) -> RequestHead<'_> {
    let own = request.budget.filter(|own| *own < budget);
    RequestHead {
        key,
        budget_us: micros(own.unwrap_or(budget)),
        outlasted_us: own.map_or(0, |own| micros(budget - own)),
        floor,
        method: request.method,
        reply_route: &ReplyRoute::Sender,
        inherited: &[],
        extensions: &request.extensions,
    }
}

fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into())
}
