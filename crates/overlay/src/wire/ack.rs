//! ACK: a receiver tells the source what it has.

use bytes::Bytes;

use super::codec::{Reader, WireError, write_life, write_number};
use super::{Life, WINDOW};

/// Part of the receiver's stream that the sender has: end to end, whatever way it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Life of the source.
    pub life: Life,
    /// Every chunk below this sequence number has come, or was given up by the source.
    pub next: u64,
    /// Bit i of byte j: whether `next + 1 + 8 j + i` has come, too. Its last byte is not zero.
    pub beyond: Bytes,
}

impl Ack {
    /// Sequence numbers that have come, from `next` on.
    pub fn iter_beyond(&self) -> impl Iterator<Item = u64> + '_ {
        let bytes = self.beyond.iter().zip((self.next + 1..).step_by(8));
        bytes.flat_map(|(byte, first)| {
            (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| first + bit)
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_life(self.life, out);
        write_number(self.next.into(), out);
        out.extend_from_slice(&self.beyond);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (life, next, beyond) = (input.life()?, input.seq_after()?, input.rest());
        if beyond.len() as u64 > WINDOW / 8 || beyond.last() == Some(&0) {
            return Err(WireError::Invalid("the set of what has come"));
        }
        Ok(Self { life, next, beyond })
    }
}

/// The set of sequence numbers above `next`, as an [`Ack`] has it.
pub(crate) fn bits_beyond(next: u64, received: impl Iterator<Item = u64>) -> Bytes {
    let mut bytes = Vec::new();
    for seq in received {
        let offset = usize::try_from(seq - next - 1).expect("within the window");
        if bytes.len() <= offset / 8 {
            bytes.resize(offset / 8 + 1, 0);
        }
        bytes[offset / 8] |= 1 << (offset % 8);
    }
    bytes.into()
}
