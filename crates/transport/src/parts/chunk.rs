//! Frames as a stream of chunks.
//!
//! A chunk is a little-endian word and as many bytes as it says:
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
//!          (kind 3 where the transport has credit of its own, and so no kind 4)
//!  lane 0  control     1  data
//! ```
//!
//! Chunks of the two lanes may alternate; chunks of one lane make up one frame after the other.

use std::ops::Deref;

use bytes::{Buf, Bytes, BytesMut};

use super::lanes::index;
use super::text::{TEXT_BYTES_MAX, clean_text, cut_text};
use crate::Lane;

/// The word before every chunk.
pub const WORD_BYTES: usize = 4;
/// Largest length a word can say.
pub const LENGTH_MAX: u32 = (1 << LENGTH_BITS) - 1;

const LENGTH_BITS: u32 = 28;
const KIND_SHIFT: u32 = LENGTH_BITS + 1;
const CREDIT_BYTES: u32 = 4;

/// Breach of the rules of chunks by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the texts say")]
pub enum Fault {
    /// A newer version says so in its hello, so this is garbage.
    #[error("{noun} kind {kind} does not exist")]
    UnknownKind { noun: &'static str, kind: u32 },
    /// The word's length does not go with its kind.
    #[error("a {kind:?} {noun} of {len} bytes does not exist")]
    BadLength { noun: &'static str, kind: Kind, len: u32 },
    /// Larger than the hello of this end allows.
    #[error("a chunk of {len} bytes is over the limit of {limit}")]
    ChunkTooLarge { len: u32, limit: u32 },
    /// The chunks of one frame add up to more than the hello of this end allows.
    #[error("a frame is over the limit of {limit} bytes")]
    FrameTooLarge { limit: usize },
    /// A message ends within a chunk.
    #[error("a message ends in the middle of a chunk")]
    Cut,
    /// Credit where the transport has its own.
    #[error("credit was given back where none was granted")]
    NoCredit,
    /// More bytes than were granted.
    #[error("more was sent than there was credit for on the {0:?} lane")]
    CreditOverrun(Lane),
    /// More bytes given back than were used.
    #[error("more credit was given back than was used on the {0:?} lane")]
    CreditExcess(Lane),
}

/// Vocabulary of the words of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Name of what follows a word, in faults.
    noun: &'static str,
    has_credit: bool,
}

impl Words {
    /// Those of a transport whose chunks give credit.
    pub const WITH_CREDIT: Self = Self { noun: "frame", has_credit: true };
    /// Those of a transport that has credit of its own.
    pub const WITHOUT_CREDIT: Self = Self { noun: "chunk", has_credit: false };

    /// Those of a transport with these windows, if it has any.
    pub fn of(windows: Option<[u32; 2]>) -> Self {
        if windows.is_some() { Self::WITH_CREDIT } else { Self::WITHOUT_CREDIT }
    }

    fn kind(self, number: u32) -> Result<Kind, Fault> {
        Ok(match number {
            0 => Kind::Last,
            1 => Kind::More,
            2 => Kind::KeepAlive,
            3 if self.has_credit => Kind::Credit,
            3 => Kind::Goodbye,
            4 if self.has_credit => Kind::Goodbye,
            kind => return Err(Fault::UnknownKind { noun: self.noun, kind }),
        })
    }

    fn number(self, kind: Kind) -> u32 {
        match kind {
            Kind::Last => 0,
            Kind::More => 1,
            Kind::KeepAlive => 2,
            Kind::Credit => 3,
            Kind::Goodbye => 3 + u32::from(self.has_credit),
        }
    }
}

/// Kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The last of a frame, or all of it.
    Last,
    /// Part of a frame, with more to come.
    More,
    /// The sender's process is alive.
    KeepAlive,
    /// Credit that is given back.
    Credit,
    /// The last word of the sender.
    Goodbye,
}

/// The word before every chunk, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of the chunk.
    pub kind: Kind,
    /// Lane of it.
    pub lane: Lane,
    /// Bytes that follow.
    pub len: u32,
}

impl Head {
    /// The head of a chunk of `len` bytes.
    ///
    /// # Panics
    /// When `len` is above [`LENGTH_MAX`].
    pub fn chunk(lane: Lane, is_last: bool, len: usize) -> Self {
        Self::of(if is_last { Kind::Last } else { Kind::More }, lane, len)
    }

    fn of(kind: Kind, lane: Lane, len: usize) -> Self {
        let len = u32::try_from(len).expect("chunk sizes are checked against LENGTH_MAX");
        Self { kind, lane, len }
    }

    /// The word.
    pub fn encode(self, words: Words) -> [u8; WORD_BYTES] {
        debug_assert!(self.len <= LENGTH_MAX);
        let kind = words.number(self.kind);
        let lane = u32::from(self.lane == Lane::Data);
        (kind << KIND_SHIFT | lane << LENGTH_BITS | self.len).to_le_bytes()
    }

    /// Takes a word apart and checks everything that needs no limits of the connection.
    ///
    /// # Errors
    /// [`Fault`] for a word that nobody sends.
    pub fn decode(word: [u8; WORD_BYTES], words: Words) -> Result<Self, Fault> {
        let word = u32::from_le_bytes(word);
        let kind = words.kind(word >> KIND_SHIFT)?;
        let lane = if word >> LENGTH_BITS & 1 == 1 { Lane::Data } else { Lane::Control };
        let head = Self { kind, lane, len: word & LENGTH_MAX };
        let is_length_right = match kind {
            Kind::Last => true,
            Kind::More => head.len > 0,
            Kind::KeepAlive => head.len == 0 && lane == Lane::Control,
            Kind::Credit => head.len == CREDIT_BYTES,
            Kind::Goodbye => head.len as usize <= TEXT_BYTES_MAX && lane == Lane::Control,
        };
        if is_length_right {
            Ok(head)
        } else {
            Err(Fault::BadLength { noun: words.noun, kind, len: head.len })
        }
    }

    /// The head at the front of `input`; `None` when it is not complete.
    #[inline]
    fn peek(input: &[u8], words: Words) -> Result<Option<Self>, Fault> {
        input.first_chunk().map(|word| Self::decode(*word, words)).transpose()
    }

    /// Credit of the lane that the chunk uses: all its bytes on the wire.
    fn cost(self) -> u32 {
        const WORD: u32 = u32::BITS / u8::BITS;
        self.len + WORD
    }
}

/// The word of a chunk of a frame, which is the same in all transports.
#[inline]
pub(super) fn head(lane: Lane, is_last: bool, len: usize) -> [u8; WORD_BYTES] {
    Head::chunk(lane, is_last, len).encode(Words::WITH_CREDIT)
}

/// Appends a keep-alive frame.
pub(super) fn put_keep_alive(out: &mut BytesMut) {
    let head = Head { kind: Kind::KeepAlive, lane: Lane::Control, len: 0 };
    out.extend_from_slice(&head.encode(Words::WITHOUT_CREDIT));
}

/// Appends a frame that gives `bytes` of credit back.
pub(super) fn put_credit(out: &mut BytesMut, lane: Lane, bytes: u32) {
    let head = Head { kind: Kind::Credit, lane, len: CREDIT_BYTES };
    out.extend_from_slice(&head.encode(Words::WITH_CREDIT));
    out.extend_from_slice(&bytes.to_le_bytes());
}

/// Appends a goodbye, its text cut to [`TEXT_BYTES_MAX`].
pub fn put_goodbye(out: &mut BytesMut, words: Words, text: &str) {
    let text = cut_text(text, TEXT_BYTES_MAX);
    let head = Head::of(Kind::Goodbye, Lane::Control, text.len());
    out.extend_from_slice(&head.encode(words));
    out.extend_from_slice(text.as_bytes());
}

/// One step of what came in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what the fields are")]
pub enum Item {
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

/// Bytes that came: the chunks at their front become frames that share them.
pub trait Input: Deref<Target = [u8]> {
    /// True when nothing follows, so that a chunk must not go on: a message.
    fn is_whole(&self) -> bool;

    /// Takes `len` bytes off the front.
    fn take(&mut self, len: usize) -> Bytes;
}

/// Bytes read of a stream.
impl Input for BytesMut {
    fn is_whole(&self) -> bool {
        false
    }

    #[inline]
    fn take(&mut self, len: usize) -> Bytes {
        self.split_to(len).freeze()
    }
}

/// The same, of which the chunks that are there were taken off the front together: to take each off
/// the buffer itself costs three times as much.
#[derive(Debug)]
pub struct Whole<'a> {
    /// Before what is in the buffer.
    taken: Bytes,
    buffer: &'a mut BytesMut,
}

impl<'a> Whole<'a> {
    /// Takes whole chunks off the front of a buffer, with at most so many that end a frame. All of
    /// them are to be taken: what is not is lost.
    pub fn of(buffer: &'a mut BytesMut, frames_max: usize) -> Self {
        let (mut at, mut frames) = (0, 0);
        while frames < frames_max
            && let Some(word) = buffer[at..].first_chunk()
        {
            let word = u32::from_le_bytes(*word);
            let end = at + WORD_BYTES + (word & LENGTH_MAX) as usize;
            if end > buffer.len() {
                break;
            }
            frames += usize::from(word >> KIND_SHIFT == 0);
            at = end;
        }
        Self { taken: buffer.split_to(at).freeze(), buffer }
    }
}

impl Deref for Whole<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.taken.is_empty() { self.buffer } else { &self.taken }
    }
}

impl Input for Whole<'_> {
    fn is_whole(&self) -> bool {
        false
    }

    #[inline]
    fn take(&mut self, len: usize) -> Bytes {
        match self.taken.is_empty() {
            true => Input::take(self.buffer, len),
            false => self.taken.split_to(len),
        }
    }
}

/// A message.
impl Input for Bytes {
    fn is_whole(&self) -> bool {
        true
    }

    fn take(&mut self, len: usize) -> Bytes {
        self.split_to(len)
    }
}

/// Makes frames of bytes, however these are cut into reads.
///
/// Holds at most `frame_bytes_max` bytes per lane, and needs at most `chunk_bytes_max` plus a word
/// in its input.
#[derive(Debug)]
pub struct Decoder {
    words: Words,
    frame_bytes_max: usize,
    chunk_bytes_max: u32,
    partial: [BytesMut; 2],
}

impl Decoder {
    /// For frames and chunks up to these sizes.
    pub fn new(words: Words, frame_bytes_max: u32, chunk_bytes_max: u32) -> Self {
        let partial = [BytesMut::new(), BytesMut::new()];
        Self { words, frame_bytes_max: frame_bytes_max as usize, chunk_bytes_max, partial }
    }

    /// Takes the next item off the front of `input`; `None` when it needs more bytes.
    ///
    /// The word is judged as soon as it is there, so that a bad length never waits for its bytes.
    ///
    /// # Errors
    /// [`Fault`] when the peer broke the rules.
    #[inline]
    pub fn decode(&mut self, input: &mut impl Input) -> Result<Option<Item>, Fault> {
        let Some(head) = Head::peek(input, self.words)? else {
            return if input.is_whole() && !input.is_empty() { Err(Fault::Cut) } else { Ok(None) };
        };
        self.check(head)?;
        let total = WORD_BYTES + head.len as usize;
        if input.len() < total {
            return if input.is_whole() { Err(Fault::Cut) } else { Ok(None) };
        }
        // At once, word and all: one cut for each.
        let mut body = input.take(total);
        body.advance(WORD_BYTES);
        Ok(Some(self.item(head, body)))
    }

    /// Number of bytes that the chunk at the front of `input` still needs; at least 1.
    pub fn missing(&self, input: &[u8]) -> usize {
        let total = match Head::peek(input, self.words) {
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

    #[inline]
    fn item(&mut self, head: Head, body: Bytes) -> Item {
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

    #[inline]
    fn complete(&mut self, lane: Lane, body: Bytes) -> Bytes {
        if self.partial[index(lane)].is_empty() {
            return body;
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
