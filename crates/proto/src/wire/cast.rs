//! CAST: a one-way message between members who count each other's votes.

use std::fmt;

use bytes::Bytes;

use crate::id::NodeId;

use super::codec::{Out, Reader, WireError};
use super::{KIND_BITS, KIND_CAST};

pub(super) const FLAG_TAGGED: u8 = 0x01;
const FLAG_CARRIED: u8 = 0x02;

/// A cast of an echo phase. It opens no branch and is not part of completion. Typically 59 bytes
/// before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Subject, beside the header.
    pub about: About,
    /// Phase, from 0.
    pub phase: u16,
    /// The sender's index in the configuration.
    pub sender: u16,
    /// The epoch of the configuration that the index is of; 0 where there are no epochs.
    pub epoch: u64,
    /// Time that a mailbox keeps it for a reader that is not there yet, in microseconds. For a
    /// call: what remains until its deadline.
    pub budget_us: u64,
    /// The value it speaks for.
    pub digest: Digest,
    /// True when the value travels beside the cast, and the payload says where it is.
    pub is_carried: bool,
    /// The value, or nothing where the digest is enough.
    pub payload: Bytes,
}

/// Subject of a cast, as far as the header does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The call of the header, whose participants cast to each other. The same life may be said by
    /// several nodes, so whose call it is belongs to its name.
    Call {
        /// The node whose call it is.
        initiator: NodeId,
    },
    /// A *tag* of the application's own. Then no call is meant: the header's origin is the tag's
    /// space, its seq the tag's sequence.
    Tag {
        /// The view of the tag.
        view: u64,
    },
}

/// The digest of a value: 32 bytes.
///
/// Long enough for a cryptographic hash. With a shorter one, a faulty member could make two values
/// of one digest, and votes for the one would count for the other.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// All zeros: where all votes of a phase are for the same by the nature of the phase.
    pub const ZERO: Self = Self([0; 32]);
}

impl fmt::Debug for Digest {
    /// The first eight bytes, which is enough to tell digests apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Cast {
    /// True when these are the bytes of a frame with a cast whose value travels beside it.
    pub fn is_carried_in(frame: &[u8]) -> bool {
        let [first, flags, ..] = frame else { return false };
        first & KIND_BITS == KIND_CAST && flags & FLAG_CARRIED != 0
    }

    pub(super) fn flags(&self) -> u8 {
        let tagged = if matches!(self.about, About::Tag { .. }) { FLAG_TAGGED } else { 0 };
        let carried = if self.is_carried { FLAG_CARRIED } else { 0 };
        tagged | carried
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.varint(match self.about {
            About::Call { initiator } => initiator.get(),
            About::Tag { view } => view,
        });
        out.varint(self.phase.into());
        out.varint(self.sender.into());
        out.varint(self.epoch);
        out.varint(self.budget_us);
        out.bytes(&self.digest.0);
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !(FLAG_TAGGED | FLAG_CARRIED) != 0 {
            return Err(WireError::Reserved);
        }
        let about = input.varint()?;
        let about = match flags & FLAG_TAGGED {
            0 => {
                About::Call { initiator: NodeId::try_from(about).map_err(|_| WireError::Invalid)? }
            }
            _ => About::Tag { view: about },
        };
        let short = |value: u64| u16::try_from(value).map_err(|_| WireError::Invalid);
        let (phase, sender) = (short(input.varint()?)?, short(input.varint()?)?);
        let (epoch, budget_us) = (input.varint()?, input.varint()?);
        let mut digest = Digest::ZERO;
        digest.0.copy_from_slice(input.bytes(32)?);
        input.payload();
        let payload = Bytes::new();
        let is_carried = flags & FLAG_CARRIED != 0;
        Ok(Self { about, phase, sender, epoch, budget_us, digest, is_carried, payload })
    }
}
