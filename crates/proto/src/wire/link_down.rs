//! LINK_DOWN: a parent lost its connection to the node of some of its children.

use crate::id::{NodeId, TaskKey};

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, Sealed, write_sealed};
use super::manifest::{FLAG_OWN, read_own_and_sealed};

/// Requests to `node` may have been lost: the initiator should ask there. Typically 34 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDown {
    /// The node the connection was to.
    pub node: NodeId,
    /// The children sent there by the task named in the header; [`super::TASKS_MAX`] at most.
    pub children: Vec<TaskKey>,
    /// The reporter's entry, if it has finished: the copies that the children carried may be lost
    /// with them.
    pub own: Option<Entry>,
    /// The entries that it was given to pass on, which may be lost likewise.
    pub inherited: Vec<Sealed>,
}

impl LinkDown {
    pub(super) fn flags(&self) -> u8 {
        if self.own.is_some() { FLAG_OWN } else { 0 }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.node(self.node);
        out.count(self.children.len());
        self.children.iter().for_each(|child| out.key(child));
        if let Some(own) = &self.own {
            own.write(out);
        }
        write_sealed(&self.inherited, out);
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        let node = input.node()?;
        let children = input.tasks(2, Reader::key)?;
        let (own, inherited) = read_own_and_sealed(flags, input)?;
        Ok(Self { node, children, own, inherited })
    }
}
