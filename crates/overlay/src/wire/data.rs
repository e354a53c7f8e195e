//! DATA: an operation, or one chunk of it.

use bytes::Bytes;

use crate::site::SiteSet;

use super::codec::{Reader, WireError, write_number, write_op};
use super::{CHUNK_BYTES, CHUNKS_MAX, OpId, WHOLE_BYTES_MAX};

const FLAG_RELAY: u8 = 1;
const FLAG_REPAIR: u8 = 2;
/// Reserved for coded stripes: a fault today.
const FLAG_CODED: u8 = 4;
const FLAG_FORWARD: u8 = 8;
const FLAG_CHUNK: u8 = 16;
const FLAG_BODY: u8 = 32;

/// Duty of the receiver of a frame besides taking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Nothing. A frame that says so is never sent on, so no frame makes more than two hops.
    Nobody,
    /// Send it to all sites but itself and the source.
    AllOthers,
    /// Send it to these.
    To(SiteSet),
}

/// A whole operation, or one chunk of it. The head takes at most 24 bytes up to sequence number
/// 2^35, plan epoch 2^21 and 28 sites; at most 19 bytes without a set of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The operation. Its chunks take consecutive sequence numbers, of which it has the first.
    pub op: OpId,
    /// Index of the chunk, below `count`.
    pub index: u32,
    /// Of how many: 1 to [`CHUNKS_MAX`].
    pub count: u32,
    /// The plan its source sent it by. Says nothing to a relay.
    pub epoch: u32,
    /// RELAY, and to whom.
    pub forward: Forward,
    /// It is sent again, or answers a fetch.
    pub is_repair: bool,
    /// The operation is a body of requests, and nothing that its receivers are to be given by
    /// itself.
    pub is_body: bool,
    /// At most 64 KiB; of several chunks all but the last have exactly 32 KiB.
    pub payload: Bytes,
}

impl Data {
    /// The sequence number of the chunk.
    pub fn seq(&self) -> u64 {
        self.op.seq + u64::from(self.index)
    }

    pub(super) fn write_head(&self, out: &mut Vec<u8>) {
        out.push(self.flags());
        write_op(self.op, out);
        write_number(self.epoch.into(), out);
        if self.count > 1 {
            write_number(self.index.into(), out);
            write_number(self.count.into(), out);
        }
        if let Forward::To(sites) = self.forward {
            write_number(sites.bits(), out);
        }
    }

    fn flags(&self) -> u8 {
        let forward = match self.forward {
            Forward::Nobody => 0,
            Forward::AllOthers => FLAG_RELAY,
            Forward::To(_) => FLAG_RELAY | FLAG_FORWARD,
        };
        let repair = if self.is_repair { FLAG_REPAIR } else { 0 };
        let chunk = if self.count > 1 { FLAG_CHUNK } else { 0 };
        let body = if self.is_body { FLAG_BODY } else { 0 };
        forward | repair | chunk | body
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = input.u8()?;
        let known = FLAG_RELAY | FLAG_REPAIR | FLAG_FORWARD | FLAG_CHUNK | FLAG_BODY;
        if flags & !known != 0 || flags & FLAG_CODED != 0 {
            return Err(WireError::Reserved);
        }
        let (op, epoch) = (input.op()?, input.number()?);
        let (index, count) = read_chunk(flags & FLAG_CHUNK != 0, input)?;
        let forward = match (flags & FLAG_RELAY != 0, flags & FLAG_FORWARD != 0) {
            (false, false) => Forward::Nobody,
            (true, false) => Forward::AllOthers,
            (true, true) => Forward::To(input.sites()?),
            (false, true) => return Err(WireError::Invalid("a set of sites without RELAY")),
        };
        let payload = input.rest_to_keep();
        check_size(payload.len(), index, count)?;
        let (is_repair, is_body) = (flags & FLAG_REPAIR != 0, flags & FLAG_BODY != 0);
        Ok(Self { op, index, count, epoch, forward, is_repair, is_body, payload })
    }
}

fn read_chunk(is_chunk: bool, input: &mut Reader<'_>) -> Result<(u32, u32), WireError> {
    if !is_chunk {
        return Ok((0, 1));
    }
    let (index, count) = (input.number()?, input.number()?);
    if !(2..=CHUNKS_MAX).contains(&count) || index >= count {
        return Err(WireError::Invalid("the chunk"));
    }
    Ok((index, count))
}

/// Sizes follow from the position, so that what an operation may take in memory follows from its
/// count.
fn check_size(len: usize, index: u32, count: u32) -> Result<(), WireError> {
    let fits = match (count, count - index) {
        (1, _) => len <= WHOLE_BYTES_MAX,
        (_, 1) => (1..=CHUNK_BYTES).contains(&len),
        _ => len == CHUNK_BYTES,
    };
    if fits { Ok(()) } else { Err(WireError::Invalid("the size of the payload")) }
}
