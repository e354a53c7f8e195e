//! FETCH: a receiver asks a holder for what it misses of an operation.

use bytes::Bytes;

use super::codec::{Reader, WireError, write_op};
use super::{CHUNKS_MAX, OpId};

/// Asks for the operation that has this sequence number: its own or that of any of its chunks, for
/// who misses all of it does not know where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Any sequence number of the operation.
    pub op: OpId,
    /// Bit i of byte j: whether chunk 8 j + i is there already. Empty: all is missing. Its last
    /// byte is not zero.
    pub present: Bytes,
}

impl Fetch {
    /// True when this chunk is asked for.
    pub fn wants(&self, index: u32) -> bool {
        let byte = usize::try_from(index / 8).ok().and_then(|byte| self.present.get(byte));
        byte.is_none_or(|byte| byte >> (index % 8) & 1 == 0)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_op(self.op, out);
        out.extend_from_slice(&self.present);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (op, present) = (input.op()?, input.rest());
        if present.len() > CHUNKS_MAX as usize / 8 || present.last() == Some(&0) {
            return Err(WireError::Invalid("the set of chunks"));
        }
        Ok(Self { op, present })
    }
}
