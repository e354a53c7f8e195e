//! Reading and writing the parts of a frame.

use bytes::Bytes;

use crate::site::{SITES_MAX, Site, SiteSet};

use super::{CHUNK_BYTES, Life, OpId};

/// Reason why bytes are no frame: the sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame ends inside a field.
    #[error("the frame is too short")]
    Truncated,
    /// There are bytes behind the last field.
    #[error("the frame has {0} bytes too many")]
    Trailing(usize),
    /// A version this node does not speak.
    #[error("version {0} of the overlay's frames is not known here")]
    Version(u8),
    /// A kind of frame this node does not know.
    #[error("frames of kind {0} are not known here")]
    UnknownKind(u8),
    /// A reserved bit is set.
    #[error("a reserved bit is set")]
    Reserved,
    /// A field has a value that it may not have.
    #[error("{0} is out of its range")]
    Invalid(&'static str),
}

/// No source counts so far.
pub(crate) const SEQ_MAX: u64 = 1 << 62;

pub(super) struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        let byte = *self.bytes.get(self.at).ok_or(WireError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// The next so many bytes.
    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let end = self.at + N;
        let bytes = self.bytes.get(self.at..end).ok_or(WireError::Truncated)?;
        self.at = end;
        Ok(bytes.try_into().expect("it is of this length"))
    }

    pub(super) fn fixed_u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// True when nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// LEB128 in its shortest form.
    fn wide(&mut self) -> Result<u128, WireError> {
        let mut value = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.u8()?;
            let part = u128::from(byte & 0x7f);
            if part << shift >> shift != part || (byte == 0 && shift > 0) {
                return Err(WireError::Invalid("a number"));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Invalid("a number"))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        u64::try_from(self.wide()?).map_err(|_| WireError::Invalid("a number"))
    }

    pub(super) fn number(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.wide()?).map_err(|_| WireError::Invalid("a number"))
    }

    pub(super) fn site(&mut self) -> Result<Site, WireError> {
        let index =
            u16::try_from(self.wide()?).ok().filter(|index| usize::from(*index) < SITES_MAX);
        index.map(Site).ok_or(WireError::Invalid("a site"))
    }

    pub(super) fn sites(&mut self) -> Result<SiteSet, WireError> {
        Ok(SiteSet::from_bits(self.wide()?))
    }

    pub(super) fn life(&mut self) -> Result<Life, WireError> {
        Ok(Life(u32::from_le_bytes(self.bytes()?)))
    }

    pub(super) fn op(&mut self) -> Result<OpId, WireError> {
        Ok(OpId { source: self.site()?, life: self.life()?, seq: self.seq()? })
    }

    /// A sequence number; so far from the end that sums of a few cannot overflow.
    pub(super) fn seq(&mut self) -> Result<u64, WireError> {
        self.seq_up_to(SEQ_MAX)
    }

    /// One that follows such a number.
    pub(super) fn seq_after(&mut self) -> Result<u64, WireError> {
        self.seq_up_to(2 * SEQ_MAX)
    }

    fn seq_up_to(&mut self, max: u64) -> Result<u64, WireError> {
        let seq = self.u64()?;
        if seq <= max { Ok(seq) } else { Err(WireError::Invalid("a sequence number")) }
    }

    /// Bytes that are left, to be kept: few of them leave the buffer that they came in, which they
    /// would keep as a whole, 64 KiB.
    pub(super) fn rest_to_keep(&mut self) -> Bytes {
        let rest = self.rest();
        if rest.len() < CHUNK_BYTES { Bytes::copy_from_slice(&rest) } else { rest }
    }

    /// Bytes that are left, sharing the frame's memory.
    pub(super) fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }

    pub(super) fn finish(self) -> Result<(), WireError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(WireError::Trailing(left)),
        }
    }
}

pub(super) fn write_number(mut value: u128, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

pub(super) fn write_site(site: Site, out: &mut Vec<u8>) {
    write_number(site.0.into(), out);
}

pub(super) fn write_life(life: Life, out: &mut Vec<u8>) {
    out.extend_from_slice(&life.0.to_le_bytes());
}

pub(super) fn write_op(op: OpId, out: &mut Vec<u8>) {
    write_site(op.source, out);
    write_life(op.life, out);
    write_number(op.seq.into(), out);
}
