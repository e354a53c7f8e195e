//! Answers: what a STATUS says of a task, and what it proves.

use crate::id::{LinkId, NodeId, TaskKey};
use crate::time::Timestamp;
use crate::trace::EntryBy;
use crate::tree::{BranchState, Holder};
use crate::wire::{Cause, Executed, ReplyPath, TaskStatus};
use crate::{Arrival, key};

use super::super::Call;
use super::super::hear::Voice;
use super::{LinkView, Liveness, Suspicion};

impl Call {
    /// Takes what the holder of a task says of it. Returns the task that it is now, when it was
    /// handed on.
    pub(in crate::call) fn apply_status(
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
                self.liveness.forget_loss(&task.path);
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
