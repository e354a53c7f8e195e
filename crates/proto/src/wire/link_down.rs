//! LINK_DOWN: a parent lost its connection to the node of some of its children.

use crate::id::{NodeId, TaskKey};

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, read_entries, write_entries};

/// Requests to `node` may have been lost: the initiator should ask there. Typically 34 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDown {
    /// The node the connection was to.
    pub node: NodeId,
    /// The children sent there by the task named in the header; [`super::TASKS_MAX`] at most.
    pub children: Vec<TaskKey>,
    /// The reporter's entry, if it has ended, and those it was given to pass on: the copies that the
    /// children carried may be lost with them.
    pub entries: Vec<Entry>,
}

impl LinkDown {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.node(self.node);
        out.count(self.children.len());
        self.children.iter().for_each(|child| out.key(child));
        write_entries(&self.entries, out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let node = input.node()?;
        let children = input.tasks(2, Reader::key)?;
        Ok(Self { node, children, entries: read_entries(input)? })
    }
}
