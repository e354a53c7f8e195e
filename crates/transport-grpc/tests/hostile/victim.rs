//! A node under attack, with one honest connection.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Connection, Lane, Listener, Transport};
use convoke_transport_grpc::{GrpcTransport, GrpcTransportBuilder};

use crate::over::Over;

pub(crate) struct Victim {
    pub(crate) over: Over,
    pub(crate) sink: Arc<Recorder>,
    pub(crate) listener: Box<dyn Listener>,
    honest: Arc<Recorder>,
    pub(crate) to_victim: Arc<dyn Connection>,
}

impl Victim {
    /// Node 1, with the honest node 2 connected to it.
    pub(crate) async fn new(over: Over, builder: GrpcTransportBuilder) -> Self {
        let (sink, honest) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
        let transport = over.transport(builder, 1);
        let address = over.any();
        let listener = transport.listen(&address, Arc::clone(&sink) as _).await.expect("it binds");
        let to_victim = dial(&over, &*listener, 2, &honest).await;
        Self { over, sink, listener, honest, to_victim }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_address().rest().parse().expect("it is a socket address")
    }

    /// Asserts that the honest connection still carries frames, that new ones are accepted, and
    /// that the sink was told everything in turn.
    pub(crate) async fn lives_on(self) {
        let nonce = self.to_victim.link().nonce;
        let count = self.sink.frame_count(nonce);
        self.to_victim
            .append_bytes(Lane::Data, &[], Bytes::from_static(b"alive?"))
            .expect("the honest connection is open");
        self.to_victim.flush();
        self.sink.frames(nonce, count + 1).await;
        let late = Arc::new(Recorder::new(3));
        let to_victim = dial(&self.over, &*self.listener, 3, &late).await;
        for (sink, connection) in [(&late, to_victim), (&self.honest, self.to_victim)] {
            connection.close(CloseReason::Local);
            sink.closed(connection.link().nonce).await;
            self.sink.closed(connection.link().nonce).await;
            sink.check();
        }
        self.sink.check();
    }
}

async fn dial(
    over: &Over,
    listener: &dyn Listener,
    node: u64,
    sink: &Arc<Recorder>,
) -> Arc<dyn Connection> {
    let transport = over.transport(GrpcTransport::builder(), node);
    let dialled = transport.dial(&listener.local_address(), None, Arc::clone(sink) as _);
    dialled.await.expect("the victim accepts")
}
