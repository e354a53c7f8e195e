//! The call protocol of convoke and its wire format, as pure state machines.
//!
//! A *call* is one exchange among many parties. The initiator opens branches to some nodes; each
//! task there replies to the initiator, any number of times, or *delegates*: it opens branches to
//! further nodes, whose tasks reply **straight to the initiator**. So a call is a tree of requests,
//! and a chain of h servers costs h + 1 trips.
//!
//! The call is complete when the initiator has everything that will ever come. It knows that from
//! *manifests*: every task declares at its end how many branches it opened and how many replies it
//! sent. The initiator counts open branches and missing replies, each by its [`Path`] in the
//! tree, until both are zero. In the common cases a manifest travels in a frame that leaves anyway.
//!
//! A [`Node`](node::Node) is all of this for one node. Inputs are its `handle_*` methods and the
//! commands of calls and tasks; all take the time. Its frames go to its [`Outbox`](outbox::Outbox)
//! at once; after any input its owner drains the `poll_*` outputs until `None`. What a peer sends
//! never reaches an assertion: it becomes a [`Fault`].
//!
//! ```text
//!              ┌────────────── Node ───────────────┐
//!  commands ──▶│ Initiator: calls ── Tree, Inbox   │──▶ Outbox      frames for connections
//!  frames   ──▶│ Visits: origins, records ── Task  │──▶ poll_event  tasks to start or stop, dials
//!  timeouts ──▶│ Links: which connections are up   │──▶ poll_last   replies and ends of calls
//!              └───────────────────────────────────┘
//! ```
//!
//! It has **no** I/O, clocks, randomness, threads or runtime. It encodes frames, but
//! opens no connection and writes to none; `convoke-core` drives it on tokio, `convoke-sim` in
//! virtual time. It does not look into messages, and runs no handler: it says when one must start
//! or stop.
//!
//! A node that calls itself needs no connection:
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use bytes::Bytes;
//! use convoke_proto::call::{CallEvent, CallOptions, End, RootBranch, RootRequest};
//! use convoke_proto::id::{Incarnation, MethodId, NodeId};
//! use convoke_proto::key::Secret;
//! use convoke_proto::limits::Limits;
//! use convoke_proto::node::{Identity, Node, Opening};
//! use convoke_proto::time::Timestamp;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (now, me) = (Timestamp::ZERO, NodeId::new(7));
//! let identity = Identity { node: me, incarnation: Incarnation::of_random(1 << 8) };
//! let mut node = Node::new(identity, Secret::new(1, 2), &Limits::default(), 0, now)?;
//!
//! let request = RootRequest {
//!     method: MethodId(1),
//!     extensions: Vec::new(),
//!     payload: Bytes::from_static(b"21").into(),
//!     budget: None,
//! };
//! let branches = &mut vec![RootBranch { to: me, request }];
//! let options = CallOptions::default();
//! let call = node.open(now, &mut Opening { budget: None, options, branches })?;
//!
//! let mut starts = Vec::new();
//! node.take_starts(&mut starts);
//! let [start] = &starts[..] else { return Err("one task starts".into()) };
//! assert_eq!(start.payload, "21");
//! node.answer(now, &start.task, Bytes::from_static(b"42"))?;
//!
//! let ahead = &mut VecDeque::new();
//! let Some((CallEvent::Reply(reply), end)) = node.poll_last(call, ahead) else {
//!     return Err("no reply came".into());
//! };
//! assert_eq!(reply.payload, "42");
//! assert_eq!(end, Some(End::Complete));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//! - [`id`], [`time`]: names of nodes, calls, branches; time as a number;
//! - [`wire`]: the bytes of every frame;
//! - [`address`], [`link`]: where nodes listen, what is known of a connection;
//! - [`node`]: the whole protocol of one node; [`links`]: its connections; [`outbox`], [`encoded`]:
//!   where its frames go, and their messages;
//! - [`initiator`], [`call`], [`tree`], [`inbox`]: its calls; [`ring`]: things by number;
//! - [`visits`], [`task`], [`flow`], [`index_set`]: its tasks;
//! - [`key`]: what lets a node speak for a branch;
//! - [`mailbox`]: casts of echo phases;
//! - [`cores`], [`ledger`]: several of the same node, and what they have taken together;
//! - [`parting`]: the end of a node without a request in doubt;
//! - [`limits`], [`failure`], [`trace`]: bounds, what is told of a failed branch and of a call;
//! - [`mutant`]: deliberate defects that the simulation must find, with the feature `mutants`.

#![forbid(unsafe_code)]

pub mod address;
mod admission;
pub mod call;
pub mod code;
pub mod cores;
pub mod encoded;
pub mod failure;
mod flat;
pub mod flow;
pub mod id;
pub mod inbox;
pub mod index_set;
pub mod initiator;
mod intervals;
pub mod key;
pub mod ledger;
pub mod limits;
pub mod link;
pub mod links;
pub mod mailbox;
pub mod metadata;
pub mod mutant;
pub mod node;
pub mod outbox;
pub mod parting;
pub mod ring;
pub mod share;
pub mod task;
pub mod time;
mod timers;
pub mod trace;
pub mod tree;
pub mod visits;
pub mod wire;

use encoded::Encoded;
use id::{Incarnation, LinkId, NodeId, NodeLife, Path, TaskKey};
use key::Key;
use link::Lane;
use share::PeerIndex;
use wire::{Frame, Header, Item, ItemKind, Message, Relayed};

/// Arrival of a frame: its sender, and the connection that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The peer at the other end of the connection, as that proves it.
    pub(crate) via: NodeId,
    /// This life of it.
    pub(crate) life: Incarnation,
    /// The sender: `via`, or for a relayed frame the node that is said to have sent it.
    pub(crate) from: NodeId,
    /// The connection.
    pub(crate) link: LinkId,
    /// Peer whose share pays for what the frame asks to be kept.
    pub(crate) peer: PeerIndex,
    /// The key that it shows.
    pub(crate) key: Option<Key>,
}

impl Arrival {
    /// The same, with what the frame says of itself.
    #[inline]
    pub(crate) fn said(self, relayed: Option<Relayed>, key: Option<Key>) -> Self {
        Self { from: relayed.map_or(self.via, |relayed| relayed.node), key, ..self }
    }

    /// The node and the life of it that the connection proves.
    pub(crate) fn sender(&self) -> NodeLife {
        NodeLife { node: self.via, life: self.life }
    }

    pub(crate) fn is_relayed(&self) -> bool {
        self.from != self.via
    }
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
    /// A request of call number 0. Calls are numbered from 1.
    #[error("a request is of call number 0, and calls are numbered from 1")]
    NoCall,
    /// A frame without a sensible receiver.
    #[error("a frame is not addressed to this node")]
    Misrouted,
    /// The bytes are no frame.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
}

/// A message that one of the cores wants sent; [`node::Node`] finds the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outbound {
    pub(crate) to: NodeId,
    /// Only over this connection: the order of frames on it matters.
    pub(crate) link: Option<LinkId>,
    pub(crate) frame: Frame,
}

impl Outbound {
    pub(crate) fn new(to: NodeId, header: Header, message: Message) -> Self {
        Self { to, link: None, frame: Frame::new(header, message) }
    }

    /// A payload that goes nowhere, if its owner may be called as it is dropped. It leaves by the
    /// [outbox](outbox::Outbox::let_go), as that of a frame whose connection has gone.
    pub(crate) fn spent(payload: impl Into<Encoded>) -> Option<Self> {
        let payload = payload.into().into_owned()?;
        let item = Item { kind: ItemKind::End { count: 0 }, part: None, payload };
        let frame = Frame::new(Header::without_call(), Message::Item(item));
        Some(Self { to: NOBODY, link: Some(LinkId::NONE), frame })
    }

    /// Shows a key, unless the message has a place of its own for it.
    pub(crate) fn show(&mut self, key: Option<Key>) {
        self.frame.key = key.filter(|_| self.frame.message.shows_key());
    }
}

/// The node that a frame is for which goes nowhere.
const NOBODY: NodeId = NodeId::new(u64::MAX);

/// The frames whose order matters share the data lane; see [`Lane`].
fn lane_of(message: &Message) -> Lane {
    use mutant::Mutant;
    use wire::TaskStatus::{Running, Unknown};
    match message {
        Message::Cancel(_)
        | Message::Credit(_)
        | Message::Ask(_)
        | Message::Settled(_)
        | Message::Parting(_) => Lane::Control,
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

pub(crate) fn key(path: Path, hop: u32) -> TaskKey {
    TaskKey { path, hop }
}
