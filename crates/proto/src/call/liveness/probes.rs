//! Questions: when and by which way the holder of a task is asked how that is, and what it says of
//! the way when none comes back.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::tree::{BranchState, Holder};
use crate::wire::{Asked, Message, Probe, TASKS_MAX};
use crate::{Arrival, key};

use super::super::Call;
use super::{LinkView, Liveness, Sender, Suspicion};

impl Liveness {
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
    pub(in crate::call) fn note_answer(
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
    pub(super) fn forget_probes(&mut self, node: NodeId) {
        let senders = &mut self.senders;
        self.unanswered.retain(|task, (way, _)| {
            let is_lost = *way == node;
            if is_lost && let Some(sender) = senders.get_mut(task) {
                sender.stale = 0;
            }
            !is_lost
        });
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
    pub(in crate::call) fn lose_relay(
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
    pub(super) fn lose_way(
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

    /// Asks the nodes of all unsettled branches how they are.
    pub(in crate::call) fn worry(&mut self, now: Timestamp, links: &dyn LinkView) {
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

    pub(super) fn has_failed_parent(&self, path: &Path) -> bool {
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
    pub(in crate::call) fn probe_now(&mut self, now: Timestamp, node: NodeId, tasks: Vec<TaskKey>) {
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
    pub(in crate::call) fn follow(
        &mut self,
        now: Timestamp,
        moved: Vec<TaskKey>,
        links: &dyn LinkView,
    ) {
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

    pub(super) fn send_probes(
        &mut self,
        now: Timestamp,
        holder: Holder,
        fence: bool,
        tasks: &[TaskKey],
    ) {
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

    /// The task that sent the request of another, and who holds it.
    pub(super) fn sender_of(&self, task: &TaskKey) -> Option<(TaskKey, Holder)> {
        let sender = self.sent_by(task)?;
        let holder = match task.hop {
            0 => self.tree.get(&sender.path)?.holder?,
            _ => Holder { node: self.tree.get(&task.path)?.before?, relay: None },
        };
        Some((sender, holder))
    }
}

/// True when nothing leads straight to a node now, nor will once a dial is over.
fn is_out_of_reach(node: NodeId, links: &dyn LinkView) -> bool {
    links.current(node).is_none() && !links.is_dialling(node)
}

#[cfg(test)]
mod tests {
    use super::super::super::root_path;
    use super::*;
    use crate::limits::Limits;

    /// Found by the simulation (slow-parent-link, seed 4000000008079): answers to what was asked
    /// before a task began came after it was asked for as a sender, and a request that was slow was
    /// fenced.
    #[test]
    fn an_answer_to_an_earlier_question_does_not_say_that_a_sender_is_gone() {
        let (task, [node, other]) = (key(root_path(0), 0), [7, 8].map(NodeId::new));
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
