//! What really happened in a run, which no node knows: the invariants compare what nodes believe
//! with it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use convoke_proto::call::{CallEvent, End};
use convoke_proto::failure::Failure;
use convoke_proto::id::{CallId, NodeId, Path, TaskKey};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_proto::wire::{Cause, Frame, Message};

/// The name of a task, the same wherever it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskName {
    /// The call.
    pub call: CallId,
    /// The task.
    pub task: TaskKey,
}

impl From<&TaskRef> for TaskName {
    fn from(task: &TaskRef) -> Self {
        Self { call: task.call, task: task.task.clone() }
    }
}

/// The truth about one run.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The time.
    pub now: Timestamp,
    /// Every call.
    pub calls: BTreeMap<CallId, CallTruth>,
    /// Every task that was opened, whether or not it ran.
    pub tasks: BTreeMap<TaskName, TaskTruth>,
    /// Nodes to which a connection broke or could not be made, or that stopped for a while.
    pub troubled: BTreeSet<NodeId>,
    /// Frames sent between nodes, by name.
    pub frames: BTreeMap<&'static str, u64>,
    /// Frames that count towards the cost of calls, and what they should be.
    pub cost: Cost,
}

/// Frames of calls, against what their tasks explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// REQUEST frames that left.
    pub requests: u64,
    /// Branches opened at other nodes.
    pub branches: u64,
    /// MANIFEST frames that left.
    pub manifests: u64,
    /// Tasks away from their initiator that were silent (R1), or ended with nothing held back (R6).
    pub silent_tasks: u64,
    /// REPLY frames that left, but for parts of large messages.
    pub replies: u64,
    /// Messages and items sent to other nodes.
    pub messages: u64,
}

/// The truth about one call.
#[derive(Debug)]
pub struct CallTruth {
    /// Its initiator.
    pub node: NodeId,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it must have ended.
    pub deadline: Timestamp,
    /// When root branches end that end before it, by index.
    pub early: BTreeMap<u32, Timestamp>,
    /// Its user has enough with the replies of so many distinct nodes.
    pub quorum: Option<usize>,
    /// A decision cancels the rest.
    pub cancels_late: bool,
    /// When its user cancelled or dropped it undecided.
    pub cancelled_at: Option<Timestamp>,
    /// How it ended, as its core says, and when.
    pub end: Option<(Timestamp, End)>,
    /// Branches that were given up, for they asked too much of the call.
    pub exhausted: BTreeSet<Path>,
    /// Its initiator crashed.
    pub is_orphan: bool,
    /// It was opened after all faults had ended.
    pub is_after_faults: bool,
    /// Messages its user has been given.
    pub delivered: BTreeMap<(Path, u32, Option<u64>), (NodeId, bool)>,
    /// Failures its user has been told of.
    pub failures: Vec<Failure>,
    /// The end its user has been told of.
    pub told_end: Option<End>,
    /// Its user gave it up before having read all of it.
    pub is_dropped: bool,
}

/// The truth about one task.
#[derive(Debug)]
pub struct TaskTruth {
    /// Where it was sent.
    pub sent_to: NodeId,
    /// The task that opened it; `None` for a root branch.
    pub parent: Option<TaskKey>,
    /// Each time it started: where and when.
    pub runs: Vec<(NodeId, Timestamp)>,
    /// When it is stopped at the latest.
    pub deadline: Timestamp,
    /// Branches it opened.
    pub children: Vec<TaskKey>,
    /// The replies it sent.
    pub replies: Vec<ReplyTruth>,
    /// How and when it ended.
    pub end: Option<(Timestamp, TaskEnd)>,
}

/// One reply of a task.
#[derive(Debug, Default)]
pub struct ReplyTruth {
    /// The message, or the items.
    pub messages: Vec<Bytes>,
    /// It is a stream.
    pub is_stream: bool,
    /// Nothing more comes.
    pub is_over: bool,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It returned.
    Finished,
    /// It handed its branch on.
    Tailed,
    /// It failed.
    Failed {
        /// Why.
        cause: Cause,
        /// It took its branches with it.
        aborts: bool,
    },
    /// It was stopped from outside.
    Stopped(Cause),
    /// Its node crashed.
    Crashed,
}

impl Oracle {
    /// A branch was opened.
    pub fn open(&mut self, task: TaskName, sent_to: NodeId, parent: Option<TaskKey>) {
        let truth = TaskTruth {
            sent_to,
            parent,
            runs: Vec::new(),
            deadline: Timestamp::MAX,
            children: Vec::new(),
            replies: Vec::new(),
            end: None,
        };
        self.tasks.insert(task, truth);
    }

    /// A task ended by handing its only branch on: that branch is its own, one hop further.
    pub fn tail(&mut self, task: &TaskName) {
        let Some(truth) = self.tasks.get_mut(task) else { return };
        truth.end = Some((self.now, TaskEnd::Tailed));
        let Some(child) = truth.children.pop() else { return };
        let child = TaskName { call: task.call, task: child };
        let next = TaskKey { path: task.task.path.clone(), hop: task.task.hop + 1 };
        if let Some(moved) = self.tasks.remove(&child) {
            self.tasks.insert(TaskName { call: task.call, task: next }, moved);
        }
    }

    /// A task ended. The first end counts.
    pub fn end(&mut self, task: &TaskName, end: TaskEnd) {
        let now = self.now;
        if let Some(truth) = self.tasks.get_mut(task) {
            truth.end.get_or_insert((now, end));
        }
    }

    /// The user of a call was told something.
    pub fn tell(&mut self, call: CallId, event: &CallEvent) {
        let Some(truth) = self.calls.get_mut(&call) else { return };
        match event {
            CallEvent::Reply(d) => {
                let name = (d.path.clone(), d.index, d.item);
                truth.delivered.insert(name, (d.from, d.is_authenticated));
            }
            CallEvent::Failure(failure) => truth.failures.push(failure.clone()),
            CallEvent::Ended(end) => truth.told_end = Some(*end),
            CallEvent::Sent(_) | CallEvent::Silent(_) => {}
        }
    }

    /// A frame left for another node. One that is relayed costs a call only what its own sender
    /// spent.
    pub fn count(&mut self, from: NodeId, frame: &Frame) {
        let message = &frame.message;
        *self.frames.entry(message.name()).or_default() += 1;
        if frame.relayed_from.is_some_and(|first| first != from) {
            return;
        }
        match message {
            Message::Request(_) => self.cost.requests += 1,
            Message::Manifest(_) => self.cost.manifests += 1,
            Message::Reply(reply) if reply.part.is_none_or(|part| part.offset == 0) => {
                self.cost.replies += 1;
            }
            _ => {}
        }
    }

    /// The tasks of one call.
    pub fn tasks_of(&self, call: CallId) -> impl Iterator<Item = (&TaskKey, &TaskTruth)> {
        let root = TaskKey { path: Path::root(), hop: 0 };
        let first = TaskName { call, task: root };
        let tasks = self.tasks.range(first..).take_while(move |(task, _)| task.call == call);
        tasks.map(|(task, truth)| (&task.task, truth))
    }

    /// True when a task at or above `path` failed and took its branches with it.
    pub fn is_given_up(&self, call: CallId, path: &Path) -> bool {
        let aborts = |truth: &TaskTruth| {
            matches!(truth.end, Some((_, TaskEnd::Failed { aborts: true, .. })))
        };
        self.tasks_of(call).any(|(at, truth)| at.path.is_prefix_of(path) && aborts(truth))
    }
}

impl CallTruth {
    /// When a branch has ended at the latest.
    pub fn deadline_of(&self, path: &Path) -> Timestamp {
        let early = path.indices().next().and_then(|root| self.early.get(&root));
        early.map_or(self.deadline, |early| *early)
    }

    /// True when a failed branch is `path` or above it.
    pub fn is_under_failure(&self, path: &Path) -> bool {
        self.failures.iter().any(|failure| failure.task.path.is_prefix_of(path))
    }
}
