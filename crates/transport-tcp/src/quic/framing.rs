//! Framing of a lane's stream, without I/O.
//!
//! A little-endian word and the bytes it announces, over and over:
//!
//! ```text
//!  bit 31    30 29                                       0
//!     +--------+----------------------------------------+
//!     | kind   | length in bytes                        |
//!     +--------+----------------------------------------+
//!
//!  kind 0  a frame: its bytes follow
//!       1  a large frame: its first 152 bytes follow, the others come on a stream of their own;
//!          the length is that of the whole frame. Only on the data lane
//!       2  goodbye: why the sender closes, UTF-8, at most 512 bytes. Only on the data lane, and
//!          the last word there
//! ```
//!
//! The n-th word of kind 1 belongs to the n-th unidirectional stream that its sender opens.

use bytes::{Buf, Bytes, BytesMut};
use convoke_transport::parts::{TEXT_BYTES_MAX, clean_text, cut_text};
use convoke_transport::{Lane, ORDER_HEAD_BYTES};

/// The word before everything.
pub(crate) const WORD_BYTES: usize = 4;
/// Largest length a word can say.
pub(crate) const LENGTH_MAX: u32 = (1 << KIND_SHIFT) - 1;
/// As much of a large frame comes on the lane: what a sink needs to tell its order.
pub(crate) const HEAD_BYTES: usize = ORDER_HEAD_BYTES;

const KIND_SHIFT: u32 = 30;
/// First room for an item that is spread over several pieces.
const CARRY_BYTES: usize = 512;

/// Breach of this transport's rules by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("frame kind {0} does not exist")]
    UnknownKind(u32),
    #[error("a {0:?} does not belong on the {1:?} lane")]
    WrongLane(Kind, Lane),
    #[error("a {0:?} of {1} bytes does not exist")]
    BadLength(Kind, usize),
    #[error("a frame of {len} bytes is over the limit of {limit}")]
    FrameTooLarge { len: usize, limit: usize },
    #[error("a frame of {len} bytes came on the lane, where the limit is {limit}")]
    NotOnItsOwnStream { len: usize, limit: usize },
    #[error("a large frame announced as {announced} bytes has {len}")]
    WrongLength { announced: usize, len: usize },
    #[error("a large frame was given up half-way")]
    GivenUp,
    #[error("a lane was given up")]
    LaneGivenUp,
    #[error("something follows the goodbye")]
    AfterGoodbye,
}

/// Kind of what follows a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Frame,
    Large,
    Goodbye,
}

/// The word of a frame on the lane.
pub(crate) fn word(kind: Kind, len: usize) -> [u8; WORD_BYTES] {
    let len = u32::try_from(len).expect("lengths are checked against LENGTH_MAX");
    debug_assert!(len <= LENGTH_MAX);
    let kind = match kind {
        Kind::Frame => 0,
        Kind::Large => 1,
        Kind::Goodbye => 2,
    };
    (kind << KIND_SHIFT | len).to_le_bytes()
}

/// Appends a goodbye, its text cut to the longest there is.
pub(crate) fn put_goodbye(out: &mut BytesMut, text: &str) {
    let text = cut_text(text, TEXT_BYTES_MAX);
    out.extend_from_slice(&word(Kind::Goodbye, text.len()));
    out.extend_from_slice(text.as_bytes());
}

/// One step of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A whole frame.
    Frame(Bytes),
    /// A frame of `len` bytes that begins with `head`; the others come on a stream of their own.
    Large { head: Bytes, len: usize },
    /// The peer closes, with this text.
    Goodbye(String),
}

/// Rules for what one lane may carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRules {
    pub(crate) lane: Lane,
    pub(crate) frame_bytes_max: usize,
    /// A larger frame must take a stream of its own.
    pub(crate) inline_bytes_max: usize,
}

/// Makes frames of what a lane's stream yields, however it is cut. Frames are slices of it; only
/// one that is spread over several pieces is copied, within `inline_bytes_max`.
#[derive(Debug)]
pub(crate) struct Decoder {
    rules: LaneRules,
    /// The beginning of what is not complete, its word included.
    carry: BytesMut,
    is_ended: bool,
}

impl Decoder {
    pub(crate) fn new(rules: LaneRules) -> Self {
        Self { rules, carry: BytesMut::new(), is_ended: false }
    }

    /// Takes the next item, or all of `input` when it does not complete one.
    pub(crate) fn decode(&mut self, input: &mut Bytes) -> Result<Option<Item>, Fault> {
        if self.is_ended && !input.is_empty() {
            return Err(Fault::AfterGoodbye);
        }
        if self.carry.is_empty()
            && let Some(word) = input.first_chunk()
        {
            let head = self.check(*word)?;
            if input.len() >= WORD_BYTES + head.follows {
                input.advance(WORD_BYTES);
                return Ok(Some(self.item(head, input.split_to(head.follows))));
            }
        }
        self.decode_spread(input)
    }

    /// True when it is at the end of an item.
    pub(crate) fn is_between_items(&self) -> bool {
        self.carry.is_empty()
    }

    /// True when the goodbye was there.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn decode_spread(&mut self, input: &mut Bytes) -> Result<Option<Item>, Fault> {
        self.carry_over(input, WORD_BYTES);
        let Some(word) = self.carry.first_chunk() else { return Ok(None) };
        let head = self.check(*word)?;
        self.carry_over(input, WORD_BYTES + head.follows);
        if self.carry.len() < WORD_BYTES + head.follows {
            return Ok(None);
        }
        let mut whole = std::mem::take(&mut self.carry).freeze();
        whole.advance(WORD_BYTES);
        Ok(Some(self.item(head, whole)))
    }

    /// Moves bytes until `total` are there. Grows by doubling, from what a small frame needs, and
    /// never for what is only announced.
    fn carry_over(&mut self, input: &mut Bytes, total: usize) {
        let part = input.split_to(total.saturating_sub(self.carry.len()).min(input.len()));
        if self.carry.capacity() - self.carry.len() < part.len() {
            let room = (total - self.carry.len()).max(CARRY_BYTES);
            self.carry.reserve(self.carry.len().max(part.len()).max(CARRY_BYTES).min(room));
        }
        self.carry.extend_from_slice(&part);
    }

    fn check(&self, word: [u8; WORD_BYTES]) -> Result<Head, Fault> {
        let word = u32::from_le_bytes(word);
        let kind = match word >> KIND_SHIFT {
            0 => Kind::Frame,
            1 => Kind::Large,
            2 => Kind::Goodbye,
            other => return Err(Fault::UnknownKind(other)),
        };
        let (rules, len) = (&self.rules, (word & LENGTH_MAX) as usize);
        if kind != Kind::Frame && rules.lane == Lane::Control {
            return Err(Fault::WrongLane(kind, rules.lane));
        }
        let follows = match kind {
            Kind::Large if len <= HEAD_BYTES => return Err(Fault::BadLength(kind, len)),
            Kind::Goodbye if len > TEXT_BYTES_MAX => return Err(Fault::BadLength(kind, len)),
            _ if len > rules.frame_bytes_max => {
                return Err(Fault::FrameTooLarge { len, limit: rules.frame_bytes_max });
            }
            Kind::Frame if len > rules.inline_bytes_max => {
                return Err(Fault::NotOnItsOwnStream { len, limit: rules.inline_bytes_max });
            }
            Kind::Large => HEAD_BYTES,
            Kind::Frame | Kind::Goodbye => len,
        };
        Ok(Head { kind, len, follows })
    }

    fn item(&mut self, head: Head, body: Bytes) -> Item {
        match head.kind {
            Kind::Frame => Item::Frame(body),
            Kind::Large => Item::Large { head: body, len: head.len },
            Kind::Goodbye => {
                self.is_ended = true;
                Item::Goodbye(clean_text(&body))
            }
        }
    }
}

/// A word taken apart.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    len: usize,
    /// Number of bytes that follow on the lane.
    follows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: LaneRules =
        LaneRules { lane: Lane::Data, frame_bytes_max: 4_000, inline_bytes_max: 1_000 };

    fn put(out: &mut Vec<u8>, item: &Item) {
        match item {
            Item::Frame(bytes) => {
                out.extend(word(Kind::Frame, bytes.len()));
                out.extend(bytes);
            }
            Item::Large { head, len } => {
                out.extend(word(Kind::Large, *len));
                out.extend(head);
            }
            Item::Goodbye(text) => {
                let mut bytes = BytesMut::new();
                put_goodbye(&mut bytes, text);
                out.extend(bytes);
            }
        }
    }

    fn decode(decoder: &mut Decoder, mut input: Bytes) -> Result<Vec<Item>, Fault> {
        let mut items = Vec::new();
        while let Some(item) = decoder.decode(&mut input)? {
            items.push(item);
        }
        assert!(input.is_empty(), "what is no item yet is put aside");
        Ok(items)
    }

    fn item() -> impl Strategy<Value = Item> {
        let bytes = |len: std::ops::RangeInclusive<usize>| {
            prop::collection::vec(any::<u8>(), len).prop_map(Bytes::from)
        };
        prop_oneof![
            4 => bytes(0..=1_000).prop_map(Item::Frame),
            1 => (bytes(HEAD_BYTES..=HEAD_BYTES), HEAD_BYTES + 1..=4_000)
                .prop_map(|(head, len)| Item::Large { head, len }),
        ]
    }

    proptest! {
        #[test]
        fn items_survive_any_cut(
            items in prop::collection::vec(item(), 0..8),
            cuts in prop::collection::vec(1..600_usize, 1..40),
        ) {
            let mut wire = Vec::new();
            items.iter().for_each(|item| put(&mut wire, item));
            let goodbye = Item::Goodbye("it was nice".into());
            put(&mut wire, &goodbye);
            let mut wire = Bytes::from(wire);
            let (mut decoder, mut got) = (Decoder::new(RULES), Vec::new());
            for cut in cuts.iter().cycle() {
                if wire.is_empty() {
                    break;
                }
                let piece = wire.split_to((*cut).min(wire.len()));
                got.extend(decode(&mut decoder, piece).unwrap());
            }
            prop_assert_eq!(got.pop(), Some(goodbye));
            prop_assert_eq!(got, items);
            prop_assert!(decoder.is_between_items() && decoder.is_ended());
        }

        #[test]
        fn any_bytes_are_items_or_a_fault(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let mut decoder = Decoder::new(RULES);
            for piece in pieces {
                if decode(&mut decoder, piece.into()).is_err() {
                    break;
                }
                prop_assert!(decoder.carry.len() <= WORD_BYTES + RULES.inline_bytes_max);
            }
        }
    }

    #[test]
    fn what_the_rules_forbid_is_a_fault_before_its_bytes_come() {
        let fault = |lane, word: [u8; WORD_BYTES]| {
            let mut decoder = Decoder::new(LaneRules { lane, ..RULES });
            decoder.decode(&mut Bytes::copy_from_slice(&word)).unwrap_err()
        };
        let (control, data) = (Lane::Control, Lane::Data);
        let large = word(Kind::Large, 2_000);
        assert_eq!(fault(control, large), Fault::WrongLane(Kind::Large, control));
        assert_eq!(fault(data, word(Kind::Large, 152)), Fault::BadLength(Kind::Large, 152));
        assert_eq!(fault(data, word(Kind::Goodbye, 513)), Fault::BadLength(Kind::Goodbye, 513));
        let too_large = Fault::FrameTooLarge { len: 4_001, limit: 4_000 };
        assert_eq!(fault(data, word(Kind::Large, 4_001)), too_large);
        assert_eq!(fault(data, word(Kind::Frame, 4_001)), too_large);
        let not_inline = Fault::NotOnItsOwnStream { len: 1_001, limit: 1_000 };
        assert_eq!(fault(data, word(Kind::Frame, 1_001)), not_inline);
        assert_eq!(fault(data, [0xff; 4]), Fault::UnknownKind(3));
    }

    #[test]
    fn nothing_follows_a_goodbye() {
        let mut wire = BytesMut::new();
        put_goodbye(&mut wire, "bye");
        wire.extend_from_slice(b"!");
        let fault = decode(&mut Decoder::new(RULES), wire.freeze());
        assert_eq!(fault, Err(Fault::AfterGoodbye));
    }
}
