//! QUIC beyond the conformance suite: who may connect, what hostile peers can do, frames that pass
//! large ones, and connections that move.
#![cfg(feature = "quic")]

#[path = "../../../transport/tests/support/certificates.rs"]
mod certificates;
#[path = "../../../transport/tests/support/credulous.rs"]
mod credulous;
mod deeds;
mod hostile;
#[path = "../../../transport/tests/support/identities.rs"]
mod identities;
mod large;
#[path = "../../../transport/tests/support/log.rs"]
mod log;
mod moving;
mod raw;
mod secure;
#[path = "../../../transport/tests/support/trust.rs"]
mod trust;

use std::sync::Arc;

use certificates::{Authority, Issued};
use convoke_transport::conformance::{Recorder, Setup};
use convoke_transport::{Address, Connection, DialError, Listener, Transport};
use convoke_transport_tcp::{Identity, QuicTransport, QuicTransportBuilder};

/// An authority, and transports of the nodes it knows.
pub(crate) struct Cluster {
    authority: Authority,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { authority: Authority::new() }
    }

    pub(crate) fn issue(&self, node: u64) -> Issued {
        self.authority.issue([node])
    }

    pub(crate) fn identity(&self, issued: &Issued) -> Identity {
        trust::identity(issued, &self.authority)
    }

    pub(crate) fn builder(&self, node: u64) -> QuicTransportBuilder {
        QuicTransport::builder(self.identity(&self.issue(node)))
    }

    pub(crate) fn node(&self, node: u64) -> QuicTransport {
        self.builder(node).build().expect("the defaults go together")
    }

    /// Node 1 dials node 2.
    pub(crate) fn setup(&self) -> Setup {
        self.setup_of(self.node(1), self.node(2))
    }

    pub(crate) fn setup_of(&self, dialling: QuicTransport, listening: QuicTransport) -> Setup {
        Setup { listening: Arc::new(listening), dialling: Arc::new(dialling), listen: any() }
    }
}

pub(crate) fn any() -> Address {
    "quic://127.0.0.1:0".parse().expect("it is an address")
}

pub(crate) async fn listen(transport: &QuicTransport, sink: &Arc<Recorder>) -> Box<dyn Listener> {
    let listening = transport.listen(&any(), Arc::clone(sink) as _).await;
    listening.expect("a loopback port is free")
}

pub(crate) async fn dial(
    transport: &QuicTransport,
    listener: &dyn Listener,
    sink: &Arc<Recorder>,
) -> Result<Arc<dyn Connection>, DialError> {
    transport.dial(&listener.local_address(), None, Arc::clone(sink) as _).await
}

/// That a node still takes connections and frames.
pub(crate) async fn assert_serves(
    cluster: &Cluster,
    node: u64,
    listener: &dyn Listener,
    sink: &Arc<Recorder>,
) {
    let dialler = Arc::new(Recorder::new(node));
    let connection = dial(&cluster.node(node), listener, &dialler).await.expect("it is welcome");
    let frame = bytes::Bytes::from_static(b"still there?");
    let lane = convoke_transport::Lane::Data;
    connection.append_bytes(lane, &[], frame.clone()).expect("there is room");
    connection.flush();
    let frames = sink.frames(connection.link().nonce, 1).await;
    assert_eq!(frames[0].1, frame);
    connection.close(convoke_transport::CloseReason::Local);
    dialler.closed(connection.link().nonce).await;
    dialler.check();
}
