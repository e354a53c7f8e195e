//! Who may say what of which task. What breaks a rule is dropped as if it had not come.
//!
//! | statement | taken from |
//! |---|---|
//! | REPLY, FAIL, LINK_DOWN, own entry, STATUS of a root branch at hop 0 | the node its request went to, on its own connection |
//! | the same of another task | its known holder, if one is known for that hop |
//! | inherited entry | who may speak for a task below it |
//! | FAIL that names another node: a request never left | who held the branch one hop earlier, or the parent |
//!
//! A tail and a branch of a branch are first heard of from the node that serves them, so nobody can vouch for
//! who speaks first. Such a node can harm the branches above it as their own nodes can, and no other.

use crate::id::{NodeId, TaskKey};
use crate::wire::Entry;

use super::Arrival;
use super::tree::{Branch, Tree};

/// Whether the sender of a frame may speak for `task`. `root` is the node that its root branch was sent to:
/// `None` when the call has no such branch.
pub(crate) fn may_speak_for(
    by: Arrival,
    task: &TaskKey,
    root: Option<NodeId>,
    branch: Option<&Branch>,
) -> bool {
    let Some(root) = root else { return false };
    if task.path.level_count() == 1 && task.hop == 0 {
        return by.from == root && by.via == root;
    }
    let known = branch.filter(|branch| branch.hop == task.hop).and_then(|branch| branch.holder);
    known.is_none_or(|holder| holder.node == by.from)
}

/// Whether the sender may say that the request of `task` never left its own node.
pub(crate) fn may_report_unsent(
    by: Arrival,
    task: &TaskKey,
    root: Option<NodeId>,
    tree: &Tree,
) -> bool {
    let sender = match task.path.parent() {
        _ if task.hop > 0 => TaskKey { path: task.path.clone(), hop: task.hop - 1 },
        Some((parent, _)) if !parent.is_root() => {
            // Only the last hop opens branches; the latest that is known is as near as can be told.
            let hop = tree.get(&parent).map_or(0, |branch| branch.hop);
            TaskKey { path: parent, hop }
        }
        // Root requests are sent from here.
        _ => return false,
    };
    may_speak_for(by, &sender, root, tree.get(&sender.path))
}

/// Whether a frame of `task` may carry this entry of a task above it.
pub(crate) fn is_inherited(entry: &Entry, task: &TaskKey) -> bool {
    entry.task.path != task.path && entry.task.path.is_prefix_of(&task.path)
}
