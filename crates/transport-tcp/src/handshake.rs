//! The hello of both ends over a fresh socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::id::{LinkNonce, NodeId};
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Link, PeerName, Principal, Sink,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admission::Admission;
use crate::config::Config;
use crate::connection::TcpConnection;
use crate::framing;
use crate::hello::{self, Announced, ENVELOPE_BYTES, Foreign, Greeting, HelloError};
use crate::reader::{Lifetime, Terms};
use crate::send_queue::Limits;
use crate::socket::Socket;
#[cfg(feature = "tls")]
use crate::tls::{self, TlsError};

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Hello(#[from] HelloError),
    #[error("the network failed: {0}")]
    Network(io::Error),
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("this endpoint refused it: {0}")]
    RefusedHere(String),
    #[error("it is {found}, not {expected}")]
    WrongNode { expected: NodeId, found: NodeId },
}

impl HandshakeError {
    /// True when any port on the internet sees this all day.
    pub(crate) fn is_noise(&self) -> bool {
        match self {
            Self::Network(_) | Self::Hello(HelloError::NotConvoke(_)) => true,
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.is_noise(),
            Self::Hello(_) | Self::RefusedHere(_) | Self::WrongNode { .. } => false,
        }
    }

    /// Error that a dialler returns to its caller.
    pub(crate) fn into_dial_error(self, address: Address) -> DialError {
        match self {
            Self::WrongNode { expected, found } => {
                DialError::WrongNode { address, expected, found }
            }
            Self::Network(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                DialError::Unreachable { address, message: error.to_string() }
            }
            Self::Network(_) => DialError::Handshake {
                address,
                message: "it closed the connection before its hello".into(),
            },
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.into_dial_error(address),
            other => DialError::Handshake { address, message: other.to_string() },
        }
    }
}

impl From<io::Error> for HandshakeError {
    /// A read or write that TLS failed says so.
    fn from(error: io::Error) -> Self {
        #[cfg(feature = "tls")]
        if let Some(error) = tls::rustls_error(&error) {
            return TlsError::Rustls(error.clone()).into();
        }
        Self::Network(error)
    }
}

/// The dialler's part: hello, the other end's hello, `on_open`.
pub(crate) async fn dial(
    config: &Config,
    admission: &Admission,
    mut stream: Socket,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, HandshakeError> {
    let mine = greeting(config, &*sink, stream.local_addr()?);
    // When the other end refused and closed already, the write fails and its text is still there.
    let sent = stream.write_all(&mine.encode()).await;
    let theirs = match (read_greeting(&mut stream).await, sent) {
        (Err(HandshakeError::Network(_)), Err(error)) => return Err(error.into()),
        (theirs, _) => theirs?,
    };
    let refused = match (stream.verify_peer(theirs.hello.node), expected) {
        (Err(error), _) => Err(error),
        (Ok(_), Some(expected)) if expected != theirs.hello.node => {
            Err(HandshakeError::WrongNode { expected, found: theirs.hello.node })
        }
        (Ok(principal), _) => {
            let who = (principal, stream.remote());
            open((config, admission), (&mine, &theirs), true, who, &sink)
                .map_err(HandshakeError::RefusedHere)
        }
    };
    match refused {
        Ok(connection) => {
            let lifetime = Lifetime::new(connection, sink, None);
            Ok(lifetime.start(stream, terms(config, &mine, &theirs)))
        }
        Err(error) => {
            let text = match &error {
                HandshakeError::RefusedHere(text) => text.clone(),
                HandshakeError::WrongNode { expected, found } => {
                    format!("it expected {expected} here, not {found}")
                }
                other => other.to_string(),
            };
            tokio::spawn(say_goodbye(stream, text, config.close_grace));
            Err(error)
        }
    }
}

/// The other part: the dialler's hello, `on_open`, hello. It holds one of the peer's places while
/// it is open.
pub(crate) async fn accept(
    config: &Config,
    admission: &Admission,
    mut stream: Socket,
    sink: Arc<dyn Sink>,
) -> Result<(), HandshakeError> {
    let theirs = match read_greeting(&mut stream).await {
        Ok(theirs) => theirs,
        Err(error) => {
            if let HandshakeError::Hello(hello) = &error {
                answer(stream, hello, config).await;
            }
            return Err(error);
        }
    };
    let principal = match stream.verify_peer(theirs.hello.node) {
        Ok(principal) => principal,
        Err(error) => {
            refuse(stream, &error.to_string(), config).await;
            return Err(error);
        }
    };
    let who = (principal, stream.remote());
    let name = PeerName::of(theirs.hello.node, who.0.as_ref(), who.1.as_ref());
    let mine = greeting(config, &*sink, stream.local_addr()?);
    let opened = admission.accept(name).and_then(|slot| {
        Ok((slot, open((config, admission), (&mine, &theirs), false, who, &sink)?))
    });
    let (slot, connection) = match opened {
        Ok(opened) => opened,
        Err(text) => {
            refuse(stream, &text, config).await;
            return Err(HandshakeError::RefusedHere(text));
        }
    };
    let lifetime = Lifetime::new(connection, sink, Some(slot));
    match stream.write_all(&mine.encode()).await {
        Ok(()) => {
            lifetime.start(stream, terms(config, &mine, &theirs));
        }
        Err(error) => {
            lifetime.end(CloseReason::Network(error.to_string()));
        }
    }
    Ok(())
}

/// Refuses a connection nobody has time for: what fits the socket now is sent.
pub(crate) fn refuse_at_once(stream: &TcpStream, text: &str) {
    // Whether it arrives is the peer's concern: there are too many already.
    let _ = stream.try_write(&hello::refusal(text));
}

/// Tells a peer with a bad hello as far as it can understand.
async fn answer(mut stream: Socket, error: &HelloError, config: &Config) {
    if let Some(text) = error.refusal_text() {
        refuse(stream, &text, config).await;
    } else if matches!(error, HelloError::NotConvoke(Foreign::Tls))
        && stream.write_all(&hello::TLS_REFUSAL).await.is_ok()
    {
        linger(stream, config.close_grace).await;
    }
}

async fn refuse(mut stream: Socket, text: &str, config: &Config) {
    if stream.write_all(&hello::refusal(text)).await.is_ok() {
        linger(stream, config.close_grace).await;
    }
}

async fn say_goodbye(mut stream: Socket, text: String, grace: Duration) {
    let mut goodbye = bytes::BytesMut::new();
    framing::put_goodbye(&mut goodbye, &text);
    if stream.write_all(&goodbye).await.is_ok() {
        linger(stream, grace).await;
    }
}

/// Reads to the peer's end, so that closing with bytes unread does not take the last words back.
pub(crate) async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin, grace: Duration) {
    let drained = async {
        stream.shutdown().await?;
        let mut scrap = [0; 1024];
        while stream.read(&mut scrap).await? > 0 {}
        io::Result::Ok(())
    };
    // The connection is given up either way.
    let _ = timeout(grace, drained).await;
}

async fn read_greeting(stream: &mut Socket) -> Result<Greeting, HandshakeError> {
    let mut envelope = [0; ENVELOPE_BYTES];
    stream.read_exact(&mut envelope).await?;
    let announced = hello::decode_envelope(&envelope)?;
    let (Announced::Hello(len) | Announced::Refusal(len)) = announced;
    let mut body = vec![0; usize::from(len)];
    stream.read_exact(&mut body).await?;
    match announced {
        Announced::Hello(_) => Ok(Greeting::decode(&body)?),
        Announced::Refusal(_) => Err(HelloError::Refused(framing::clean_text(&body)).into()),
    }
}

fn greeting(config: &Config, sink: &dyn Sink, local: SocketAddr) -> Greeting {
    let mut hello = sink.hello();
    hello.advertised = hello::advertised(&hello.advertised, local.ip());
    hello.frame_bytes_max = hello.frame_bytes_max.min(config.frame_bytes_max);
    Greeting {
        hello,
        random: rand::random(),
        chunk_bytes_max: config.chunk_bytes,
        control_window: config.control_window_bytes,
        data_window: config.data_window_bytes,
        keep_alive_timeout: config.keep_alive_timeout,
    }
}

/// Makes the connection and asks the sink whether it wants it.
fn open(
    (config, admission): (&Config, &Admission),
    (mine, theirs): (&Greeting, &Greeting),
    is_dialler: bool,
    (principal, remote): (Option<Principal>, Option<Arc<str>>),
    sink: &Arc<dyn Sink>,
) -> Result<Arc<TcpConnection>, String> {
    let (dialler, acceptor) = if is_dialler { (mine, theirs) } else { (theirs, mine) };
    let link = Link {
        peer: theirs.hello.clone(),
        nonce: LinkNonce::of(dialler.random, acceptor.random),
        is_dialler,
        scheme: config.security.scheme(),
        principal,
        remote,
    };
    let limits = Limits {
        frame_bytes_max: config.frame_bytes_max.min(theirs.hello.frame_bytes_max) as usize,
        chunk_bytes_max: config.chunk_bytes.min(theirs.chunk_bytes_max) as usize,
        control: config.control_limits(theirs.control_window),
        data: config.data_limits(theirs.data_window),
    };
    let share = admission.share(link.peer_name());
    let connection = Arc::new(TcpConnection::new(link, &limits, share));
    sink.on_open(Arc::clone(&connection) as _).inspect_err(|_| {
        // A handle the sink kept must not wait for ever.
        connection.end(CloseReason::Local);
    })?;
    tracing::debug!(peer = %theirs.hello.node, is_dialler, "connection open");
    Ok(connection)
}

fn terms(config: &Config, mine: &Greeting, theirs: &Greeting) -> Terms {
    Terms {
        frame_bytes_max: mine.hello.frame_bytes_max,
        chunk_bytes_max: mine.chunk_bytes_max,
        control_window: mine.control_window,
        data_window: mine.data_window,
        keep_alive_timeout: config.keep_alive_timeout,
        keep_alive_interval: config.keep_alive_interval.min(theirs.keep_alive_timeout / 3),
        close_grace: config.close_grace,
    }
}
