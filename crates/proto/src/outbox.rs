//! Ways out for the frames of a node: straight to its connections, or into a queue to be polled.

use std::collections::VecDeque;

use crate::id::{LinkId, NodeId};
use crate::link::Lane;
use crate::time::Timestamp;
use crate::wire::Frame;

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

/// Takes the frames of a node as it sends them, in their order. It does not call the node.
pub trait Outbox {
    /// Hands a frame to its connection: takes its payload, or all of it. A connection that has gone
    /// takes any frame and loses it.
    ///
    /// # Errors
    /// [`Rejected`]: the connection lives on and takes no such frame. It is left as it was, but for
    /// its payload.
    fn send(
        &mut self,
        now: Timestamp,
        destination: Destination,
        frame: &mut Frame,
    ) -> Result<(), Rejected>;
}

/// A connection does not take a frame.
#[derive(Debug)]
pub struct Rejected {
    /// Reason, for the failure of what the frame asks for.
    pub text: String,
}

/// An outbox that keeps frames until they are polled.
#[derive(Debug, Default)]
pub struct Queue(VecDeque<Transmit>);

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
        self.0.pop_front()
    }
}

impl Outbox for Queue {
    fn send(&mut self, _: Timestamp, to: Destination, frame: &mut Frame) -> Result<(), Rejected> {
        self.0.push_back(Transmit { to, frame: frame.take() });
        Ok(())
    }
}
