//! Frames inside a gRPC message, without I/O.
//!
//! A message is one or more *chunks*, whole ones only. A chunk is a little-endian word and as many
//! bytes as it says:
//!
//! ```text
//!  bit 31       29 28     27                              0
//!     +-----------+------+---------------------------------+
//!     | kind      | lane | length of what follows, in bytes|
//!     +-----------+------+---------------------------------+
//!
//!  kind 0  last chunk of a frame of the lane (a small frame is one last chunk)
//!       1  chunk of a frame of the lane, more to come; never empty
//!       2  keep-alive, empty, lane control
//!       3  goodbye: why the sender closes, UTF-8, at most 512 bytes, lane control
//!  lane 0  control     1  data
//! ```
//!
//! There is no credit among them: the window of the HTTP/2 stream is the credit.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke_transport::Lane;

/// The word before every chunk.
pub(crate) const WORD_BYTES: usize = 4;
/// Longest text of a goodbye, in bytes: enough for a sentence, too little to matter.
pub(crate) const TEXT_BYTES_MAX: usize = 512;

const LENGTH_BITS: u32 = 28;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;
const LANE_BIT: u32 = 1 << LENGTH_BITS;
const KIND_SHIFT: u32 = LENGTH_BITS + 1;

/// Breach of the rules of this transport by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// A newer version says so in its hello, so this is garbage.
    #[error("chunk kind {0} does not exist")]
    UnknownKind(u32),
    #[error("a {kind:?} chunk of {len} bytes does not exist")]
    BadLength { kind: Kind, len: u32 },
    /// Messages hold whole chunks.
    #[error("a message ends in the middle of a chunk")]
    Cut,
    #[error("a frame is over the limit of {limit} bytes")]
    FrameTooLarge { limit: usize },
}

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Last,
    More,
    KeepAlive,
    Goodbye,
}

/// The word before a chunk of `len` bytes.
pub(crate) fn word(kind: Kind, lane: Lane, len: usize) -> [u8; WORD_BYTES] {
    let kind = match kind {
        Kind::Last => 0,
        Kind::More => 1,
        Kind::KeepAlive => 2,
        Kind::Goodbye => 3_u32,
    };
    let lane = if lane == Lane::Data { LANE_BIT } else { 0 };
    let len = u32::try_from(len).expect("chunks are smaller than a message");
    debug_assert!(len <= LENGTH_MASK, "chunks are smaller than a message");
    (kind << KIND_SHIFT | lane | len).to_le_bytes()
}

/// Appends a keep-alive.
pub(crate) fn put_keep_alive(out: &mut BytesMut) {
    out.put_slice(&word(Kind::KeepAlive, Lane::Control, 0));
}

/// Appends a goodbye, its text cut to [`TEXT_BYTES_MAX`].
pub(crate) fn put_goodbye(out: &mut BytesMut, text: &str) {
    let text = cut_text(text);
    out.put_slice(&word(Kind::Goodbye, Lane::Control, text.len()));
    out.put_slice(text.as_bytes());
}

/// As much of `text` as fits [`TEXT_BYTES_MAX`], at a character boundary.
pub(crate) fn cut_text(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A peer's text, fit for a log line: no control characters.
pub(crate) fn clean_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Index into a pair kept per lane.
pub(crate) fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Data => 1,
    }
}

/// One step of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A whole frame.
    Frame { lane: Lane, bytes: Bytes },
    /// A chunk was put aside until its frame is complete.
    Part,
    /// The peer is alive.
    KeepAlive,
    /// The peer closes, with this text.
    Goodbye(String),
}

/// Makes frames of messages. Holds at most `frame_bytes_max` bytes per lane beside the message.
#[derive(Debug)]
pub(crate) struct Decoder {
    frame_bytes_max: usize,
    partial: [BytesMut; 2],
}

impl Decoder {
    pub(crate) fn new(frame_bytes_max: u32) -> Self {
        let partial = [BytesMut::new(), BytesMut::new()];
        Self { frame_bytes_max: frame_bytes_max as usize, partial }
    }

    /// Takes the next item off the front of `message`; `None` at its end.
    pub(crate) fn decode(&mut self, message: &mut Bytes) -> Result<Option<Item>, Fault> {
        if message.is_empty() {
            return Ok(None);
        }
        let (kind, lane, len) = read_word(message)?;
        if message.len() < len {
            return Err(Fault::Cut);
        }
        let body = message.split_to(len);
        self.item(kind, lane, body).map(Some)
    }

    fn item(&mut self, kind: Kind, lane: Lane, body: Bytes) -> Result<Item, Fault> {
        let partial = &mut self.partial[index(lane)];
        let is_chunk = matches!(kind, Kind::Last | Kind::More);
        if is_chunk && partial.len() + body.len() > self.frame_bytes_max {
            return Err(Fault::FrameTooLarge { limit: self.frame_bytes_max });
        }
        Ok(match kind {
            Kind::Last if partial.is_empty() => Item::Frame { lane, bytes: body },
            Kind::Last => {
                self.put_aside(lane, &body);
                let bytes = std::mem::take(&mut self.partial[index(lane)]).freeze();
                Item::Frame { lane, bytes }
            }
            Kind::More => {
                self.put_aside(lane, &body);
                Item::Part
            }
            Kind::KeepAlive => Item::KeepAlive,
            Kind::Goodbye => Item::Goodbye(clean_text(&body)),
        })
    }

    /// Grows by doubling, but never beyond the largest frame.
    fn put_aside(&mut self, lane: Lane, body: &[u8]) {
        let partial = &mut self.partial[index(lane)];
        if partial.capacity() - partial.len() < body.len() {
            let room = self.frame_bytes_max - partial.len();
            partial.reserve(partial.len().max(body.len()).min(room));
        }
        partial.extend_from_slice(body);
    }
}

/// Takes a word off `message` and checks everything that needs no limits of the connection.
fn read_word(message: &mut Bytes) -> Result<(Kind, Lane, usize), Fault> {
    let word = message.try_get_u32_le().map_err(|_| Fault::Cut)?;
    let kind = match word >> KIND_SHIFT {
        0 => Kind::Last,
        1 => Kind::More,
        2 => Kind::KeepAlive,
        3 => Kind::Goodbye,
        other => return Err(Fault::UnknownKind(other)),
    };
    let lane = if word & LANE_BIT == 0 { Lane::Control } else { Lane::Data };
    let len = word & LENGTH_MASK;
    let is_length_right = match kind {
        Kind::Last => true,
        Kind::More => len > 0,
        Kind::KeepAlive => len == 0 && lane == Lane::Control,
        Kind::Goodbye => len as usize <= TEXT_BYTES_MAX && lane == Lane::Control,
    };
    if is_length_right {
        Ok((kind, lane, len as usize))
    } else {
        Err(Fault::BadLength { kind, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(kind: Kind, lane: Lane, body: &[u8]) -> Vec<u8> {
        [&word(kind, lane, body.len())[..], body].concat()
    }

    fn all(decoder: &mut Decoder, message: &[u8]) -> Result<Vec<Item>, Fault> {
        let mut message = Bytes::copy_from_slice(message);
        let mut items = Vec::new();
        while let Some(item) = decoder.decode(&mut message)? {
            items.push(item);
        }
        Ok(items)
    }

    #[test]
    fn chunks_of_two_lanes_may_alternate() {
        let message = [
            chunk(Kind::More, Lane::Data, b"ab"),
            chunk(Kind::Last, Lane::Control, b"x"),
            chunk(Kind::Last, Lane::Data, b"c"),
            chunk(Kind::Last, Lane::Data, b""),
        ];
        let frame = |lane, bytes| Item::Frame { lane, bytes: Bytes::from_static(bytes) };
        let expected = [
            Item::Part,
            frame(Lane::Control, b"x"),
            frame(Lane::Data, b"abc"),
            frame(Lane::Data, b""),
        ];
        assert_eq!(all(&mut Decoder::new(3), &message.concat()).unwrap(), expected);
    }

    #[test]
    fn a_frame_of_chunks_has_the_bound_of_a_frame() {
        let message =
            [chunk(Kind::More, Lane::Data, b"ab"), chunk(Kind::Last, Lane::Data, b"cd")].concat();
        let fault = Fault::FrameTooLarge { limit: 3 };
        assert_eq!(all(&mut Decoder::new(3), &message), Err(fault));
    }

    #[test]
    fn the_words_of_the_transport_survive_the_wire() {
        let mut message = BytesMut::new();
        put_keep_alive(&mut message);
        put_goodbye(&mut message, &"ü".repeat(400));
        let items = all(&mut Decoder::new(3), &message).unwrap();
        assert_eq!(items, [Item::KeepAlive, Item::Goodbye("ü".repeat(256))]);
    }

    #[test]
    fn chunks_that_do_not_exist_are_faults() {
        let kinds = [
            (chunk(Kind::More, Lane::Data, b""), Fault::BadLength { kind: Kind::More, len: 0 }),
            (
                chunk(Kind::KeepAlive, Lane::Control, b"x"),
                Fault::BadLength { kind: Kind::KeepAlive, len: 1 },
            ),
            (
                chunk(Kind::Goodbye, Lane::Control, &[b'x'; 513]),
                Fault::BadLength { kind: Kind::Goodbye, len: 513 },
            ),
            (u32::MAX.to_le_bytes().to_vec(), Fault::UnknownKind(7)),
            (vec![1, 2, 3], Fault::Cut),
            (chunk(Kind::Last, Lane::Data, b"abc")[..6].to_vec(), Fault::Cut),
        ];
        for (message, fault) in kinds {
            assert_eq!(all(&mut Decoder::new(1 << 20), &message), Err(fault));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_items_or_a_fault(message in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::new(64);
            let _ = all(&mut decoder, &message);
            prop_assert!(decoder.partial.iter().all(|partial| partial.len() <= 64));
        }
    }
}
