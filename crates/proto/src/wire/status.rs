//! STATUS: a node says how tasks are.

use crate::id::{LinkNonce, NodeId};

use super::codec::{Out, Reader, TASKS_MAX, WireError};
use super::entry::{Entry, Sealed, read_sealed, write_sealed};
use super::probe::Asked;

/// Answers a PROBE. Typically 33 bytes for a running task, 49 for a closed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Each task asked for, with the key that the PROBE gave, in that order: one to
    /// [`super::TASKS_MAX`].
    pub tasks: Vec<(Asked, TaskStatus)>,
    /// Entries of ancestors that the tasks were given to pass on.
    pub inherited: Vec<Sealed>,
}

/// The state of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Not known here. It may still come; or it is further down, where this node cannot ask.
    Unknown,
    /// It runs, or has output that is still leaving.
    Running,
    /// It handed its branch to the next task of the branch, at this node.
    Tailed {
        /// Node of the next hop.
        node: NodeId,
    },
    /// It ended, and everything it sent has left by this way.
    Closed {
        /// The task's declaration.
        entry: Box<Entry>,
        /// The way by which its replies left.
        replies_by: ReplyPath,
    },
    /// It never ran here and never will.
    Fenced,
    /// Its call is over here, and no more is known of it.
    Forgotten,
}

/// Way by which the replies of a task left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPath {
    /// Over this connection to the initiator.
    Link(LinkNonce),
    /// Through this node, for the initiator could not be reached directly.
    Relay(NodeId),
    /// None left, or in process.
    Nowhere,
}

impl Status {
    /// The word of a node that knows none of these tasks.
    pub(crate) fn unknown(tasks: &[Asked]) -> Self {
        let tasks = tasks.iter().map(|asked| (asked.clone(), TaskStatus::Unknown));
        Self { tasks: tasks.collect(), inherited: Vec::new() }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.count(self.tasks.len());
        for (asked, status) in &self.tasks {
            asked.write(out);
            status.write(out);
        }
        write_sealed(&self.inherited, out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let tasks = input.some(TASKS_MAX, Asked::BYTES_MIN + 1, |input| {
            Ok((Asked::read(input)?, TaskStatus::read(input)?))
        })?;
        Ok(Self { tasks, inherited: read_sealed(input)? })
    }
}

impl TaskStatus {
    fn write(&self, out: &mut impl Out) {
        match self {
            Self::Unknown => out.u8(0),
            Self::Running => out.u8(1),
            Self::Tailed { node } => {
                out.u8(2);
                out.node(*node);
            }
            Self::Closed { entry, replies_by } => {
                out.u8(3);
                entry.write(out);
                replies_by.write(out);
            }
            Self::Fenced => out.u8(4),
            Self::Forgotten => out.u8(5),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match input.u8()? {
            0 => Self::Unknown,
            1 => Self::Running,
            2 => Self::Tailed { node: input.node()? },
            3 => Self::Closed {
                entry: Box::new(Entry::read(input)?),
                replies_by: ReplyPath::read(input)?,
            },
            4 => Self::Fenced,
            5 => Self::Forgotten,
            _ => return Err(WireError::Invalid),
        })
    }
}

impl ReplyPath {
    fn write(self, out: &mut impl Out) {
        match self {
            Self::Nowhere => out.u8(0),
            Self::Link(nonce) => {
                out.u8(1);
                out.u64(nonce.0);
            }
            Self::Relay(node) => {
                out.u8(2);
                out.node(node);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match input.u8()? {
            0 => Self::Nowhere,
            1 => Self::Link(LinkNonce(input.u64()?)),
            2 => Self::Relay(input.node()?),
            _ => return Err(WireError::Invalid),
        })
    }
}
