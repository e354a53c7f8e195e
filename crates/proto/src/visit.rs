//! What a node knows of one call of another node: its tasks, finished ones remembered as tombstones,
//! fences, cancel marks, and the way back to the initiator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque, btree_map};

use crate::id::{LinkNonce, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, Entry, Extension, LinkDown, Message, Outcome, ReplyPath, TaskStatus};

use super::key;
use super::task::{Finished, Task};

/// The way to the initiator, fixed at the first output and given up only when it breaks.
#[derive(Debug)]
pub(crate) enum Route {
    Unset,
    Local,
    Link(LinkNonce),
    /// The initiator is being dialled; outputs wait until then or until `give_up_at`.
    Dialling {
        give_up_at: Timestamp,
        queue: VecDeque<Upward>,
        queue_bytes: usize,
    },
    /// Through the nodes that sent the requests.
    Relay,
}

/// A message on its way to the initiator.
#[derive(Debug)]
pub(crate) struct Upward {
    /// The node whose task says it: this one, or one further down.
    pub(crate) from: NodeId,
    pub(crate) task: TaskKey,
    pub(crate) message: Message,
}

/// A task that is over: enough to drop duplicates, answer probes, pass on cancels and report links.
#[derive(Debug)]
pub(crate) struct Tombstone {
    finished: Finished,
    children: Vec<NodeId>,
    ancestors: Vec<Entry>,
    replies_by: Option<ReplyPath>,
}

#[derive(Debug)]
pub(crate) enum TaskState {
    Running(Box<Task>),
    Over(Box<Tombstone>),
}

#[derive(Debug)]
pub(crate) struct TaskRecord {
    /// Who sent the request: the parent's node.
    pub(crate) from: NodeId,
    /// The connection it came by, if its sender is the initiator.
    pub(crate) came_by: Option<LinkNonce>,
    /// What its request carried besides, copied to its branches.
    pub(crate) extensions: Vec<Extension>,
    pub(crate) state: TaskState,
}

#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) origin: NodeId,
    /// How far below the call's number its initiator's floor was; copied to branches.
    pub(crate) floor: u64,
    pub(crate) route: Route,
    /// Dialling the initiator failed or took too long; once is enough.
    pub(crate) gave_up_dialling: bool,
    pub(crate) tasks: BTreeMap<TaskKey, TaskRecord>,
    pub(crate) fences: BTreeSet<TaskKey>,
    /// How many of the fences which peer asked for.
    fenced_by: Vec<(NodeId, usize)>,
    pub(crate) cancelled: Vec<CancelMark>,
    /// By which connection the first branch to a node left.
    branch_links: BTreeMap<NodeId, LinkNonce>,
    /// Branches that left by another one to the same node.
    other_links: BTreeMap<TaskKey, LinkNonce>,
    /// Tasks whose state is running.
    running: usize,
    /// When to stop which task; those that ended before are still in it.
    deadlines: BinaryHeap<Reverse<(Timestamp, TaskKey)>>,
    /// The earliest timer that is set for this visit.
    pub(crate) armed_at: Option<Timestamp>,
    /// The latest deadline that anything here has.
    pub(crate) deadline: Timestamp,
    /// When nothing that could still arrive can do harm any more.
    pub(crate) forget_at: Timestamp,
}

/// A CANCEL, kept for requests that come after it. It binds only the tasks of those who may cancel them: all,
/// when the initiator sent it, else those whose requests its sender sent.
#[derive(Debug)]
pub(crate) struct CancelMark {
    pub(crate) prefix: Path,
    pub(crate) by: NodeId,
    pub(crate) is_initiators: bool,
}

impl CancelMark {
    fn covers(&self, path: &Path) -> bool {
        self.prefix.is_prefix_of(path)
    }

    fn binds(&self, sender: NodeId) -> bool {
        self.is_initiators || self.by == sender
    }

    /// Whether this mark does all that `other` would.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.covers(&other.prefix)
            && (self.is_initiators || (self.by == other.by && !other.is_initiators))
    }
}

impl Visit {
    pub(crate) fn new(origin: NodeId) -> Self {
        Self {
            origin,
            floor: 0,
            route: Route::Unset,
            gave_up_dialling: false,
            tasks: BTreeMap::new(),
            fences: BTreeSet::new(),
            fenced_by: Vec::new(),
            cancelled: Vec::new(),
            branch_links: BTreeMap::new(),
            other_links: BTreeMap::new(),
            running: 0,
            deadlines: BinaryHeap::new(),
            armed_at: None,
            deadline: Timestamp::ZERO,
            forget_at: Timestamp::ZERO,
        }
    }

    /// Whether a task is cancelled whose request came from `sender`.
    pub(crate) fn is_cancelled(&self, path: &Path, sender: NodeId) -> bool {
        self.cancelled.iter().any(|mark| mark.covers(path) && mark.binds(sender))
    }

    /// The tasks that a mark stops.
    pub(crate) fn tasks_under(&self, mark: &CancelMark) -> Vec<TaskKey> {
        self.records_under(mark).map(|(task, _)| task.clone()).collect()
    }

    /// The nodes that these tasks opened branches at.
    pub(crate) fn children_under(&self, mark: &CancelMark) -> BTreeSet<NodeId> {
        self.records_under(mark).flat_map(|(_, record)| record.children().iter().copied()).collect()
    }

    fn records_under<'a>(
        &'a self,
        mark: &'a CancelMark,
    ) -> impl Iterator<Item = (&'a TaskKey, &'a TaskRecord)> + 'a {
        self.tasks
            .iter()
            .filter(|(task, record)| mark.covers(&task.path) && mark.binds(record.from))
    }

    /// What a cancelled or fenced task is, when it has not run and will not.
    fn status_of_refused(&self, task: &TaskKey) -> TaskStatus {
        if !self.cancelled.iter().any(|mark| mark.covers(&task.path)) {
            return TaskStatus::Fenced;
        }
        let entry = Entry {
            task: task.clone(),
            children: 0,
            replies: 0,
            outcome: Outcome::Failed(Cause::Cancelled),
            holders: Vec::new(),
        };
        TaskStatus::Closed { entry: Box::new(entry), replies_by: ReplyPath::Nowhere }
    }

    /// Whether a request for this task must not run: it has, or may not.
    pub(crate) fn knows(&self, task: &TaskKey, sender: NodeId) -> bool {
        self.tasks.contains_key(task)
            || self.fences.contains(task)
            || self.is_cancelled(&task.path, sender)
    }

    /// Keeps a task from ever running, for `peer`.
    pub(crate) fn fence(&mut self, task: &TaskKey, peer: NodeId) {
        self.fences.insert(task.clone());
        match self.fenced_by.iter_mut().find(|(by, _)| *by == peer) {
            Some((_, count)) => *count += 1,
            None => self.fenced_by.push((peer, 1)),
        }
    }

    /// How many fences which peer asked for.
    pub(crate) fn fenced_by(&self) -> &[(NodeId, usize)] {
        &self.fenced_by
    }

    /// Remembers a task that starts to run.
    pub(crate) fn start(
        &mut self,
        from: NodeId,
        came_by: Option<LinkNonce>,
        task: Task,
        extensions: Vec<Extension>,
    ) {
        let key = task.key.clone();
        self.running += 1;
        self.deadlines.push(Reverse((task.deadline, key.clone())));
        let state = TaskState::Running(Box::new(task));
        self.tasks.insert(key, TaskRecord { from, came_by, extensions, state });
    }

    /// The next task whose deadline has passed, running or not.
    pub(crate) fn pop_late(&mut self, now: Timestamp) -> Option<TaskKey> {
        let is_late = self.deadlines.peek().is_some_and(|Reverse((at, _))| *at <= now);
        if is_late { self.deadlines.pop().map(|Reverse((_, task))| task) } else { None }
    }

    pub(crate) fn running(&mut self, task: &TaskKey) -> Option<&mut Task> {
        match &mut self.tasks.get_mut(task)?.state {
            TaskState::Running(task) => Some(task),
            TaskState::Over(_) => None,
        }
    }

    pub(crate) fn is_running(&self, task: &TaskKey) -> bool {
        self.tasks.get(task).is_some_and(|record| match &record.state {
            TaskState::Running(task) => task.finished().is_none(),
            TaskState::Over(_) => false,
        })
    }

    pub(crate) fn running_count(&self) -> usize {
        self.running
    }

    /// Tombstones, fences and marks.
    pub(crate) fn remembered_count(&self) -> usize {
        let over = self.tasks.len() - self.running;
        over + self.fences.len() + self.cancelled.len()
    }

    /// Where a frame of `task` on its way up goes next: to who sent the request of its highest ancestor
    /// here. Every step leads to one still higher, so frames cannot go in circles.
    pub(crate) fn upstream(&self, me: NodeId, task: &TaskKey) -> Option<NodeId> {
        let mut above = self.tasks.range(..=task);
        let highest =
            above.find(|(at, record)| at.path.is_prefix_of(&task.path) && record.from != me);
        highest.map(|(_, record)| record.from)
    }

    /// The connection that the initiator's own requests came by.
    pub(crate) fn came_by(&self) -> Option<LinkNonce> {
        self.tasks.values().find_map(|record| record.came_by)
    }

    /// The node below which `task` was sent from here, when it was not meant for this node.
    pub(crate) fn downstream(&self, task: &TaskKey) -> Option<NodeId> {
        self.tasks.range(..task).rev().find_map(|(at, record)| {
            let children = record.children();
            if record.is_tailed() {
                return at.path.is_prefix_of(&task.path).then(|| children[0]);
            }
            let index = at.path.step_towards(&task.path)?;
            children.get(index as usize).copied()
        })
    }

    /// Whether frames for `task` can come by `node` from the initiator: it sent a request of the same
    /// branch or one above here.
    pub(crate) fn is_upstream(&self, node: NodeId, task: &TaskKey) -> bool {
        self.records_above(task).any(|record| record.from == node)
    }

    /// Whether frames of `task` can come by `node` to the initiator: the same branch or one above was
    /// sent there from here.
    pub(crate) fn is_downstream(&self, node: NodeId, task: &TaskKey) -> bool {
        self.records_above(task).any(|record| record.children().contains(&node))
    }

    fn records_above(&self, task: &TaskKey) -> impl Iterator<Item = &TaskRecord> + '_ {
        let path = task.path.clone();
        let until = self.tasks.range(..=task);
        until.filter(move |(at, _)| at.path.is_prefix_of(&path)).map(|(_, record)| record)
    }

    /// What a PROBE is answered, but for fencing.
    pub(crate) fn status(&self, task: &TaskKey) -> TaskStatus {
        match self.tasks.get(task).map(|record| &record.state) {
            Some(TaskState::Running(_)) => TaskStatus::Running,
            Some(TaskState::Over(over)) if over.finished.tailed => {
                TaskStatus::Tailed { node: over.children[0] }
            }
            // Replies that wait for a dial are not on their way yet.
            Some(TaskState::Over(_)) if matches!(self.route, Route::Dialling { .. }) => {
                TaskStatus::Running
            }
            Some(TaskState::Over(over)) => TaskStatus::Closed {
                entry: Box::new(over.finished.entry.clone()),
                replies_by: over.replies_by.unwrap_or(ReplyPath::Nowhere),
            },
            None if self.fences.contains(task) => self.status_of_refused(task),
            None if self.cancelled.iter().any(|m| m.is_initiators && m.covers(&task.path)) => {
                self.status_of_refused(task)
            }
            None => TaskStatus::Unknown,
        }
    }

    /// The entries that the task was given to pass on.
    pub(crate) fn ancestors(&self, task: &TaskKey) -> &[Entry] {
        match self.tasks.get(task).map(|record| &record.state) {
            Some(TaskState::Running(task)) => &task.ancestors,
            Some(TaskState::Over(over)) => &over.ancestors,
            None => &[],
        }
    }

    /// The request of a branch was handed to this connection to `node`. Whether it is the first branch
    /// there.
    pub(crate) fn note_branch_link(
        &mut self,
        task: &TaskKey,
        node: NodeId,
        link: LinkNonce,
    ) -> bool {
        match self.branch_links.entry(node) {
            btree_map::Entry::Vacant(first) => {
                first.insert(link);
                true
            }
            btree_map::Entry::Occupied(first) => {
                if *first.get() != link {
                    self.other_links.insert(task.clone(), link);
                }
                false
            }
        }
    }

    /// The nodes that branches left for.
    pub(crate) fn branch_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.branch_links.keys().copied()
    }

    /// For each task with branches at `node` whose requests left by `link`: what the initiator must be
    /// told when that connection is lost. Requests that left by another connection to the node are not
    /// lost with it, and may still be on their way there: a fence could overtake them.
    pub(crate) fn link_down_reports(
        &self,
        node: NodeId,
        link: LinkNonce,
    ) -> Vec<(TaskKey, LinkDown)> {
        let Some(first) = self.branch_links.get(&node) else { return Vec::new() };
        let left_by = |child: &TaskKey| *self.other_links.get(child).unwrap_or(first) == link;
        let report = |(task, record): (&TaskKey, &TaskRecord)| {
            let mut children = record.branches_at(task, node);
            children.retain(left_by);
            if children.is_empty() {
                return None;
            }
            let entries = record.report_entries();
            Some((task.clone(), LinkDown { node, children, entries }))
        };
        self.tasks.iter().filter_map(report).collect()
    }

    /// Turns tasks that are over and drained into tombstones. How many there were.
    pub(crate) fn bury(&mut self, task: &TaskKey) -> bool {
        let Some(record) = self.tasks.get_mut(task) else { return false };
        let TaskState::Running(running) = &mut record.state else { return false };
        if !running.is_drained() {
            return false;
        }
        let tombstone = Tombstone {
            finished: running.finished().cloned().expect("a drained task has ended"),
            children: std::mem::take(&mut running.children),
            ancestors: std::mem::take(&mut running.ancestors),
            replies_by: running.replies_by,
        };
        record.state = TaskState::Over(Box::new(tombstone));
        record.extensions = Vec::new();
        self.running -= 1;
        true
    }

    /// A reply of a task, maybe over by now, has left by this way.
    pub(crate) fn note_reply_path(&mut self, task: &TaskKey, way: ReplyPath) {
        match self.tasks.get_mut(task).map(|record| &mut record.state) {
            Some(TaskState::Running(running)) => running.note_reply_path(way),
            Some(TaskState::Over(over)) => {
                over.replies_by.get_or_insert(way);
            }
            None => {}
        }
    }

    /// When something is to be done without any input.
    pub(crate) fn next_timeout(&self) -> Timestamp {
        let deadline = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let give_up = match self.route {
            Route::Dialling { give_up_at, .. } => Some(give_up_at),
            _ => None,
        };
        deadline.into_iter().chain(give_up).min().unwrap_or(self.forget_at)
    }
}

impl TaskRecord {
    fn children(&self) -> &[NodeId] {
        match &self.state {
            TaskState::Running(task) => &task.children,
            TaskState::Over(over) => &over.children,
        }
    }

    /// Each branch it opened: where, and its path.
    pub(crate) fn children_with_paths(
        &self,
        path: &Path,
    ) -> impl Iterator<Item = (NodeId, Path)> + '_ {
        let path = path.clone();
        let children = self.children().iter().zip(0_u32..);
        children.filter_map(move |(node, index)| Some((*node, path.child(index).ok()?)))
    }

    /// The branches it opened at `node` whose requests have left.
    fn branches_at(&self, task: &TaskKey, node: NodeId) -> Vec<TaskKey> {
        let left = match &self.state {
            TaskState::Running(running) => running.children_left(),
            TaskState::Over(over) => &over.children,
        };
        let at = left.iter().zip(0_u32..).filter(|(holder, _)| **holder == node);
        if self.is_tailed() {
            at.map(|_| key(task.path.clone(), task.hop + 1)).collect()
        } else {
            at.filter_map(|(_, index)| Some(key(task.path.child(index).ok()?, 0))).collect()
        }
    }

    /// What it knows that may be lost with the connection to the node of some branches.
    fn report_entries(&self) -> Vec<Entry> {
        let (ancestors, end) = match &self.state {
            TaskState::Running(running) => (&running.ancestors, running.finished()),
            TaskState::Over(over) => (&over.ancestors, Some(&over.finished)),
        };
        let own = end.filter(|end| !end.tailed).map(|end| end.entry.clone());
        ancestors.iter().cloned().chain(own).collect()
    }

    fn is_tailed(&self) -> bool {
        match &self.state {
            TaskState::Running(task) => task.finished().is_some_and(|finished| finished.tailed),
            TaskState::Over(over) => over.finished.tailed,
        }
    }
}
