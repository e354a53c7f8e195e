//! Bounds that the connections of a transport share: how many there may be, and room to send.

use std::sync::Arc;

use super::{NoSeat, Seat, Seats, SendPool, SendShare};
use crate::{PeerName, Remote};

/// The bounds of all connections of a transport together; made by
/// [`Settings::admission`](super::Settings::admission).
#[derive(Debug)]
pub struct Admission {
    pub(super) handshakes: Arc<Seats>,
    pub(super) connections: Arc<Seats>,
    pub(super) send: Arc<SendPool>,
}

impl Admission {
    /// A place among the handshakes, for whoever connects from there.
    ///
    /// # Errors
    /// The text to refuse it with: the place has its share.
    pub fn begin(&self, from: &Remote) -> Result<Seat, String> {
        let explain = |no: NoSeat| format!("connections in their handshake: {no}");
        self.handshakes.take(from.into()).map_err(explain)
    }

    /// A place among the handshakes, for an address that nobody has proven: its sender may have
    /// forged it. All of these are as one peer, so that none uses up the share of the address that
    /// it names. `None` once they have their share, or where it would be the last place: an address
    /// must be proven first.
    pub fn begin_unproven(&self) -> Option<Seat> {
        let seat = self.handshakes.take(PeerName::Place("unproven addresses".into())).ok();
        seat.filter(|_| self.handshakes.has_room())
    }

    /// A place among the accepted connections.
    ///
    /// # Errors
    /// The text to refuse it with: the peer has its share.
    pub fn accept(&self, name: PeerName) -> Result<Seat, String> {
        let explain = |no: NoSeat| format!("connections that are open: {no}");
        self.connections.take(name).map_err(explain)
    }

    /// The share of a connection in the room to send.
    pub fn share(&self, name: PeerName) -> SendShare {
        self.send.open(name)
    }

    /// The same for a connection of so many flows, one for each.
    pub fn flow_shares(&self, name: PeerName, count: usize) -> impl Iterator<Item = SendShare> {
        self.send.open_flows(name, count)
    }
}
