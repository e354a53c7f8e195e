//! Branches of a tree on which its leaves count, and those below which they have failed.

use std::collections::BTreeSet;

use convoke_core::{NodeId, Path};

/// Says which branches are whose.
type IsAt = dyn Fn(NodeId, &Path) -> bool + Send + Sync;

/// Members that are the leaves of a tree.
pub(crate) struct Leaves {
    /// The branches on which they count; all, where none are named.
    is_at: Option<Box<IsAt>>,
    root_count: usize,
    /// Members, by index, that have failed below a root branch.
    failed: BTreeSet<(usize, usize)>,
}

impl Leaves {
    /// Those below so many root branches, wherever.
    pub(super) fn below(root_count: usize) -> Self {
        Self { is_at: None, root_count, failed: BTreeSet::new() }
    }

    /// The same on the branches that `is_at` names.
    pub(super) fn at<F>(self, is_at: F) -> Self
    where
        F: Fn(NodeId, &Path) -> bool + Send + Sync + 'static,
    {
        Self { is_at: Some(Box::new(is_at)), ..self }
    }

    /// True when a member counts on a branch.
    pub(super) fn is_of(&self, member: NodeId, path: &Path) -> bool {
        self.is_at.as_ref().is_none_or(|is_at| is_at(member, path))
    }

    /// Notes that a member has failed below a root branch. True when it has below each.
    pub(super) fn fail(&mut self, member: usize, root: usize) -> bool {
        self.failed.insert((member, root));
        self.failed.range((member, 0)..=(member, usize::MAX)).count() >= self.root_count
    }
}
