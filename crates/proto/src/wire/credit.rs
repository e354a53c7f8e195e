//! CREDIT: the initiator grants bytes of a reply.

use super::codec::{Out, Reader, WireError};

/// The task named in the header may send reply `index` up to `limit_bytes` in all. Typically 24 bytes.
///
/// A total rather than a difference, so that a copy of it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Which reply.
    pub index: u32,
    /// Payload bytes since the reply began that may have been sent.
    pub limit_bytes: u64,
}

impl Credit {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.varint(self.index.into());
        out.varint(self.limit_bytes);
    }

    pub(super) fn read(input: &mut Reader) -> Result<Self, WireError> {
        Ok(Self { index: input.varint_u32()?, limit_bytes: input.varint()? })
    }
}
