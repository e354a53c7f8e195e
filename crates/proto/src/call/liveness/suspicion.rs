//! Suspicion and grace: branches that fail unless something is heard of them before.

use std::collections::BTreeMap;

use crate::flow::Accepted;
use crate::id::{NodeId, Path, TaskKey};
use crate::inbox::Inbox;
use crate::key;
use crate::time::Timestamp;
use crate::tree::{Branch, BranchState, Holder};
use crate::wire::{Cause, Executed};

use super::super::Call;
use super::{Gap, LinkView, Liveness, Suspicion};

impl Liveness {
    /// A connection has ended that what a branch says may have come by.
    pub(in crate::call) fn note_cut(&mut self, now: Timestamp, path: &Path, inbox: &Inbox) {
        self.cut.insert(path.clone(), now);
        if let Some(gap) = self.gaps.remove(path) {
            self.note_gap(path, gap, inbox);
        }
    }

    /// A piece of a reply has come: behind others that have not, or in its turn. Of the replies of
    /// a branch that a connection has ended of, the inbox keeps when the last did.
    pub(in crate::call) fn note_piece(
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

    pub(super) fn suspect(&mut self, now: Timestamp, path: &Path, suspicion: Suspicion) {
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
    pub(in crate::call) fn lose_others(&mut self, now: Timestamp, path: &Path) {
        if self.is_cut_off(path) {
            self.suspect(now, path, Suspicion::NodeDown);
        }
    }

    fn is_cut_off(&self, path: &Path) -> bool {
        self.suspects.get(path) == Some(&Suspicion::Cut)
    }
}

impl Call {
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

    pub(in crate::call) fn end_grace(&mut self, now: Timestamp, links: &dyn LinkView) {
        let mut asked = BTreeMap::<Holder, Vec<TaskKey>>::new();
        for (path, suspicion) in self.liveness.suspects.take_due(now) {
            let branch = self.tree.get(&path).filter(|branch| branch.is_unsettled());
            let Some(Branch { state, holder, hop, .. }) = branch else { continue };
            let (state, holder, task) = (*state, *holder, key(path, *hop));
            match (state, suspicion) {
                (BranchState::Closed { .. }, _) => {
                    self.fail(&task, Cause::ReplyLost, Executed::Yes);
                }
                (_, Suspicion::Cut) => match self.way_of_others(&task, holder, links) {
                    Some(others) => {
                        self.liveness.wait_for_others(now, &task.path);
                        asked.entry(others).or_default().push(task);
                    }
                    None => _ = self.fail(&task, Cause::NodeDown, Executed::Maybe),
                },
                (_, Suspicion::NodeDown) => _ = self.fail(&task, Cause::NodeDown, Executed::Maybe),
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

    /// Fails the branches of whose replies something was lost on its way, if they owe anything.
    /// Their tasks need not wait for credit with the rest of these.
    pub(in crate::call) fn end_gaps(&mut self, now: Timestamp) {
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
}
