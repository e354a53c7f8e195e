//! The properties that every run must keep, one a file, each with its number in section 4 of the
//! design of completion.
//!
//! Checked elsewhere: I15 (entries are never lost but with a node or link) is I3 seen from below,
//! for a lost entry leaves its branch open for ever; I23 (the wire) is checked on every frame as it
//! is sent; I6, I7, I22 and I25 compare whole runs or calls, in tests.

mod at_most_once;
mod cancel;
mod causes;
mod completion;
mod counters;
mod deadline;
mod exactly_once;
mod failures;
mod fenced;
mod frames;
mod hops;
mod items;
mod noticed;
mod progress;
mod quorum;
mod remembered;
mod settled;
mod shares;
mod spawn;
mod sticky;
mod stopped;
mod tables;

use std::fmt::Debug;

use convoke_proto::call::{Call, CallEvent};
use convoke_proto::id::{CallId, NodeId};
use convoke_proto::limits::Limits;
use convoke_proto::link::Lane;
use convoke_proto::node::Node;
use convoke_proto::task::{ItemsFailure, NextItem, SendError};
use convoke_proto::visits::Start;
use convoke_proto::wire::{Cause, Frame};

use crate::oracle::{Oracle, TaskName};
use crate::scenario::Scenario;

/// Something an invariant can look at. The oracle does not know it yet.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A call as its core holds it, after each event at its node.
    Call {
        /// The call.
        id: CallId,
        /// The core.
        call: &'a Call,
    },
    /// A call is settled, as its initiator says.
    Settled {
        /// The call.
        call: CallId,
    },
    /// The user of a call is told something.
    Learned {
        /// The call.
        call: CallId,
        /// The event.
        event: &'a CallEvent,
    },
    /// A task starts.
    Started {
        /// The task.
        start: &'a Start,
        /// Its node.
        node: NodeId,
    },
    /// A task is stopped from outside.
    Stopped {
        /// The task.
        task: &'a TaskName,
        /// Cause.
        cause: Cause,
        /// Its node.
        node: NodeId,
        /// Its handler had not ended.
        was_running: bool,
    },
    /// A stopped handler tried to go on.
    TriedAfterStop {
        /// The task.
        task: &'a TaskName,
        /// It was refused, as it must be.
        refused: bool,
    },
    /// The handler of a task reads its items.
    ItemRead {
        /// The task.
        task: &'a TaskName,
        /// The next item, their end, or why there is neither.
        next: &'a Result<Option<NextItem>, ItemsFailure>,
    },
    /// A caller that sends items is refused.
    ItemsRefused {
        /// Its call.
        call: CallId,
        /// Reason.
        why: SendError,
    },
    /// A frame leaves for another node.
    Sent {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// The lane.
        lane: Lane,
        /// The frame.
        frame: &'a Frame,
    },
    /// The cores of a node, after each event.
    Cores {
        /// All of them.
        cores: &'a [Node],
        /// The bounds of the node.
        limits: &'a Limits,
    },
    /// A core of a node, after each event.
    Node {
        /// The core.
        node: &'a Node,
        /// Its bounds.
        limits: &'a Limits,
    },
    /// The end of the run.
    Quiet {
        /// Every node that is up.
        nodes: &'a [&'a Node],
    },
}

/// A property of runs.
pub trait Invariant: Debug {
    /// Its number, and what it says.
    fn name(&self) -> &'static str;

    /// Looks at what happens.
    ///
    /// # Errors
    /// The violation of the property, in words.
    fn observe(&mut self, seen: &Observation<'_>, oracle: &Oracle) -> Result<(), String>;
}

/// All of them, for one run.
pub fn all_invariants(scenario: &Scenario) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(counters::Counters),
        Box::new(completion::Completion),
        Box::new(progress::Progress::new(scenario)),
        Box::new(deadline::Deadline),
        Box::new(exactly_once::ExactlyOnce::default()),
        Box::new(at_most_once::AtMostOnce),
        Box::new(failures::Failures::default()),
        Box::new(sticky::Sticky::default()),
        Box::new(fenced::Fenced::default()),
        Box::new(causes::Causes::new(scenario)),
        Box::new(cancel::Cancel::new(scenario)),
        Box::new(spawn::Spawn),
        Box::new(frames::Frames::new(scenario)),
        Box::new(items::Items::new(scenario)),
        Box::new(tables::Tables),
        Box::new(quorum::Quorum),
        Box::new(hops::Hops::default()),
        Box::new(settled::Settled::new(scenario)),
        Box::new(remembered::Remembered::new(scenario)),
        Box::new(noticed::Noticed::new(scenario)),
        Box::new(stopped::Stopped::new(scenario)),
        Box::new(shares::Shares),
        Box::new(shares::Paid::default()),
    ]
}
