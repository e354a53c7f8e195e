//! FLOOR: what of its stream a source does not send to a receiver any more, or never would.

use super::codec::{Reader, WireError, write_life, write_number};
use super::{Life, WINDOW};

/// Parts of the sender's stream that the receiver is not to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The sender's life.
    pub life: Life,
    /// The sender owes nothing below this: what is missing there will not come by itself.
    pub seq: u64,
    /// Sequence numbers of what is for other sites, below `seq` or not: the first of each range and
    /// the one after its last, ascending, at most [`Floor::RANGES_MAX`].
    pub others: Vec<(u64, u64)>,
}

impl Floor {
    /// Most ranges of one frame.
    pub const RANGES_MAX: usize = 256;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_life(self.life, out);
        write_number(self.seq.into(), out);
        for (from, to) in &self.others {
            write_number((*from).into(), out);
            write_number((to - from).into(), out);
        }
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (life, seq) = (input.life()?, input.seq()?);
        let (mut others, mut end) = (Vec::new(), 0);
        while !input.is_empty() {
            let (from, len) = (input.seq()?, input.u64()?);
            if others.len() == Self::RANGES_MAX || from < end || !(1..=WINDOW).contains(&len) {
                return Err(WireError::Invalid("a range of sequence numbers"));
            }
            end = from + len;
            others.push((from, end));
        }
        Ok(Self { life, seq, others })
    }
}
