//! The hello of both ends over a fresh QUIC connection, and what its certificates must prove.
//!
//! The dialler opens two streams: the control lane, on which it says hello and gets the other hello
//! in answer, and the data lane, on which it writes one byte, since a peer does not see a stream
//! before something comes on it. Both hellos are those of TCP.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use convoke_transport::id::{LinkNonce, NodeId};
use convoke_transport::parts::Seat;
use convoke_transport::{
    Address, CloseReason, Connection, DialError, Link, PeerName, Principal, Sink,
};
use quinn::{ConnectionError, ReadExactError, RecvStream, SendStream, VarInt, WriteError};
use rustls::pki_types::CertificateDer;

use crate::admission::Admission;
use crate::framing::{clean_text, cut_text};
use crate::hello::{self, Announced, ENVELOPE_BYTES, Greeting, HelloError};
use crate::identity::IdentityMismatch;
use crate::quic::config::Config;
use crate::quic::connection::QuicConnection;
use crate::quic::reader::{Lifetime, Terms};
use crate::quic::{SCHEME, Shared};

/// The only byte on the data lane that is not of a frame: it makes the stream known.
const PREFACE: u8 = 0;
/// Control goes before everything else that waits to be sent.
const CONTROL_PRIORITY: i32 = 1;
/// The code of a refusal; what is to be said is in its text.
const REFUSED_CODE: VarInt = VarInt::from_u32(1);
/// The first error code of QUIC that carries an alert of TLS; there are 256 (RFC 9001, section
/// 4.8).
const ALERTS: u64 = 0x100;
/// The alert of a peer that speaks another protocol (RFC 7301, section 3.2).
const ALERT_NO_APPLICATION_PROTOCOL: u64 = 120;

/// The streams of the two lanes.
pub(crate) struct Streams {
    pub(crate) control: (SendStream, RecvStream),
    pub(crate) data: (SendStream, RecvStream),
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Hello(#[from] HelloError),
    #[error("the connection was lost: {0}")]
    Lost(#[from] ConnectionError),
    #[error("it broke the handshake off")]
    BrokenOff,
    #[error("this endpoint refused it: {0}")]
    RefusedHere(String),
    #[error("it is {found}, not {expected}")]
    WrongNode { expected: NodeId, found: NodeId },
    #[error("{0}")]
    Untrusted(#[from] IdentityMismatch),
    #[error("{0}")]
    OwnIdentity(String),
}

impl From<ReadExactError> for HandshakeError {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::ReadError(quinn::ReadError::ConnectionLost(lost)) => Self::Lost(lost),
            _ => Self::BrokenOff,
        }
    }
}

impl From<WriteError> for HandshakeError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(lost) => Self::Lost(lost),
            _ => Self::BrokenOff,
        }
    }
}

impl HandshakeError {
    /// True when any port on the internet sees this all day.
    pub(crate) fn is_noise(&self) -> bool {
        match self {
            Self::Lost(lost) => alert(lost).is_none(),
            Self::BrokenOff | Self::Hello(HelloError::NotConvoke(_)) => true,
            _ => false,
        }
    }

    /// Error that a dialler returns to its caller.
    pub(crate) fn into_dial_error(self, address: Address) -> DialError {
        match self {
            Self::WrongNode { expected, found } => {
                DialError::WrongNode { address, expected, found }
            }
            Self::Lost(lost) => of_lost(&lost, address),
            Self::Untrusted(_) | Self::OwnIdentity(_) => {
                DialError::Untrusted { address, message: self.to_string() }
            }
            other => DialError::Handshake { address, message: other.to_string() },
        }
    }

    /// Text that the other end is told, if it can still be told anything.
    fn refusal_text(&self) -> Option<String> {
        match self {
            Self::Hello(hello) => hello.refusal_text(),
            Self::RefusedHere(text) => Some(text.clone()),
            Self::WrongNode { expected, found } => {
                Some(format!("it expected {expected} here, not {found}"))
            }
            Self::Untrusted(mismatch) => Some(format!("not trusted: {mismatch}")),
            Self::OwnIdentity(_) => Some("the dialler's own certificate is not right".into()),
            Self::Lost(_) | Self::BrokenOff => None,
        }
    }
}

fn of_lost(lost: &ConnectionError, address: Address) -> DialError {
    match (alert(lost), lost) {
        (Some(ALERT_NO_APPLICATION_PROTOCOL), _) => {
            let message = "it speaks QUIC, but not convoke over QUIC of this version".into();
            DialError::Handshake { address, message }
        }
        (Some(_), _) => DialError::Untrusted { address, message: lost.to_string() },
        (None, ConnectionError::ApplicationClosed(close)) => {
            let message = format!("it refused: {}", clean_text(&close.reason));
            DialError::Handshake { address, message }
        }
        (None, ConnectionError::ConnectionClosed(_) | ConnectionError::VersionMismatch) => {
            DialError::Handshake { address, message: lost.to_string() }
        }
        (None, _) => DialError::Unreachable { address, message: lost.to_string() },
    }
}

/// The alert of TLS that ended a connection: certificates, mostly.
fn alert(lost: &ConnectionError) -> Option<u64> {
    let code = match lost {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    u64::from(code).checked_sub(ALERTS).filter(|alert| *alert <= 0xff)
}

/// The dialler's part: hello, the other end's hello, `on_open`.
pub(crate) async fn dial(
    Shared { config, identity, admission, .. }: &Shared,
    quic: &quinn::Connection,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, HandshakeError> {
    let refused = async {
        identity.verify_domain(&certificates(quic))?;
        let mut streams = Streams { control: quic.open_bi().await?, data: quic.open_bi().await? };
        let mine = greeting(config, &*sink, quic, None);
        identity.verify_own(mine.hello.node).map_err(HandshakeError::OwnIdentity)?;
        streams.prioritise();
        streams.control.0.write_all(&mine.encode()).await?;
        streams.data.0.write_all(&[PREFACE]).await?;
        let theirs = read_greeting(&mut streams.control.1).await?;
        let principal = identity.verify_node(&certificates(quic), theirs.hello.node)?;
        if let Some(expected) = expected.filter(|expected| *expected != theirs.hello.node) {
            return Err(HandshakeError::WrongNode { expected, found: theirs.hello.node });
        }
        let (mine, theirs) = (&mine, &theirs);
        let opening = Opening { config, admission, mine, theirs, principal, quic };
        Ok(opening.open(true, &sink, None)?.start(streams, opening.terms()))
    };
    refused.await.inspect_err(|error| refuse(quic, error))
}

/// The other part: the dialler's hello, `on_open`, hello. It holds one of the peer's places while
/// it is open.
pub(crate) async fn accept(
    Shared { config, identity, admission, .. }: &Shared,
    quic: &quinn::Connection,
    listening: IpAddr,
    sink: Arc<dyn Sink>,
) -> Result<(), HandshakeError> {
    let refused = async {
        identity.verify_domain(&certificates(quic))?;
        let mut streams =
            Streams { control: quic.accept_bi().await?, data: quic.accept_bi().await? };
        let theirs = read_greeting(&mut streams.control.1).await?;
        let mut preface = [0];
        streams.data.1.read_exact(&mut preface).await?;
        if preface != [PREFACE] {
            return Err(HelloError::Malformed("its data lane begins with something else").into());
        }
        let principal = identity.verify_node(&certificates(quic), theirs.hello.node)?;
        let name = PeerName::Node(theirs.hello.node); // The certificate proves it.
        let slot = admission.accept(name).map_err(HandshakeError::RefusedHere)?;
        streams.prioritise();
        let mine = greeting(config, &*sink, quic, Some(listening));
        let (mine, theirs) = (&mine, &theirs);
        let opening = Opening { config, admission, mine, theirs, principal, quic };
        let lifetime = opening.open(false, &sink, Some(slot))?;
        match streams.control.0.write_all(&mine.encode()).await {
            Ok(()) => _ = lifetime.start(streams, opening.terms()),
            Err(error) => lifetime.end(CloseReason::Network(error.to_string())),
        }
        Ok(())
    };
    refused.await.inspect_err(|error| refuse(quic, error))
}

fn refuse(quic: &quinn::Connection, error: &HandshakeError) {
    let text = error.refusal_text().unwrap_or_default();
    quic.close(REFUSED_CODE, cut_text(&text).as_bytes());
}

/// The certificates of the peer, whose chain and dates were verified with the QUIC handshake.
fn certificates(quic: &quinn::Connection) -> Vec<CertificateDer<'static>> {
    let certificates = quic.peer_identity().and_then(|identity| identity.downcast().ok());
    certificates.map(|boxed| *boxed).unwrap_or_default()
}

async fn read_greeting(stream: &mut RecvStream) -> Result<Greeting, HandshakeError> {
    let mut envelope = [0; ENVELOPE_BYTES];
    stream.read_exact(&mut envelope).await?;
    let announced = hello::decode_envelope(&envelope)?;
    let (Announced::Hello(len) | Announced::Refusal(len)) = announced;
    let mut body = vec![0; usize::from(len)];
    stream.read_exact(&mut body).await?;
    match announced {
        Announced::Hello(_) => Ok(Greeting::decode(&body)?),
        Announced::Refusal(_) => Err(HelloError::Refused(clean_text(&body)).into()),
    }
}

fn greeting(
    config: &Config,
    sink: &dyn Sink,
    quic: &quinn::Connection,
    listening: Option<IpAddr>,
) -> Greeting {
    let mut hello = sink.hello();
    hello.advertised = hello::advertised(&hello.advertised, local_ip(quic, listening));
    hello.frame_bytes_max = hello.frame_bytes_max.min(config.frame_bytes_max);
    Greeting {
        hello,
        random: rand::random(),
        chunk_bytes_max: config.lane_frame_bytes_max,
        control_window: config.window_bytes,
        data_window: config.window_bytes,
        keep_alive_timeout: config.keep_alive_timeout,
    }
}

/// The address of this machine that the peer reaches it at: from the system where it tells with
/// each datagram, else from where it listens, else by asking which way a datagram to the peer would
/// take.
fn local_ip(quic: &quinn::Connection, listening: Option<IpAddr>) -> IpAddr {
    let is_known = |ip: &IpAddr| !ip.is_unspecified();
    let listening = || listening.filter(is_known);
    let known = quic.local_ip().filter(is_known).or_else(listening);
    known.or_else(|| route_to(quic.remote_address()).ok()).unwrap_or(IpAddr::from([0, 0, 0, 0]))
}

fn route_to(peer: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Knowledge of both ends once the hellos are there.
struct Opening<'a> {
    config: &'a Config,
    admission: &'a Admission,
    mine: &'a Greeting,
    theirs: &'a Greeting,
    principal: Principal,
    quic: &'a quinn::Connection,
}

impl Opening<'_> {
    /// Makes the connection and asks the sink whether it wants it.
    fn open(
        &self,
        is_dialler: bool,
        sink: &Arc<dyn Sink>,
        slot: Option<Seat>,
    ) -> Result<Lifetime, HandshakeError> {
        let Self { config, admission, mine, theirs, .. } = self;
        let (dialler, acceptor) = if is_dialler { (mine, theirs) } else { (theirs, mine) };
        let link = Link {
            peer: theirs.hello.clone(),
            nonce: LinkNonce::of(dialler.random, acceptor.random),
            is_dialler,
            scheme: SCHEME,
            principal: Some(self.principal.clone()),
            remote: Some(self.quic.remote_address().ip().to_string().into()),
        };
        let frame_bytes_max = config.frame_bytes_max.min(theirs.hello.frame_bytes_max) as usize;
        let inline = config.lane_frame_bytes_max.min(theirs.chunk_bytes_max) as usize;
        let limits =
            [config.control_limits(frame_bytes_max), config.data_limits(frame_bytes_max, inline)];
        let lanes = limits.map(|limits| (limits, admission.share(link.peer_name())));
        let connection = Arc::new(QuicConnection::new(link, self.quic.clone(), lanes));
        sink.on_open(Arc::clone(&connection) as _).map_err(|text| {
            let error = HandshakeError::RefusedHere(text);
            refuse(self.quic, &error);
            // A handle the sink kept must not wait for ever.
            connection.end(CloseReason::Local);
            error
        })?;
        tracing::debug!(peer = %theirs.hello.node, is_dialler, "connection open");
        Ok(Lifetime::new(connection, Arc::clone(sink), slot))
    }

    fn terms(&self) -> Terms {
        let config = self.config;
        Terms {
            frame_bytes_max: self.mine.hello.frame_bytes_max as usize,
            inline_bytes_max: config.lane_frame_bytes_max as usize,
            large_frames_max: config.large_frames_max.into(),
            large_bytes_max: config.large_bytes_max,
            held_bytes_max: config.window_bytes as usize,
            keep_alive_timeout: config.keep_alive_timeout,
            close_grace: config.close_grace,
        }
    }
}

impl Streams {
    /// Puts control ahead of data and of large frames, which share what is left evenly.
    pub(crate) fn prioritise(&self) {
        // It fails when the connection is lost, which is found soon enough.
        let _ = self.control.0.set_priority(CONTROL_PRIORITY);
    }
}
