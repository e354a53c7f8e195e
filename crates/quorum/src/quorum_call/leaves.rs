//! Branches of a tree on which its leaves count.

use std::sync::Arc;

use convoke_core::{NodeId, Path};

/// Says which branches are whose.
type IsAt = dyn Fn(NodeId, &Path) -> bool + Send + Sync;

/// The branches on which members count that are the leaves of a tree: all, or those that are named.
#[derive(Clone)]
pub(crate) struct Leaves(Option<Arc<IsAt>>);

impl Leaves {
    pub(super) fn anywhere() -> Self {
        Self(None)
    }

    pub(super) fn at(is_at: impl Fn(NodeId, &Path) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_at)))
    }

    /// True when a member counts on a branch.
    pub(super) fn is_of(&self, member: NodeId, path: &Path) -> bool {
        self.0.as_ref().is_none_or(|is_at| is_at(member, path))
    }
}
