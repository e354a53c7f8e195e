//! The protocol as pure state machines: no I/O, no clock, no randomness of their own.
//!
//! Inputs are `handle_*` methods, which take the time; after any input the driver drains the `poll_*`
//! outputs until `None`. What a peer sends never reaches an assertion: it becomes a [`Fault`].
//!
//! ```text
//!              ┌────────────── Node ───────────────┐
//!  commands ──▶│ Initiator: calls ── Tree, Inbox   │──▶ poll_transmit  frames for connections
//!  frames   ──▶│ Participant: visits ── Task       │──▶ poll_event     tasks to start or stop, dials
//!  timeouts ──▶│ Links: which connections are up   │──▶ poll_call      replies and ends of calls
//!              └───────────────────────────────────┘
//! ```

mod admission;
pub mod call;
pub mod failure;
pub mod flow;
pub mod inbox;
pub mod index_set;
pub mod initiator;
pub mod limits;
pub mod links;
pub mod mailbox;
pub mod mutant;
pub mod node;
pub mod participant;
pub mod slot;
pub mod task;
mod timers;
pub mod trace;
pub mod tree;
pub mod visit;

use crate::id::{LinkNonce, NodeId, TaskKey};
use crate::transport::Lane;
use crate::wire::{Frame, Header, Message};

/// A frame on its way to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The peer.
    pub to: NodeId,
    /// Which connection to it.
    pub link: LinkNonce,
    /// Which lane of that.
    pub lane: Lane,
    /// The frame.
    pub frame: Frame,
}

/// How a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The peer at the other end of the connection: authenticated by it.
    pub via: NodeId,
    /// Who sent it: `via`, or for a relayed frame who is said to have.
    pub from: NodeId,
    /// The connection.
    pub link: LinkNonce,
}

/// A peer did what the protocol forbids. The frame is dropped; the connection should be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A request claims its sender as the initiator, but names another incarnation.
    #[error("a request names a call of another node as the sender's own")]
    ForeignCall,
    /// A frame that only the initiator may send came from somebody else.
    #[error("a frame that only the initiator of a call may send came from another node")]
    NotInitiator,
    /// A frame without a sensible receiver.
    #[error("a frame is not addressed to this node")]
    Misrouted,
}

/// A message that one of the cores wants sent; [`node::Node`] finds the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outbound {
    pub(crate) to: NodeId,
    /// Only over this connection: the order of frames on it matters.
    pub(crate) link: Option<LinkNonce>,
    pub(crate) header: Header,
    pub(crate) relayed_from: Option<NodeId>,
    pub(crate) message: Message,
}

impl Outbound {
    pub(crate) fn new(to: NodeId, header: Header, message: Message) -> Self {
        Self { to, link: None, header, relayed_from: None, message }
    }

    /// The frames whose order matters share the data lane; see `transport::Lane`.
    pub(crate) fn lane(&self) -> Lane {
        use crate::wire::TaskStatus::{Running, Unknown};
        use mutant::Mutant;
        match &self.message {
            Message::Cancel(_) | Message::Credit(_) => Lane::Control,
            Message::Probe(probe) if !probe.fence => Lane::Control,
            Message::Status(status)
                if mutant::is(Mutant::StatusOvertakesReply)
                    || status.tasks.iter().all(|(_, state)| matches!(state, Running | Unknown)) =>
            {
                Lane::Control
            }
            _ => Lane::Data,
        }
    }

    pub(crate) fn into_frame(self) -> Frame {
        Frame { header: self.header, relayed_from: self.relayed_from, message: self.message }
    }
}

pub(crate) fn key(path: crate::id::Path, hop: u32) -> TaskKey {
    TaskKey { path, hop }
}
