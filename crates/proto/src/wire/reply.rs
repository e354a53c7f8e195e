//! REPLY: a reply of a task to the initiator, or a piece of one.

use bytes::Bytes;

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, Sealed, read_sealed, write_sealed};
use super::request::{Extension, read_extensions, write_extensions};
use super::{KIND_REPLY, KIND_REPLY_EXTENDED};

const FLAG_FINAL: u8 = 0x01;
const FLAG_STREAM: u8 = 0x02;
const FLAG_END: u8 = 0x04;
const FLAG_OWN_ENTRY: u8 = 0x08;
const FLAG_PART: u8 = 0x10;
const FLAG_INHERITED: u8 = 0x20;
const FLAG_NO_ITEM: u8 = 0x40;

/// A reply of the task named in the header. Typically 21 bytes before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Index of the reply among those of the task, from 0.
    pub index: u32,
    /// One message, or an item of a stream.
    pub kind: ReplyKind,
    /// For a message sent in pieces: which piece this is.
    pub part: Option<Part>,
    /// The task opened no branch and sent only this reply: it stands for the task's entry.
    pub is_final: bool,
    /// The task's own entry, when it ends with this reply.
    pub own_entry: Option<Box<Entry>>,
    /// Entries of ancestors.
    pub inherited: Vec<Sealed>,
    /// Metadata of the reply and the like; absent costs nothing. With any the frame is of another
    /// kind.
    pub extensions: Vec<Extension>,
    /// The message, or the piece of it.
    pub payload: Bytes,
}

/// Kind of a reply's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// The whole reply is one message.
    Message,
    /// Item `seq` of a stream.
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

/// Piece of a message that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset in the message at which it begins, in bytes.
    pub offset: u64,
    /// Bytes of the whole message.
    pub total: u64,
}

/// The flags of a [sole](Reply::sole) reply with these entries of ancestors.
#[inline]
pub(super) fn sole_flags(inherited: &[Sealed]) -> u8 {
    FLAG_FINAL | if inherited.is_empty() { 0 } else { FLAG_INHERITED }
}

/// Writes it, but for its message.
#[inline]
pub(super) fn write_sole(inherited: &[Sealed], out: &mut impl Out) {
    out.varint(0);
    if !inherited.is_empty() {
        write_sealed(inherited, out);
    }
}

impl Reply {
    /// A sole message that ends its task.
    pub const fn sole(payload: Bytes) -> Self {
        Self {
            index: 0,
            kind: ReplyKind::Message,
            part: None,
            is_final: true,
            own_entry: None,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload,
        }
    }

    /// True of a message in one frame.
    pub fn is_simple(&self) -> bool {
        self.kind == ReplyKind::Message && self.part.is_none()
    }

    /// True when it brings nothing, and says that all before its place has left.
    pub fn is_mark(&self) -> bool {
        self.part.is_some() && self.payload.is_empty()
    }

    /// The kind of its frame: of its own where there are extensions.
    pub(super) fn wire_kind(&self) -> u8 {
        if self.extensions.is_empty() { KIND_REPLY } else { KIND_REPLY_EXTENDED }
    }

    pub(super) fn flags(&self) -> u8 {
        let kind = match self.kind {
            ReplyKind::Message => 0,
            ReplyKind::Item { is_last: false, .. } => FLAG_STREAM,
            ReplyKind::Item { is_last: true, .. } => FLAG_STREAM | FLAG_END,
            ReplyKind::End { .. } => FLAG_STREAM | FLAG_END | FLAG_NO_ITEM,
        };
        let mut flags = kind;
        for (set, flag) in [
            (self.is_final, FLAG_FINAL),
            (self.part.is_some(), FLAG_PART),
            (self.own_entry.is_some(), FLAG_OWN_ENTRY),
            (!self.inherited.is_empty(), FLAG_INHERITED),
        ] {
            flags |= if set { flag } else { 0 };
        }
        flags
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        if !self.extensions.is_empty() {
            write_extensions(&self.extensions, out);
        }
        out.varint(self.index.into());
        match self.kind {
            ReplyKind::Message => {}
            ReplyKind::Item { seq, .. } => out.varint(seq),
            ReplyKind::End { count } => out.varint(count),
        }
        if let Some(part) = self.part {
            part.write(out);
        }
        if let Some(entry) = &self.own_entry {
            entry.write(out);
        }
        if !self.inherited.is_empty() {
            write_sealed(&self.inherited, out);
        }
    }

    /// One that says nothing, to be read into.
    pub(crate) fn blank() -> Self {
        Self { is_final: false, ..Self::sole(Bytes::new()) }
    }

    /// Reads a reply behind its extensions.
    pub(super) fn read_extended(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        let extensions = read_extensions(input)?;
        Ok(Self { extensions, ..Self::read_plain(flags, input)? })
    }

    /// Reads a reply without extensions.
    pub(super) fn read_plain(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut reply = Self::blank();
        reply.read(flags, input)?;
        Ok(reply)
    }

    /// Reads all but the payload into a blank one: most replies are not moved again.
    pub(super) fn read(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), WireError> {
        let has = |flag: u8| flags & flag != 0;
        self.index = input.varint_u32()?;
        self.kind = match (has(FLAG_STREAM), has(FLAG_END), has(FLAG_NO_ITEM)) {
            (false, false, false) => ReplyKind::Message,
            (true, is_last, false) => ReplyKind::Item { seq: input.varint()?, is_last },
            (true, true, true) => ReplyKind::End { count: input.varint()? },
            _ => return Err(WireError::Invalid),
        };
        if has(FLAG_PART) {
            self.part = Some(Part::read(input)?);
        }
        if has(FLAG_OWN_ENTRY) {
            self.own_entry = Some(Box::new(Entry::read(input)?));
        }
        if has(FLAG_INHERITED) {
            self.inherited = read_sealed(input)?;
        }
        let is_bare = has(FLAG_INHERITED) && self.inherited.is_empty();
        if is_bare || (has(FLAG_FINAL) && has(FLAG_OWN_ENTRY)) {
            return Err(WireError::Invalid);
        }
        self.is_final = has(FLAG_FINAL);
        let len = input.payload();
        if self.is_consistent(len) { Ok(()) } else { Err(WireError::Invalid) }
    }

    /// With a payload so long.
    fn is_consistent(&self, len: usize) -> bool {
        let part_fits = self.part.is_none_or(|part| part.fits(len));
        let end_is_bare =
            !matches!(self.kind, ReplyKind::End { .. }) || (len == 0 && self.part.is_none());
        part_fits && end_is_bare
    }
}

impl Part {
    pub(super) fn write(self, out: &mut impl Out) {
        out.varint(self.offset);
        out.varint(self.total);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { offset: input.varint()?, total: input.varint()? })
    }

    /// True when so many bytes lie within the whole.
    pub(super) fn fits(self, len: usize) -> bool {
        let end = self.offset.checked_add(len as u64);
        end.is_some_and(|end| end <= self.total)
    }
}
