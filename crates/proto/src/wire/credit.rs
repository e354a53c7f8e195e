//! CREDIT: a receiver grants bytes of a reply, or of the items of a request.

use super::codec::{Out, Reader, WireError};

const FLAG_ITEMS: u8 = 0x01;

/// The sender of a reply or of items may send up to `limit_bytes` in all. Typically 24 bytes.
///
/// A total rather than a difference, so that a copy of it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The reply or the items that are granted.
    pub of: Credited,
    /// Payload bytes since the beginning that may have been sent.
    pub limit_bytes: u64,
}

/// The bytes that a CREDIT is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credited {
    /// Those of this reply of the task named in the header; from the initiator.
    Reply(u32),
    /// Those of the items that its request is followed by; from the task's node, over the
    /// connection of the request.
    Items,
}

impl Credit {
    /// The limit that says: nothing more of the reply, or of the items, is taken, and what comes is
    /// dropped.
    pub const NO_MORE: u64 = u64::MAX;

    pub(super) fn flags(self) -> u8 {
        match self.of {
            Credited::Reply(_) => 0,
            Credited::Items => FLAG_ITEMS,
        }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        if let Credited::Reply(index) = self.of {
            out.varint(index.into());
        }
        out.varint(self.limit_bytes);
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        let of = match flags {
            0 => Credited::Reply(input.varint_u32()?),
            FLAG_ITEMS => Credited::Items,
            _ => return Err(WireError::Reserved),
        };
        Ok(Self { of, limit_bytes: input.varint()? })
    }
}
