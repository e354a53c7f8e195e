//! Events that can happen next.

use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{CallId, LinkNonce};
use convoke_proto::link::Lane;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;

use crate::network::{End, Place};
use crate::scenario::Fault;

use super::callers::CallSpec;
use super::liars::Subject;

/// An entry of the queue. Those with an `End` happen to a node in one life, and wait while it is
/// paused.
#[derive(Debug)]
pub(super) enum Event {
    Frame {
        to: End,
        link: LinkNonce,
        lane: Lane,
        /// As it was encoded.
        frame: Bytes,
    },
    /// A dial has come to the node it is for; the answer takes `back`.
    Accept {
        from: End,
        to: Place,
        back: Duration,
        succeeds: bool,
    },
    LinkUp {
        end: End,
        link: LinkNonce,
    },
    LinkDown {
        end: End,
        link: LinkNonce,
    },
    /// A connection has room again for what can wait.
    Room {
        end: End,
        core: usize,
        link: LinkNonce,
    },
    DialFailed {
        end: End,
        peer: Place,
    },
    Wake {
        end: End,
    },
    /// The handler of a task goes on.
    Step {
        end: End,
        task: TaskRef,
    },
    /// Tasks that wait for it end with their answers.
    Answers {
        end: End,
    },
    Open {
        end: End,
        spec: Box<CallSpec>,
    },
    Cancel {
        end: End,
        call: CallId,
    },
    Drop {
        end: End,
        call: CallId,
    },
    Read {
        end: End,
        call: CallId,
    },
    /// The caller sends further items.
    Write {
        end: End,
        call: CallId,
    },
    /// A liar says something, maybe about this task at that node.
    Lie {
        end: End,
        about: Option<Subject>,
    },
    /// A liar dials a node.
    Meet {
        end: End,
        node: Place,
    },
    /// A node that stops closes its connections.
    Close {
        end: End,
    },
    Fault(Fault),
    Restart(Place),
    /// A pause that began at this time ends.
    Resume(Place, Timestamp),
    /// A partition that began at this time ends.
    Unblock(Place, Place, Timestamp),
    /// Nothing has come over the connection to `to` since this time, if that still holds.
    KeepAlive {
        link: LinkNonce,
        to: Place,
        since: Timestamp,
    },
    Heal,
}

impl Event {
    /// The node and life it happens to.
    pub(super) fn end(&self) -> Option<End> {
        match self {
            Self::Frame { to: end, .. }
            | Self::LinkUp { end, .. }
            | Self::LinkDown { end, .. }
            | Self::Room { end, .. }
            | Self::DialFailed { end, .. }
            | Self::Wake { end }
            | Self::Step { end, .. }
            | Self::Answers { end }
            | Self::Open { end, .. }
            | Self::Cancel { end, .. }
            | Self::Drop { end, .. }
            | Self::Read { end, .. }
            | Self::Write { end, .. }
            | Self::Lie { end, .. }
            | Self::Meet { end, .. }
            | Self::Close { end } => Some(*end),
            Self::Accept { .. }
            | Self::Fault(_)
            | Self::Restart(_)
            | Self::Resume(..)
            | Self::Unblock(..)
            | Self::KeepAlive { .. }
            | Self::Heal => None,
        }
    }
}
