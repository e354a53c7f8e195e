//! Accepting connections until the listener is closed or dropped.

use std::io;
use std::sync::Arc;

use convoke_transport::parts::Admission;
use convoke_transport::sockets::{self, Accepting};
use convoke_transport::{Address, ListenError, Listener, Sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::config::Config;
use crate::handshake;
use crate::socket::Socket;

#[derive(Debug)]
struct TcpTransportListener {
    local: Address,
    accepting: Accepting<TcpListener>,
}

struct Acceptor {
    config: Arc<Config>,
    admission: Arc<Admission>,
    sink: Arc<dyn Sink>,
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
    let failed = |error: io::Error| ListenError::Bind {
        address: address.clone(),
        message: error.to_string(),
    };
    let listener =
        sockets::listen(address.rest(), config.common.listen_backlog).await.map_err(failed)?;
    let local = sockets::of_socket(config.scheme(), listener.local_addr().map_err(failed)?);
    let acceptor = Arc::new(Acceptor { config, admission, sink });
    tracing::debug!(address = %local, "listening");
    let accepting = Accepting::start(listener, move |stream| acceptor.admit(stream));
    Ok(Box::new(TcpTransportListener { local, accepting }))
}

impl Listener for TcpTransportListener {
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
    /// Gives the connection its own task, so that no peer can hold up another.
    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return }; // It is gone again.
        let slot = match self.admission.begin(peer.ip()) {
            Ok(slot) => slot,
            Err(text) => {
                tracing::debug!("connection refused: {text}");
                return handshake::refuse_at_once(&stream, &text);
            }
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.shake_hands(stream).await;
            drop(slot);
        });
    }

    async fn shake_hands(&self, stream: TcpStream) {
        let peer = stream.peer_addr().ok();
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(?peer, %error, "connection lost before its hello");
            return;
        }
        let handshake = async {
            let socket =
                Socket::accept(&self.config.security, stream, self.config.common.close_grace)
                    .await?;
            let sink = Arc::clone(&self.sink);
            handshake::accept(&self.config, &self.admission, socket, sink).await
        };
        match timeout(self.config.common.handshake_timeout, handshake).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_noise() => {
                tracing::debug!(?peer, %error, "connection refused");
            }
            Ok(Err(error)) => tracing::info!(?peer, %error, "connection refused"),
            Err(_) => tracing::debug!(?peer, "connection refused: no hello in time"),
        }
    }
}
