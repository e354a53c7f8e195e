//! CAST: a one-way message between the participants of a call.

use bytes::Bytes;

use super::codec::{Out, Reader, WireError};

const FLAG_EPOCH: u8 = 0x01;

/// A cast of an echo phase. It opens no branch and is not part of completion. Typically 34 bytes
/// before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Which phase, from 0.
    pub phase: u16,
    /// The sender's index in the configuration.
    pub sender: u16,
    /// What remains until the call's deadline, in microseconds: how long a mailbox keeps it.
    pub budget_us: u64,
    /// The epoch of the configuration whose member it is sent to; 0 is none.
    pub epoch: u64,
    /// Digest of the value it speaks for.
    pub digest: u64,
    /// The value, or nothing where the digest is enough.
    pub payload: Bytes,
}

impl Cast {
    pub(super) fn flags(&self) -> u8 {
        if self.epoch == 0 { 0 } else { FLAG_EPOCH }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.varint(self.phase.into());
        out.varint(self.sender.into());
        out.varint(self.budget_us);
        if self.epoch != 0 {
            out.varint(self.epoch);
        }
        out.u64(self.digest);
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !FLAG_EPOCH != 0 {
            return Err(WireError::Reserved);
        }
        let short = |value: u64| u16::try_from(value).map_err(|_| WireError::Invalid);
        let (phase, sender) = (short(input.varint()?)?, short(input.varint()?)?);
        let budget_us = input.varint()?;
        let epoch = if flags & FLAG_EPOCH == 0 { 0 } else { input.varint()? };
        if flags & FLAG_EPOCH != 0 && epoch == 0 {
            return Err(WireError::Invalid);
        }
        let digest = input.u64()?;
        Ok(Self { phase, sender, budget_us, epoch, digest, payload: input.payload() })
    }
}
