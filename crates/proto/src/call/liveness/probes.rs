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
            let stale = self.probes.get(task).map_or(0, |(_, count)| *count);
            self.senders.insert(task.clone(), Sender { node, stale, is_gone: false });
        }
    }

    /// A probe for a task leaves for a node, which holds it or passes on to who does.
    fn note_probe(&mut self, task: &TaskKey, way: NodeId) {
        let (to, count) = self.probes.entry(task.clone()).or_insert((way, 0));
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
        // Whoever holds the key may answer, asked or not.
        self.count_off(task, |way| is_relayed || way == node);
        // By which way a task was asked for matters where that leads nowhere.
        if !is_unknown && self.probes.get(task) == Some(&(node, 0)) {
            self.probes.remove(task);
        }
        let sender = self.senders.get_mut(task).filter(|sender| sender.node == node);
        let Some(sender) = sender else { return };
        let was_gone = sender.is_gone;
        sender.is_gone = is_unknown && (was_gone || sender.stale == 0);
        sender.stale = sender.stale.saturating_sub(1);
        if was_gone && !is_unknown {
            self.regain_sender(task);
        }
    }

    /// A probe for a task has not left for this node.
    pub(in crate::call) fn note_unasked(&mut self, task: &TaskKey, way: NodeId) {
        let left = self.count_off(task, |to| to == way);
        if let (Some(left), Some(sender)) = (left, self.senders.get_mut(task)) {
            sender.stale = sender.stale.min(left);
        }
    }

    /// One probe for a task less is without an answer, if they went by such a way. Number of those
    /// that are left then.
    fn count_off(&mut self, task: &TaskKey, is_way: impl Fn(NodeId) -> bool) -> Option<u32> {
        let (_, count) = self.probes.get_mut(task).filter(|(way, _)| is_way(*way))?;
        *count = count.saturating_sub(1);
        Some(*count)
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
        self.probes.retain(|task, (way, _)| {
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
        probe: &Probe,
        links: &dyn LinkView,
    ) {
        if self.end.is_some() {
            return;
        }
        self.forget_unasked(asked, probe);
        let mut elsewhere = Vec::new();
        for Asked { task, .. } in &probe.tasks {
            // Where a dial has failed it can be asked through others. Who is fenced cannot: the
            // task that sent it there says that it does not reach it either.
            let is_straight = asked.relay.is_none();
            let through_others = match is_straight && !probe.fence {
                true => self.way_to(now, task, asked, links).filter(|way| *way != asked),
                false => None,
            };
            let is_held = self.held(task) == Some(asked);
            let has_way =
                through_others.is_some() && (is_held || self.is_asked_sender(task, asked.node));
            if !has_way && (is_straight || is_out_of_reach(asked.node, links)) {
                self.liveness.note_away(task, asked.node);
            }
            // Of one that has ended no reply is lost with a dial.
            if has_way && is_held && self.is_open(task) {
                self.liveness.suspect(now, &task.path, Suspicion::Cut);
            }
            if has_way || self.lose_way(now, asked, task, links) {
                elsewhere.push(task.clone());
            }
        }
        self.follow(now, elsewhere, links);
    }

    /// A question to the holder of these tasks has not left.
    pub(crate) fn forget_unasked(&mut self, asked: Holder, probe: &Probe) {
        probe.tasks.iter().for_each(|of| self.liveness.note_unasked(&of.task, asked.via()));
    }

    /// A node that is not the holder of a task knows nothing of it, or of a way there. Who knows
    /// its key is above it, so the way by which the task was asked for last leads there. True when
    /// there is another that can be asked now.
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
        let Some(heard) = self.held(task) else { return false };
        let asked = self.liveness.probes.get(task).map(|(way, _)| *way);
        let sender = self.sender_of(task).map(|(_, at)| at.node);
        // The root answers what it was asked before the sender was, whose word is the last.
        let is_of_root = self.root_of(&task.path) == Some(by.via) && heard.relay != Some(by.via);
        let is_last = sender.is_some() && asked == sender;
        if is_of_root && is_last && asked != Some(by.via) && sender != Some(by.from) {
            return false;
        }
        let is_other = |relay| asked.is_some_and(|asked| asked != relay) && by.via != relay;
        if heard.relay.is_some_and(is_other) {
            return false; // Heard of since, by a way that is there still.
        }
        self.tree.lose_relay(task, heard);
        let holder = Holder { relay: None, ..heard };
        // What is asked through the root comes through the sender, whose word is the last.
        let is_left = |way: &Holder| match way.relay {
            None => true,
            Some(_) if sender == Some(by.from) || sender.is_some() && asked == sender => false,
            relay => relay == sender || asked != relay,
        };
        match self.way_to(now, task, holder, links) {
            Some(way) if !is_left(&way) => {
                self.liveness.suspect(now, &task.path, Suspicion::NodeDown);
                false
            }
            Some(way) if way.relay.is_some() || heard.relay.is_some() => true,
            // It is asked straight, or dialled, already.
            _ => {
                let mut others = self.ways(task, holder, links).skip(1);
                let is_alone =
                    !others.any(|way| is_left(&way) && links.current(way.via()).is_some());
                if is_alone && self.is_open(task) {
                    self.liveness.lose_others(now, &task.path);
                } else if is_alone && heard.relay.is_none() {
                    // Of one that has ended no question is under way that would be missed.
                    self.liveness.suspect(now, &task.path, Suspicion::NodeDown);
                }
                false
            }
        }
    }

    /// The holder of a task that has not ended, or owes replies.
    fn held(&self, task: &TaskKey) -> Option<Holder> {
        let branch = self.tree.get(&task.path);
        branch.filter(|branch| branch.is_unsettled() && branch.hop == task.hop)?.holder
    }

    fn is_open(&self, task: &TaskKey) -> bool {
        self.tree.get(&task.path).is_some_and(|branch| branch.state == BranchState::Open)
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
        let Some(holder) = self.held(task) else { return false };
        let is_lost = holder == asked;
        if is_lost && asked.relay.is_some() {
            self.tree.lose_relay(task, asked);
            let way = self.way_to(now, task, Holder { relay: None, ..asked }, links);
            if way != Some(asked) {
                return way.is_some();
            }
        }
        if is_lost || self.way_to(now, task, holder, links) == Some(asked) {
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
                    let Some(holder) = self.way_to(now, &task, holder, links) else { continue };
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
            let is_straight = self.is_reachable(now, holder.node, links);
            let holder = if is_straight { straight } else { holder };
            if let Some(way) = self.way_to(now, &sender, holder, links) {
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

    /// Ways by which the holder of a task may be asked, in the order in which they are tried. As it
    /// was last heard of: straight, or through who has passed on what it said. Through the node of
    /// its sender, which holds the request still or knows where that went: where there is a
    /// connection, for that alone it is not dialled. Through the node that the root branch was sent
    /// to: every task on the way knows where it sent the next one.
    fn ways(
        &self,
        task: &TaskKey,
        holder: Holder,
        links: &dyn LinkView,
    ) -> impl Iterator<Item = Holder> + use<> {
        let sender = self.sender_of(task).map(|(_, at)| at.node);
        let sender = sender.filter(|node| links.current(*node).is_some());
        let others = [sender, self.root_of(&task.path)].into_iter().flatten();
        let others = others.filter(move |other| *other != holder.node);
        let through = move |relay| Holder { relay: Some(relay), ..holder };
        std::iter::once(holder).chain(others.map(through))
    }

    /// Way by which the holder of a task is asked now: the first that leads anywhere. Nobody is
    /// asked who is being dialled: the end of the dial says more than a question behind it.
    fn way_to(
        &self,
        now: Timestamp,
        task: &TaskKey,
        holder: Holder,
        links: &dyn LinkView,
    ) -> Option<Holder> {
        let mut ways = self.ways(task, holder, links);
        let open = ways.find(|way| self.is_reachable(now, way.via(), links));
        let way = open.unwrap_or(holder);
        (!links.is_dialling(way.via())).then_some(way)
    }

    /// Way by which others are asked for a task that is cut off from here: they may reach its node,
    /// or hold its request still, and answer, or say that they have lost it. `None` when nobody is
    /// left to do so.
    pub(super) fn way_of_others(
        &self,
        task: &TaskKey,
        holder: Option<Holder>,
        links: &dyn LinkView,
    ) -> Option<Holder> {
        let path = &task.path;
        let has_sender =
            !self.liveness.fence_allowed.contains_key(path) && !self.has_failed_parent(path);
        let mut ways = self.ways(task, holder.filter(|_| has_sender)?, links);
        ways.find(|way| way.relay.is_some_and(|relay| links.current(relay).is_some()))
    }

    /// True when a question can be sent to a node now, if need be by dialling it.
    fn is_reachable(&self, now: Timestamp, node: NodeId, links: &dyn LinkView) -> bool {
        match self.never_dials() {
            true => links.current(node).is_some(),
            false => links.is_reachable(now, node),
        }
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
        let is_there = |task: &TaskKey| self.held(task).is_some_and(|at| at.node == node);
        let tasks: Vec<TaskKey> = tasks.into_iter().filter(is_there).collect();
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
            let way = holder.and_then(|holder| self.way_to(now, &task, holder, links));
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
            tasks.iter().for_each(|asked| self.liveness.note_probe(&asked.task, holder.via()));
            let message = Message::Probe(Probe { fence, budget_us, tasks: tasks.to_vec() });
            self.send_to_holder(holder, task, message);
        }
    }

    /// The task that sent the request of another, and who holds it.
    pub(super) fn sender_of(&self, task: &TaskKey) -> Option<(TaskKey, Holder)> {
        let sender = self.sent_by(task)?;
        let holder = match task.hop {
            0 => self.tree.get(&sender.path)?.holder?,
            // Of the hop where the branch is, no other.
            hop => {
                let branch = self.tree.get(&task.path).filter(|branch| branch.hop == hop)?;
                Holder { node: branch.before?, relay: None }
            }
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
        assert_eq!(liveness.probes[&task].1, 1, "and was not asked");
        liveness.note_answer(&task, by(node), true);
        assert!(is_gone(&liveness));
        // A connection that ends takes the earlier answers with it.
        let mut liveness = asked_before(2);
        liveness.forget_probes(node);
        liveness.note_answer(&task, by(node), true);
        assert!(is_gone(&liveness));
        // So do those of them that found no way.
        let mut liveness = asked_before(2);
        liveness.note_unasked(&task, other);
        (0..3).for_each(|_| liveness.note_unasked(&task, node));
        liveness.note_probe(&task, node);
        liveness.note_answer(&task, by(node), true);
        assert!(is_gone(&liveness));
        assert_eq!(liveness.probes[&task], (node, 0));
        let mut liveness = asked_before(0);
        liveness.note_answer(&task, by(node), false);
        assert!(!is_gone(&liveness));
    }

    #[test]
    fn a_sender_that_answers_is_not_gone_and_its_branches_are_not_fenced() {
        let (sender, node) = (key(root_path(0), 0), NodeId::new(7));
        let [child, below] = ["/0/1", "/0/1/0"].map(|path| path.parse().unwrap());
        let mut liveness = Liveness::new(Timestamp::ZERO, &Limits::default());
        liveness.note_asked(&sender, node);
        liveness.note_away(&sender, node);
        [&sender.path, &child, &below].into_iter().for_each(|of| liveness.note_sender_gone(of));
        liveness.note_answer(&sender, (node, true), false);
        assert!(!liveness.senders[&sender].is_gone);
        let fenced: Vec<&Path> = liveness.fence_allowed.keys().collect();
        assert_eq!(fenced, [&below], "of which another is the sender");
    }
}
