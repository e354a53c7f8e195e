//! Rights to speak of a task: who may say what (`trust.md` T2 to T4, T7, T8). A statement that does
//! not count is dropped as if it had not come, and counted; it is a [`Fault`](super::Fault) where
//! no honest node could have sent it.
//!
//! | statement | counts |
//! |---|---|
//! | REQUEST of a root branch at hop 0; floor, SETTLED | over a connection of the initiator's node and life |
//! | SETTLED about another's calls | for finished tasks whose requests its sender had sent when it was asked, and all below them |
//! | REPLY, MANIFEST, FAIL, LINK_DOWN of a root branch at hop 0 | over the very connection that its request took, or with the key of the branch |
//! | the same of any other task, or relayed; STATUS | with the key of the branch |
//! | entry carried for another task | with a seal by the key of its branch, on a frame that counts |
//! | FAIL, STATUS that a task did not run | as such from the node known to hold it; from another it is "may have run" |
//! | CANCEL, PROBE, fence, CREDIT | with the key of the task |
//! | relayed frame to the initiator | with the key, from the node that the branch above was sent to which it names |
//! | relayed frame from the initiator | with the key, from who sent the branch above which it names |
//! | addresses of a node | from the endpoint's owner, then the node; from others while nobody else has said |
//! | CAST | by its connection |

use crate::id::TaskKey;
use crate::wire::Entry;

/// True when a frame of `task` may carry this entry of a task above it.
pub(crate) fn is_inherited(entry: &Entry, task: &TaskKey) -> bool {
    entry.task.path != task.path && entry.task.path.is_prefix_of(&task.path)
}

/// True when `child` can have been opened by `task`, as a branch or as its tail.
pub(crate) fn is_child(child: &TaskKey, task: &TaskKey) -> bool {
    let is_branch = child.path.parent().is_some_and(|(parent, _)| parent == task.path);
    let is_tail = child.path == task.path && child.hop == task.hop.saturating_add(1);
    (is_branch && child.hop == 0) || is_tail
}
