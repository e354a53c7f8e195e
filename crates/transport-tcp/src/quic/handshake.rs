//! The hello of both ends over a fresh QUIC connection, and what its certificates must prove.
//!
//! The dialler opens two streams: the control lane, on which it says hello and gets the other hello
//! in answer, and the data lane, on which it writes one byte, since a peer does not see a stream
//! before something comes on it. Both hellos are those of TCP.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::identity::{IdentityMismatch, IdentitySeam as _, TlsError};
use convoke_transport::parts::{
    Admission, ENVELOPE_BYTES, Greeting, HelloError, Lifetime, Opening, RefusedHere, Seat,
    SendAccount, TEXT_BYTES_MAX, clean_text, cut_text, decode_envelope, random,
};
use convoke_transport::{Address, CloseReason, Connection, DialError, PeerName, Principal, Sink};
use quinn::{ConnectionError, ReadExactError, RecvStream, SendStream, VarInt, WriteError};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, Error, OtherError};

use crate::quic::config::Config;
use crate::quic::connection::QuicConnection;
use crate::quic::reader::{self, Terms};
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
/// The error code of a connection that was refused before its handshake, for which QUIC has no text
/// (RFC 9000, section 20.1).
const CONNECTION_REFUSED: u64 = 2;

/// The streams of the two lanes.
pub(crate) struct Streams {
    pub(crate) control: (SendStream, RecvStream),
    pub(crate) data: (SendStream, RecvStream),
}

/// Reason why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Hello(#[from] HelloError),
    #[error("{}", lost_text(.0))]
    Lost(#[from] ConnectionError),
    #[error("it broke the handshake off")]
    BrokenOff,
    #[error("this endpoint refused it: {0}")]
    RefusedHere(String),
    #[error("it is {found}, not {expected}")]
    WrongNode { expected: NodeId, found: NodeId },
    #[error("{0}")]
    Untrusted(#[from] IdentityMismatch),
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
            Self::Untrusted(_) => DialError::Untrusted { address, message: self.to_string() },
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
            Self::Lost(_) | Self::BrokenOff => None,
        }
    }
}

/// The words are those of TLS over TCP, where it is TLS that failed.
fn lost_text(lost: &ConnectionError) -> String {
    match tls_error(lost) {
        Some(error) => error.to_string(),
        None => format!("the connection was lost: {lost}"),
    }
}

fn of_lost(lost: &ConnectionError, address: Address) -> DialError {
    match (tls_error(lost), lost) {
        (Some(_), _) if alert(lost) == Some(AlertDescription::NoApplicationProtocol) => {
            let message = "it speaks QUIC, but not convoke over QUIC of this version".into();
            DialError::Handshake { address, message }
        }
        (Some(error), _) => error.into_dial_error(address),
        (None, ConnectionError::ApplicationClosed(close)) => {
            let message = format!("it refused: {}", clean_text(&close.reason));
            DialError::Handshake { address, message }
        }
        (None, ConnectionError::ConnectionClosed(close))
            if u64::from(close.error_code) == CONNECTION_REFUSED =>
        {
            let message = "it refused: as many connections are in their handshake as its \
                           handshakes_max lets one address have";
            DialError::Handshake { address, message: message.into() }
        }
        (None, ConnectionError::ConnectionClosed(_) | ConnectionError::VersionMismatch) => {
            DialError::Handshake { address, message: lost.to_string() }
        }
        (None, _) => DialError::Unreachable { address, message: lost.to_string() },
    }
}

/// The failure of TLS that ended a connection, of which QUIC keeps the alert and, where it was
/// found at this end, the text.
fn tls_error(lost: &ConnectionError) -> Option<TlsError> {
    let alert = alert(lost)?;
    let error = match lost {
        ConnectionError::TransportError(found) => found_here(alert, &found.reason),
        _ => Error::AlertReceived(alert),
    };
    Some(error.into())
}

fn found_here(alert: AlertDescription, text: &str) -> Error {
    let other = |text: &str| CertificateError::Other(OtherError(Arc::from(Box::from(text))));
    match (text.strip_prefix("invalid peer certificate: "), alert) {
        (Some(_), AlertDescription::UnknownCA) => CertificateError::UnknownIssuer.into(),
        (Some(_), AlertDescription::DecryptError) => CertificateError::BadSignature.into(),
        (Some(defect), _) => other(defect).into(),
        (None, AlertDescription::CertificateRequired) => Error::NoCertificatesPresented,
        (None, AlertDescription::NoApplicationProtocol) => Error::NoApplicationProtocol,
        (None, _) => Error::General(text.to_owned()),
    }
}

/// The alert of TLS that ended a connection: certificates, mostly.
fn alert(lost: &ConnectionError) -> Option<AlertDescription> {
    let code = match lost {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    let alert = u64::from(code).checked_sub(ALERTS)?;
    u8::try_from(alert).ok().map(Into::into)
}

/// The dialler's part: hello, the other end's hello, `on_open`.
pub(crate) async fn dial(
    Shared { config, identity, admission, .. }: &Shared,
    quic: &quinn::Connection,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, HandshakeError> {
    let mut streams = Streams { control: quic.open_bi().await?, data: quic.open_bi().await? };
    let shaken = async {
        identity.verify_domain(&certificates(quic))?;
        let mine = greeting(config, &*sink, quic, None);
        streams.prioritise();
        streams.control.0.write_all(&mine.encode()).await?;
        streams.data.0.write_all(&[PREFACE]).await?;
        let theirs = read_greeting(&mut streams.control.1).await?;
        let principal = identity.verify_node(&certificates(quic), theirs.hello.node)?;
        if let Some(expected) = expected.filter(|expected| *expected != theirs.hello.node) {
            return Err(HandshakeError::WrongNode { expected, found: theirs.hello.node });
        }
        let opening = opening((&mine, &theirs), true, principal, quic);
        Ok((open((config, admission), &opening, quic, &sink, None)?, mine))
    };
    let (lifetime, mine) = shaken.await.inspect_err(|error| refuse(quic, error))?;
    Ok(reader::start(lifetime, streams, terms(config, &mine)))
}

/// The other part: the dialler's hello, `on_open`, hello. It holds one of the peer's places while
/// it is open.
pub(crate) async fn accept(
    Shared { config, identity, admission, .. }: &Shared,
    quic: &quinn::Connection,
    listening: IpAddr,
    sink: Arc<dyn Sink>,
) -> Result<(), HandshakeError> {
    identity
        .verify_domain(&certificates(quic))
        .map_err(HandshakeError::from)
        .inspect_err(|error| refuse(quic, error))?;
    let mut streams = Streams { control: quic.accept_bi().await?, data: quic.accept_bi().await? };
    let shaken = async {
        let theirs = read_greeting(&mut streams.control.1).await?;
        let mut preface = [0];
        streams.data.1.read_exact(&mut preface).await?;
        if preface != [PREFACE] {
            return Err(HelloError::Malformed("its data lane begins with something else").into());
        }
        let principal = identity.verify_node(&certificates(quic), theirs.hello.node)?;
        let name = PeerName::Node(theirs.hello.node); // The certificate proves it.
        let seat = admission.accept(name).map_err(HandshakeError::RefusedHere)?;
        streams.prioritise();
        let mine = greeting(config, &*sink, quic, Some(listening));
        let opening = opening((&mine, &theirs), false, principal, quic);
        Ok((open((config, admission), &opening, quic, &sink, Some(seat))?, mine))
    };
    let (lifetime, mine) = shaken.await.inspect_err(|error| refuse(quic, error))?;
    match streams.control.0.write_all(&mine.encode()).await {
        Ok(()) => _ = reader::start(lifetime, streams, terms(config, &mine)),
        Err(error) => lifetime.end(CloseReason::Network(error.to_string())),
    }
    Ok(())
}

/// Closes a connection that is refused. To be called while its streams are still there: dropped
/// they end, and a peer that has opened would hear of that first.
fn refuse(quic: &quinn::Connection, error: &HandshakeError) {
    let text = error.refusal_text().unwrap_or_default();
    quic.close(REFUSED_CODE, cut_text(&text, TEXT_BYTES_MAX).as_bytes());
}

/// The certificates of the peer, whose chain and dates were verified with the QUIC handshake.
fn certificates(quic: &quinn::Connection) -> Vec<CertificateDer<'static>> {
    let certificates = quic.peer_identity().and_then(|identity| identity.downcast().ok());
    certificates.map(|boxed| *boxed).unwrap_or_default()
}

async fn read_greeting(stream: &mut RecvStream) -> Result<Greeting, HandshakeError> {
    let mut envelope = [0; ENVELOPE_BYTES];
    stream.read_exact(&mut envelope).await?;
    let announced = decode_envelope(&envelope)?;
    let mut body = vec![0; announced.len()];
    stream.read_exact(&mut body).await?;
    Ok(announced.decode(&body)?)
}

fn greeting(
    config: &Config,
    sink: &dyn Sink,
    quic: &quinn::Connection,
    listening: Option<IpAddr>,
) -> Greeting {
    let (local, windows) = (local_ip(quic, listening), [config.window_bytes; 2]);
    let grants = (config.lane_frame_bytes_max, windows);
    Greeting::of(sink, &config.common, local, random(), grants)
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

fn opening<'a>(
    (mine, theirs): (&'a Greeting, &'a Greeting),
    is_dialler: bool,
    principal: Principal,
    quic: &quinn::Connection,
) -> Opening<'a> {
    let remote = Some(quic.remote_address().into());
    Opening { mine, theirs, is_dialler, scheme: SCHEME, principal: Some(principal), remote }
}

/// Makes the connection and asks the sink whether it wants it.
fn open(
    (config, admission): (&Config, &Admission),
    opening: &Opening<'_>,
    quic: &quinn::Connection,
    sink: &Arc<dyn Sink>,
    seat: Option<Seat>,
) -> Result<Lifetime<QuicConnection>, HandshakeError> {
    let (link, mine, theirs) = (opening.link(), opening.mine, opening.theirs);
    let share = admission.share(link.peer_name());
    let said = [mine, theirs].map(|greeting| greeting.hello.frame_bytes_max);
    let limits = config.common.send_limits(said[0], said[1]);
    let inline = config.lane_frame_bytes_max.min(theirs.chunk_bytes_max) as usize;
    let account = SendAccount::new(limits, share);
    let connection = QuicConnection::new(link, quic.clone(), account, inline);
    let opened = opening.show(connection, sink, seat);
    opened.map_err(|RefusedHere(text)| HandshakeError::RefusedHere(text))
}

fn terms(config: &Config, mine: &Greeting) -> Terms {
    Terms {
        frame_bytes_max: mine.hello.frame_bytes_max as usize,
        inline_bytes_max: config.lane_frame_bytes_max as usize,
        large_frames_max: config.large_frames_max.into(),
        large_bytes_max: config.large_bytes_max,
        held_bytes_max: config.window_bytes as usize,
        life: config.common.life_terms(),
    }
}

impl Streams {
    /// Puts control ahead of data and of large frames, which share what is left evenly.
    pub(crate) fn prioritise(&self) {
        // It fails when the connection is lost, which is found soon enough.
        let _ = self.control.0.set_priority(CONTROL_PRIORITY);
    }
}

#[cfg(test)]
mod tests {
    use quinn::{ConnectionClose, TransportErrorCode};

    use super::*;

    /// Error and text of a dial that the other end ended with an alert.
    fn refused_by(alert: AlertDescription) -> (DialError, String) {
        let lost = ConnectionError::ConnectionClosed(ConnectionClose {
            error_code: TransportErrorCode::crypto(alert.into()),
            frame_type: None,
            reason: bytes::Bytes::new(),
        });
        let error = of_lost(&lost, "quic://127.0.0.1:1".parse().expect("it is an address"));
        let text = error.to_string();
        (error, text)
    }

    #[test]
    fn an_alert_that_says_nothing_of_certificates_is_no_matter_of_trust() {
        let (error, text) = refused_by(AlertDescription::HandshakeFailure);
        assert!(matches!(error, DialError::Handshake { .. }), "{text}");
        assert!(text.contains("it ended the TLS handshake: HandshakeFailure"), "{text}");
        let (error, text) = refused_by(AlertDescription::BadCertificate);
        assert!(matches!(error, DialError::Untrusted { .. }), "{text}");
        let (error, text) = refused_by(AlertDescription::NoApplicationProtocol);
        assert!(matches!(error, DialError::Handshake { .. }), "{text}");
        assert!(text.contains("not convoke over QUIC of this version"), "{text}");
    }
}
