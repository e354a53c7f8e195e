//! Nodes that may cast here, beside those whose addresses this node was given.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;

/// Those that were named, of which the latest are remembered, and the members of spaces, while they
/// are members of one that is open.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By the number of the naming that was the latest of each.
    named: BTreeMap<NodeId, u64>,
    by_naming: BTreeMap<u64, NodeId>,
    namings: u64,
    groups: BTreeMap<Group, BTreeSet<NodeId>>,
    /// In how many of these a node is.
    uses: BTreeMap<NodeId, usize>,
    has_heard: bool,
}

/// Nodes that are known together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Members of a space that is read here, and those that are to be; after it was closed, while
    /// any of its tags is open.
    Here(u64),
    /// Members of a space that is read at any core of the node.
    AtAny(u64),
}

/// Nodes that are remembered as named: a bound for a program that names ever others.
const NAMED_MAX: usize = 1 << 16;

impl Known {
    /// True of a node that may cast.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.named.contains_key(&node) || self.uses.contains_key(&node)
    }

    /// True once anybody was named, though it may be forgotten by now: who could tell strangers
    /// apart does not hear them again.
    pub(super) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Remembers a node. Where too many are, the one goes that was named longest ago.
    pub(super) fn name(&mut self, node: NodeId) {
        self.has_heard = true;
        self.namings += 1;
        if let Some(earlier) = self.named.insert(node, self.namings) {
            self.by_naming.remove(&earlier);
        }
        self.by_naming.insert(self.namings, node);
        if self.named.len() > NAMED_MAX
            && let Some((_, oldest)) = self.by_naming.pop_first()
        {
            self.named.remove(&oldest);
        }
    }

    /// Sets who is in a group, in place of those who were.
    pub(super) fn set(&mut self, group: Group, members: BTreeSet<NodeId>) {
        self.has_heard |= !members.is_empty();
        members.iter().for_each(|member| *self.uses.entry(*member).or_default() += 1);
        let before = match members.is_empty() {
            true => self.groups.remove(&group),
            false => self.groups.insert(group, members),
        };
        for member in before.into_iter().flatten() {
            if let Some(uses) = self.uses.get_mut(&member) {
                *uses -= 1;
                if *uses == 0 {
                    self.uses.remove(&member);
                }
            }
        }
    }

    /// Those of a group.
    pub(super) fn of(&self, group: Group) -> impl Iterator<Item = NodeId> + '_ {
        self.groups.get(&group).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
        ids.into_iter().map(NodeId::new).collect()
    }

    #[test]
    fn a_member_of_two_groups_is_known_until_it_is_of_neither() {
        let mut known = Known::default();
        assert!(!known.has_heard());
        let [first, second] = [Group::Here(1), Group::AtAny(1)];
        known.set(first, nodes([1, 2]));
        known.set(second, nodes([2, 3]));
        known.set(first, nodes([1]));
        assert!((1..=3).all(|id| known.contains(NodeId::new(id))));
        known.set(second, nodes([3]));
        assert!(!known.contains(NodeId::new(2)));
        assert!(known.of(second).eq([NodeId::new(3)]));
        known.name(NodeId::new(3));
        [first, second].into_iter().for_each(|group| known.set(group, nodes([])));
        assert!(known.contains(NodeId::new(3)), "it was named, too");
        assert!(!known.contains(NodeId::new(1)));
        assert!(known.uses.is_empty() && known.groups.is_empty() && known.has_heard());
    }
}
