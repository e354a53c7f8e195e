//! Branches that a task is about to open.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_proto::task::Branch;
use convoke_proto::time::Timestamp;

/// A branch that a task is about to open.
#[derive(Debug)]
pub(crate) struct NewBranch {
    pub(super) branch: Branch,
    /// Time that it gets, from when it is opened.
    pub(super) budget: Option<Duration>,
}

impl NewBranch {
    pub(super) fn take(&mut self, now: Timestamp) -> Branch {
        Branch { deadline: self.budget.map(|budget| now + budget), ..self.branch.take() }
    }
}

/// Branches of a fan-out that are not opened yet. Those of nodes without room are kept by node: so
/// each such node is looked at once, however many branches wait for it, until one has room.
#[derive(Debug, Default)]
pub(crate) struct NewBranches {
    /// In their order, those that were never passed over.
    fresh: VecDeque<NewBranch>,
    /// Nodes that had no room, and have to be looked at again.
    again: BTreeMap<NodeId, VecDeque<NewBranch>>,
    /// Nodes that have no room since they were looked at.
    full: BTreeMap<NodeId, VecDeque<NewBranch>>,
}

impl FromIterator<NewBranch> for NewBranches {
    fn from_iter<T: IntoIterator<Item = NewBranch>>(branches: T) -> Self {
        Self { fresh: branches.into_iter().collect(), ..Self::default() }
    }
}

impl NewBranches {
    pub(crate) fn len(&self) -> usize {
        let waiting = self.again.values().chain(self.full.values());
        self.fresh.len() + waiting.map(VecDeque::len).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty() && self.full.is_empty()
    }

    /// True when none can be opened before a node without room has some.
    pub(super) fn waits_for_room(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty() && !self.full.is_empty()
    }

    /// Nodes that had no room may have.
    pub(super) fn look_again(&mut self) {
        debug_assert!(self.again.is_empty(), "all were looked at");
        self.again = mem::take(&mut self.full);
    }

    /// The next branch whose node has room; `None` when none has. Those of one node come in their
    /// order.
    pub(super) fn next(&mut self, mut has_room: impl FnMut(NodeId) -> bool) -> Option<NewBranch> {
        while let Some(mut waiting) = self.again.first_entry() {
            if !has_room(*waiting.key()) {
                let (node, branches) = waiting.remove_entry();
                self.full.insert(node, branches);
            } else if let Some(branch) = waiting.get_mut().pop_front() {
                if waiting.get().is_empty() {
                    waiting.remove();
                }
                return Some(branch);
            }
        }
        while let Some(branch) = self.fresh.pop_front() {
            let to = branch.branch.to;
            if let Some(waiting) = self.full.get_mut(&to) {
                waiting.push_back(branch);
            } else if has_room(to) {
                return Some(branch);
            } else {
                self.full.insert(to, VecDeque::from([branch]));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use convoke_proto::encoded::Encoded;
    use convoke_proto::id::MethodId;

    use super::*;

    /// Nodes without room, and as many with.
    const FULL: u64 = 100;
    const BRANCHES: u64 = 1_000;

    fn branch(number: u64) -> NewBranch {
        let to = NodeId::new(1 + number % (2 * FULL));
        let (payload, extensions) = (Encoded::default(), Vec::new());
        let branch = Branch { to, method: MethodId(7), payload, extensions, deadline: None };
        NewBranch { branch, budget: Some(Duration::from_secs(number)) }
    }

    #[test]
    fn each_node_without_room_is_looked_at_once_a_poll_and_keeps_its_order() {
        let mut branches: NewBranches = (0..BRANCHES).map(branch).collect();
        let mut opened = Vec::new();
        let mut poll = |least: u64, opened: &mut Vec<_>| {
            let mut looks = 0;
            let mut has_room = |to: NodeId| {
                looks += 1;
                to.get() > least
            };
            branches.look_again();
            while let Some(NewBranch { branch, budget }) = branches.next(&mut has_room) {
                opened.push((branch.to, budget));
            }
            (looks, opened.len() as u64, branches.len() as u64)
        };
        let half = BRANCHES / 2;
        assert_eq!(poll(FULL, &mut opened), (FULL + half, half, half));
        assert_eq!(poll(FULL, &mut opened), (FULL, half, half), "none has room yet");
        assert_eq!(poll(0, &mut opened), (half, BRANCHES, 0));
        opened.sort_by_key(|(to, _)| *to);
        assert!(opened.is_sorted(), "those of a node have left in their order");
    }
}
