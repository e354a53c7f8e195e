//! Frames on the wire, without I/O.
//!
//! A frame is a little-endian word and as many bytes as it says:
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
//!       3  credit for the lane: 4 bytes, little-endian, how many bytes are given back
//!       4  goodbye: why the sender closes, UTF-8, at most 512 bytes, lane control
//!  lane 0  control     1  data
//! ```
//!
//! Chunks of the two lanes may alternate; chunks of one lane make up one frame after the other.

use bytes::{Buf, Bytes, BytesMut};
use convoke_transport::Lane;

/// The word before every chunk.
pub(crate) const WORD_BYTES: usize = 4;
/// Longest text of a goodbye or a refusal, in bytes: enough for a sentence, too little to matter.
pub(crate) const TEXT_BYTES_MAX: usize = 512;
/// Largest length a word can say.
pub(crate) const LENGTH_MAX: u32 = (1 << LENGTH_BITS) - 1;

const LENGTH_BITS: u32 = 28;
const KIND_SHIFT: u32 = LENGTH_BITS + 1;
const CREDIT_BYTES: u32 = 4;

/// Breach of this transport's rules by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// A newer version says so in its hello, so this is garbage.
    #[error("frame kind {0} does not exist")]
    UnknownKind(u32),
    /// The word's length does not go with its kind.
    #[error("a {kind:?} frame of {len} bytes does not exist")]
    BadLength { kind: Kind, len: u32 },
    /// Larger than the hello of this end allows.
    #[error("a chunk of {len} bytes is over the limit of {limit}")]
    ChunkTooLarge { len: u32, limit: u32 },
    /// The chunks of one frame add up to more than the hello of this end allows.
    #[error("a frame is over the limit of {limit} bytes")]
    FrameTooLarge { limit: usize },
    /// More bytes than were granted.
    #[error("more was sent than there was credit for on the {0:?} lane")]
    CreditOverrun(Lane),
    /// More bytes given back than were used.
    #[error("more credit was given back than was used on the {0:?} lane")]
    CreditExcess(Lane),
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Last,
    More,
    KeepAlive,
    Credit,
    Goodbye,
}

/// The word before every chunk, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) lane: Lane,
    pub(crate) len: u32,
}

impl Head {
    /// The head of a chunk of `len` bytes, which is at most [`LENGTH_MAX`].
    pub(crate) fn chunk(lane: Lane, is_last: bool, len: usize) -> Self {
        let kind = if is_last { Kind::Last } else { Kind::More };
        let len = u32::try_from(len).expect("chunk sizes are checked against LENGTH_MAX");
        Self { kind, lane, len }
    }

    pub(crate) fn encode(self) -> [u8; WORD_BYTES] {
        debug_assert!(self.len <= LENGTH_MAX);
        let kind = match self.kind {
            Kind::Last => 0,
            Kind::More => 1,
            Kind::KeepAlive => 2,
            Kind::Credit => 3,
            Kind::Goodbye => 4,
        };
        let lane = u32::from(self.lane == Lane::Data);
        (kind << KIND_SHIFT | lane << LENGTH_BITS | self.len).to_le_bytes()
    }

    /// Takes a word apart and checks everything that needs no limits of the connection.
    pub(crate) fn decode(word: [u8; WORD_BYTES]) -> Result<Self, Fault> {
        let word = u32::from_le_bytes(word);
        let kind = match word >> KIND_SHIFT {
            0 => Kind::Last,
            1 => Kind::More,
            2 => Kind::KeepAlive,
            3 => Kind::Credit,
            4 => Kind::Goodbye,
            other => return Err(Fault::UnknownKind(other)),
        };
        let lane = if word >> LENGTH_BITS & 1 == 1 { Lane::Data } else { Lane::Control };
        let head = Self { kind, lane, len: word & LENGTH_MAX };
        let is_length_right = match kind {
            Kind::Last => true,
            Kind::More => head.len > 0,
            Kind::KeepAlive => head.len == 0 && lane == Lane::Control,
            Kind::Credit => head.len == CREDIT_BYTES,
            Kind::Goodbye => head.len as usize <= TEXT_BYTES_MAX && lane == Lane::Control,
        };
        if is_length_right { Ok(head) } else { Err(Fault::BadLength { kind, len: head.len }) }
    }

    /// The head at the front of `input`; `None` when it is not complete.
    fn peek(input: &[u8]) -> Result<Option<Self>, Fault> {
        input.first_chunk().map(|word| Self::decode(*word)).transpose()
    }

    /// Credit of the lane that the chunk uses: all its bytes on the wire.
    fn cost(self) -> u32 {
        const WORD: u32 = u32::BITS / u8::BITS;
        self.len + WORD
    }
}

/// Appends a keep-alive frame.
pub(crate) fn put_keep_alive(out: &mut BytesMut) {
    let head = Head { kind: Kind::KeepAlive, lane: Lane::Control, len: 0 };
    out.extend_from_slice(&head.encode());
}

/// Appends a frame that gives `bytes` of credit back.
pub(crate) fn put_credit(out: &mut BytesMut, lane: Lane, bytes: u32) {
    out.extend_from_slice(&Head { kind: Kind::Credit, lane, len: CREDIT_BYTES }.encode());
    out.extend_from_slice(&bytes.to_le_bytes());
}

/// Appends a goodbye, its text cut to [`TEXT_BYTES_MAX`].
pub(crate) fn put_goodbye(out: &mut BytesMut, text: &str) {
    let text = cut_text(text);
    let len = u32::try_from(text.len()).expect("it is cut to TEXT_BYTES_MAX");
    let head = Head { kind: Kind::Goodbye, lane: Lane::Control, len };
    out.extend_from_slice(&head.encode());
    out.extend_from_slice(text.as_bytes());
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

/// Which element of a pair kept per lane.
pub(crate) fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Data => 1,
    }
}

/// One step of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A whole frame. `cost` is that of its last chunk.
    Frame { lane: Lane, bytes: Bytes, cost: u32 },
    /// A chunk was put aside until its frame is complete.
    Part { lane: Lane, cost: u32 },
    /// The peer gives credit back.
    Credit { lane: Lane, bytes: u32 },
    /// The peer is alive.
    KeepAlive,
    /// The peer closes, with this text.
    Goodbye(String),
}

/// Makes frames of bytes, however these are cut into reads.
///
/// Holds at most `frame_bytes_max` bytes per lane, and needs at most `chunk_bytes_max` plus a word
/// in its input.
#[derive(Debug)]
pub(crate) struct Decoder {
    frame_bytes_max: usize,
    chunk_bytes_max: u32,
    partial: [BytesMut; 2],
}

impl Decoder {
    pub(crate) fn new(frame_bytes_max: u32, chunk_bytes_max: u32) -> Self {
        let partial = [BytesMut::new(), BytesMut::new()];
        Self { frame_bytes_max: frame_bytes_max as usize, chunk_bytes_max, partial }
    }

    /// Takes the next item off the front of `input`; `None` when it needs more bytes.
    ///
    /// The word is judged as soon as it is there, so that a bad length never waits for its bytes.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Item>, Fault> {
        let Some(head) = Head::peek(input)? else { return Ok(None) };
        self.check(head)?;
        let total = WORD_BYTES + head.len as usize;
        if input.len() < total {
            return Ok(None);
        }
        input.advance(WORD_BYTES);
        let body = input.split_to(head.len as usize);
        Ok(Some(self.item(head, body)))
    }

    /// Number of bytes that the chunk at the front of `input` still needs; at least 1.
    pub(crate) fn missing(&self, input: &[u8]) -> usize {
        let total = match Head::peek(input) {
            Ok(Some(head)) => WORD_BYTES + head.len.min(self.chunk_bytes_max) as usize,
            Ok(None) | Err(_) => WORD_BYTES,
        };
        total.saturating_sub(input.len()).max(1)
    }

    fn check(&self, head: Head) -> Result<(), Fault> {
        if !matches!(head.kind, Kind::Last | Kind::More) {
            return Ok(());
        }
        if head.len > self.chunk_bytes_max {
            return Err(Fault::ChunkTooLarge { len: head.len, limit: self.chunk_bytes_max });
        }
        if self.partial[index(head.lane)].len() + head.len as usize > self.frame_bytes_max {
            return Err(Fault::FrameTooLarge { limit: self.frame_bytes_max });
        }
        Ok(())
    }

    fn item(&mut self, head: Head, body: BytesMut) -> Item {
        let (lane, cost) = (head.lane, head.cost());
        match head.kind {
            Kind::Last => Item::Frame { lane, bytes: self.complete(lane, body), cost },
            Kind::More => {
                self.put_aside(lane, &body);
                Item::Part { lane, cost }
            }
            Kind::KeepAlive => Item::KeepAlive,
            Kind::Credit => Item::Credit { lane, bytes: body.clone().get_u32_le() },
            Kind::Goodbye => Item::Goodbye(clean_text(&body)),
        }
    }

    fn complete(&mut self, lane: Lane, body: BytesMut) -> Bytes {
        if self.partial[index(lane)].is_empty() {
            return body.freeze();
        }
        self.put_aside(lane, &body);
        std::mem::take(&mut self.partial[index(lane)]).freeze()
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

#[cfg(test)]
mod tests;
