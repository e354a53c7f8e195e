//! Connections of a listener that wait for their other flows.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_transport::Principal;
use convoke_transport::parts::{FlowHello, Greeting, Mutex, Seat};
use tokio::sync::mpsc;

use crate::handshake::HandshakeError;
use crate::socket::Socket;

/// A flow that joins a connection: its hello has been read.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(crate) stream: Socket,
    pub(crate) theirs: Greeting,
    pub(crate) principal: Option<Principal>,
    /// Place among the handshakes of the listener, until it has joined.
    pub(crate) place: Option<Seat>,
}

/// Refusal of a flow that may not join. It does not say whether there is such a connection.
pub(crate) const UNKNOWN: HandshakeError =
    HandshakeError::Flow("no connection waits for it, or its secret is another");

/// Connections that wait for flows, by number. Each has its seat among the connections.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    waiting: Arc<Mutex<BTreeMap<u64, Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    flow: FlowHello,
    joiners: mpsc::Sender<(u8, Joiner)>,
}

/// A connection that waits until this is dropped.
#[derive(Debug)]
pub(crate) struct Expected {
    number: u64,
    joiners: mpsc::Receiver<(u8, Joiner)>,
    waiting: Arc<Mutex<BTreeMap<u64, Waiting>>>,
}

impl Joining {
    /// The flows of a connection may join from now on.
    pub(crate) fn expect(&self, flow: FlowHello) -> Expected {
        let (sender, joiners) = mpsc::channel(flow.count.into());
        let number = flow.connection;
        self.waiting.lock().insert(number, Waiting { flow, joiners: sender });
        Expected { number, joiners, waiting: Arc::clone(&self.waiting) }
    }

    /// Brings a flow to the connection that it names, or back when it may not join.
    pub(crate) fn bring(&self, flow: FlowHello, joiner: Joiner) -> Result<(), Box<Joiner>> {
        let waiting = self.waiting.lock();
        let found = waiting.get(&flow.connection).filter(|waiting| {
            waiting.flow.secret == flow.secret && waiting.flow.count == flow.count
        });
        let Some(found) = found else { return Err(joiner.into()) };
        let sent = found.joiners.try_send((flow.index, joiner));
        sent.map_err(|error| error.into_inner().1.into())
    }
}

impl Expected {
    /// The next that joins, which may be any of its flows again.
    pub(crate) async fn next(&mut self) -> (u8, Joiner) {
        self.joiners.recv().await.expect("a sender is kept until this is dropped")
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}
