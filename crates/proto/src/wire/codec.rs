//! Writing and reading the primitive fields. Writing is generic over where to, so that one
//! description of a message both counts its bytes and writes them.

use crate::id::{NodeId, Path, TaskKey};

/// Most tasks that one PROBE asks for, one STATUS answers for, or one LINK_DOWN reports. What each
/// costs its receiver is bounded with it; whoever has more to say sends more frames.
pub const TASKS_MAX: usize = 256;

mod scratch;

pub(crate) use scratch::Scratch;

/// Bytes that are not a frame: the sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame ends in the middle of a field.
    #[error("the frame ends in the middle of a field")]
    Truncated,
    /// Bytes follow the last field.
    #[error("the frame has bytes behind its last field")]
    Trailing,
    /// Another version of the protocol.
    #[error("wire version {0}, this end speaks {VERSION}", VERSION = super::VERSION)]
    Version(u8),
    /// No message has this number.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A reserved bit is set.
    #[error("a reserved bit is set")]
    Reserved,
    /// A number is out of its field's range or not in shortest form.
    #[error("a field has no valid value")]
    Invalid,
    /// A count promises more than a frame may hold.
    #[error("a count is over its limit")]
    OverLimit,
}

/// Sink that a message is written to.
pub(super) trait Out {
    fn bytes(&mut self, bytes: &[u8]);

    /// As [`Out::bytes`], of a length that is known when this is compiled.
    fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes(&bytes);
    }

    fn u8(&mut self, value: u8) {
        self.array([value]);
    }

    fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.u8((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.u8((rest & 0x7f) as u8);
    }

    fn count(&mut self, value: usize) {
        self.varint(value as u64);
    }

    fn node(&mut self, node: NodeId) {
        self.u64(node.get());
    }

    fn optional_node(&mut self, node: Option<NodeId>) {
        self.u64(node.map_or(0, NodeId::get));
    }

    fn path(&mut self, path: &Path) {
        let bytes = path.as_wire();
        self.u8(u8::try_from(bytes.len()).expect("a path has at most 64 bytes"));
        self.bytes(bytes);
    }

    #[inline]
    fn key(&mut self, key: &TaskKey) {
        match (key.path.as_wire(), key.hop) {
            // Most frames are about the only branch of a call.
            ([level], 0) => self.array([1, *level, 0]),
            (_, hop) => {
                self.path(&key.path);
                self.varint(hop.into());
            }
        }
    }

    fn short_bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes(bytes);
    }
}

/// Counts only.
#[derive(Default)]
pub(super) struct Count(usize);

impl Count {
    pub(super) fn len(&self) -> usize {
        self.0
    }
}

impl Out for Count {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Fills a slice.
pub(super) struct Slice<'a>(&'a mut [u8]);

impl<'a> Slice<'a> {
    pub(super) fn new(to: &'a mut [u8]) -> Self {
        Self(to)
    }

    pub(super) fn finish(self) {
        assert!(self.0.is_empty(), "the slice is longer than the frame");
    }
}

impl Out for Slice<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.0 = rest;
    }
}

/// Reads the fields of one frame.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes of the payload that are not behind the head.
    elsewhere: usize,
    /// Bytes of the payload, once all before it is read.
    payload: Option<usize>,
    /// Holders that entries of this frame may still expand to: one node stands for all children of
    /// an entry, so without a bound few bytes would ask for much memory.
    holders_left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self::of_parts(frame, 0)
    }

    /// Of a frame that has so many bytes of its payload elsewhere.
    pub(super) fn of_parts(head: &'a [u8], elsewhere: usize) -> Self {
        let holders_left = super::entry::CHILDREN_MAX;
        Self { rest: head, elsewhere, payload: None, holders_left }
    }

    #[inline]
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest; // Most are short.
            return Ok((*byte).into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let (mut value, mut shift) = (0, 0);
        while let [byte, rest @ ..] = self.rest {
            if (*byte == 0 && shift > 0) || (shift == 63 && *byte > 1) {
                return Err(WireError::Invalid);
            }
            value |= u64::from(byte & 0x7f) << shift;
            self.rest = rest;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
        Err(WireError::Truncated)
    }

    pub(super) fn varint_u32(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.varint()?).map_err(|_| WireError::Invalid)
    }

    /// A count of things of at least `each` bytes, which therefore must still be in the frame.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, WireError> {
        let count = usize::try_from(self.varint()?).map_err(|_| WireError::OverLimit)?;
        let fits = count.checked_mul(each).is_some_and(|bytes| bytes <= self.rest.len());
        if fits { Ok(count) } else { Err(WireError::OverLimit) }
    }

    /// Reads a list where it stays, which is empty before.
    #[inline]
    pub(super) fn list_into<T>(
        &mut self,
        list: &mut Vec<T>,
        each: usize,
        read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<(), WireError> {
        let count = self.count(each)?;
        if count > 0 {
            *list = self.list_of(count, read)?; // Most are empty.
        }
        Ok(())
    }

    pub(super) fn list<T, L: Default + FromIterator<T>>(
        &mut self,
        each: usize,
        read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<L, WireError> {
        let count = self.count(each)?;
        self.list_of(count, read)
    }

    fn list_of<T, L: Default + FromIterator<T>>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<L, WireError> {
        if count == 0 {
            return Ok(L::default()); // Most are empty.
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// A list of `max` things at most.
    pub(super) fn list_up_to<T>(
        &mut self,
        max: usize,
        each: usize,
        read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.count(each)?;
        if count > max {
            return Err(WireError::OverLimit);
        }
        self.list_of(count, read)
    }

    /// A list of things about tasks: [`TASKS_MAX`] at most.
    pub(super) fn tasks<T>(
        &mut self,
        each: usize,
        read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        self.list_up_to(TASKS_MAX, each, read)
    }

    /// As [`Reader::list_up_to`], and one at least.
    pub(super) fn some<T>(
        &mut self,
        max: usize,
        each: usize,
        read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let list = self.list_up_to(max, each, read)?;
        if list.is_empty() { Err(WireError::Invalid) } else { Ok(list) }
    }

    pub(super) fn node(&mut self) -> Result<NodeId, WireError> {
        NodeId::try_from(self.u64()?).map_err(|_| WireError::Invalid)
    }

    pub(super) fn optional_node(&mut self) -> Result<Option<NodeId>, WireError> {
        Ok(NodeId::try_from(self.u64()?).ok())
    }

    pub(super) fn path(&mut self) -> Result<Path, WireError> {
        let len = self.u8()?;
        Path::from_wire(self.bytes(len.into())?).ok_or(WireError::Invalid)
    }

    #[inline]
    pub(super) fn key(&mut self) -> Result<TaskKey, WireError> {
        if let [1, level @ 0..0x80, 0, rest @ ..] = self.rest {
            self.rest = rest; // As `Out::key` has it.
            return Ok(TaskKey { path: Path::of_one(*level), hop: 0 });
        }
        self.long_key()
    }

    fn long_key(&mut self) -> Result<TaskKey, WireError> {
        Ok(TaskKey { path: self.path()?, hop: self.varint_u32()? })
    }

    pub(super) fn short_bytes(&mut self, max: usize) -> Result<&'a [u8], WireError> {
        let len = self.count(1)?;
        if len > max {
            return Err(WireError::OverLimit);
        }
        self.bytes(len)
    }

    pub(super) fn text(&mut self, max: usize) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.short_bytes(max)?).map_err(|_| WireError::Invalid)
    }

    /// All that remains is the payload: its length.
    pub(super) fn payload(&mut self) -> usize {
        let len = self.rest.len() + self.elsewhere;
        (self.rest, self.payload) = (&[], Some(len));
        len
    }

    /// Bytes of the payload, once all before it was read; of one without any 0.
    pub(super) fn payload_len(&self) -> usize {
        self.payload.unwrap_or(0)
    }

    /// Bytes that are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take_holders(&mut self, count: u32) -> Result<usize, WireError> {
        let count = count as usize;
        self.holders_left = self.holders_left.checked_sub(count).ok_or(WireError::OverLimit)?;
        Ok(count)
    }

    pub(super) fn finish(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}
