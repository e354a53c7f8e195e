//! Casts between the participants of a call: the frame and its bounded mailbox. Echo phases are built on
//! them.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;

use crate::client::Peer;
use crate::id::NodeId;
use crate::wire::Cast;

use super::Context;

/// A cast that another participant of the call sent here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCast {
    /// Who sent it: authenticated by its connection.
    pub from: NodeId,
    /// Which phase.
    pub phase: u16,
    /// The sender's index in the configuration, as it says.
    pub sender: u16,
    /// Digest of the value it speaks for.
    pub digest: u64,
    /// The value, or nothing where the digest is enough.
    pub payload: Bytes,
}

impl Context {
    /// Sends a one-way message to another participant of this call, or to this node itself. It is not a
    /// branch: nobody waits for it, and completion does not depend on it. It may arrive before the
    /// request that starts the participant, whose mailbox keeps it.
    pub fn cast(&self, to: &Peer, phase: u16, sender: u16, digest: u64, payload: impl Into<Bytes>) {
        let payload = payload.into();
        let budget_us = u64::try_from(self.remaining().as_micros()).unwrap_or(u64::MAX);
        let epoch = if to.epoch() == 0 { self.epoch() } else { to.epoch() };
        let cast = Cast { phase, sender, budget_us, epoch, digest, payload };
        let call = self.task().call;
        self.handle.driver.with_node(|node, now| node.send_cast(now, call, to.node(), cast));
    }

    /// The next cast for this call at this node.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost. One task of a call at a node may wait at a time.
    pub async fn next_cast(&self) -> ReceivedCast {
        let (driver, call) = (&self.handle.driver, self.task().call);
        self.handle.note_kept();
        poll_fn(|cx| match driver.poll_cast(call, cx.waker()) {
            Some((from, cast)) => {
                let Cast { phase, sender, digest, payload, .. } = cast;
                Poll::Ready(ReceivedCast { from, phase, sender, digest, payload })
            }
            None => Poll::Pending,
        })
        .await
    }
}
