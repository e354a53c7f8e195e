//! Branches of a tree on which its leaves count, and those below which they have failed.

use std::collections::{BTreeSet, VecDeque};

use convoke_core::{NodeId, Path};

/// Says which branches are whose.
type IsAt = dyn Fn(NodeId, &Path) -> bool + Send + Sync;

/// Members that are the leaves of a tree.
pub(crate) struct Leaves {
    /// The branches on which they count; all, where none are named.
    is_at: Option<Box<IsAt>>,
    /// Root branches below which they may still reply.
    open: BTreeSet<usize>,
    /// Members, by index, that have failed below a root branch.
    failed: BTreeSet<(usize, usize)>,
    /// Members that are lost since a root branch is over, and were not told of yet.
    pub(super) lost: VecDeque<usize>,
}

impl Leaves {
    /// Those below so many root branches, wherever.
    pub(super) fn below(root_count: usize) -> Self {
        let (failed, lost) = Default::default();
        Self { is_at: None, open: (0..root_count).collect(), failed, lost }
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

    /// Notes that a member has failed below a root branch. True when it has below all open ones.
    pub(super) fn fail(&mut self, member: usize, root: usize) -> bool {
        self.failed.insert((member, root));
        self.is_lost(member)
    }

    /// Notes that a root branch is over: no leaf is reached below it any more. Those that have
    /// failed below all others are lost.
    pub(super) fn close(&mut self, root: usize) {
        self.open.remove(&root);
        self.note_lost();
    }

    /// Notes that all root branches are over.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
        self.note_lost();
    }

    fn note_lost(&mut self) {
        let mut lost: BTreeSet<usize> = self.failed.iter().map(|(member, _)| *member).collect();
        lost.retain(|member| self.is_lost(*member));
        self.lost.extend(lost);
    }

    fn is_lost(&self, member: usize) -> bool {
        self.open.iter().all(|root| self.failed.contains(&(member, *root)))
    }
}
