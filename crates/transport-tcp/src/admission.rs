//! Bounds that the connections of a transport share: how many there may be, and room to send.

use std::net::IpAddr;
use std::sync::Arc;

use convoke_transport::PeerName;
use convoke_transport::parts::{NoSeat, Seat, Seats, SendPool, SendShare};

/// The bounds of all connections of a transport together.
#[derive(Debug)]
pub(crate) struct Admission {
    handshakes: Arc<Seats>,
    connections: Arc<Seats>,
    send: Arc<SendPool>,
}

impl Admission {
    pub(crate) fn new(
        handshakes_max: usize,
        connections_max: usize,
        send_bytes_total_max: usize,
    ) -> Self {
        Self {
            handshakes: Seats::new(handshakes_max),
            connections: Seats::new(connections_max),
            send: SendPool::new(send_bytes_total_max),
        }
    }

    /// A place among the handshakes, for whoever connects from this address.
    pub(crate) fn begin(&self, from: IpAddr) -> Result<Seat, String> {
        let name = PeerName::Place(from.to_string().into());
        let explain = |no: NoSeat| format!("connections in their handshake: {no}");
        self.handshakes.take(name).map_err(explain)
    }

    /// A place among the accepted connections.
    pub(crate) fn accept(&self, name: PeerName) -> Result<Seat, String> {
        let explain = |no: NoSeat| format!("connections that are open: {no}");
        self.connections.take(name).map_err(explain)
    }

    /// Opens the share of a connection in the room to send.
    pub(crate) fn share(&self, name: PeerName) -> SendShare {
        self.send.open(name)
    }

    /// Handshakes that are under way.
    #[cfg(feature = "quic")]
    pub(crate) fn handshake_count(&self) -> usize {
        self.handshakes.taken_count()
    }
}
