//! A node under attack, with one honest connection.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Connection, Lane, Listener, Transport};
use convoke_transport_grpc::{GrpcTransport, GrpcTransportBuilder};

pub(crate) struct Victim {
    pub(crate) sink: Arc<Recorder>,
    pub(crate) listener: Box<dyn Listener>,
    honest: Arc<Recorder>,
    to_victim: Arc<dyn Connection>,
}

impl Victim {
    /// Node 1, with the honest node 2 connected to it.
    pub(crate) async fn new(builder: GrpcTransportBuilder) -> Self {
        let (sink, honest) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
        let transport = builder.build().expect("the settings of the test are legal");
        let address = "grpc://127.0.0.1:0".parse().expect("it is an address");
        let listener = transport.listen(&address, Arc::clone(&sink) as _).await.expect("it binds");
        let to_victim = dial(&*listener, &honest).await;
        Self { sink, listener, honest, to_victim }
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
        let to_victim = dial(&*self.listener, &late).await;
        for (sink, connection) in [(&late, to_victim), (&self.honest, self.to_victim)] {
            connection.close(CloseReason::Local);
            sink.closed(connection.link().nonce).await;
            self.sink.closed(connection.link().nonce).await;
            sink.check();
        }
        self.sink.check();
    }
}

async fn dial(listener: &dyn Listener, sink: &Arc<Recorder>) -> Arc<dyn Connection> {
    let dialled = GrpcTransport::new().dial(&listener.local_address(), None, Arc::clone(sink) as _);
    dialled.await.expect("the victim accepts")
}
