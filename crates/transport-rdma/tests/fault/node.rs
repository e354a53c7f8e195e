//! An end of connections over the device of this machine.

use std::net::IpAddr;
use std::sync::Arc;

use convoke_transport::conformance::writable;
use convoke_transport::id::LinkNonce;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Lane, Listener, NotWritable, Transport,
};
use convoke_transport_rdma::RdmaTransport;
use convoke_transport_rdma::provider::verbs::VerbsDevice;

use crate::frames::frame;
use crate::tally::{Habit, Tally};

/// A transport with what arrives over it.
#[derive(Debug)]
pub(crate) struct Node {
    transport: Arc<dyn Transport>,
    pub(crate) tally: Arc<Tally>,
}

impl Node {
    /// A node of this number over the RDMA transport with its defaults.
    pub(crate) fn new(number: u64, habit: Habit) -> Self {
        Self::over(Arc::new(RdmaTransport::new(device())), number, habit)
    }

    /// A node of this number over any transport.
    pub(crate) fn over(transport: Arc<dyn Transport>, number: u64, habit: Habit) -> Self {
        Self { transport, tally: Tally::new(number, habit) }
    }

    pub(crate) async fn listen(&self, address: &Address) -> Box<dyn Listener> {
        let listening = self.transport.listen(address, Arc::clone(&self.tally) as _).await;
        listening.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The other end of a connection that somebody dialled.
    pub(crate) async fn line(&self, nonce: LinkNonce) -> Line<'_> {
        let connection = self.tally.opened(nonce).await;
        Line { connection, tally: &self.tally, sent: 0 }
    }

    pub(crate) async fn dial(&self, address: &Address) -> Result<Line<'_>, DialError> {
        let connection = self.transport.dial(address, None, Arc::clone(&self.tally) as _).await?;
        Ok(Line { connection, tally: &self.tally, sent: 0 })
    }
}

/// A connection that carries numbered frames.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) connection: Arc<dyn Connection>,
    tally: &'a Tally,
    pub(crate) sent: u64,
}

impl Line<'_> {
    /// Sends the next frames, waiting for room as long as there is none.
    pub(crate) async fn send(&mut self, count: u64) {
        let last = self.sent + count;
        while self.sent < last {
            match self.connection.append_bytes(Lane::Data, &[], frame(self.sent)) {
                Ok(_) => self.sent += 1,
                Err(NotWritable::Full) => self.writable().await,
                Err(error) => panic!("{error}, at frame {}: {}", self.sent, self.closed().await),
            }
            self.connection.flush();
        }
    }

    /// Sends frames to a peer that sends them back, a few at a time, and waits for all of them.
    pub(crate) async fn exchange(&mut self, count: u64) {
        let last = self.sent + count;
        while self.sent < last {
            self.send(IN_FLIGHT.min(last - self.sent)).await;
            self.tally.received(self.connection.link().nonce, self.sent).await;
        }
    }

    /// Sends without regard for the peer until the connection is gone.
    pub(crate) async fn send_until_closed(&mut self) {
        loop {
            match self.connection.append_bytes(Lane::Data, &[], frame(self.sent)) {
                Ok(_) => self.sent += 1,
                Err(NotWritable::Full) => self.writable().await,
                Err(NotWritable::Closed) => return,
                Err(error @ NotWritable::TooLarge { .. }) => panic!("{error}"),
            }
            self.connection.flush();
            tokio::task::yield_now().await;
        }
    }

    /// Waits until frames can be sent.
    pub(crate) async fn writable(&self) {
        writable(&self.connection, Lane::Data).await;
    }

    /// Waits for its end.
    pub(crate) async fn closed(&self) -> CloseReason {
        self.tally.closed(self.connection.link().nonce).await
    }

    /// Ends it and waits for the end.
    pub(crate) async fn close(self) {
        self.connection.close(CloseReason::Local);
        self.closed().await;
    }
}

/// Echoes of so many frames fit the buffers of every connection.
const IN_FLIGHT: u64 = 20;

/// The address of the device.
pub(crate) fn device_address() -> IpAddr {
    let address = std::env::var("RDMA_VM_ADDR").expect("`cargo xtask rdma` names the device");
    address.parse().expect("it is an IP address")
}

/// Address to listen at: the device, with the choice of the port left to the system.
pub(crate) fn anywhere() -> Address {
    at(device_address(), 0)
}

/// A place to listen or to dial.
pub(crate) fn at(address: IpAddr, port: u16) -> Address {
    format!("rdma://{address}:{port}").parse().expect("it is an address")
}

/// The device.
pub(crate) fn device() -> VerbsDevice {
    VerbsDevice::of_address(device_address()).unwrap_or_else(|error| panic!("{error}"))
}
