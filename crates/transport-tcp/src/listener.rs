//! Accepting connections until the listener is closed or dropped.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_transport::{Address, ListenError, Listener, Sink};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::admission::Admission;
use crate::config::Config;
use crate::handshake;
use convoke_transport::sockets;

/// Pause of accepting when the process has no file descriptor or memory for one more.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct TcpTransportListener {
    local: Address,
    socket: Arc<ListeningSocket>,
    accepting: AbortHandle,
}

/// The socket, gone once the listener is closed: so that nobody is accepted after `close` returned.
#[derive(Debug)]
struct ListeningSocket(Mutex<Option<TcpListener>>);

struct Acceptor {
    config: Arc<Config>,
    admission: Arc<Admission>,
    socket: Arc<ListeningSocket>,
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
    let listener = bind_first(&address, &config).await.map_err(failed)?;
    let local =
        sockets::of_socket(config.security.scheme(), listener.local_addr().map_err(failed)?);
    let socket = Arc::new(ListeningSocket(Mutex::new(Some(listener))));
    let acceptor = Acceptor { config, admission, socket: Arc::clone(&socket), sink };
    tracing::debug!(address = %local, "listening");
    let accepting = tokio::spawn(acceptor.run()).abort_handle();
    Ok(Box::new(TcpTransportListener { local, socket, accepting }))
}

async fn bind_first(address: &Address, config: &Config) -> io::Result<TcpListener> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for socket in sockets::resolve(address.rest()).await? {
        result = bind(socket, config);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn bind(address: SocketAddr, config: &Config) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted node gets its port back at once. Windows means something else by the option.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // `[::]` is every interface, IPv4 included, whatever the system's default.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(config.listen_backlog.into())?;
    TcpListener::from_std(socket.into())
}

impl Listener for TcpTransportListener {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        let socket = self.socket.0.lock().take();
        if socket.is_some() {
            tracing::debug!(address = %self.local, "no longer listening");
            self.accepting.abort();
        }
    }
}

impl Drop for TcpTransportListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl ListeningSocket {
    /// `None` once the listener is closed.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        match &*self.0.lock() {
            Some(listener) => {
                listener.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
            }
            None => Poll::Ready(None),
        }
    }
}

impl Acceptor {
    async fn run(self) {
        let this = Arc::new(self);
        while let Some(accepted) = poll_fn(|cx| this.socket.poll_accept(cx)).await {
            match accepted {
                Ok(stream) => this.admit(stream),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept: raise the limit of open files?");
                    sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }

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
            let socket = self.config.security.accept(stream, self.config.close_grace).await?;
            let sink = Arc::clone(&self.sink);
            handshake::accept(&self.config, &self.admission, socket, sink).await
        };
        match timeout(self.config.handshake_timeout, handshake).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_noise() => {
                tracing::debug!(?peer, %error, "connection refused");
            }
            Ok(Err(error)) => tracing::info!(?peer, %error, "connection refused"),
            Err(_) => tracing::debug!(?peer, "connection refused: no hello in time"),
        }
    }
}

/// True when accepting the next one may well work.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
