//! Who may say what of which task. What breaks a rule is dropped as if it had not come, or is a
//! [`Fault`](super::Fault) where no honest node could have sent it.
//!
//! | statement | taken from |
//! |---|---|
//! | REQUEST of a root branch at hop 0; floor | the initiator, on its own connection |
//! | floor, for tasks whose requests it sent | any node |
//! | REPLY, FAIL, LINK_DOWN, own entry, STATUS of a root branch at hop 0 | the node its request went to, on its own connection |
//! | the same of another task | its known holder, if one is known for that hop |
//! | CANCEL | the initiator; for tasks whose requests it sent, any node |
//! | relayed CREDIT, PROBE without fence | who sent the request of the task or of one above it here; to be passed on, also the initiator |
//! | PROBE with fence | the initiator, on its own connection |
//! | relayed frame to the initiator | a node that a branch above was sent to |
//! | addresses of a node | the endpoint's owner, then the node; others only while nobody else has said |
//! | inherited entry | who may speak for a task below it |
//! | FAIL that names another node: its request never left | who held the branch one hop earlier, or holds the parent; from one that may do so unheard of, it does not prove that nothing ran |
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
    if opens_root(task) {
        return by.from == root && by.via == root;
    }
    let known = branch.filter(|branch| branch.hop == task.hop).and_then(|branch| branch.holder);
    known.is_none_or(|holder| holder.node == by.from)
}

/// Whether a request for this task is one that only the initiator sends, over a connection of its own.
pub(crate) fn opens_root(task: &TaskKey) -> bool {
    task.path.level_count() == 1 && task.hop == 0
}

/// What speaks for the sender of a report that the request of a task never left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is the one that would have sent it.
    Sender,
    /// It may be: the branch above can have gone on by a tail that has not been heard of.
    Unproven,
    /// It is somebody else.
    Stranger,
}

/// What to make of a FAIL for `task` which says that its request never left for `node`.
pub(crate) fn standing_of_unsent(
    by: Arrival,
    task: &TaskKey,
    node: NodeId,
    root: Option<NodeId>,
    tree: &Tree,
) -> Standing {
    let Some(root) = root else { return Standing::Stranger };
    let judge = |is_sender: bool| if is_sender { Standing::Sender } else { Standing::Stranger };
    let is_root = task.path.level_count() == 1;
    match (is_root, task.hop) {
        (true, 0) => Standing::Stranger, // Root requests are sent from here.
        (true, 1) => judge(by.from == root && by.via == root),
        (_, 0) => {
            let parent = task.path.parent().and_then(|(parent, _)| tree.get(&parent));
            let holder = parent.and_then(|branch| branch.holder);
            let said = tree.get(&task.path).and_then(|branch| branch.holder);
            match holder {
                Some(holder) if holder.node == by.from => Standing::Sender,
                _ if said.is_some_and(|said| said.node != node) => Standing::Stranger,
                _ => Standing::Unproven,
            }
        }
        (_, hop) => {
            let before = tree.get(&task.path).filter(|branch| branch.hop == hop - 1);
            let holder = before.and_then(|branch| branch.holder);
            holder.map_or(Standing::Unproven, |holder| judge(holder.node == by.from))
        }
    }
}

/// Whether a frame of `task` may carry this entry of a task above it.
pub(crate) fn is_inherited(entry: &Entry, task: &TaskKey) -> bool {
    entry.task.path != task.path && entry.task.path.is_prefix_of(&task.path)
}

/// Whether `child` can have been opened by `task`, as a branch or as its tail.
pub(crate) fn is_child(child: &TaskKey, task: &TaskKey) -> bool {
    let is_branch = child.path.parent().is_some_and(|(parent, _)| parent == task.path);
    let is_tail = child.path == task.path && child.hop == task.hop.saturating_add(1);
    (is_branch && child.hop == 0) || is_tail
}
