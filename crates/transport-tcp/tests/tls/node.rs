//! Nodes with certificates, and one of them under attack.

use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{Address, CloseReason, Connection, DialError, Lane, Listener, Transport};
use convoke_transport_tcp::{Identity, TcpTransport, TcpTransportBuilder};

use crate::certificates::Authority;
use crate::trust::{identity, identity_of};

/// The id of the victim.
pub(crate) const VICTIM: u64 = 1;
/// The id of the honest node.
pub(crate) const HONEST: u64 = 2;

/// A node that listens with TLS, and an honest one connected to it.
pub(crate) struct Victim {
    pub(crate) authority: Authority,
    pub(crate) sink: Arc<Recorder>,
    pub(crate) listener: Box<dyn Listener>,
    pub(crate) honest: Arc<Recorder>,
    pub(crate) to_victim: Arc<dyn Connection>,
}

impl Victim {
    pub(crate) async fn new() -> Self {
        Self::with(TcpTransport::builder()).await
    }

    pub(crate) async fn with(builder: TcpTransportBuilder) -> Self {
        let authority = Authority::new();
        let identity = identity(&authority.issue([VICTIM]), &authority);
        let transport = builder.tls(identity).build().expect("the settings are legal");
        let (sink, honest) = (Arc::new(Recorder::new(VICTIM)), Arc::new(Recorder::new(HONEST)));
        let address = "tls://127.0.0.1:0".parse().expect("it is an address");
        let listener = transport.listen(&address, Arc::clone(&sink) as _).await.expect("it binds");
        let trusted = identity_of(&authority, HONEST);
        let to_victim = dial(trusted, &listener.local_address(), &honest).await;
        let to_victim = to_victim.expect("the honest one is let in");
        Self { authority, sink, listener, honest, to_victim }
    }

    pub(crate) fn address(&self) -> Address {
        self.listener.local_address()
    }

    /// Asserts that the honest connection still carries frames, that new ones are accepted, and
    /// that nobody else was.
    pub(crate) async fn lives_on(self) {
        let nonce = self.to_victim.link().nonce;
        let count = self.sink.frame_count(nonce);
        self.to_victim
            .append_bytes(Lane::Data, &[], Bytes::from_static(b"alive?"))
            .expect("the honest connection is open");
        self.to_victim.flush();
        self.sink.frames(nonce, count + 1).await;
        let opened = self.sink.opened_count();
        let late = Arc::new(Recorder::new(3));
        let trusted = identity_of(&self.authority, 3);
        let to_victim = dial(trusted, &self.address(), &late).await.expect("it still accepts");
        assert_eq!(self.sink.opened_count(), opened + 1);
        for (sink, connection) in [(&late, to_victim), (&self.honest, self.to_victim)] {
            connection.close(CloseReason::Local);
            sink.closed(connection.link().nonce).await;
            self.sink.closed(connection.link().nonce).await;
            sink.check();
        }
        self.sink.check();
    }
}

pub(crate) async fn dial(
    identity: Identity,
    address: &Address,
    sink: &Arc<Recorder>,
) -> Result<Arc<dyn Connection>, DialError> {
    let transport = TcpTransport::builder().tls(identity).build().expect("the settings are legal");
    transport.dial(address, None, Arc::clone(sink) as _).await
}
