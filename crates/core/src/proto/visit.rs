//! What a node knows of one call of another node: its tasks, finished ones remembered as tombstones,
//! fences, cancel marks, casts, and the way back to the initiator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use crate::id::{LinkNonce, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, Entry, Extension, LinkDown, Message, Outcome, ReplyPath, TaskStatus};

use super::key;
use super::mailbox::Mailbox;
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
    pub(crate) cancelled: Vec<Path>,
    pub(crate) mailbox: Option<Box<Mailbox>>,
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

impl Visit {
    pub(crate) fn new(origin: NodeId) -> Self {
        Self {
            origin,
            floor: 0,
            route: Route::Unset,
            gave_up_dialling: false,
            tasks: BTreeMap::new(),
            fences: BTreeSet::new(),
            cancelled: Vec::new(),
            mailbox: None,
            running: 0,
            deadlines: BinaryHeap::new(),
            armed_at: None,
            deadline: Timestamp::ZERO,
            forget_at: Timestamp::ZERO,
        }
    }

    pub(crate) fn is_cancelled(&self, path: &Path) -> bool {
        self.cancelled.iter().any(|prefix| prefix.is_prefix_of(path))
    }

    /// Whether a request for this task must not run: it has, or may not.
    pub(crate) fn knows(&self, task: &TaskKey) -> bool {
        self.tasks.contains_key(task) || self.fences.contains(task) || self.is_cancelled(&task.path)
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

    /// Tombstones, fences, marks and a mailbox.
    pub(crate) fn remembered_count(&self) -> usize {
        let over = self.tasks.len() - self.running;
        over + self.fences.len() + self.cancelled.len() + usize::from(self.mailbox.is_some())
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
        self.tasks.iter().rev().find_map(|(at, record)| {
            let children = record.children();
            if record.is_tailed() {
                return at.path.is_prefix_of(&task.path).then(|| children[0]);
            }
            let index = at.path.step_towards(&task.path)?;
            children.get(index as usize).copied()
        })
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
            None if self.fences.contains(task) => TaskStatus::Fenced,
            None if self.is_cancelled(&task.path) => {
                let entry = Entry {
                    task: task.clone(),
                    children: 0,
                    replies: 0,
                    outcome: Outcome::Failed(Cause::Cancelled),
                    holders: Vec::new(),
                };
                TaskStatus::Closed { entry: Box::new(entry), replies_by: ReplyPath::Nowhere }
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

    /// For each task with branches at `node`: what the initiator must be told when the connection to it
    /// is lost.
    pub(crate) fn link_down_reports(&self, node: NodeId) -> Vec<(TaskKey, LinkDown)> {
        let report = |(task, record): (&TaskKey, &TaskRecord)| {
            let report = match &record.state {
                TaskState::Running(running) => {
                    let children = running.children_at(node);
                    running.report(node, &children)
                }
                TaskState::Over(over) => over.report(task, node),
            };
            (!report.children.is_empty()).then(|| (task.clone(), report))
        };
        self.tasks.iter().filter_map(report).collect()
    }

    /// The nodes that tasks below `prefix` opened branches at.
    pub(crate) fn children_below(&self, prefix: &Path) -> BTreeSet<NodeId> {
        let below = self.tasks.iter().filter(|(task, _)| prefix.is_prefix_of(&task.path));
        below.flat_map(|(_, record)| record.children().iter().copied()).collect()
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

    fn is_tailed(&self) -> bool {
        match &self.state {
            TaskState::Running(task) => task.finished().is_some_and(|finished| finished.tailed),
            TaskState::Over(over) => over.finished.tailed,
        }
    }
}

impl Tombstone {
    fn report(&self, task: &TaskKey, node: NodeId) -> LinkDown {
        let at = self.children.iter().zip(0_u32..).filter(|(holder, _)| **holder == node);
        let children = if self.finished.tailed {
            at.map(|_| key(task.path.clone(), task.hop + 1)).collect()
        } else {
            at.filter_map(|(_, index)| Some(key(task.path.child(index).ok()?, 0))).collect()
        };
        let mut entries = self.ancestors.clone();
        if !self.finished.tailed {
            entries.push(self.finished.entry.clone());
        }
        LinkDown { node, children, entries }
    }
}
