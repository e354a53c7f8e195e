//! Worry, probe, fence, grace: how the initiator finds that a branch is lost.
//!
//! A wrong suspicion may cost a false failure, never a false completion. A branch is declared
//! - **Lost** (never ran, never will) only when its node answered *fenced* where the request cannot
//!   be on its way any more: a root branch, when the probe follows its request on the same
//!   connection and lane; or after the parent, or its node, lost the connection;
//! - **`NodeDown`** (may have run) when its node answered *fenced* where nobody is left who would
//!   say that the request was lost: the node does not know of it, and the sender's node does not
//!   know of the task that sent the request, or cannot be reached, or nobody has named the sender.
//!   The sender, or who it handed its branch to, may hold the request still, and a later life of
//!   the node take it;
//! - **`ReplyLost`** (ran) when its node says how the reply left, and that way is dead or has
//!   delivered the later STATUS; or when a piece of a reply has not come that left before what has,
//!   and a grace has passed since the connection ended that it may have taken, or the time that
//!   nothing is delayed for without its connection being lost;
//! - **`NodeDown`** (may have run) when the connection to its node ended, or it cannot be dialled,
//!   and nobody is left who passes a question on to it; or it says through others, which fence
//!   nothing, that it does not know of it where a fence would be asked for; and a grace has passed;
//! - **Orphaned** when its parent failed before anybody said where it was sent.

mod dues;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Incarnation, LinkId, LinkNonce, NodeId, Path, TaskKey};
use crate::time::{Timestamp, earliest};
use crate::wire::{Asked, Cause, Executed, Message, Probe, ReplyPath, TASKS_MAX, TaskStatus};

use super::super::failure::Failure;
use super::super::flow::Accepted;
use super::super::inbox::Inbox;
use super::super::limits::Limits;
use super::super::mutant::{self, Mutant};
use super::super::trace::EntryBy;
use super::super::tree::{Branch, BranchState, Holder, Tree};
use super::super::{Arrival, key};
use super::Call;
use super::hear::Voice;
use dues::Dues;

/// Questions about connections that a call may ask.
pub(crate) trait LinkView {
    /// The connection to `node` that new frames take, if one is up.
    fn current(&self, node: NodeId) -> Option<LinkId>;
    /// True when this connection is up.
    fn is_up(&self, link: LinkId) -> bool;
    /// The name that both ends have for a connection that is up.
    fn nonce(&self, link: LinkId) -> Option<LinkNonce>;
    /// Since when this has been the only connection to its node.
    fn sole_since(&self, link: LinkId) -> Option<Timestamp>;
    /// True when this connection to `node` was open and has ended.
    fn is_dead(&self, node: NodeId, link: LinkNonce) -> bool;
    /// True when `node` is being dialled, and so nothing has left for it yet.
    fn is_dialling(&self, node: NodeId) -> bool;
    /// When the last connection to `node` ended, unless one is up now.
    fn lost_at(&self, node: NodeId) -> Option<Timestamp>;
    /// True when there is a connection to `node`, or one may be dialled now: not in the pause after
    /// a dial that has failed.
    fn is_reachable(&self, now: Timestamp, node: NodeId) -> bool;
    /// The present life of `node`, and since when it is known.
    fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)>;
}

#[derive(Debug)]
pub(super) struct Liveness {
    grace: Duration,
    worry_min: Duration,
    worry_max: Duration,
    worry_interval: Duration,
    worry_at: Timestamp,
    opened_at: Timestamp,
    /// A connection over which nothing comes for longer is lost.
    delay_max: Duration,
    last_seen: Timestamp,
    /// Connection by which the request of a root branch left, and the life of the node it went to.
    root_links: BTreeMap<Path, (LinkId, Option<Incarnation>)>,
    fence_allowed: BTreeMap<Path, Fence>,
    suspects: Dues<Suspicion>,
    /// Branches that their holders do not know of: the request is slow, or it was lost and its
    /// sender had no way to say so.
    unknown: BTreeSet<Path>,
    /// Tasks that sent such branches, once they were asked for.
    senders: BTreeMap<TaskKey, Sender>,
    /// Probes without an answer by the task they ask for, and the node that they went to.
    unanswered: BTreeMap<TaskKey, (NodeId, u32)>,
    /// Branches of a reply of which something has not come that left before what has. One gap of
    /// each is enough, the one that is due first: it fails as a whole.
    gaps: Dues<Gap>,
    /// Branches that a connection has ended of, to their node or to who passes on from there, and
    /// when.
    cut: BTreeMap<Path, Timestamp>,
}

/// Reason why a branch fails when a grace is over, unless its node is heard of before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    /// The connection to its node has ended, or its node cannot be dialled. Others may reach it, or
    /// hold its request still: they are asked before it fails.
    Cut,
    NodeDown,
    Orphaned,
}

/// Reply of a branch that has a gap, and since when.
#[derive(Clone, Copy, Debug)]
struct Gap {
    index: u32,
    since: Timestamp,
}

/// A task that was asked for on account of a branch that it sent.
#[derive(Debug)]
struct Sender {
    node: NodeId,
    /// Answers under way to what was asked before, maybe before it began.
    stale: u32,
    /// Its node does not know of it any more, or cannot be reached.
    is_gone: bool,
}

/// Reason why a branch may be fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Its request was lost with a connection.
    RequestLost,
    /// Nobody is left who would say so, and somebody may hold the request still.
    SenderGone,
}

impl Liveness {
    pub(super) fn new(now: Timestamp, limits: &Limits) -> Self {
        Self {
            grace: limits.grace,
            worry_min: limits.worry_min,
            worry_max: limits.worry_max,
            worry_interval: limits.worry_min,
            worry_at: now + limits.worry_min,
            opened_at: now,
            delay_max: limits.keep_alive_timeout,
            last_seen: now,
            root_links: BTreeMap::new(),
            fence_allowed: BTreeMap::new(),
            suspects: Dues::default(),
            unknown: BTreeSet::new(),
            senders: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            gaps: Dues::default(),
            cut: BTreeMap::new(),
        }
    }

    pub(super) fn note_root_link(&mut self, path: &Path, link: LinkId, life: Option<Incarnation>) {
        self.root_links.insert(path.clone(), (link, life));
    }

    /// The branch has moved on from the node its root request went to.
    pub(super) fn forget_root_link(&mut self, task: &TaskKey) {
        if task.hop > 0 && !mutant::is(Mutant::TailKeepsRootLink) {
            self.root_links.remove(&task.path);
            self.fence_allowed.remove(&task.path);
        }
    }

    /// The request of a branch was lost with a connection.
    pub(super) fn note_request_lost(&mut self, path: &Path) {
        self.fence_allowed.insert(path.clone(), Fence::RequestLost);
    }

    /// Nobody is left who would say that the request of a branch was lost.
    fn note_sender_gone(&mut self, path: &Path) {
        self.fence_allowed.entry(path.clone()).or_insert(Fence::SenderGone);
    }

    /// True when what its node has fenced can be taken by no later life of the node either.
    fn is_request_gone(&self, path: &Path) -> bool {
        self.root_links.contains_key(path)
            || self.fence_allowed.get(path) == Some(&Fence::RequestLost)
    }

    pub(super) fn note_progress(&mut self, now: Timestamp) {
        self.last_seen = now;
        self.worry_interval = self.worry_min;
        self.worry_at = now + self.worry_min;
    }

    /// The node of a task has been heard of about it. Once the branch has gone on from there, that
    /// says nothing of where it is now.
    pub(super) fn note_news(&mut self, tree: &Tree, task: &TaskKey) {
        if self.suspects.is_empty() && self.unknown.is_empty() {
            return;
        }
        if tree.get(&task.path).is_none_or(|branch| branch.hop <= task.hop) {
            self.suspects.remove(&task.path);
            self.unknown.remove(&task.path);
        }
    }

    /// A connection has ended that what a branch says may have come by.
    pub(super) fn note_cut(&mut self, now: Timestamp, path: &Path, inbox: &Inbox) {
        self.cut.insert(path.clone(), now);
        if let Some(gap) = self.gaps.remove(path) {
            self.note_gap(path, gap, inbox);
        }
    }

    /// A piece of a reply has come: behind others that have not, or in its turn. Of the replies of
    /// a branch that a connection has ended of, the inbox keeps when the last did.
    pub(super) fn note_piece(
        &mut self,
        now: Timestamp,
        (path, index): (&Path, u32),
        accepted: &Accepted,
        inbox: &mut Inbox,
    ) {
        if accepted.has_gap {
            self.note_gap(path, Gap { index, since: now }, inbox);
        } else if !self.cut.is_empty() || !self.gaps.is_empty() {
            if self.gaps.get(path).is_some_and(|gap| gap.index == index) {
                self.gaps.remove(path);
            }
            if self.cut.contains_key(path) {
                inbox.note_in_turn(path, index, now);
            }
        }
    }

    /// Takes what has not come for lost: after the grace, if the connection that it took may have
    /// ended, else once nothing is delayed for longer.
    fn note_gap(&mut self, path: &Path, gap: Gap, inbox: &Inbox) {
        let cut = self.cut.get(path).filter(|cut| {
            let in_turn = inbox.in_turn(path, gap.index);
            in_turn.is_none_or(|at| at <= **cut)
        });
        let lost_at = match cut {
            Some(cut) => gap.since.max(*cut) + self.grace,
            None => gap.since + self.delay_max,
        };
        self.gaps.insert(path, lost_at, gap);
    }

    /// A node is about to be asked for a task that sent a branch.
    fn note_asked(&mut self, task: &TaskKey, node: NodeId) {
        if self.senders.get(task).is_none_or(|sender| sender.node != node) {
            let stale = self.unanswered.get(task).map_or(0, |(_, count)| *count);
            self.senders.insert(task.clone(), Sender { node, stale, is_gone: false });
        }
    }

    /// A probe for a task leaves for a node, which holds it or passes on to who does.
    fn note_probe(&mut self, task: &TaskKey, way: NodeId) {
        let (to, count) = self.unanswered.entry(task.clone()).or_insert((way, 0));
        *count = if *to == way { *count + 1 } else { 1 };
        *to = way;
    }

    /// A node says how a task is, itself or through others. A sender had run before it was asked
    /// for, so where its node then does not know of it, it is gone; of other tasks that says
    /// nothing.
    pub(super) fn note_answer(
        &mut self,
        task: &TaskKey,
        (node, is_relayed): (NodeId, bool),
        is_unknown: bool,
    ) {
        let asked = self.unanswered.get_mut(task);
        // Whoever holds the key may answer, asked or not.
        if let Some((_, count)) = asked.filter(|(way, _)| is_relayed || *way == node) {
            *count -= 1;
            if *count == 0 {
                self.unanswered.remove(task);
            }
        }
        if let Some(sender) = self.senders.get_mut(task).filter(|sender| sender.node == node) {
            sender.is_gone |= is_unknown && sender.stale == 0;
            sender.stale = sender.stale.saturating_sub(1);
        }
    }

    /// A node cannot be asked for a task.
    fn note_away(&mut self, task: &TaskKey, node: NodeId) {
        if let Some(sender) = self.senders.get_mut(task).filter(|sender| sender.node == node) {
            sender.is_gone = true;
        }
    }

    /// Probes that went to a node, and the answers by it, are lost with the connection.
    fn forget_probes(&mut self, node: NodeId) {
        let senders = &mut self.senders;
        self.unanswered.retain(|task, (way, _)| {
            let is_lost = *way == node;
            if is_lost && let Some(sender) = senders.get_mut(task) {
                sender.stale = 0;
            }
            !is_lost
        });
    }

    /// Looks after the grace at what hangs below a failed branch, which may have lost its way.
    pub(super) fn note_failed(&mut self, tree: &Tree, failure: &Failure) {
        self.suspects.remove(&failure.task.path);
        self.gaps.remove(&failure.task.path);
        let is_node_down = failure.cause == Cause::NodeDown;
        let below = tree.below(&failure.task.path).skip(1);
        let mut has_children = false;
        for (path, _) in below {
            has_children = true;
            if is_node_down && path.parent().is_some_and(|(parent, _)| parent == failure.task.path)
            {
                self.note_sender_gone(path);
            }
        }
        if has_children {
            self.worry_at = self.worry_at.min(self.last_seen + self.grace);
        }
    }

    pub(super) fn last_seen(&self) -> Timestamp {
        self.last_seen
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        earliest([self.suspects.next_due(), self.gaps.next_due(), Some(self.worry_at)])
    }

    fn suspect(&mut self, now: Timestamp, path: &Path, suspicion: Suspicion) {
        if suspicion != Suspicion::Cut && self.is_cut_off(path) {
            self.suspects.remove(path);
        }
        self.suspects.insert(path, now + self.grace, suspicion);
    }

    /// Others are asked for a branch that is cut off from here, if need be again: seldom, for each
    /// question waits where they dial its node.
    fn wait_for_others(&mut self, now: Timestamp, path: &Path) {
        let pause = self.worry_max.max(self.grace);
        self.suspects.insert(path, now + pause, Suspicion::Cut);
    }

    /// A branch that is cut off from here cannot be asked for through others either.
    pub(super) fn lose_others(&mut self, now: Timestamp, path: &Path) {
        if self.is_cut_off(path) {
            self.suspect(now, path, Suspicion::NodeDown);
        }
    }

    fn is_cut_off(&self, path: &Path) -> bool {
        self.suspects.get(path) == Some(&Suspicion::Cut)
    }
}

impl Call {
    /// A question to the holder of these tasks found no way there. It says nothing of the branches
    /// of other calls, nor of those that are held through another node: they have their own ways.
    pub(crate) fn handle_unasked(
        &mut self,
        now: Timestamp,
        asked: Holder,
        Probe { fence, tasks, .. }: &Probe,
        links: &dyn LinkView,
    ) {
        if self.end.is_some() {
            return;
        }
        let mut elsewhere = Vec::new();
        for Asked { task, .. } in tasks {
            // Where a dial has failed it can be asked through the root. Who is fenced cannot: the
            // task that sent it there says that it does not reach it either.
            let is_straight = asked.relay.is_none();
            let through_root = match is_straight && !fence {
                true => self.way_to(now, &task.path, asked, links).filter(|way| *way != asked),
                false => None,
            };
            let is_held = self.is_held(task, asked);
            let has_way =
                through_root.is_some() && (is_held || self.is_asked_sender(task, asked.node));
            if !has_way && (is_straight || is_out_of_reach(asked.node, links)) {
                self.liveness.note_away(task, asked.node);
            }
            if has_way && is_held {
                self.liveness.suspect(now, &task.path, Suspicion::Cut);
            }
            if has_way || self.lose_way(now, asked, task, links) {
                elsewhere.push(task.clone());
            }
        }
        self.follow(now, elsewhere, links);
    }

    /// A node that is not the holder of a task knows nothing of it: if the holder was asked through
    /// it, that way leads nowhere. True when there is another that can be asked now.
    pub(super) fn lose_relay(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        links: &dyn LinkView,
    ) -> bool {
        if let Some(sender) = self.liveness.senders.get(task).map(|sender| sender.node)
            && sender != by.from
            && is_out_of_reach(sender, links)
        {
            self.liveness.note_away(task, sender);
        }
        let Some(branch) = self.tree.get(&task.path) else { return false };
        let (hop, Some(holder)) = (branch.hop, branch.holder) else { return false };
        // Who knows the key of a task is above it, and so on the way through the root, by whichever
        // way this came.
        let through_root =
            self.way_to(now, &task.path, holder, links).filter(|_| holder.relay.is_none());
        let relay = through_root.map_or(Some(by.via), |way| way.relay);
        let has_way =
            relay.is_some() && self.lose_way(now, Holder { relay, ..holder }, task, links);
        if hop == task.hop && !has_way {
            self.liveness.lose_others(now, &task.path);
        }
        has_way
    }

    /// True while this is the holder of a task that has not ended.
    fn is_held(&self, task: &TaskKey, holder: Holder) -> bool {
        self.tree.get(&task.path).is_some_and(|branch| {
            branch.is_unsettled() && branch.hop == task.hop && branch.holder == Some(holder)
        })
    }

    /// True of a task that was asked for as the sender of a branch, and that no other has followed.
    fn is_asked_sender(&self, task: &TaskKey, node: NodeId) -> bool {
        let sender = self.liveness.senders.get(task).filter(|sender| sender.node == node);
        sender.is_some() && self.tree.get(&task.path).is_some_and(|branch| branch.hop == task.hop)
    }

    /// The way by which the holder of a task was asked leads nowhere: it is suspected, unless there
    /// is another. True when that can be asked now.
    fn lose_way(
        &mut self,
        now: Timestamp,
        asked: Holder,
        task: &TaskKey,
        links: &dyn LinkView,
    ) -> bool {
        let branch = self.tree.get(&task.path);
        let branch = branch.filter(|branch| branch.is_unsettled() && branch.hop == task.hop);
        let Some(holder) = branch.and_then(|branch| branch.holder) else { return false };
        let is_lost = holder == asked;
        if is_lost && asked.relay.is_some() {
            self.tree.lose_relay(task, asked);
            let way = self.way_to(now, &task.path, Holder { relay: None, ..asked }, links);
            if way != Some(asked) {
                return way.is_some();
            }
        }
        if is_lost || self.way_to(now, &task.path, holder, links) == Some(asked) {
            self.liveness.suspect(now, &task.path, Suspicion::NodeDown);
        }
        false
    }

    /// The last, or this, connection to a node ended.
    pub(crate) fn handle_peer_down(&mut self, now: Timestamp, node: NodeId, links: &dyn LinkView) {
        self.check_items_link(links);
        if self.end.is_some() {
            if links.current(node).is_some() {
                self.say_again(now, node);
            }
            return;
        }
        self.liveness.forget_probes(node);
        let unsettled = self.tree.iter().filter(|(_, branch)| branch.is_unsettled());
        let affected = unsettled.filter_map(|(path, branch)| {
            let holder = branch.holder.filter(|holder| holder.is_at(node))?;
            Some((key(path.clone(), branch.hop), holder))
        });
        for (task, holder) in affected.collect::<Vec<_>>() {
            self.liveness.note_cut(now, &task.path, &self.inbox);
            if links.current(node).is_some() {
                let link = self.liveness.root_links.get(&task.path);
                if link.is_some_and(|(link, _)| !links.is_up(*link)) {
                    self.liveness.note_request_lost(&task.path);
                }
                self.liveness.worry_at = now;
            } else if holder.relay != Some(node) {
                self.liveness.suspect(now, &task.path, Suspicion::Cut);
            } else if self.lose_way(now, holder, &task, links) {
                self.liveness.worry_at = now;
            }
        }
    }

    pub(super) fn end_grace(&mut self, now: Timestamp, links: &dyn LinkView) {
        let mut asked = BTreeMap::<Holder, Vec<TaskKey>>::new();
        for (path, suspicion) in self.liveness.suspects.take_due(now) {
            let Some(branch) = self.tree.get(&path) else { continue };
            let (state, holder) = (branch.state, branch.holder);
            let task = key(path, branch.hop);
            let others = match (state, suspicion) {
                (BranchState::Open, Suspicion::Cut) => self.way_round(&task.path, holder, links),
                _ => None,
            };
            match (state, suspicion) {
                (BranchState::Closed { .. }, _) => {
                    self.fail(&task, Cause::ReplyLost, Executed::Yes);
                }
                (_, Suspicion::Cut | Suspicion::NodeDown) => match others {
                    Some(others) => {
                        self.liveness.wait_for_others(now, &task.path);
                        asked.entry(others).or_default().push(task);
                    }
                    None => _ = self.fail(&task, Cause::NodeDown, Executed::Maybe),
                },
                (_, Suspicion::Orphaned) if holder.is_none() => {
                    self.fail(&task, Cause::Orphaned, Executed::Maybe);
                }
                (_, Suspicion::Orphaned) => {}
            }
        }
        for (holder, tasks) in asked {
            self.send_probes(now, holder, false, &tasks);
        }
    }

    /// Way by which others are asked for a branch that is cut off from here: through who has passed
    /// on what its node said, or the node that the root branch was sent to. The sender of the
    /// branch may reach its node, or hold the request still: it answers, or says that it has lost
    /// it. `None` when nobody is left to do so.
    fn way_round(
        &self,
        path: &Path,
        holder: Option<Holder>,
        links: &dyn LinkView,
    ) -> Option<Holder> {
        let holder = holder?;
        let has_sender =
            !self.liveness.fence_allowed.contains_key(path) && !self.has_failed_parent(path);
        let relay = holder.relay.or_else(|| self.root_of(path)).filter(|_| has_sender)?;
        let is_other = relay != holder.node && links.current(relay).is_some();
        is_other.then_some(Holder { relay: Some(relay), ..holder })
    }

    /// Fails the branches of whose replies something was lost on its way, if they owe anything.
    /// Their tasks need not wait for credit with the rest of these.
    pub(super) fn end_gaps(&mut self, now: Timestamp) {
        for path in self.liveness.gaps.take_due(now).into_keys() {
            let Some(Branch { hop, holder, .. }) = self.tree.get(&path) else { continue };
            let (task, holder) = (key(path, *hop), *holder);
            if let Some(holder) = holder {
                self.refuse_begun(holder, &task);
            }
            let text = "a part of it was lost on the way";
            self.fail_saying(&task, Cause::ReplyLost, Executed::Yes, text);
        }
    }

    /// Asks the nodes of all unsettled branches how they are.
    pub(super) fn worry(&mut self, now: Timestamp, links: &dyn LinkView) {
        if now < self.liveness.worry_at {
            return;
        }
        let (mut asked, mut orphans) =
            (BTreeMap::<(Holder, bool), BTreeSet<TaskKey>>::new(), Vec::new());
        let mut senders = BTreeMap::new();
        for (path, branch) in self.tree.iter().filter(|(_, branch)| branch.is_unsettled()) {
            match branch.holder {
                Some(holder) => {
                    let task = key(path.clone(), branch.hop);
                    if self.liveness.unknown.contains(path) {
                        senders.extend(self.sender_of(&task));
                    }
                    let Some(holder) = self.way_to(now, path, holder, links) else { continue };
                    let fence = self.may_fence(path, holder, links);
                    asked.entry((holder, fence)).or_default().insert(task);
                }
                None if branch.state == BranchState::Open && self.has_failed_parent(path) => {
                    orphans.push(path.clone());
                }
                None => {}
            }
        }
        for path in orphans {
            self.liveness.suspect(now, &path, Suspicion::Orphaned);
        }
        for (sender, holder) in senders {
            // Straight there if possible: what could not be said through others is to be said now.
            let straight = Holder { node: holder.node, relay: None };
            let holder = if links.is_reachable(now, holder.node) { straight } else { holder };
            if let Some(way) = self.way_to(now, &sender.path, holder, links) {
                self.liveness.note_asked(&sender, holder.node);
                asked.entry((way, false)).or_default().insert(sender);
            }
        }
        for ((holder, fence), tasks) in asked {
            let tasks: Vec<TaskKey> = tasks.into_iter().collect();
            self.send_probes(now, holder, fence, &tasks);
        }
        self.liveness.worry_at = now + self.liveness.worry_interval;
        let doubled = self.liveness.worry_interval * 2;
        self.liveness.worry_interval = doubled.min(self.liveness.worry_max);
    }

    /// Way by which the holder of a branch is asked. One that this node cannot reach now is asked
    /// through the node that the root branch was sent to: every task on the way knows where it sent
    /// the next one. Nobody is asked who is being dialled: the end of the dial says more than a
    /// question behind it.
    fn way_to(
        &self,
        now: Timestamp,
        path: &Path,
        holder: Holder,
        links: &dyn LinkView,
    ) -> Option<Holder> {
        let is_direct = holder.relay.is_some() || links.is_reachable(now, holder.node);
        let root = self.root_of(path).filter(|root| !is_direct && *root != holder.node);
        let root = root.filter(|root| links.is_reachable(now, *root));
        let way = Holder { relay: holder.relay.or(root), ..holder };
        (!links.is_dialling(way.relay.unwrap_or(way.node))).then_some(way)
    }

    fn has_failed_parent(&self, path: &Path) -> bool {
        let parent = path.parent().and_then(|(parent, _)| self.tree.get(&parent));
        parent.is_some_and(|branch| branch.state == BranchState::Failed)
    }

    /// The fence conditions of the module's head. Never through a relay, whose order is not ours.
    fn may_fence(&self, path: &Path, holder: Holder, links: &dyn LinkView) -> bool {
        let root_link = self.liveness.root_links.get(path);
        let follows_request =
            root_link.is_some_and(|(link, _)| links.current(holder.node) == Some(*link));
        holder.relay.is_none()
            && (follows_request || self.liveness.fence_allowed.contains_key(path))
    }

    /// The parent lost its connection to `node`: ask there, fencing, at once. Nothing is asked for
    /// a call that has ended (`settlement.md` S3).
    pub(super) fn probe_now(&mut self, now: Timestamp, node: NodeId, tasks: Vec<TaskKey>) {
        if self.end.is_some() {
            return;
        }
        let is_held = |task: &TaskKey| {
            let branch = self.tree.get(&task.path);
            branch.is_some_and(|b| {
                b.is_unsettled() && b.hop == task.hop && b.holder.is_some_and(|h| h.node == node)
            })
        };
        let tasks: Vec<TaskKey> = tasks.into_iter().filter(is_held).collect();
        self.send_probes(now, Holder { node, relay: None }, true, &tasks);
    }

    /// Asks for tasks that were handed on where they are now: each may have been handed on again.
    pub(super) fn follow(&mut self, now: Timestamp, moved: Vec<TaskKey>, links: &dyn LinkView) {
        let mut asked = BTreeMap::<Holder, Vec<TaskKey>>::new();
        for task in moved {
            let holder = self.tree.get(&task.path).and_then(|branch| branch.holder);
            let way = holder.and_then(|holder| self.way_to(now, &task.path, holder, links));
            if let Some(way) = way {
                asked.entry(way).or_default().push(task);
            }
        }
        for (holder, tasks) in asked {
            self.send_probes(now, holder, false, &tasks);
        }
    }

    fn send_probes(&mut self, now: Timestamp, holder: Holder, fence: bool, tasks: &[TaskKey]) {
        let budget_us = self.budget_us(now);
        let asked = tasks.iter().filter_map(|task| {
            let key = self.secret.branch(self.id, &task.path)?;
            Some(Asked { task: task.clone(), key })
        });
        let asked: Vec<Asked> = asked.collect();
        // A relay finds the way down by the task in the header, so there each is asked alone.
        let each = if holder.relay.is_some() { 1 } else { TASKS_MAX };
        for tasks in asked.chunks(each) {
            let task = match tasks {
                [asked] if holder.relay.is_some() => asked.task.clone(),
                _ => key(Path::root(), 0),
            };
            let way = holder.relay.unwrap_or(holder.node);
            tasks.iter().for_each(|asked| self.liveness.note_probe(&asked.task, way));
            let message = Message::Probe(Probe { fence, budget_us, tasks: tasks.to_vec() });
            self.send_to_holder(holder, task, message);
        }
    }

    /// Takes what the holder of a task says of it. Returns the task that it is now, when it was
    /// handed on.
    pub(super) fn apply_status(
        &mut self,
        now: Timestamp,
        by: Arrival,
        task: &TaskKey,
        status: &TaskStatus,
        links: &dyn LinkView,
    ) -> Option<TaskKey> {
        let branch = self.tree.get(&task.path)?;
        if branch.hop != task.hop || branch.holder.is_none_or(|holder| holder.node != by.from) {
            return None;
        }
        let voice = self.voice_of(&by);
        match status {
            TaskStatus::Unknown if self.is_sender_gone(task) => {
                self.liveness.note_sender_gone(&task.path);
                // Through others nothing is fenced, and so nothing more comes of it.
                let is_open = branch.state == BranchState::Open;
                if voice == Voice::Passed && (is_open || self.has_one_way(now, by.link, links)) {
                    self.liveness.suspect(now, &task.path, Suspicion::NodeDown);
                }
            }
            TaskStatus::Unknown => {
                self.liveness.unknown.insert(task.path.clone());
            }
            TaskStatus::Running => {
                self.liveness.note_news(&self.tree, task);
                self.inbox.repeat_credits(&task.path);
            }
            TaskStatus::Tailed { node } => {
                let next = key(task.path.clone(), task.hop.saturating_add(1));
                if self.hold(now, &next, Holder { node: *node, relay: None }) {
                    self.liveness.note_progress(now);
                    return Some(next);
                }
            }
            TaskStatus::Closed { entry, .. } if entry.task != *task => {}
            // It was asked not to run there: of the life that may have run it, that says nothing.
            TaskStatus::Closed { .. } if self.went_to_other_life(task, by.from, links) => {
                self.fail(task, Cause::NodeDown, Executed::Maybe);
            }
            TaskStatus::Closed { entry, replies_by } => {
                self.liveness.note_news(&self.tree, task);
                self.apply_entry(now, entry, (EntryBy::Recovered, voice));
                if voice != Voice::Hearsay && self.is_way_spent(now, &by, *replies_by, links) {
                    self.fail_missing(task);
                }
            }
            // A relay's order is not ours, so its word on this proves nothing.
            TaskStatus::Fenced if by.is_relayed() => {}
            TaskStatus::Fenced => self.apply_fence(now, &by, task, links),
            TaskStatus::Forgotten if voice == Voice::Hearsay => {}
            TaskStatus::Forgotten => {
                let text = "it takes this call for settled, as if its initiator had said so: \
                            start that anew if all its calls fail so";
                self.fail_saying(task, Cause::Protocol, Executed::Maybe, text);
            }
        }
        None
    }

    /// Takes the word of the holder of a task that its request can be taken there no more.
    fn apply_fence(&mut self, now: Timestamp, by: &Arrival, task: &TaskKey, links: &dyn LinkView) {
        // Who only says that it holds the task cannot know what another did of it.
        let is_proof = self.is_holder(by, task)
            && self.liveness.is_request_gone(&task.path)
            && self.had_one_life(task, by.from, links);
        let (cause, executed) = match is_proof {
            true => (Cause::Lost, Executed::No),
            false => (Cause::NodeDown, Executed::Maybe),
        };
        match self.tree.get(&task.path).map(|branch| branch.state) {
            Some(BranchState::Open) => {
                self.fail(task, cause, executed);
            }
            // It ran in an earlier life, whose replies may be on their way still.
            Some(BranchState::Closed { .. }) if self.has_one_way(now, by.link, links) => {
                self.fail_missing(task);
            }
            _ => {}
        }
        if is_proof {
            self.tree.rule_out(&task.path);
        }
    }

    /// True when nobody is left who would say that the request of a task was lost: the node of its
    /// sender does not know of the sender, or is away, or nobody has said which node that is. What
    /// the sender has said may be lost with a connection: asked, it says that again.
    fn is_sender_gone(&self, task: &TaskKey) -> bool {
        let Some((sender, holder)) = self.sender_of(task) else {
            let parent = task.path.parent().filter(|_| task.hop == 0);
            return match parent {
                // Nobody knows where a sender was whose own parent failed before it said so.
                Some((parent, _)) => self.has_failed_parent(&parent),
                // A later hop that nobody has named was heard of itself: its request had come.
                None => true,
            };
        };
        let asked = self.liveness.senders.get(&sender).filter(|asked| asked.node == holder.node);
        asked.is_some_and(|asked| asked.is_gone)
    }

    /// The task that sent the request of another, and who holds it.
    fn sender_of(&self, task: &TaskKey) -> Option<(TaskKey, Holder)> {
        let sender = self.sent_by(task)?;
        let holder = match task.hop {
            0 => self.tree.get(&sender.path)?.holder?,
            _ => Holder { node: self.tree.get(&task.path)?.before?, relay: None },
        };
        Some((sender, holder))
    }

    /// True when the life of the node that answers is the only one that can have got the request.
    /// Its fence says nothing of an earlier life, which may have run the task and crashed.
    fn had_one_life(&self, task: &TaskKey, node: NodeId, links: &dyn LinkView) -> bool {
        let Some((now, since)) = links.life(node) else { return false };
        match self.liveness.root_links.get(&task.path) {
            Some((_, then)) => *then == Some(now),
            None => since < self.liveness.opened_at,
        }
    }

    /// True when the request of a root branch left for another life of the node than the present
    /// one, which can only have refused it.
    fn went_to_other_life(&self, task: &TaskKey, node: NodeId, links: &dyn LinkView) -> bool {
        let then = self.liveness.root_links.get(&task.path).and_then(|(_, then)| *then);
        let now = links.life(node).map(|(now, _)| now);
        then.is_some() && now.is_some() && then != now
    }

    /// True when nothing can come any more by the way a task says its replies left.
    fn is_way_spent(
        &self,
        now: Timestamp,
        by: &Arrival,
        way: ReplyPath,
        links: &dyn LinkView,
    ) -> bool {
        match way {
            ReplyPath::Link(nonce) => {
                links.nonce(by.link) == Some(nonce) || links.is_dead(by.from, nonce)
            }
            // A STATUS that was relayed came behind the replies, unless those took another way to
            // here while there was no connection to the last relay. A relay that was lost before
            // may have come back without a connection to this node.
            ReplyPath::Relay(relay) => {
                let lost_at = links.lost_at(relay);
                by.via != by.from && self.has_one_way(now, by.link, links)
                    || lost_at.is_some_and(|at| at >= self.liveness.opened_at)
            }
            ReplyPath::Nowhere => true,
        }
    }

    /// True when nothing of the call can be on its way that its last node has sent by another
    /// connection or through others: this has been the only one since before the call, or for as
    /// long as anything is delayed without its connection being lost; or nothing has come for as
    /// long.
    fn has_one_way(&self, now: Timestamp, link: LinkId, links: &dyn LinkView) -> bool {
        let Liveness { opened_at, delay_max, last_seen, .. } = self.liveness;
        let sole_since = links.sole_since(link);
        last_seen + delay_max <= now
            || sole_since.is_some_and(|at| at <= opened_at || at + delay_max <= now)
    }

    fn fail_missing(&mut self, task: &TaskKey) {
        let owes = self.tree.get(&task.path).is_some_and(|branch| branch.missing() > 0);
        if owes {
            self.fail(task, Cause::ReplyLost, Executed::Yes);
        }
    }
}

/// True when nothing leads straight to a node now, nor will once a dial is over.
fn is_out_of_reach(node: NodeId, links: &dyn LinkView) -> bool {
    links.current(node).is_none() && !links.is_dialling(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the simulation (slow-parent-link, seed 4000000008079): answers to what was asked
    /// before a task began came after it was asked for as a sender, and a request that was slow was
    /// fenced.
    #[test]
    fn an_answer_to_an_earlier_question_does_not_say_that_a_sender_is_gone() {
        let (task, [node, other]) = (key(super::super::root_path(0), 0), [7, 8].map(NodeId::new));
        let asked_before = |count: usize| {
            let mut liveness = Liveness::new(Timestamp::ZERO, &Limits::default());
            (0..count).for_each(|_| liveness.note_probe(&task, node));
            liveness.note_asked(&task, node);
            liveness.note_probe(&task, node);
            liveness
        };
        let by = |node| (node, false);
        let is_gone = |liveness: &Liveness| liveness.senders[&task].is_gone;
        let mut liveness = asked_before(2);
        for _ in 0..2 {
            liveness.note_answer(&task, by(node), true);
            assert!(!is_gone(&liveness));
        }
        liveness.note_answer(&task, by(other), true);
        assert!(!is_gone(&liveness), "it is not there");
        assert_eq!(liveness.unanswered[&task].1, 1, "and was not asked");
        liveness.note_answer(&task, by(node), true);
        assert!(is_gone(&liveness));
        // A connection that ends takes the earlier answers with it.
        let mut liveness = asked_before(2);
        liveness.forget_probes(node);
        liveness.note_answer(&task, by(node), true);
        assert!(is_gone(&liveness));
        let mut liveness = asked_before(0);
        liveness.note_answer(&task, by(node), false);
        assert!(!is_gone(&liveness));
    }
}
