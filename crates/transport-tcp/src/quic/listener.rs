//! Accepting connections until the listener is closed or dropped.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use convoke_transport::identity::IdentitySeam as _;
use convoke_transport::parts::Mutex;
use convoke_transport::parts::Refusals;
use convoke_transport::{Address, ListenError, Listener, Sink, sockets};
use quinn::{Endpoint, Incoming};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::quic::handshake::{self, HandshakeError};
use crate::quic::socket;
use crate::quic::{SCHEME, Shared};

#[derive(Debug)]
struct QuicTransportListener {
    local: Address,
    /// Gone once the listener is closed. The socket stays as long as connections use it.
    endpoint: Mutex<Option<Endpoint>>,
    accepting: AbortHandle,
}

struct Acceptor {
    shared: Arc<Shared>,
    listening: IpAddr,
    sink: Arc<dyn Sink>,
    refusals: Refusals,
}

/// Binds the first socket address of `address` that can be bound, and accepts there.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    address: Address,
    sink: Arc<dyn Sink>,
) -> Result<Box<dyn Listener>, ListenError> {
    if let Err(message) = shared.identity.verify_own(sink.hello().node) {
        return Err(ListenError::Identity { address, message });
    }
    let failed = |error: io::Error| ListenError::Bind {
        address: address.clone(),
        message: error.to_string(),
    };
    let resolved = sockets::resolve(address.rest()).await.map_err(failed)?;
    let me = (&shared.identity, sink.hello().node);
    let bind = |at| socket::accepting(at, shared.server.clone(), me);
    let endpoint = sockets::first(&resolved, bind).map_err(failed)?;
    let socket = endpoint.local_addr().map_err(failed)?;
    let local = sockets::of_socket(SCHEME, socket);
    let (listening, refusals) = (socket.ip(), Refusals::new());
    let acceptor = Arc::new(Acceptor { shared, listening, sink, refusals });
    tracing::debug!(address = %local, "listening");
    let accepting = tokio::spawn(acceptor.run(endpoint.clone(), local.clone())).abort_handle();
    Ok(Box::new(QuicTransportListener { local, endpoint: Mutex::new(Some(endpoint)), accepting }))
}

impl Listener for QuicTransportListener {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        let endpoint = self.endpoint.lock().take();
        if let Some(endpoint) = endpoint {
            tracing::debug!(address = %self.local, "no longer listening");
            endpoint.set_server_config(None);
            self.accepting.abort();
        }
    }
}

impl Drop for QuicTransportListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Acceptor {
    /// Accepts until the listener aborts it.
    async fn run(self: Arc<Self>, endpoint: Endpoint, local: Address) {
        while let Some(incoming) = endpoint.accept().await {
            self.admit(incoming);
        }
        tracing::warn!(
            address = %local,
            "the socket has failed, and nothing is accepted there any more: listen again"
        );
    }

    /// Gives the connection its own task, so that no peer can hold up another.
    fn admit(self: &Arc<Self>, incoming: Incoming) {
        let admission = &self.shared.admission;
        let slot = if incoming.remote_address_validated() {
            match admission.begin(&incoming.remote_address().into()) {
                Ok(slot) => slot,
                Err(text) => {
                    self.refusals.note_noise(&incoming.remote_address(), &text);
                    return incoming.refuse();
                }
            }
        } else {
            match admission.begin_unproven() {
                Some(slot) => slot,
                // Who can read it comes again, with proof. It can always be sent to one without.
                None => return incoming.retry().unwrap_or_default(),
            }
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.shake_hands(incoming).await;
            drop(slot);
        });
    }

    async fn shake_hands(&self, incoming: Incoming) {
        let peer = incoming.remote_address();
        match timeout(self.shared.config.common.handshake_timeout, self.accept(incoming)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_noise() => self.refusals.note_noise(&peer, &error),
            Ok(Err(error)) => self.refusals.note(&peer, &error),
            Err(_) => self.refusals.note_noise(&peer, &"no hello in time"),
        }
    }

    async fn accept(&self, incoming: Incoming) -> Result<(), HandshakeError> {
        let quic = incoming.accept()?.await?;
        handshake::accept(&self.shared, &quic, self.listening, Arc::clone(&self.sink)).await
    }
}
