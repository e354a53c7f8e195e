//! Accepting connections until the listener is closed or dropped.

use std::fmt;
use std::sync::Arc;

use convoke_transport::parts::{Admission, Refusals, Seat};
use convoke_transport::sockets::{self, Accepting, Accepts};
use convoke_transport::{Address, ListenError, Listener, Sink};
use tokio::time::timeout;

use crate::config::Config;
use crate::flows::Joining;
use crate::fresh::Fresh;
use crate::handshake;
#[cfg(unix)]
use crate::unix;

#[derive(Debug)]
struct TcpTransportListener<L> {
    local: Address,
    accepting: Accepting<L>,
}

struct Acceptor {
    config: Arc<Config>,
    admission: Arc<Admission>,
    joining: Joining,
    sink: Arc<dyn Sink>,
    refusals: Refusals,
}

/// Binds the first socket address of `address` that can be bound, and accepts there.
pub(crate) async fn listen(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    sink: Arc<dyn Sink>,
) -> Result<Box<dyn Listener>, ListenError> {
    config
        .security
        .verify_own(sink.hello().node)
        .map_err(|message| ListenError::Identity { address: address.clone(), message })?;
    let failed = |message: String| ListenError::Bind { address: address.clone(), message };
    let backlog = config.common.listen_backlog;
    let (joining, refusals) = (Joining::default(), Refusals::new());
    let acceptor = Acceptor { config, admission, joining, sink, refusals };
    #[cfg(unix)]
    if address.scheme() == unix::SCHEME {
        let listener =
            unix::listen(&address, backlog).map_err(|error| failed(error.to_string()))?;
        return Ok(acceptor.start(address, listener));
    }
    let listener = sockets::listen(address.rest(), backlog).await;
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (socket, listener) = bound.map_err(|error| failed(error.to_string()))?;
    Ok(acceptor.start(sockets::of_socket(address.scheme(), socket), listener))
}

impl<L: Accepts + fmt::Debug> Listener for TcpTransportListener<L> {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        if self.accepting.close() {
            tracing::debug!(address = %self.local, "no longer listening");
        }
    }
}

impl Acceptor {
    /// Accepts what connects to a socket that listens at `local`.
    fn start<L>(self, local: Address, listener: L) -> Box<dyn Listener>
    where
        L: Accepts<Stream: Fresh> + fmt::Debug,
    {
        tracing::debug!(address = %local, "listening");
        let this = Arc::new(self);
        let accepting = Accepting::start(listener, move |stream| this.admit(stream));
        Box::new(TcpTransportListener { local, accepting })
    }

    /// Gives the connection its own task, so that no peer can hold up another.
    fn admit<S: Fresh>(self: &Arc<Self>, stream: S) {
        let Ok(peer) = stream.peer() else { return }; // It is gone again.
        let place = match self.admission.begin(&peer.clone().into()) {
            Ok(place) => place,
            Err(text) => {
                self.refusals.note_noise(&peer, &text);
                return handshake::refuse_at_once(&stream, &text);
            }
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.shake_hands(stream, peer, place).await;
        });
    }

    async fn shake_hands<S: Fresh>(&self, stream: S, peer: S::Peer, place: Seat) {
        let handshake = async {
            let socket = stream.accepted(&self.config).await?;
            let sink = Arc::clone(&self.sink);
            let Self { config, admission, joining, .. } = self;
            handshake::accept(config, admission, joining, socket, sink, place).await
        };
        match timeout(self.config.common.handshake_timeout, handshake).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_noise() => self.refusals.note_noise(&peer, &error),
            Ok(Err(error)) => self.refusals.note(&peer, &error),
            Err(_) => self.refusals.note_noise(&peer, &"no hello in time"),
        }
    }
}
