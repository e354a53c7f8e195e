//! Greetings of both ends in the private data of the connection manager, without I/O.
//!
//! The connection manager carries 56 bytes with a request and 196 with a reply, padded with zeros,
//! so what is said has its own end. Little-endian:
//!
//! ```text
//!  magic "\x93cvk" 4 | version u16 | kind u8: 0 hello, 1 refusal | length u8, of what follows
//!
//!  hello    node u64 | incarnation u64 | random u64 | frame_bytes_max u32
//!           slot_bytes u32 | slot_count u16 | control_slot_count u8 | zero u8
//!           keep-alive timeout in ms u32
//!  refusal  text, at most 128 bytes
//! ```
//!
//! The first 8 bytes are the same in every version, so that any version can say why it refuses.
//! Fields of a hello beyond those known here are for later additions and ignored. The addresses of
//! a node do not fit; they are the first messages of a connection, see
//! [`introduction`](crate::introduction).
//!
//! The word of an end here on its slots binds the other, so each direction has the window of its
//! receiver.

use std::time::Duration;

use bytes::{Buf, BufMut};
use convoke_transport::id::{Incarnation, NodeId};
use convoke_transport::parts::{KEEP_ALIVE_TIMEOUT_MIN, clean_text, cut_text};

/// Most data slots: half as many as the 16-bit window would tell from an older one.
pub(crate) const SLOT_COUNT_MAX: u16 = 1 << 14;
/// Most control slots; far from the wrap of the 8-bit counters.
pub(crate) const CONTROL_SLOT_COUNT_MAX: u8 = 64;
/// Smallest slot: below, messages would be all header.
pub(crate) const SLOT_BYTES_MIN: u32 = 1024;
/// Largest slot.
pub(crate) const SLOT_BYTES_MAX: u32 = 1 << 20;

const MAGIC: [u8; 4] = *b"\x93cvk";
const VERSION: u16 = 1;
const KIND_HELLO: u8 = 0;
const KIND_REFUSAL: u8 = 1;
const HEAD_BYTES: usize = 8;
const HELLO_BYTES: u8 = 40;
const REFUSAL_TEXT_BYTES_MAX: usize = 128;

/// Reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    #[error("it does not speak convoke over RDMA")]
    NotConvoke,
    #[error("it speaks version {0} of the hello, this end version {VERSION}")]
    Version(u16),
    #[error("it refused: {0}")]
    Refused(String),
    #[error("its hello is malformed: {0}")]
    Malformed(&'static str),
}

impl HelloError {
    /// Text that the other end is told, if it can understand it.
    pub(crate) fn refusal_text(&self) -> Option<String> {
        match self {
            Self::NotConvoke | Self::Refused(_) => None,
            Self::Version(theirs) => {
                Some(format!("version {VERSION} of the hello is spoken here, not version {theirs}"))
            }
            Self::Malformed(what) => Some(format!("malformed hello: {what}")),
        }
    }
}

/// Terms of one end: what it has posted for the other's messages, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// N: receive slots for data messages, 1 to [`SLOT_COUNT_MAX`].
    pub(crate) slot_count: u16,
    /// R: receive slots for credit-only messages, 1 to [`CONTROL_SLOT_COUNT_MAX`].
    pub(crate) control_slot_count: u8,
    /// S: the size of a slot, [`SLOT_BYTES_MIN`] to [`SLOT_BYTES_MAX`]; no message is longer.
    pub(crate) slot_bytes: u32,
    /// The largest frame it takes, in bytes; at least 1.
    pub(crate) frame_bytes_max: u32,
}

impl Terms {
    /// The first thing that is wrong with them.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if !(1..=SLOT_COUNT_MAX).contains(&self.slot_count)
            || !(1..=CONTROL_SLOT_COUNT_MAX).contains(&self.control_slot_count)
        {
            Some("it has too few or too many slots")
        } else if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes) {
            Some("its slots are too small or too large")
        } else if self.frame_bytes_max == 0 {
            Some("it takes no frames")
        } else {
            None
        }
    }

    /// Number of receives posted before anything is sent.
    pub(crate) fn receive_count(&self) -> u32 {
        u32::from(self.slot_count) + u32::from(self.control_slot_count)
    }
}

/// Greeting of an end: what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// This end's half of the connection's name.
    pub(crate) random: u64,
    pub(crate) terms: Terms,
    /// After this long without a message the sender of the greeting gives up.
    pub(crate) keep_alive_timeout: Duration,
}

impl Greeting {
    /// The private data of a request or a reply; at most
    /// [`REQUEST_DATA_BYTES_MAX`](crate::provider::REQUEST_DATA_BYTES_MAX).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = head(KIND_HELLO, HELLO_BYTES);
        out.put_u64_le(self.node.get());
        out.put_u64_le(self.incarnation.0);
        out.put_u64_le(self.random);
        out.put_u32_le(self.terms.frame_bytes_max);
        out.put_u32_le(self.terms.slot_bytes);
        out.put_u16_le(self.terms.slot_count);
        out.put_u8(self.terms.control_slot_count);
        out.put_u8(0);
        let timeout_ms = u32::try_from(self.keep_alive_timeout.as_millis());
        out.put_u32_le(timeout_ms.unwrap_or(u32::MAX));
        out
    }

    /// Reads the private data of a request, a reply or a reject.
    ///
    /// # Errors
    /// [`HelloError`]: not of this protocol, of another version, a refusal, or garbage.
    pub(crate) fn decode(private_data: &[u8]) -> Result<Self, HelloError> {
        const SHORT: HelloError = HelloError::Malformed("it is too short");
        let mut body = decode_head(private_data)?;
        let mut u64_le = || body.try_get_u64_le().map_err(|_| SHORT);
        let (node, incarnation, random) = (u64_le()?, u64_le()?, u64_le()?);
        let mut u32_le = || body.try_get_u32_le().map_err(|_| SHORT);
        let (frame_bytes_max, slot_bytes) = (u32_le()?, u32_le()?);
        let slot_count = body.try_get_u16_le().map_err(|_| SHORT)?;
        let control_slot_count = body.try_get_u8().map_err(|_| SHORT)?;
        body.try_get_u8().map_err(|_| SHORT)?;
        let timeout_ms = body.try_get_u32_le().map_err(|_| SHORT)?;
        let keep_alive_timeout = Duration::from_millis(timeout_ms.into());
        let node =
            NodeId::try_from(node).map_err(|_| HelloError::Malformed("its node id is zero"))?;
        let terms = Terms { slot_count, control_slot_count, slot_bytes, frame_bytes_max };
        if let Some(fault) = terms.fault() {
            return Err(HelloError::Malformed(fault));
        }
        if keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN {
            return Err(HelloError::Malformed("its keep-alive timeout is too short"));
        }
        let incarnation = Incarnation(incarnation);
        Ok(Self { node, incarnation, random, terms, keep_alive_timeout })
    }
}

/// The private data of a reject, its text cut to 128 bytes.
pub(crate) fn refusal(text: &str) -> Vec<u8> {
    let text = cut_text(text, REFUSAL_TEXT_BYTES_MAX);
    let len = u8::try_from(text.len()).expect("it is cut to 128 bytes");
    let mut out = head(KIND_REFUSAL, len);
    out.put_slice(text.as_bytes());
    out
}

fn head(kind: u8, len: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + usize::from(len));
    out.put_slice(&MAGIC);
    out.put_u16_le(VERSION);
    out.put_u8(kind);
    out.put_u8(len);
    out
}

/// The body of a hello of this version.
fn decode_head(private_data: &[u8]) -> Result<&[u8], HelloError> {
    let rest = private_data.strip_prefix(&MAGIC).ok_or(HelloError::NotConvoke)?;
    let (head, rest) = rest
        .split_first_chunk::<{ HEAD_BYTES - MAGIC.len() }>()
        .ok_or(HelloError::Malformed("it is too short"))?;
    let &[v0, v1, kind, len] = head;
    let version = u16::from_le_bytes([v0, v1]);
    let body = rest.get(..usize::from(len));
    match (kind, body) {
        (KIND_REFUSAL, Some(text)) => Err(HelloError::Refused(clean_text(text))),
        _ if version != VERSION => Err(HelloError::Version(version)),
        (KIND_HELLO, Some(body)) => Ok(body),
        (_, None) => Err(HelloError::Malformed("it is too short")),
        _ => Err(HelloError::Malformed("its kind is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{
        ACCEPT_DATA_BYTES_MAX, REJECT_DATA_BYTES_MAX, REQUEST_DATA_BYTES_MAX as REQUEST_BYTES_MAX,
        VerbsError,
    };
    use proptest::prelude::*;

    const REFUSAL_BYTES_MAX: usize = HEAD_BYTES + REFUSAL_TEXT_BYTES_MAX;
    const _: () = assert!(REFUSAL_BYTES_MAX <= REJECT_DATA_BYTES_MAX);

    fn greeting() -> Greeting {
        Greeting {
            node: NodeId::new(7),
            incarnation: Incarnation(0x1122),
            random: 99,
            terms: Terms {
                slot_count: 32,
                control_slot_count: 2,
                slot_bytes: 8 * 1024,
                frame_bytes_max: 4 << 20,
            },
            keep_alive_timeout: Duration::from_secs(10),
        }
    }

    /// As the connection manager hands it over.
    fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
        assert!(bytes.len() <= len);
        bytes.resize(len, 0);
        bytes
    }

    #[test]
    fn a_greeting_fits_a_request_and_survives_its_padding() {
        for len in [greeting().encode().len(), REQUEST_BYTES_MAX, ACCEPT_DATA_BYTES_MAX] {
            assert_eq!(Greeting::decode(&padded(greeting().encode(), len)), Ok(greeting()));
        }
    }

    #[test]
    fn a_greeting_has_these_bytes() {
        let expected: Vec<u8> = [
            &b"\x93cvk\x01\x00\x00\x28"[..],
            &[7, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0x40, 0, 0, 0x20, 0, 0, 32, 0, 2, 0, 0x10, 0x27, 0, 0],
        ]
        .concat();
        assert_eq!(greeting().encode(), expected);
    }

    #[test]
    fn a_refusal_says_why() {
        let data = padded(refusal("it shuts\ndown"), REFUSAL_BYTES_MAX);
        assert_eq!(Greeting::decode(&data), Err(HelloError::Refused("it shuts down".into())));
        assert_eq!(refusal(&"é".repeat(100)).len(), REFUSAL_BYTES_MAX);
    }

    /// With the default slots, and the limit of an ordinary user on most systems.
    #[test]
    fn a_refusal_for_want_of_locked_memory_says_what_to_change() {
        let (needed_bytes, used_bytes, limit_bytes) = (409_600, 8_192_000, Some(8 << 20));
        let error = VerbsError::MemoryLimit { needed_bytes, used_bytes, limit_bytes }.to_string();
        assert!(error.contains("ulimit -l") && error.contains("8388608 bytes"), "{error}");
        let told = Greeting::decode(&refusal(&error));
        assert_eq!(told, Err(HelloError::Refused(error)), "it is not cut");
    }

    #[test]
    fn another_version_can_be_refused_and_can_refuse() {
        let mut theirs = greeting().encode();
        theirs[4] = 9;
        let error = Greeting::decode(&theirs).unwrap_err();
        assert_eq!(error, HelloError::Version(9));
        assert!(error.refusal_text().unwrap().contains("not version 9"));
        let mut refused = refusal("no");
        refused[4] = 9;
        assert_eq!(Greeting::decode(&refused), Err(HelloError::Refused("no".into())));
    }

    #[test]
    fn terms_out_of_bounds_are_malformed() {
        let malformed = |change: fn(&mut Terms)| {
            let mut greeting = greeting();
            change(&mut greeting.terms);
            Greeting::decode(&greeting.encode()).is_err()
        };
        assert!(malformed(|terms| terms.slot_count = 0));
        assert!(malformed(|terms| terms.slot_count = SLOT_COUNT_MAX + 1));
        assert!(malformed(|terms| terms.control_slot_count = 0));
        assert!(malformed(|terms| terms.control_slot_count = CONTROL_SLOT_COUNT_MAX + 1));
        assert!(malformed(|terms| terms.slot_bytes = SLOT_BYTES_MIN - 1));
        assert!(malformed(|terms| terms.slot_bytes = SLOT_BYTES_MAX + 1));
        assert!(malformed(|terms| terms.frame_bytes_max = 0));
        assert!(!malformed(|terms| terms.slot_count = 1));
        let hasty = Greeting { keep_alive_timeout: Duration::from_millis(99), ..greeting() };
        assert!(Greeting::decode(&hasty.encode()).is_err());
    }

    #[test]
    fn what_says_nothing_is_not_convoke() {
        assert_eq!(Greeting::decode(&[]), Err(HelloError::NotConvoke));
        assert_eq!(Greeting::decode(&[0; REQUEST_BYTES_MAX]), Err(HelloError::NotConvoke));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_refused(
            is_convoke: bool,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut data = if is_convoke { head(KIND_HELLO, HELLO_BYTES) } else { Vec::new() };
            data.extend(bytes);
            if let Ok(greeting) = Greeting::decode(&data) {
                let encoded = greeting.encode();
                // This byte means nothing yet.
                data[HEAD_BYTES + 35] = 0;
                prop_assert_eq!(&data[..encoded.len()], &encoded[..]);
            }
        }

        #[test]
        fn a_changed_byte_never_panics(at in 0..44_usize, byte: u8) {
            let mut data = greeting().encode();
            data[at] = byte;
            let _ = Greeting::decode(&data);
        }
    }
}
