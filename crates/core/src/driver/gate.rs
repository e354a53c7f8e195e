//! Ordered methods: one handler at a time for each peer and service, in the order of submission.

use std::collections::{BTreeMap, VecDeque};

use convoke_proto::id::NodeId;
use convoke_proto::visits::Start;

/// Name of handlers that run one at a time: the peer that opened the branch, and the name that
/// orders.
pub(super) type GateKey = (NodeId, &'static str);

/// The gates that are closed, with what waits behind each. Bounded by the running tasks.
#[derive(Debug, Default)]
pub(super) struct Gates(BTreeMap<GateKey, VecDeque<Start>>);

impl Gates {
    /// Passes and closes the gate, giving the start back, or waits behind the one that did.
    pub(super) fn enter(&mut self, key: GateKey, start: Start) -> Option<Start> {
        match self.0.get_mut(&key) {
            Some(waiting) => {
                waiting.push_back(start);
                None
            }
            None => {
                self.0.insert(key, VecDeque::new());
                Some(start)
            }
        }
    }

    /// Handlers that wait behind an earlier one.
    pub(super) fn waiting_count(&self) -> usize {
        self.0.values().map(VecDeque::len).sum()
    }

    /// Opens every gate, and gives back what waited.
    pub(super) fn open_all(&mut self) -> Vec<Start> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }

    /// The one that passed is done or lets the next one through, which is returned.
    pub(super) fn leave(&mut self, key: GateKey) -> Option<Start> {
        let waiting = self.0.get_mut(&key)?;
        let next = waiting.pop_front();
        if next.is_none() {
            self.0.remove(&key);
        }
        next
    }
}
