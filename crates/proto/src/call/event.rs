//! What a caller tells of its call, what it learns of it, and what decides early.

use std::fmt;

use bytes::Bytes;

use crate::id::{MethodId, NodeId, Path};
use crate::wire::Extension;

use super::super::Arrival;
use super::super::failure::Failure;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Every task finished and every reply is here.
    Complete,
    /// Everything that will come has come; some branches failed, or the deadline passed.
    Partial,
    /// The predicate was satisfied.
    Decided,
    /// The predicate can no longer be satisfied.
    Impossible,
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
    /// Which reply of that task.
    pub index: u32,
    /// Which item, if the reply is a stream.
    pub item: Option<u64>,
    /// Who sent it.
    pub from: NodeId,
    /// Whether `from` is the peer of the connection it came by, not what a relay says.
    pub is_authenticated: bool,
    /// The message.
    pub payload: Bytes,
}

impl Delivered {
    /// The sole reply of a task that came straight from it.
    pub(crate) fn sole(path: Path, by: Arrival, payload: Bytes) -> Self {
        let is_authenticated = by.via == by.from;
        Self { path, index: 0, item: None, from: by.from, is_authenticated, payload }
    }
}

/// What the application learns of its call, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// A reply.
    Reply(Delivered),
    /// A branch failed.
    Failure(Failure),
    /// The end. Nothing follows but `Late`.
    Ended(End),
    /// A reply after the decision, where the caller asked for them.
    Late(Delivered),
    /// The request of this root branch was handed to a connection, where the caller asked to be told.
    Sent(Path),
    /// The task of this branch ended without a reply and without opening a branch, where the caller asked to
    /// be told.
    Silent(Path),
}

/// What a predicate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not yet.
    Continue,
    /// Enough.
    Done,
    /// It can never be enough.
    Impossible,
}

/// What a predicate decides on.
#[derive(Debug)]
pub struct Tally<'a> {
    /// Every reply and item delivered so far, in order.
    pub replies: &'a [Delivered],
    /// Every failure so far.
    pub failures: &'a [Failure],
    /// Branches whose task has not ended.
    pub open: u64,
    /// Replies that ended tasks still owe.
    pub missing: u64,
    /// Most replies that can still come; `None` when there is no telling, because an open branch may
    /// reply many times or open others.
    pub max_remaining: Option<u64>,
}

/// Decides early. Called after every reply and failure. If it panics, the call is undecidable.
pub type Predicate = Box<dyn FnMut(&Tally<'_>) -> Decision + Send>;

/// A root branch to be opened.
#[derive(Clone, Debug)]
pub struct RootBranch {
    /// At which node.
    pub to: NodeId,
    /// What it is asked.
    pub method: MethodId,
    /// What travels along.
    pub extensions: Vec<Extension>,
    /// The encoded request.
    pub payload: Bytes,
}

/// How a call is opened.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct CallOptions {
    /// Decides early; without one the call runs until its tree is complete.
    pub predicate: Option<Predicate>,
    /// Every branch sends at most one reply and opens no other branch (a flat quorum call): makes
    /// [`Tally::max_remaining`] exact.
    pub is_flat: bool,
    /// Cancel what still runs once the call is decided. Only for methods without effects: a quorum
    /// write must still reach the slow member.
    pub cancels_late: bool,
    /// Deliver replies after the decision as [`CallEvent::Late`].
    pub keeps_late: bool,
    /// Tell of branches that end without a reply or a branch of their own, as [`CallEvent::Silent`].
    pub tells_silent: bool,
    /// Tell of root branches whose request was handed to a connection, as [`CallEvent::Sent`]. Those at this
    /// node itself are not told of.
    pub tells_sent: bool,
    /// Keep what the initiator learns, for [`Call::trace`](super::Call::trace).
    pub traces: bool,
}

impl CallOptions {
    /// Whether a call of several branches may begin flat.
    pub fn suits_fan(&self) -> bool {
        let Self { predicate, keeps_late, traces, tells_sent, .. } = self;
        predicate.is_none() && !*keeps_late && !*traces && !*tells_sent
    }

    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        let Self { predicate, is_flat, cancels_late, keeps_late, traces, .. } = self;
        let is_told = self.tells_silent || self.tells_sent;
        predicate.is_none() && !(*is_flat || *cancels_late || *keeps_late || *traces || is_told)
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("has_predicate", &self.predicate.is_some())
            .field("is_flat", &self.is_flat)
            .field("cancels_late", &self.cancels_late)
            .field("keeps_late", &self.keeps_late)
            .field("tells_silent", &self.tells_silent)
            .field("tells_sent", &self.tells_sent)
            .field("traces", &self.traces)
            .finish()
    }
}
