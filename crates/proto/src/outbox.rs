//! Ways out for the frames of a node: straight to its connections, or into a queue to be polled.

use std::collections::VecDeque;

use crate::id::{LinkId, NodeId};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::Frame;

/// A frame on its way to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The peer.
    pub to: NodeId,
    /// The connection to it.
    pub link: LinkId,
    /// Which lane of that.
    pub lane: Lane,
    /// The frame.
    pub frame: Frame,
}

/// Takes the frames of a node as it sends them, in their order. It does not call the node.
pub trait Outbox {
    /// Hands a frame to its connection. A connection that has gone takes any frame and loses it.
    ///
    /// # Errors
    /// [`Rejected`]: the connection lives on and takes no such frame.
    fn send(&mut self, now: Timestamp, transmit: Transmit) -> Result<(), Box<Rejected>>;
}

/// A frame that its connection does not take.
#[derive(Debug)]
pub struct Rejected {
    /// The frame.
    pub transmit: Transmit,
    /// Why, for the failure of what it asks for.
    pub text: String,
}

/// An outbox that keeps frames until they are polled.
#[derive(Debug, Default)]
pub struct Queue(VecDeque<Transmit>);

impl Queue {
    pub(crate) fn poll(&mut self) -> Option<Transmit> {
        self.0.pop_front()
    }
}

impl Outbox for Queue {
    fn send(&mut self, _: Timestamp, transmit: Transmit) -> Result<(), Box<Rejected>> {
        self.0.push_back(transmit);
        Ok(())
    }
}
