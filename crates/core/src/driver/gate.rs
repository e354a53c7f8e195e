//! Ordered methods: one handler at a time for each peer and service, in the order of submission.

use std::collections::{BTreeMap, VecDeque};

use convoke_proto::id::NodeId;
use convoke_proto::visits::{Start, TaskRef};

/// Name of handlers that run one at a time: the peer that opened the branch, and the name that
/// orders.
pub(super) type GateKey = (NodeId, &'static str);

/// The gates that are closed, with what waits behind each. Bounded by the running tasks: what was
/// stopped while it waits is in nobody's share any more, and is looked for.
#[derive(Debug, Default)]
pub(super) struct Gates {
    closed: BTreeMap<GateKey, VecDeque<Start>>,
    waiting_count: usize,
    /// Tasks stopped since those that wait were last looked through, wherever they were.
    stopped_count: usize,
}

/// Takes the stopped ones out of those that wait. They are to be dropped without any lock, for the
/// owner of a request may call back.
pub(super) fn take_stopped(
    waiting: &mut VecDeque<Start>,
    is_running: impl Fn(&TaskRef) -> bool,
) -> VecDeque<Start> {
    let all = std::mem::take(waiting).into_iter();
    let (live, stopped) = all.partition(|start| is_running(&start.task));
    *waiting = live;
    stopped
}

/// Tasks that are stopped before those that wait are looked through.
const UNSWEPT_MAX: usize = 16;

impl Gates {
    /// Passes and closes the gate, giving the start back, or waits behind the one that did.
    pub(super) fn enter(&mut self, key: GateKey, start: Start) -> Option<Start> {
        match self.closed.get_mut(&key) {
            Some(waiting) => {
                waiting.push_back(start);
                self.waiting_count += 1;
                None
            }
            None => {
                self.closed.insert(key, VecDeque::new());
                Some(start)
            }
        }
    }

    /// Handlers that wait behind an earlier one.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting_count
    }

    /// So many tasks were stopped. Once they may be half of those that wait, the stopped ones are
    /// taken out.
    pub(super) fn note_stopped(
        &mut self,
        count: usize,
        is_running: impl Fn(&TaskRef) -> bool,
    ) -> Vec<Start> {
        self.stopped_count += count;
        if self.stopped_count < UNSWEPT_MAX.max(self.waiting_count / 2) {
            return Vec::new();
        }
        self.stopped_count = 0;
        let queues = self.closed.values_mut();
        let stopped: Vec<_> = queues.flat_map(|queue| take_stopped(queue, &is_running)).collect();
        self.waiting_count -= stopped.len();
        stopped
    }

    /// Opens every gate, and gives back what waited.
    pub(super) fn open_all(&mut self) -> Vec<Start> {
        std::mem::take(self).closed.into_values().flatten().collect()
    }

    /// The one that passed is done or lets the next one through, which is returned.
    pub(super) fn leave(&mut self, key: GateKey) -> Option<Start> {
        let next = self.closed.get_mut(&key)?.pop_front();
        match next {
            Some(_) => self.waiting_count -= 1,
            None => drop(self.closed.remove(&key)),
        }
        next
    }
}
