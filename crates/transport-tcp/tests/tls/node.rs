//! Nodes with certificates, and one of them under attack.

use std::ops::Deref;
use std::sync::Arc;

use convoke_transport::conformance::{self, Recorder, Setup};
use convoke_transport::{Address, Connection, DialError, Transport};
use convoke_transport_tcp::{Identity, TcpTransport, TcpTransportBuilder};

use crate::certificates::Authority;
use crate::trust::{identity, identity_of};

/// A node that listens with TLS, and an honest one connected to it.
pub(crate) struct Victim {
    pub(crate) authority: Authority,
    victim: conformance::Victim,
}

impl Deref for Victim {
    type Target = conformance::Victim;

    fn deref(&self) -> &conformance::Victim {
        &self.victim
    }
}

impl Victim {
    pub(crate) async fn new() -> Self {
        Self::with(TcpTransport::builder()).await
    }

    pub(crate) async fn with(builder: TcpTransportBuilder) -> Self {
        let authority = Authority::new();
        let listening = builder.tls(identity_of(&authority, 1)).build();
        let honest = identity(&authority.issue([2, 3]), &authority);
        let setup = Setup {
            listening: Arc::new(listening.expect("the settings are legal")),
            dialling: Arc::new(TcpTransport::tls(honest)),
            listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
        };
        Self { authority, victim: conformance::Victim::new(setup).await }
    }

    /// Asserts that the honest connection still carries frames, that new ones are accepted, and
    /// that nobody else was.
    pub(crate) async fn lives_on(self) {
        let sink = Arc::clone(&self.sink);
        let opened = sink.opened_count();
        self.victim.lives_on().await;
        assert_eq!(sink.opened_count(), opened + 1);
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
