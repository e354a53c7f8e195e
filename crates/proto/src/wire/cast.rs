//! CAST: a one-way message between members who count each other's votes.

use std::fmt;

use bytes::Bytes;

use super::codec::{Out, Reader, WireError};

pub(super) const FLAG_TAGGED: u8 = 0x01;
const FLAG_CARRIED: u8 = 0x02;

/// A cast of an echo phase. It opens no branch and is not part of completion. Typically 58 bytes
/// before the payload.
///
/// It is about the call of its header, whose participants cast to each other; or, with a `view`,
/// about a *tag* of the application's own. Then no call is meant: the header's origin is the tag's
/// space, its seq the tag's sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The view of a tag; `None` for a cast about a call.
    pub view: Option<u64>,
    /// Which phase, from 0.
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
    pub(super) fn flags(&self) -> u8 {
        let tagged = if self.view.is_some() { FLAG_TAGGED } else { 0 };
        let carried = if self.is_carried { FLAG_CARRIED } else { 0 };
        tagged | carried
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        if let Some(view) = self.view {
            out.varint(view);
        }
        out.varint(self.phase.into());
        out.varint(self.sender.into());
        out.varint(self.epoch);
        out.varint(self.budget_us);
        out.bytes(&self.digest.0);
    }

    pub(super) fn read(flags: u8, input: &mut Reader) -> Result<Self, WireError> {
        if flags & !(FLAG_TAGGED | FLAG_CARRIED) != 0 {
            return Err(WireError::Reserved);
        }
        let view = (flags & FLAG_TAGGED != 0).then(|| input.varint()).transpose()?;
        let short = |value: u64| u16::try_from(value).map_err(|_| WireError::Invalid);
        let (phase, sender) = (short(input.varint()?)?, short(input.varint()?)?);
        let (epoch, budget_us) = (input.varint()?, input.varint()?);
        let mut digest = Digest::ZERO;
        digest.0.copy_from_slice(input.bytes(32)?);
        let payload = input.payload();
        let is_carried = flags & FLAG_CARRIED != 0;
        Ok(Self { view, phase, sender, epoch, budget_us, digest, is_carried, payload })
    }
}
