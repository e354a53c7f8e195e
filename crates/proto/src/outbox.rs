//! Ways out for the frames of a node: straight to its connections, or into a queue to be polled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::id::{LinkId, NodeId};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::{Frame, Head, WireError};

/// Destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The peer.
    pub to: NodeId,
    /// The connection to it.
    pub link: LinkId,
    /// Lane of that connection.
    pub lane: Lane,
}

/// Room of a connection that has taken a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is more.
    Some,
    /// It takes what cannot wait. Whoever owns the node says once it has room again, by
    /// [`Node::handle_room`](crate::node::Node::handle_room).
    None,
}

/// Hands a frame to a connection, as [`Outbox::send`].
pub type Hand<'a> = &'a mut dyn FnMut(Head<'_>, Encoded) -> Result<Room, Rejected>;

/// Takes the frames of a node as it sends them, in their order. It does not call the node.
///
/// A reply or an item above the largest frame of its connection leaves in several, as
/// [`Head::in_parts`] makes them.
pub trait Outbox {
    /// Has `frames` hand frames to one connection, one behind the other: it is called once. What it
    /// does besides sends nothing.
    fn send_each(&mut self, now: Timestamp, to: Destination, frames: impl FnMut(Hand<'_>));

    /// Hands a frame to its connection. A connection that has gone takes any frame and loses it.
    /// Gives the room that the connection has then.
    ///
    /// # Errors
    /// [`Rejected`]: the connection lives on and takes no such frame.
    fn send(
        &mut self,
        now: Timestamp,
        to: Destination,
        head: Head<'_>,
        mut payload: Encoded,
    ) -> Result<Room, Rejected> {
        let mut sent = Ok(Room::Some);
        self.send_each(now, to, |hand| sent = hand(head, std::mem::take(&mut payload)));
        sent
    }

    /// Takes the payload of a frame that goes nowhere. Its owner may be called back as it is
    /// dropped. Default: drops it at once.
    fn let_go(&mut self, payload: Bytes) {
        drop(payload);
    }
}

/// A connection does not take a frame.
#[derive(Debug)]
pub struct Rejected {
    /// Reason, for the failure of what the frame asks for.
    pub text: String,
}

/// Refuses frames that no peer would take.
impl From<WireError> for Rejected {
    fn from(error: WireError) -> Self {
        Self { text: error.to_string() }
    }
}

/// An outbox that keeps frames until they are polled.
#[derive(Debug, Default)]
pub struct Queue {
    frames: VecDeque<Transmit>,
    /// Connections of which it says that they have no room.
    pub full: BTreeSet<LinkId>,
    /// Connections that take no frames of more bytes than this.
    pub frame_bytes_max: BTreeMap<LinkId, usize>,
}

/// A frame on its way to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Connection and node it goes to.
    pub to: Destination,
    /// The frame.
    pub frame: Frame,
}

impl Queue {
    pub(crate) fn poll(&mut self) -> Option<Transmit> {
        self.frames.pop_front()
    }
}

impl Outbox for Queue {
    fn send_each(&mut self, _: Timestamp, to: Destination, mut frames: impl FnMut(Hand<'_>)) {
        let is_full = to.lane == Lane::Data && self.full.contains(&to.link);
        let limit = self.frame_bytes_max.get(&to.link).copied().unwrap_or(usize::MAX);
        frames(&mut |head, payload| {
            let size = head.as_bytes().len() + payload.len();
            let frames = match size > limit {
                true => head
                    .in_parts(&payload, limit)
                    .ok_or_else(|| Rejected { text: format!("{size} bytes are above {limit}") })?,
                false => vec![head.frame(payload.into_bytes())?],
            };
            self.frames.extend(frames.into_iter().map(|frame| Transmit { to, frame }));
            Ok(if is_full { Room::None } else { Room::Some })
        });
    }
}
