//! Queue of what a connection has to send, without I/O.
//!
//! Each lane is a queue of *blocks*, one or more whole chunks each: small frames are encoded
//! straight into the lane's *open* block, a large frame becomes one block per chunk, whose body is
//! a slice of the caller's bytes. [`SendQueue::fill`] makes a gRPC message of what is there: the
//! transport's own chunks, then control, then data. How fast messages are asked for is the HTTP/2
//! stream's window's business, so a full queue is a peer that does not read.
//!
//! ```text
//!  append ──▶ open block ─(full, or a large frame follows)─▶ sealed blocks ─(asked for)─▶ message
//! ```

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_transport::{Appended, Lane, NotWritable};

use crate::codec::Parts;
use crate::framing::{self, Kind, TEXT_BYTES_MAX, WORD_BYTES, index};

/// A frame from head and body up to this size is copied into the open block.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// Kept free in every message for the transport's own chunks.
const OWN_BYTES_MAX: usize = TEXT_BYTES_MAX + 2 * WORD_BYTES;
/// Smallest message limit: below, chunks would be all words.
pub(crate) const MESSAGE_BYTES_MIN: u32 = 4 * 1024;

/// The bounds of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// From here on the lane is not writable.
    pub(crate) soft_bytes: usize,
    /// Frames that would go beyond are not taken, unless the lane is empty.
    pub(crate) hard_bytes: usize,
}

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest frame the peer takes.
    pub(crate) frame_bytes_max: usize,
    /// The largest message the peer takes.
    pub(crate) message_bytes_max: usize,
    pub(crate) control: LaneLimits,
    pub(crate) data: LaneLimits,
}

impl Limits {
    /// So that a message always has room for a block of each lane.
    fn chunk_bytes_max(&self) -> usize {
        self.message_bytes_max / 4
    }
}

/// A message, and how many frames it completes.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    pub(crate) parts: Parts,
    pub(crate) bytes: usize,
    pub(crate) frames: u64,
    pub(crate) transport_frames: u64,
}

impl Filled {
    fn push(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.parts.0.push(bytes);
    }
}

/// Everything one connection has to send.
#[derive(Debug)]
pub(crate) struct SendQueue {
    limits: Limits,
    lanes: [LaneQueue; 2],
    is_keep_alive_due: bool,
    ending: Ending,
}

#[derive(Debug)]
enum Ending {
    /// Frames are taken.
    Open,
    /// The goodbye goes out when the lanes are empty.
    Goodbye(String),
    /// Nothing follows.
    Finished,
}

impl SendQueue {
    pub(crate) fn new(limits: &Limits) -> Self {
        let chunk_bytes_max = limits.chunk_bytes_max();
        let lane = |lane, of| LaneQueue::new(lane, of, chunk_bytes_max);
        Self {
            limits: *limits,
            lanes: [lane(Lane::Control, limits.control), lane(Lane::Data, limits.data)],
            is_keep_alive_due: false,
            ending: Ending::Open,
        }
    }

    /// One that has nothing but a goodbye.
    pub(crate) fn closed(text: String) -> Self {
        let lane = LaneLimits { soft_bytes: 0, hard_bytes: 0 };
        let message_bytes_max = MESSAGE_BYTES_MIN as usize;
        let limits = Limits { frame_bytes_max: 0, message_bytes_max, control: lane, data: lane };
        let mut queue = Self::new(&limits);
        queue.close(text, false);
        queue
    }

    /// Appends a frame of `len` bytes, which `write` fills.
    pub(crate) fn append(
        &mut self,
        lane: Lane,
        len: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Appended, NotWritable> {
        self.admit(lane, len)?;
        let queue = &mut self.lanes[index(lane)];
        if len <= queue.chunk_bytes_max {
            queue.put_small(len, write);
        } else {
            let mut body = BytesMut::zeroed(len);
            write(&mut body);
            queue.put_large(&[], body.freeze());
        }
        Ok(queue.appended())
    }

    /// Appends a frame of `head` and `body`; a large body is not copied.
    pub(crate) fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.admit(lane, len)?;
        let queue = &mut self.lanes[index(lane)];
        if len <= queue.chunk_bytes_max.min(COPY_BYTES_MAX) {
            queue.put_small(len, &mut |out| {
                let (out_head, out_body) = out.split_at_mut(head.len());
                out_head.copy_from_slice(head);
                out_body.copy_from_slice(&body);
            });
        } else {
            queue.put_large(head, body);
        }
        Ok(queue.appended())
    }

    /// Tells the peer that this end is alive, before anything else goes out.
    pub(crate) fn keep_alive(&mut self) {
        self.is_keep_alive_due = true;
    }

    /// Takes no more frames, and ends with a goodbye: after what was appended (`is_kept`), or with
    /// the next message.
    pub(crate) fn close(&mut self, text: String, is_kept: bool) {
        if !is_kept {
            self.lanes.iter_mut().for_each(LaneQueue::clear);
        }
        if matches!(self.ending, Ending::Open) {
            self.ending = Ending::Goodbye(text);
        }
    }

    /// Drops everything; nothing goes out any more.
    pub(crate) fn abandon(&mut self) {
        self.lanes.iter_mut().for_each(LaneQueue::clear);
        self.ending = Ending::Finished;
    }

    /// The next message; `None` when there is nothing to send.
    ///
    /// Control comes first, but data always gets a block in, so that neither starves.
    pub(crate) fn fill(&mut self) -> Option<Filled> {
        if matches!(self.ending, Ending::Finished) {
            return None;
        }
        let mut filled = Filled::default();
        let budget = self.limits.message_bytes_max - OWN_BYTES_MAX;
        self.fill_own(&mut filled);
        let data_share = self.limits.chunk_bytes_max() + WORD_BYTES;
        let [control, data] = &mut self.lanes;
        let used = control.fill(&mut filled, budget - data_share.min(data.queued_bytes));
        data.fill(&mut filled, budget - used);
        if self.is_empty() {
            self.fill_goodbye(&mut filled);
        }
        (filled.bytes > 0).then_some(filled)
    }

    /// True when everything appended is in a message or beyond.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queued_bytes == 0)
    }

    /// True when everything there will ever be is in a message or beyond, the goodbye included.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.ending, Ending::Finished)
    }

    /// True when the lane is below its soft bound.
    pub(crate) fn is_writable(&self, lane: Lane) -> bool {
        let queue = &self.lanes[index(lane)];
        queue.queued_bytes < queue.limits.soft_bytes
    }

    /// True when those who wait for the lane are to be woken: at half the soft bound, so that they
    /// do not come for every frame.
    pub(crate) fn is_worth_waking(&self, lane: Lane) -> bool {
        let queue = &self.lanes[index(lane)];
        queue.queued_bytes <= queue.limits.soft_bytes / 2
    }

    fn admit(&self, lane: Lane, len: usize) -> Result<(), NotWritable> {
        if !matches!(self.ending, Ending::Open) {
            return Err(NotWritable::Closed);
        }
        let limit = self.limits.frame_bytes_max;
        if len > limit {
            return Err(NotWritable::TooLarge { size: len, limit });
        }
        let queue = &self.lanes[index(lane)];
        let is_full = queue.queued_bytes + len + WORD_BYTES > queue.limits.hard_bytes;
        if is_full && queue.queued_bytes > 0 { Err(NotWritable::Full) } else { Ok(()) }
    }

    fn fill_own(&mut self, filled: &mut Filled) {
        if std::mem::take(&mut self.is_keep_alive_due) {
            let mut own = BytesMut::with_capacity(WORD_BYTES);
            framing::put_keep_alive(&mut own);
            filled.transport_frames += 1;
            filled.push(own.freeze());
        }
    }

    fn fill_goodbye(&mut self, filled: &mut Filled) {
        if let Ending::Goodbye(text) = &self.ending {
            let mut own = BytesMut::with_capacity(WORD_BYTES + text.len());
            framing::put_goodbye(&mut own, text);
            self.ending = Ending::Finished;
            filled.transport_frames += 1;
            filled.push(own.freeze());
        }
    }
}

/// One or more whole chunks.
#[derive(Debug)]
struct Block {
    head: Bytes,
    /// Only of a large frame's chunk.
    body: Bytes,
    frames: u64,
}

impl Block {
    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

#[derive(Debug)]
struct LaneQueue {
    lane: Lane,
    limits: LaneLimits,
    chunk_bytes_max: usize,
    sealed: VecDeque<Block>,
    open: BytesMut,
    open_frames: u64,
    queued_bytes: usize,
}

impl LaneQueue {
    fn new(lane: Lane, limits: LaneLimits, chunk_bytes_max: usize) -> Self {
        Self {
            lane,
            limits,
            chunk_bytes_max,
            sealed: VecDeque::new(),
            open: BytesMut::new(),
            open_frames: 0,
            queued_bytes: 0,
        }
    }

    /// Encodes a frame of one chunk into the open block.
    fn put_small(&mut self, len: usize, write: &mut dyn FnMut(&mut [u8])) {
        if self.open.len() + len > self.chunk_bytes_max {
            self.seal();
        }
        let start = self.open.len();
        let frame = Unfinished { start, buffer: &mut self.open };
        frame.buffer.put_slice(&framing::word(Kind::Last, self.lane, len));
        frame.buffer.put_bytes(0, len);
        write(&mut frame.buffer[start + WORD_BYTES..]);
        frame.finish();
        self.open_frames += 1;
        self.queued_bytes += WORD_BYTES + len;
    }

    /// Makes a block of every chunk of a frame; `body` is sliced, not copied.
    fn put_large(&mut self, mut head: &[u8], mut body: Bytes) {
        self.seal();
        let mut left = head.len() + body.len();
        while left > 0 {
            let len = left.min(self.chunk_bytes_max);
            left -= len;
            let kind = if left == 0 { Kind::Last } else { Kind::More };
            let (chunk_head, head_rest) = head.split_at(len.min(head.len()));
            head = head_rest;
            self.open.put_slice(&framing::word(kind, self.lane, len));
            self.open.put_slice(chunk_head);
            let block = Block {
                head: self.open.split().freeze(),
                body: body.split_to(len - chunk_head.len()),
                frames: u64::from(left == 0),
            };
            self.queued_bytes += block.len();
            self.sealed.push_back(block);
        }
    }

    fn appended(&self) -> Appended {
        if self.queued_bytes < self.limits.soft_bytes { Appended::Writable } else { Appended::Full }
    }

    /// Moves blocks into the message while they fit `budget` bytes; answers how many bytes went.
    fn fill(&mut self, filled: &mut Filled, budget: usize) -> usize {
        let mut moved = 0;
        while let Some(block) = self.next_block(budget - moved) {
            moved += block.len();
            self.queued_bytes -= block.len();
            filled.frames += block.frames;
            filled.push(block.head);
            if !block.body.is_empty() {
                filled.push(block.body);
            }
        }
        moved
    }

    fn next_block(&mut self, room: usize) -> Option<Block> {
        if self.sealed.is_empty() {
            self.seal();
        }
        if self.sealed.front()?.len() <= room { self.sealed.pop_front() } else { None }
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            let head = self.open.split().freeze();
            let frames = std::mem::take(&mut self.open_frames);
            self.sealed.push_back(Block { head, body: Bytes::new(), frames });
        }
    }

    fn clear(&mut self) {
        self.sealed = VecDeque::new();
        self.open = BytesMut::new();
        self.open_frames = 0;
        self.queued_bytes = 0;
    }
}

/// A frame being encoded. Taken back when its writer panics, so that half a frame is never sent.
struct Unfinished<'a> {
    buffer: &'a mut BytesMut,
    start: usize,
}

impl Unfinished<'_> {
    fn finish(mut self) {
        self.start = self.buffer.len();
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.buffer.truncate(self.start);
    }
}

#[cfg(test)]
mod tests;
