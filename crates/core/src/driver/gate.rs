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
    /// dropped.
    pub(super) fn note_stopped(&mut self, count: usize, is_running: impl Fn(&TaskRef) -> bool) {
        self.stopped_count += count;
        if self.stopped_count < UNSWEPT_MAX.max(self.waiting_count / 2) {
            return;
        }
        self.stopped_count = 0;
        if self.waiting_count > 0 {
            let queues = self.closed.values_mut();
            queues.for_each(|waiting| waiting.retain(|start| is_running(&start.task)));
            self.waiting_count = self.closed.values().map(VecDeque::len).sum();
        }
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
