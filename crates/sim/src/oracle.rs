//! Truth about a run, which no node knows: the invariants compare what nodes believe
//! with it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use convoke_proto::call::{CallEvent, End};
use convoke_proto::failure::Failure;
use convoke_proto::id::{CallId, Incarnation, NodeId, Path, TaskKey};
use convoke_proto::key::{Key, Secret};
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
    /// The key that somebody made up for it, if it is not the branch's own: another task (T5).
    pub made_up: Option<Key>,
}

impl TaskName {
    /// The task that the call's initiator, or those it asked, have opened.
    pub fn of(call: CallId, task: TaskKey) -> Self {
        Self { call, task, made_up: None }
    }

    /// A branch that this task opened.
    pub fn child(&self, child: TaskKey) -> Self {
        let index = child.path.parent().map_or(0, |(_, index)| index);
        Self { call: self.call, task: child, made_up: self.made_up.map(|key| key.child(index)) }
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
    /// Nodes that do not keep the protocol.
    pub liars: BTreeSet<NodeId>,
    /// Secrets that the lives of all others make their keys of.
    pub secrets: BTreeMap<Incarnation, Secret>,
    /// Branches that were sent to liars: they, and all below, are theirs.
    pub tainted: BTreeSet<(CallId, Path)>,
    /// When the last fault struck, or a node came back.
    pub last_fault: Timestamp,
    /// Nodes to which a connection broke or could not be made, or that stopped for a while.
    pub troubled: BTreeSet<NodeId>,
    /// Nodes that have stopped in good order, or begun to.
    pub stopped: BTreeSet<NodeId>,
    /// When nodes that had stopped for a while went on last.
    pub resumed_at: BTreeMap<NodeId, Timestamp>,
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
    /// Its branches open no others.
    pub is_flat: bool,
    /// Nodes that keep the protocol and whose reply has come, where each branch sends one.
    pub heard: BTreeSet<NodeId>,
    /// When these were as many as its user has enough with.
    pub quorum_at: Option<Timestamp>,
    /// A decision cancels the rest.
    pub cancels_late: bool,
    /// When its user cancelled or dropped it undecided.
    pub cancelled_at: Option<Timestamp>,
    /// When nothing of it was left to be waited for, as its initiator says.
    pub settled_at: Option<Timestamp>,
    /// End of the call, as its core says, and its time.
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
    /// Items of its request that its user has sent.
    pub items: Vec<Bytes>,
    /// Its user has said that there are no others.
    pub has_finished_items: bool,
}

/// The truth about one task.
#[derive(Debug)]
pub struct TaskTruth {
    /// Node that it was sent to.
    pub sent_to: NodeId,
    /// The task that opened it; `None` for a root branch.
    pub parent: Option<TaskKey>,
    /// All above it keep the protocol.
    pub is_honest: bool,
    /// Each time it started: where and when.
    pub runs: Vec<(NodeId, Timestamp)>,
    /// When it is stopped at the latest.
    pub deadline: Timestamp,
    /// Branches it opened.
    pub children: Vec<TaskKey>,
    /// The replies it sent.
    pub replies: Vec<ReplyTruth>,
    /// End of the task, and its time.
    pub end: Option<(Timestamp, TaskEnd)>,
    /// When its node crashed while it ran, or a frame of it was lost with a connection.
    pub hurt_at: Option<Timestamp>,
}

/// One reply of a task.
#[derive(Debug, Default)]
pub struct ReplyTruth {
    /// The message, or the items.
    pub messages: Vec<Bytes>,
    /// The metadata of those messages that had any.
    pub tags: BTreeMap<usize, Bytes>,
    /// It is a stream.
    pub is_stream: bool,
    /// Nothing more comes.
    pub is_over: bool,
}

impl ReplyTruth {
    /// A reply of one message, with its metadata.
    pub fn whole(message: Bytes, tag: Option<Bytes>) -> Self {
        let tags = tag.into_iter().map(|tag| (0, tag)).collect();
        Self { messages: vec![message], tags, is_stream: false, is_over: true }
    }
}

/// End of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It returned.
    Finished,
    /// It handed its branch on.
    Tailed,
    /// It failed.
    Failed {
        /// Cause.
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
    /// The secret that the keys of a call are made of.
    pub fn secret(&self, call: CallId) -> Option<&Secret> {
        self.secrets.get(&call.origin.of_stream(0))
    }

    /// Name of a task.
    pub fn name(&self, task: &TaskRef) -> TaskName {
        self.name_of(task.call, &task.task, task.key())
    }

    /// Name of the task with this key.
    pub fn name_of(&self, call: CallId, task: &TaskKey, key: Key) -> TaskName {
        let secret = self.secret(call);
        let own = secret.and_then(|secret| secret.branch(call, &task.path));
        TaskName { call, task: task.clone(), made_up: (own != Some(key)).then_some(key) }
    }

    /// The truth about a task.
    pub fn truth(&self, task: &TaskRef) -> Option<&TaskTruth> {
        self.tasks.get(&self.name(task))
    }

    /// The same, to be added to.
    pub fn truth_mut(&mut self, task: &TaskRef) -> Option<&mut TaskTruth> {
        let name = self.name(task);
        self.tasks.get_mut(&name)
    }

    /// True when a branch, or one above it, is held by a node that does not keep the protocol.
    pub fn is_tainted(&self, call: CallId, path: &Path) -> bool {
        !self.liars.is_empty()
            && (!self.calls.contains_key(&call)
                || path.prefixes().any(|prefix| self.tainted.contains(&(call, prefix))))
    }

    /// True when a call has but one root branch, and a liar holds something of it.
    pub fn is_at_mercy(&self, call: CallId) -> bool {
        let roots = self.tasks_of(call).filter(|(task, _)| task.path.level_count() == 1);
        let is_any = self.tainted.iter().any(|(of, _)| *of == call);
        is_any && roots.map(|(task, _)| &task.path).collect::<BTreeSet<_>>().len() == 1
    }

    /// True when a liar holds something below the same root branch.
    pub fn is_beside_liar(&self, call: CallId, path: &Path) -> bool {
        let root = path.prefixes().next().unwrap_or_default();
        self.tainted.iter().any(|(of, top)| *of == call && root.is_prefix_of(top))
    }

    /// True when a task is one that nodes which keep the protocol have opened, hold, and answer
    /// for.
    pub fn is_sound(&self, name: &TaskName) -> bool {
        name.made_up.is_none() && !self.is_tainted(name.call, &name.task.path)
    }

    /// A branch was opened.
    pub fn open(&mut self, task: TaskName, sent_to: NodeId, parent: Option<TaskKey>) {
        let TaskName { call, made_up, .. } = task;
        let above = parent.clone().map(|task| TaskName { call, task, made_up });
        let is_honest = made_up.is_none()
            && above.is_none_or(|above| {
                let above = self.tasks.get(&above);
                above.is_some_and(|above| above.is_honest && !self.liars.contains(&above.sent_to))
            });
        if made_up.is_none() && self.liars.contains(&sent_to) {
            self.tainted.insert((call, task.task.path.clone()));
        }
        let truth = TaskTruth {
            sent_to,
            parent,
            is_honest,
            runs: Vec::new(),
            deadline: Timestamp::MAX,
            children: Vec::new(),
            replies: Vec::new(),
            end: None,
            hurt_at: None,
        };
        self.tasks.insert(task, truth);
    }

    /// A task starts that no node has opened which keeps the protocol.
    pub fn open_by_liar(&mut self, task: TaskName, sent_to: NodeId) {
        self.open(task.clone(), sent_to, None);
        if let Some(truth) = self.tasks.get_mut(&task) {
            truth.is_honest = false;
        }
    }

    /// A task ended by handing its only branch on: that branch is its own, one hop further.
    pub fn tail(&mut self, task: &TaskName) {
        let Some(truth) = self.tasks.get_mut(task) else { return };
        truth.end = Some((self.now, TaskEnd::Tailed));
        let Some(child) = truth.children.pop() else { return };
        let next = TaskKey { path: task.task.path.clone(), hop: task.task.hop + 1 };
        let moved = self.tasks.remove(&task.child(child.clone()));
        if self.tainted.contains(&(task.call, child.path)) {
            self.tainted.insert((task.call, next.path.clone()));
        }
        if let Some(moved) = moved {
            self.tasks.insert(TaskName { task: next, ..task.clone() }, moved);
        }
    }

    /// A task ended. The first end counts.
    pub fn end(&mut self, task: &TaskName, end: TaskEnd) {
        let now = self.now;
        if let Some(truth) = self.tasks.get_mut(task) {
            truth.end.get_or_insert((now, end));
        }
    }

    /// A fault hit a task, or a frame of it.
    pub fn hurt(&mut self, task: &TaskName) {
        let now = self.now;
        if let Some(truth) = self.tasks.get_mut(task) {
            truth.hurt_at = Some(now);
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
            CallEvent::Sent(_) | CallEvent::Silent { .. } => {}
        }
    }

    /// A frame left for another node. One that is relayed costs a call only what its own sender
    /// spent.
    pub fn count(&mut self, from: NodeId, frame: &Frame) {
        let message = &frame.message;
        *self.frames.entry(message.name()).or_default() += 1;
        if frame.relayed.is_some_and(|relayed| relayed.node != from) {
            return;
        }
        match message {
            Message::Request(_) => self.cost.requests += 1,
            Message::Manifest(_) => self.cost.manifests += 1,
            Message::Reply(reply) => {
                let is_first = reply.part.is_none_or(|part| part.offset == 0);
                self.cost.replies += u64::from(is_first && !reply.is_mark());
            }
            _ => {}
        }
    }

    /// The tasks of one call that its initiator and those it asked have opened.
    pub fn tasks_of(&self, call: CallId) -> impl Iterator<Item = (&TaskKey, &TaskTruth)> {
        let first = TaskName::of(call, TaskKey { path: Path::root(), hop: 0 });
        let tasks = self.tasks.range(first..).take_while(move |(task, _)| task.call == call);
        let tasks = tasks.filter(|(task, _)| task.made_up.is_none());
        tasks.map(|(task, truth)| (&task.task, truth))
    }

    /// Those of them that no liar has any part in.
    pub fn sound_tasks_of(&self, call: CallId) -> impl Iterator<Item = (&TaskKey, &TaskTruth)> {
        self.tasks_of(call).filter(move |(task, _)| !self.is_tainted(call, &task.path))
    }

    /// True when a task at or above `path` failed and took its branches with it.
    pub fn is_given_up(&self, call: CallId, path: &Path) -> bool {
        let aborts = |truth: &TaskTruth| {
            matches!(truth.end, Some((_, TaskEnd::Failed { aborts: true, .. })))
        };
        self.tasks_of(call).any(|(at, truth)| at.path.is_prefix_of(path) && aborts(truth))
    }
}

impl TaskTruth {
    /// True when it started where it was sent.
    pub fn has_run(&self) -> bool {
        self.runs.iter().any(|(node, _)| *node == self.sent_to)
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
