//! Trace of a call as its initiator saw it, for people who want to see the request tree that was
//! executed.

use crate::id::{NodeId, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Cause, Entry};

/// Events that a call keeps, the first of them: some 10 MiB. A peer can send items of a stream
/// without end.
pub const EVENTS_MAX: usize = 1 << 16;

/// One thing the initiator learnt, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When it learnt it.
    pub at: Timestamp,
    /// Its task.
    pub task: TaskKey,
    /// The event.
    pub what: Traced,
}

/// Event that an initiator learns of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced {
    /// It was asked for: a root branch.
    Opened {
        /// At this node.
        node: NodeId,
    },
    /// A frame of a reply came that was not whole yet.
    Reply {
        /// From this node.
        from: NodeId,
        /// Bytes of payload.
        bytes: usize,
    },
    /// It has ended, and declared this.
    Ended {
        /// Branches, replies, and where the branches went.
        entry: Entry,
        /// The way by which the entry came.
        by: EntryBy,
    },
    /// It failed.
    Failed {
        /// Reason.
        cause: Cause,
    },
}

/// Way by which a manifest entry reached the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryBy {
    /// Not at all: a sole reply implies it.
    Elided,
    /// It rode on the task's own last reply or failure.
    Reply,
    /// It rode on requests and came with a descendant's frame.
    Descendant,
    /// In a MANIFEST of its own.
    Manifest,
    /// In the answer to a PROBE, or a report of a lost connection.
    Recovered,
}
