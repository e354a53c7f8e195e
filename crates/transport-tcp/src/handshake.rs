//! The hello of both ends over a fresh socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::parts::{
    Admission, ENVELOPE_BYTES, Foreign, Greeting, HelloError, Inbound, Lifetime, NoValve, Opening,
    RefusedHere, Seat, TLS_REFUSAL, Words, decode_envelope, keep_alive_interval, put_goodbye,
    random, refusal,
};
use convoke_transport::sockets::linger;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, PeerName, Principal, Remote, Sink,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::config::Config;
use crate::connection::TcpConnection;
use crate::flows::{self, Joiner, Joining};
use crate::fresh::Fresh;
use crate::reader::{self, Terms};
use crate::socket::Socket;
#[cfg(feature = "tls")]
use convoke_transport::identity::{TlsError, rustls_error};

/// Reason why a handshake came to nothing.
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
    #[error("a flow of its connection: {0}")]
    Flow(&'static str),
}

impl HandshakeError {
    /// True when any port on the internet sees this all day.
    pub(crate) fn is_noise(&self) -> bool {
        match self {
            Self::Network(_) | Self::Hello(HelloError::NotConvoke(_)) => true,
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.is_noise(),
            Self::Hello(_) | Self::RefusedHere(_) | Self::WrongNode { .. } | Self::Flow(_) => false,
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
        if let Some(error) = rustls_error(&error) {
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
    address: &Address,
) -> Result<Arc<dyn Connection>, HandshakeError> {
    let mut mine = greeting(config, &*sink, &stream)?;
    mine.flow = flows::offered(config, &stream);
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
            if let Some(flow) = theirs.flow.filter(|_| mine.flow.is_some()) {
                let first = flows::First { config, admission, sink, mine, theirs, principal };
                return first.dial_others(stream, flow, address).await;
            }
            let opening = opening(&stream, (&mine, &theirs), true, (principal, stream.remote()));
            open(config, admission, &opening, &sink, None)
                .map_err(|RefusedHere(text)| HandshakeError::RefusedHere(text))
        }
    };
    match refused {
        Ok(lifetime) => {
            let handle = Arc::clone(lifetime.handle());
            reader::start(lifetime, &NoValve, stream, terms(config, &mine, &theirs));
            Ok(handle)
        }
        Err(error) => {
            let text = match &error {
                HandshakeError::RefusedHere(text) => text.clone(),
                HandshakeError::WrongNode { expected, found } => {
                    format!("it expected {expected} here, not {found}")
                }
                other => other.to_string(),
            };
            tokio::spawn(say_goodbye(stream, text, config.common.close_grace));
            Err(error)
        }
    }
}

/// The other part: the dialler's hello, `on_open`, hello. It holds one of the peer's places among
/// the connections while it is open, and `place` among the handshakes until it has that.
pub(crate) async fn accept(
    config: &Config,
    admission: &Admission,
    joining: &Joining,
    mut stream: Socket,
    sink: Arc<dyn Sink>,
    place: Seat,
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
    if let Some(flow) = theirs.flow.filter(|flow| flow.index > 0) {
        let joiner = Joiner { stream, theirs, principal, place: Some(place) };
        let Err(joiner) = joining.bring(flow, joiner) else { return Ok(()) };
        refuse(joiner.stream, &flows::UNKNOWN.to_string(), config).await;
        return Err(flows::UNKNOWN);
    }
    let (mine, remote) = (greeting(config, &*sink, &stream)?, stream.remote());
    let name = PeerName::of(theirs.hello.node, principal.as_ref(), remote.as_ref());
    if let Some(flow) = flows::agreed(config, &stream, &theirs) {
        let seat = match admission.accept(name) {
            Ok(seat) => seat,
            Err(text) => {
                refuse(stream, &text, config).await;
                return Err(HandshakeError::RefusedHere(text));
            }
        };
        // The other flows need places: were they all taken by those that wait, none would join.
        drop(place);
        let first = flows::First { config, admission, sink, mine, theirs, principal };
        return first.accept_others(stream, flow, joining, seat).await;
    }
    let opening = opening(&stream, (&mine, &theirs), false, (principal, remote));
    let opened = admission.accept(name).and_then(|seat| {
        let opened = open(config, admission, &opening, &sink, Some(seat));
        opened.map_err(|RefusedHere(text)| text)
    });
    let lifetime = match opened {
        Ok(lifetime) => lifetime,
        Err(text) => {
            refuse(stream, &text, config).await;
            return Err(HandshakeError::RefusedHere(text));
        }
    };
    match stream.write_all(&mine.encode()).await {
        Ok(()) => reader::start(lifetime, &NoValve, stream, terms(config, &mine, &theirs)),
        Err(error) => lifetime.end(CloseReason::Network(error.to_string())),
    }
    Ok(())
}

/// Refuses a connection nobody has time for: what fits the socket now is sent.
pub(crate) fn refuse_at_once(stream: &impl Fresh, text: &str) {
    // Whether it arrives is the peer's concern: there are too many already.
    let _ = stream.try_write(&refusal(text));
}

/// Tells a peer with a bad hello as far as it can understand.
async fn answer(mut stream: Socket, error: &HelloError, config: &Config) {
    if let Some(text) = error.refusal_text() {
        refuse(stream, &text, config).await;
    } else if matches!(error, HelloError::NotConvoke(Foreign::Tls))
        && stream.write_all(&TLS_REFUSAL).await.is_ok()
    {
        linger(stream, config.common.close_grace).await;
    }
}

pub(crate) async fn refuse(mut stream: Socket, text: &str, config: &Config) {
    if stream.write_all(&refusal(text)).await.is_ok() {
        linger(stream, config.common.close_grace).await;
    }
}

pub(crate) async fn say_goodbye(mut stream: Socket, text: String, grace: Duration) {
    let mut goodbye = bytes::BytesMut::new();
    put_goodbye(&mut goodbye, Words::WITH_CREDIT, &text);
    if stream.write_all(&goodbye).await.is_ok() {
        linger(stream, grace).await;
    }
}

pub(crate) async fn read_greeting(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Greeting, HandshakeError> {
    let mut envelope = [0; ENVELOPE_BYTES];
    stream.read_exact(&mut envelope).await?;
    let announced = decode_envelope(&envelope)?;
    let mut body = vec![0; announced.len()];
    stream.read_exact(&mut body).await?;
    Ok(announced.decode(&body)?)
}

pub(crate) fn greeting(config: &Config, sink: &dyn Sink, stream: &Socket) -> io::Result<Greeting> {
    let local = stream.local_ip()?;
    Ok(Greeting::of(sink, &config.common, local, random(), config.grants()))
}

pub(crate) fn opening<'a>(
    stream: &Socket,
    (mine, theirs): (&'a Greeting, &'a Greeting),
    is_dialler: bool,
    (principal, remote): (Option<Principal>, Option<Remote>),
) -> Opening<'a> {
    Opening { mine, theirs, is_dialler, scheme: stream.scheme(), principal, remote }
}

/// Makes the connection and asks the sink whether it wants it.
fn open(
    config: &Config,
    admission: &Admission,
    opening: &Opening<'_>,
    sink: &Arc<dyn Sink>,
    seat: Option<Seat>,
) -> Result<Lifetime<TcpConnection>, RefusedHere> {
    let link = opening.link();
    let share = admission.share(link.peer_name());
    let connection = TcpConnection::new(link, &config.limits(opening.mine, opening.theirs), share);
    opening.show(connection, sink, seat)
}

fn terms(config: &Config, mine: &Greeting, theirs: &Greeting) -> Terms {
    terms_of(config, mine, theirs, mine.hello.frame_bytes_max)
}

/// Terms of a socket over which frames of so many bytes come.
pub(crate) fn terms_of(
    config: &Config,
    mine: &Greeting,
    theirs: &Greeting,
    frame_bytes_max: u32,
) -> Terms {
    let windows = [mine.control_window, mine.data_window];
    Terms {
        inbound: Inbound::new(frame_bytes_max, mine.chunk_bytes_max, Some(windows)),
        life: config.common.life_terms(),
        keep_alive_interval: keep_alive_interval(&config.common, theirs),
    }
}
