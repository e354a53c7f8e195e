//! Hellos, which both ends send before anything else.
//!
//! The dialler speaks first; the other end answers with its own hello, or with a refusal. Both come
//! in an envelope that is the same in every version, so that any version can say why it refuses:
//!
//! ```text
//!  magic "\x93convoke" 8 | version u16 | kind u8: 0 hello, 1 refusal | zero u8 | length u16
//! ```
//!
//! A refusal is a text of at most 512 bytes. A hello of version 1 is, all little-endian:
//!
//! ```text
//!  node u64 | incarnation u64 | random u64 | frame_bytes_max u32 | chunk_bytes_max u32
//!  control window u32 | data window u32 | keep-alive timeout in ms u32
//!  count of addresses u8, at most 16 | per address: length u8, text
//! ```
//!
//! An end that may have several flows ([`Flows`](super::Flows)) goes on with
//!
//! ```text
//!  flow count u8 | flow index u8 | connection u64 | secret u128
//! ```
//!
//! Bytes that follow are for later additions and ignored.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, BufMut};

/// A peer must not be able to ask for a flood of keep-alives, either.
pub use convoke_proto::limits::KEEP_ALIVE_TIMEOUT_MIN;

use super::text::{TEXT_BYTES_MAX, clean_text, cut_text};
use crate::id::{Incarnation, NodeId};
use crate::{Address, Hello, sockets};

/// Before every hello and refusal.
pub const ENVELOPE_BYTES: usize = 14;
/// Longest body; a hello with 16 longest addresses and a flow takes 4,167 bytes.
pub const BODY_BYTES_MAX: u16 = 8 * 1024;
/// Most advertised addresses of one node; more are left out.
pub const ADDRESSES_MAX: usize = 16;
/// Smallest window of a lane: below, chunks would be all words.
pub const WINDOW_BYTES_MIN: u32 = 4 * 1024;
/// Smallest chunk limit.
pub const CHUNK_BYTES_MIN: u32 = 1024;

const MAGIC: [u8; 8] = *b"\x93convoke";
const VERSION: u16 = 1;
const KIND_HELLO: u8 = 0;
const KIND_REFUSAL: u8 = 1;

/// Reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Its first bytes are of something else.
    #[error("it does not speak convoke: {0}")]
    NotConvoke(Foreign),
    /// A hello of another version.
    #[error("it speaks version {0} of the hello, this end version {VERSION}")]
    Version(u16),
    /// A refusal, with its text.
    #[error("it refused: {0}")]
    Refused(String),
    /// A hello that breaks the rules.
    #[error("its hello is malformed: {0}")]
    Malformed(&'static str),
}

impl HelloError {
    /// Text that the other end is told, if it can understand it.
    pub fn refusal_text(&self) -> Option<String> {
        match self {
            Self::NotConvoke(_) | Self::Refused(_) => None,
            Self::Version(theirs) => {
                Some(format!("version {VERSION} of the hello is spoken here, not version {theirs}"))
            }
            Self::Malformed(what) => Some(format!("malformed hello: {what}")),
        }
    }
}

/// Refusal that a client that speaks TLS understands on a port that does not: the fatal alert
/// "protocol version" (RFC 8446 section 6).
pub const TLS_REFUSAL: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 70];

/// Protocol of somebody who does not speak what is spoken here, by the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// Convoke without TLS.
    #[error("it begins with a plain hello of convoke, so one end has TLS and the other has not")]
    Convoke,
    /// TLS.
    #[error("it begins as TLS does, so one end has TLS and the other has not")]
    Tls,
    /// HTTP.
    #[error("it begins as HTTP does")]
    Http,
    /// Anything.
    #[error("its first bytes are of no known protocol")]
    Unknown,
}

impl Foreign {
    /// Protocol that begins so and is not a hello.
    fn of(bytes: &[u8]) -> Self {
        const HTTP: [&[u8]; 8] =
            [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"CONN", b"PRI ", b"HTTP"];
        match bytes {
            [0x16, 0x03, ..] => Self::Tls,
            _ if HTTP.iter().any(|word| bytes.starts_with(word)) => Self::Http,
            _ => Self::Unknown,
        }
    }

    /// Protocol that begins so where TLS is expected; `None` when it may be TLS: a handshake or an
    /// alert.
    pub fn to_tls(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x15 | 0x16, ..] => None,
            _ if bytes.starts_with(&MAGIC) => Some(Self::Convoke),
            _ => Some(Self::of(bytes)),
        }
    }
}

/// A hello and what only the transport needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Hello of the sink's node.
    pub hello: Hello,
    /// This end's half of the connection's name.
    pub random: u64,
    /// The largest chunk, or message, that it takes.
    pub chunk_bytes_max: u32,
    /// Bytes that it grants on the control lane.
    pub control_window: u32,
    /// Bytes that it grants on the data lane.
    pub data_window: u32,
    /// After this long without a byte the sender of the greeting gives up.
    pub keep_alive_timeout: Duration,
    /// The flow that it opens, of an end that may have several.
    pub flow: Option<FlowHello>,
}

/// Part of a greeting that says which flow of a connection it opens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowHello {
    /// Number of flows: of the first greeting as many as the dialler may have, then the smaller
    /// of that and what the other end may have.
    pub count: u8,
    /// The flow, from 0.
    pub index: u8,
    /// Number of the connection at the end that accepts; 0 in the first greeting.
    pub connection: u64,
    /// Secret of the connection, which that end draws: who knows it may join. 0 in the first
    /// greeting.
    pub secret: u128,
}

impl FlowHello {
    const BYTES: usize = 26;

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.count);
        out.put_u8(self.index);
        out.put_u64_le(self.connection);
        out.put_u128_le(self.secret);
    }

    /// One flow, or bytes that are too short, say nothing.
    fn decode(mut rest: &[u8]) -> Result<Option<Self>, HelloError> {
        if rest.len() < Self::BYTES {
            return Ok(None);
        }
        let (count, index) = (rest.get_u8(), rest.get_u8());
        let (connection, secret) = (rest.get_u64_le(), rest.get_u128_le());
        match count {
            0 | 1 => Ok(None),
            _ if index < count => Ok(Some(Self { count, index, connection, secret })),
            _ => Err(HelloError::Malformed("it has fewer flows than the one it opens")),
        }
    }
}

impl fmt::Debug for FlowHello {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {} of {}", self.index, self.count)
    }
}

impl Greeting {
    /// The whole message, envelope included.
    ///
    /// # Panics
    /// For an address that is longer than an address can be.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128);
        body.put_u64_le(self.hello.node.get());
        body.put_u64_le(self.hello.incarnation.0);
        body.put_u64_le(self.random);
        body.put_u32_le(self.hello.frame_bytes_max);
        body.put_u32_le(self.chunk_bytes_max);
        body.put_u32_le(self.control_window);
        body.put_u32_le(self.data_window);
        body.put_u32_le(u32::try_from(self.keep_alive_timeout.as_millis()).unwrap_or(u32::MAX));
        let addresses = &self.hello.advertised[..self.hello.advertised.len().min(ADDRESSES_MAX)];
        body.put_u8(u8::try_from(addresses.len()).expect("ADDRESSES_MAX fits"));
        for address in addresses {
            let len = u8::try_from(address.as_str().len()).expect("ADDRESS_BYTES_MAX fits");
            body.put_u8(len);
            body.put_slice(address.as_str().as_bytes());
        }
        if let Some(flow) = &self.flow {
            flow.encode(&mut body);
        }
        envelope(KIND_HELLO, &body)
    }

    /// Reads the body of a hello.
    ///
    /// # Errors
    /// [`HelloError::Malformed`] for one that nobody can work with.
    pub fn decode(mut body: &[u8]) -> Result<Self, HelloError> {
        const SHORT: HelloError = HelloError::Malformed("it is too short");
        let mut u64_le = || body.try_get_u64_le().map_err(|_| SHORT);
        let (node, incarnation, random) = (u64_le()?, u64_le()?, u64_le()?);
        let mut u32_le = || body.try_get_u32_le().map_err(|_| SHORT);
        let (frame_bytes_max, chunk_bytes_max) = (u32_le()?, u32_le()?);
        let (control_window, data_window) = (u32_le()?, u32_le()?);
        let keep_alive_timeout = Duration::from_millis(u64::from(u32_le()?));
        let node =
            NodeId::try_from(node).map_err(|_| HelloError::Malformed("its node id is zero"))?;
        let advertised = decode_addresses(&mut body)?;
        let flow = FlowHello::decode(body)?;
        let incarnation = Incarnation(incarnation);
        let greeting = Self {
            hello: Hello { node, incarnation, advertised, frame_bytes_max },
            random,
            chunk_bytes_max,
            control_window,
            data_window,
            keep_alive_timeout,
            flow,
        };
        greeting.checked()
    }

    /// The greeting, when an end can work with its limits.
    ///
    /// # Errors
    /// [`HelloError::Malformed`] says which it cannot.
    pub fn checked(self) -> Result<Self, HelloError> {
        let is_window_small = self.control_window.min(self.data_window) < WINDOW_BYTES_MIN;
        let fault = if is_window_small || self.chunk_bytes_max < CHUNK_BYTES_MIN {
            "its windows or chunks are too small"
        } else if self.hello.frame_bytes_max == 0 {
            "it takes no frames"
        } else if self.keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN {
            "its keep-alive timeout is too short"
        } else {
            return Ok(self);
        };
        Err(HelloError::Malformed(fault))
    }
}

fn decode_addresses(body: &mut &[u8]) -> Result<Vec<Address>, HelloError> {
    const BAD: HelloError = HelloError::Malformed("an advertised address is not one");
    let count = usize::from(body.try_get_u8().map_err(|_| BAD)?);
    if count > ADDRESSES_MAX {
        return Err(HelloError::Malformed("it advertises too many addresses"));
    }
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        let len = usize::from(body.try_get_u8().map_err(|_| BAD)?);
        let (text, rest) = body.split_at_checked(len).ok_or(BAD)?;
        *body = rest;
        addresses.push(dialable(std::str::from_utf8(text).map_err(|_| BAD)?)?);
    }
    Ok(addresses)
}

/// An advertised address, which somebody must be able to dial.
///
/// # Errors
/// [`HelloError::Malformed`] for one that is invalid, or names every interface.
pub fn dialable(text: &str) -> Result<Address, HelloError> {
    let address =
        text.parse().map_err(|_| HelloError::Malformed("an advertised address is not one"))?;
    if sockets::unspecified(&address).is_some() {
        return Err(HelloError::Malformed("it advertises an address nobody can dial"));
    }
    Ok(address)
}

/// The whole message that refuses a connection.
pub fn refusal(text: &str) -> Vec<u8> {
    envelope(KIND_REFUSAL, cut_text(text, TEXT_BYTES_MAX).as_bytes())
}

fn envelope(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    message.put_slice(&MAGIC);
    message.put_u16_le(VERSION);
    message.put_u8(kind);
    message.put_u8(0);
    message.put_u16_le(u16::try_from(body.len()).expect("hellos and refusals are short"));
    message.put_slice(body);
    message
}

/// Message that follows an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// A hello of so many bytes.
    Hello(u16),
    /// A refusal of so many bytes.
    Refusal(u16),
}

impl Announced {
    /// Length of the message.
    pub fn len(self) -> usize {
        let (Self::Hello(len) | Self::Refusal(len)) = self;
        len.into()
    }

    /// True when nothing follows.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Reads the message.
    ///
    /// # Errors
    /// [`HelloError::Refused`] for a refusal, others for a hello that is not right.
    pub fn decode(self, body: &[u8]) -> Result<Greeting, HelloError> {
        match self {
            Self::Hello(_) => Greeting::decode(body),
            Self::Refusal(_) => Err(HelloError::Refused(clean_text(body))),
        }
    }
}

/// Reads an envelope.
///
/// # Errors
/// [`HelloError`] for what is no hello, or one of another version.
pub fn decode_envelope(bytes: &[u8; ENVELOPE_BYTES]) -> Result<Announced, HelloError> {
    let mut rest =
        bytes.strip_prefix(&MAGIC).ok_or_else(|| HelloError::NotConvoke(Foreign::of(bytes)))?;
    let (version, kind) = (rest.get_u16_le(), rest.get_u8());
    rest.advance(1);
    let len = rest.get_u16_le();
    match kind {
        KIND_REFUSAL if usize::from(len) <= TEXT_BYTES_MAX => Ok(Announced::Refusal(len)),
        _ if version != VERSION => Err(HelloError::Version(version)),
        KIND_HELLO if len <= BODY_BYTES_MAX => Ok(Announced::Hello(len)),
        _ => Err(HelloError::Malformed("its envelope has an unknown kind or a bad length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn greeting() -> Greeting {
        Greeting {
            hello: Hello {
                node: NodeId::new(7),
                incarnation: Incarnation(0x1122),
                advertised: addresses(&["tcp://10.0.0.1:7000", "quic://shop.example:7000"]),
                frame_bytes_max: 4 << 20,
            },
            random: 99,
            chunk_bytes_max: 65_536,
            control_window: 65_536,
            data_window: 1 << 20,
            keep_alive_timeout: Duration::from_secs(10),
            flow: None,
        }
    }

    fn decode(message: &[u8]) -> Result<Greeting, HelloError> {
        let (envelope, body) = message.split_first_chunk().unwrap();
        let announced = decode_envelope(envelope)?;
        assert_eq!(announced, Announced::Hello(u16::try_from(body.len()).unwrap()));
        Greeting::decode(body)
    }

    #[test]
    fn a_greeting_survives_the_wire_and_ignores_additions() {
        let message = greeting().encode();
        assert_eq!(decode(&message), Ok(greeting()));
        let later = [&message[ENVELOPE_BYTES..], b"later"].concat();
        assert_eq!(Greeting::decode(&later), Ok(greeting()));
    }

    #[test]
    fn a_flow_is_told_and_its_secret_is_in_no_log() {
        let mut joining = greeting();
        let flow = FlowHello { count: 4, index: 3, connection: 5, secret: 77_777 };
        joining.flow = Some(flow);
        assert_eq!(decode(&joining.encode()), Ok(joining.clone()));
        assert!(!format!("{joining:?}").contains("77777"));
        joining.flow = Some(FlowHello { index: 4, ..flow });
        assert!(matches!(decode(&joining.encode()), Err(HelloError::Malformed(_))));
        joining.flow = Some(FlowHello { count: 1, index: 0, ..flow });
        assert_eq!(decode(&joining.encode()), Ok(greeting()));
    }

    #[test]
    fn the_largest_greeting_fits() {
        let mut large = greeting();
        let longest = format!("tcp://{}", "x".repeat(249));
        large.hello.advertised = addresses(&[longest.as_str(); ADDRESSES_MAX]);
        assert_eq!(decode(&large.encode()), Ok(large));
    }

    #[test]
    fn another_version_or_protocol_is_told_apart() {
        let mut message = greeting().encode();
        message[8] = 2;
        assert_eq!(decode(&message), Err(HelloError::Version(2)));
        message[0] = b'G';
        assert_eq!(decode(&message), Err(HelloError::NotConvoke(Foreign::Unknown)));
    }

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        let of = |bytes: &[u8; ENVELOPE_BYTES]| decode_envelope(bytes).unwrap_err().to_string();
        assert!(of(b"GET / HTTP/1.1").contains("HTTP"));
        assert!(of(b"\x16\x03\x01\x02\0\x01\0\0\xfc\x03\x03\0\0\0").contains("TLS"));
        assert!(of(b"SSH-2.0-OpenSS").contains("no known protocol"));
    }

    #[test]
    fn a_refusal_of_any_version_is_understood() {
        let mut message = refusal("not today");
        message[8] = 9;
        let announced = decode_envelope(message.first_chunk().unwrap());
        assert_eq!(announced, Ok(Announced::Refusal(9)));
    }

    #[test]
    fn limits_nobody_can_work_with_are_refused() {
        let spoil: [fn(&mut Greeting); 4] = [
            |greeting| greeting.control_window = WINDOW_BYTES_MIN - 1,
            |greeting| greeting.chunk_bytes_max = 0,
            |greeting| greeting.hello.frame_bytes_max = 0,
            |greeting| greeting.keep_alive_timeout = Duration::ZERO,
        ];
        for spoil in spoil {
            let mut spoilt = greeting();
            spoil(&mut spoilt);
            assert!(matches!(decode(&spoilt.encode()), Err(HelloError::Malformed(_))));
        }
    }

    #[test]
    fn a_peer_that_advertises_every_interface_is_refused() {
        let mut spoilt = greeting();
        spoilt.hello.advertised = addresses(&["tcp://[::]:70"]);
        assert!(matches!(decode(&spoilt.encode()), Err(HelloError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_refused(
            envelope in any::<[u8; ENVELOPE_BYTES]>(),
            body in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let _ = decode_envelope(&envelope);
            if let Ok(greeting) = Greeting::decode(&body) {
                prop_assert_eq!(decode(&greeting.encode()), Ok(greeting));
            }
        }

        #[test]
        fn a_cut_greeting_is_refused(cut in 0_usize..100) {
            let message = greeting().encode();
            let body = &message[ENVELOPE_BYTES..];
            prop_assert!(cut >= body.len() || Greeting::decode(&body[..cut]).is_err());
        }
    }
}
