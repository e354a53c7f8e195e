//! Events of a call for its caller, and the options and branches that the caller gives it.

use std::time::Duration;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::id::{MethodId, NodeId, Path};
use crate::metadata::Extensions;
use crate::wire::Extension;

use super::super::Arrival;
use super::super::failure::Failure;
use super::super::inbox::Read;

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Every task finished and every reply is here.
    Complete,
    /// Everything that will come has come; some branches failed, or the deadline passed.
    Partial,
    /// The caller had enough.
    Decided,
    /// The caller cancelled it.
    Cancelled,
    /// It outgrew a bound of its initiator.
    Exhausted,
}

/// A reply, or an item of a streamed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The branch whose task sent it.
    pub path: Path,
    /// Index of the reply among those of that task.
    pub index: u32,
    /// Number of the item, if the reply is a stream.
    pub item: Option<u64>,
    /// The node that sent it, or began to.
    pub from: NodeId,
    /// True when `from` is the peer of the connection it came by, not what a relay says, and no
    /// other has brought a part of the reply.
    pub is_authenticated: bool,
    /// Fields beside the message, metadata among them.
    pub extensions: Extensions,
    /// The message.
    pub payload: Bytes,
}

impl Delivered {
    /// The sole reply of a task that came straight from it.
    pub(crate) fn sole(path: Path, by: Arrival, payload: Bytes) -> Self {
        Self {
            path,
            index: 0,
            item: None,
            from: by.from,
            is_authenticated: by.via == by.from,
            extensions: Extensions::default(),
            payload,
        }
    }

    /// As it is counted when it has been read.
    pub(crate) fn read(&self) -> Read<'_> {
        (&self.path, self.index, self.payload.len(), self.extensions.as_slice())
    }
}

/// Events of a call for its application, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A reply.
    Reply(Delivered),
    /// A branch failed.
    Failure(Failure),
    /// The end. Nothing follows.
    Ended(End),
    /// The request of this root branch was handed to a connection, where the caller asked to be
    /// told.
    Sent(Path),
    /// The task of this branch ended without a reply and without opening a branch, or all that it
    /// streamed is here: it says nothing more, where the caller asked to be told.
    Silent {
        /// The branch.
        path: Path,
        /// The node that had it, as far as is known. Where hearsay is ignored, only one that has
        /// said so itself.
        node: Option<NodeId>,
    },
}

impl CallEvent {
    /// True of a reply of no more bytes, and nothing beside them.
    pub(crate) fn is_plain_reply(&self, bytes_max: usize) -> bool {
        match self {
            Self::Reply(Delivered { payload, extensions, .. }) => {
                payload.len() <= bytes_max && extensions.as_slice().is_empty()
            }
            _ => false,
        }
    }
}

/// A root branch to be opened.
#[derive(Clone, Debug)]
pub struct RootBranch {
    /// At which node.
    pub to: NodeId,
    /// The request for it.
    pub request: RootRequest,
}

/// Request that opens a root branch.
#[derive(Clone, Debug)]
pub struct RootRequest {
    /// The method that is asked for.
    pub method: MethodId,
    /// The extensions that travel along.
    pub extensions: Vec<Extension>,
    /// The request message.
    pub payload: Encoded,
    /// Its own time, where that is less than the call's.
    pub budget: Option<Duration>,
}

/// The root branches of a call, in order, where its caller keeps them until it is opened.
pub trait Roots {
    /// Number of them.
    fn count(&self) -> usize;

    /// The node that a branch goes to, by the branch's index, and the request for it.
    fn branch(&self, index: u32) -> (NodeId, &RootRequest);

    /// The same, whose payload is taken as it leaves.
    fn branch_mut(&mut self, index: u32) -> (NodeId, &mut RootRequest);
}

impl Roots for Vec<RootBranch> {
    fn count(&self) -> usize {
        self.len()
    }

    fn branch(&self, index: u32) -> (NodeId, &RootRequest) {
        let RootBranch { to, request } = &self[index as usize];
        (*to, request)
    }

    fn branch_mut(&mut self, index: u32) -> (NodeId, &mut RootRequest) {
        let RootBranch { to, request } = &mut self[index as usize];
        (*to, request)
    }
}

impl RootRequest {
    /// The time it gets of the call's.
    #[inline]
    pub(crate) fn budget_of(&self, call: Duration) -> Duration {
        self.budget.map_or(call, |own| own.min(call))
    }
}

/// Options of a call: what its caller knows and asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Every branch sends at most one reply and opens no other branch.
    pub is_flat: bool,
    /// Tell of branches that end without a reply or a branch of their own, or after what they have
    /// streamed, as [`CallEvent::Silent`].
    pub tells_silent: bool,
    /// Tell of root branches whose request was handed to a connection, as [`CallEvent::Sent`].
    /// Those at this node itself are not told of.
    pub tells_sent: bool,
    /// Keep what the initiator learns, for [`Call::trace`](super::Call::trace): the first
    /// [`EVENTS_MAX`](crate::trace::EVENTS_MAX) events.
    pub traces: bool,
    /// Items follow the request of the one root branch.
    pub sends_items: bool,
    /// Takes hearsay, the word of a task on a branch that it has opened, for no end of that branch:
    /// its node may live. Nor does it take what another passes on, be it a reply, an end or a
    /// failure: who has opened the branch knows its key, and can say all of it. Then the branch is
    /// open until it speaks for itself, or this node finds out by itself.
    pub ignores_hearsay: bool,
    /// Nothing of it has this node dial, or ask for an address: its requests, and what is asked of
    /// them later, go over connections that are up. For what others cause.
    pub never_dials: bool,
    /// Have the first reader that waits called once so many replies are there, as
    /// [`Node::wake_after`](crate::node::Node::wake_after) does. 0 and 1 are alike.
    pub wake_after: u32,
}

impl CallOptions {
    /// True when a call may begin flat.
    pub(crate) fn suits_flat(self) -> bool {
        !self.traces && !self.tells_sent && !self.sends_items
    }
}
