//! The frames of the data plane.
//!
//! ```text
//! frame = version and kind u8 | fields | payload or set, to the end
//! DATA  = flags u8 | source | life u32 | seq | plan epoch | [chunk index | count] | [sites to forward to] | payload
//! ```
//! Numbers are LEB128 in their shortest form, a set of sites is the number of its bits, and a life
//! is four bytes, little-endian. Any bytes decode or give a [`WireError`], without a panic and
//! without taking memory: payloads share the frame's.

mod ack;
mod codec;
mod data;
mod fetch;
mod floor;
mod notice;
mod passed;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;

use bytes::Bytes;
use convoke_core::id::Incarnation;

use crate::site::Site;

pub use ack::Ack;
pub(crate) use ack::bits_beyond;
pub(crate) use codec::SEQ_MAX;
pub use codec::WireError;
use codec::{Reader, write_number, write_op};
pub use data::{Data, Forward};
pub use fetch::Fetch;
pub use floor::Floor;
pub use notice::{ChunkDigest, Flaw, Missed, Notice};
pub use passed::Passed;
pub use view::View;

/// Version of the frames, in the high half of the first byte.
pub(crate) const VERSION: u8 = 1;

/// Largest operation that goes in one piece, in bytes. Larger ones go in chunks, so that a relay
/// stores and forwards 32 KiB and not all of it.
pub const WHOLE_BYTES_MAX: usize = 64 << 10;

/// Size of a chunk, but for the last of an operation, in bytes.
pub const CHUNK_BYTES: usize = 32 << 10;

/// Most chunks of an operation.
pub const CHUNKS_MAX: u32 = 4_096;

/// Sequence numbers that a source may be ahead of what a receiver has without a hole. All sites
/// agree on it.
pub const WINDOW: u64 = 16_384;

/// One life of a source, as frames name it: 32 bits of its incarnation.
///
/// Two lives of one site have the same name once in four thousand million restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u32);

impl Life {
    /// The name of an incarnation.
    pub fn of(incarnation: Incarnation) -> Self {
        let [a, b, c, d, e, f, g, h] = incarnation.0.to_le_bytes();
        Self(u32::from_le_bytes([a ^ e, b ^ f, c ^ g, d ^ h]))
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The name of an operation, unique for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// Site that broadcast it.
    pub source: Site,
    /// In which of its lives.
    pub life: Life,
    /// Counts up from 0, by the number of chunks of each operation.
    pub seq: u64,
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}#{}", self.source, self.life, self.seq)
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An operation or a chunk of it.
    Data(Data),
    /// Acknowledgement: what has come of the receiver's stream.
    Ack(Ack),
    /// Parts of the sender's own stream that the receiver is not to wait for.
    Floor(Floor),
    /// The sender wants to know how much it may have queued at the receiver, which forgets what it
    /// had granted.
    RelayOpen,
    /// Amount that the receiver may send to be forwarded.
    RelayCredit {
        /// Counts the RELAY_OPENs that were answered: a higher one begins anew at zero bytes.
        session: u32,
        /// Frame bytes in all, since the session began; a total, so that a copy changes nothing.
        limit_bytes: u64,
    },
    /// Asks for an operation.
    Fetch(Fetch),
    /// The sender has nothing of the operation that it was asked for.
    HaveNot {
        /// As the FETCH named it.
        op: OpId,
        /// Nor of those that follow it in its stream, up to this sequence number.
        until: u64,
    },
    /// The sender's view of the others.
    View(View),
    /// Chunks that come to the receiver by relays of the sender.
    Notice(Notice),
    /// Chunks that did not come to the sender by relays of the receiver as they should have.
    Missed(Missed),
    /// A control frame of one site for another, which do not reach each other.
    Passed(Passed),
    /// Asks for a sign of life, which gives a round trip.
    Ping {
        /// Of the sender's own clock, in nanoseconds.
        at: u64,
    },
    /// The sign.
    Pong {
        /// The value of the PING.
        at: u64,
    },
}

const KIND_DATA: u8 = 1;

impl Frame {
    /// Bytes before the payload.
    pub fn head_len(&self) -> usize {
        let mut head = Vec::with_capacity(32);
        self.encode_head(&mut head);
        head.len()
    }

    /// Bytes of the whole frame.
    pub fn encoded_len(&self) -> usize {
        self.head_len() + self.payload().map_or(0, Bytes::len)
    }

    /// The payload that follows the head, if it has one: to be sent without a copy.
    pub fn payload(&self) -> Option<&Bytes> {
        match self {
            Self::Data(data) => Some(&data.payload),
            _ => None,
        }
    }

    /// The payload, to be sent behind the head.
    pub fn into_payload(self) -> Bytes {
        match self {
            Self::Data(data) => data.payload,
            _ => Bytes::new(),
        }
    }

    /// Appends everything before the payload to `out`.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        out.push(VERSION << 4 | self.kind());
        match self {
            Self::Data(data) => data.write_head(out),
            Self::Ack(ack) => ack.write(out),
            Self::Floor(floor) => floor.write(out),
            Self::RelayOpen => {}
            Self::RelayCredit { session, limit_bytes } => {
                write_number((*session).into(), out);
                write_number((*limit_bytes).into(), out);
            }
            Self::Fetch(fetch) => fetch.write(out),
            Self::HaveNot { op, until } => {
                write_op(*op, out);
                write_number((*until).into(), out);
            }
            Self::View(view) => view.write(out),
            Self::Notice(notice) => notice.write(out),
            Self::Missed(missed) => missed.write(out),
            Self::Passed(passed) => passed.write(out),
            Self::Ping { at } | Self::Pong { at } => out.extend_from_slice(&at.to_le_bytes()),
        }
    }

    /// The whole frame in bytes of its own. For tests and tools: it copies the payload.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.encode_head(&mut bytes);
        bytes.extend_from_slice(self.payload().map_or(&[], |payload| &payload[..]));
        bytes.into()
    }

    /// Reads a frame. Payloads share `bytes`.
    ///
    /// # Errors
    /// [`WireError`]: the sender's doing.
    pub fn decode(bytes: &Bytes) -> Result<Self, WireError> {
        let mut input = Reader::new(bytes);
        let first = input.u8()?;
        if first >> 4 != VERSION {
            return Err(WireError::Version(first >> 4));
        }
        let frame = match first & 0x0f {
            0 => Self::Passed(Passed::read(&mut input)?),
            KIND_DATA => Self::Data(Data::read(&mut input)?),
            2 => Self::Ack(Ack::read(&mut input)?),
            3 => Self::Floor(Floor::read(&mut input)?),
            4 => Self::RelayOpen,
            5 => Self::RelayCredit { session: input.number()?, limit_bytes: input.u64()? },
            6 => Self::Fetch(Fetch::read(&mut input)?),
            7 => Self::HaveNot { op: input.op()?, until: input.seq_after()? },
            8 => Self::View(View::read(&mut input)?),
            9 => Self::Notice(Notice::read(&mut input)?),
            10 => Self::Missed(Missed::read(&mut input)?),
            12 => Self::Ping { at: input.fixed_u64()? },
            13 => Self::Pong { at: input.fixed_u64()? },
            kind => return Err(WireError::UnknownKind(kind)),
        };
        input.finish()?;
        Ok(frame)
    }

    /// The word for it in logs and traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Data(_) => "DATA",
            Self::Ack(_) => "ACK",
            Self::Floor(_) => "FLOOR",
            Self::RelayOpen => "RELAY_OPEN",
            Self::RelayCredit { .. } => "RELAY_CREDIT",
            Self::Fetch(_) => "FETCH",
            Self::HaveNot { .. } => "HAVE_NOT",
            Self::View(_) => "VIEW",
            Self::Notice(_) => "NOTICE",
            Self::Missed(_) => "MISSED",
            Self::Passed(_) => "PASSED",
            Self::Ping { .. } => "PING",
            Self::Pong { .. } => "PONG",
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Data(_) => KIND_DATA,
            Self::Ack(_) => 2,
            Self::Floor(_) => 3,
            Self::RelayOpen => 4,
            Self::RelayCredit { .. } => 5,
            Self::Fetch(_) => 6,
            Self::HaveNot { .. } => 7,
            Self::View(_) => 8,
            Self::Notice(_) => 9,
            Self::Missed(_) => 10,
            Self::Passed(_) => 0,
            Self::Ping { .. } => 12,
            Self::Pong { .. } => 13,
        }
    }
}
