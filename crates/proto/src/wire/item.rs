//! ITEM: an item of a streamed request.

use bytes::Bytes;

use super::codec::{Out, Reader, WireError};
use super::reply::Part;

// The bits that say the same of a REPLY.
const FLAG_END: u8 = 0x04;
const FLAG_PART: u8 = 0x10;
const FLAG_NO_ITEM: u8 = 0x40;

/// An item of the request of the task named in the header. Typically 21 bytes before the payload.
///
/// It comes from the sender of the request over the connection of the request, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Number of the item, or the end.
    pub kind: ItemKind,
    /// For an item sent in pieces: which piece this is.
    pub part: Option<Part>,
    /// The item, or the piece of it.
    pub payload: Bytes,
}

/// Kind of an ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Item `seq` of the stream.
    Item {
        /// From 0, without gaps.
        seq: u64,
        /// True when the stream ends with it.
        is_last: bool,
    },
    /// The stream ended after `count` items.
    End {
        /// Items sent.
        count: u64,
    },
}

impl Item {
    pub(super) fn flags(&self) -> u8 {
        let kind = match self.kind {
            ItemKind::Item { is_last: false, .. } => 0,
            ItemKind::Item { is_last: true, .. } => FLAG_END,
            ItemKind::End { .. } => FLAG_END | FLAG_NO_ITEM,
        };
        kind | if self.part.is_some() { FLAG_PART } else { 0 }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        match self.kind {
            ItemKind::Item { seq, .. } => out.varint(seq),
            ItemKind::End { count } => out.varint(count),
        }
        if let Some(part) = self.part {
            part.write(out);
        }
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !(FLAG_END | FLAG_PART | FLAG_NO_ITEM) != 0 {
            return Err(WireError::Reserved);
        }
        let has = |flag: u8| flags & flag != 0;
        let number = input.varint()?;
        let kind = match (has(FLAG_END), has(FLAG_NO_ITEM)) {
            (is_last, false) => ItemKind::Item { seq: number, is_last },
            (true, true) => ItemKind::End { count: number },
            (false, true) => return Err(WireError::Invalid),
        };
        let part = has(FLAG_PART).then(|| Part::read(input)).transpose()?;
        let (item, len) = (Self { kind, part, payload: Bytes::new() }, input.payload());
        if item.is_consistent(len) { Ok(item) } else { Err(WireError::Invalid) }
    }

    /// With a payload so long.
    fn is_consistent(&self, len: usize) -> bool {
        let part_fits = self.part.is_none_or(|part| part.fits(len) && len > 0);
        let end_is_bare =
            !matches!(self.kind, ItemKind::End { .. }) || (len == 0 && self.part.is_none());
        part_fits && end_is_bare
    }
}
