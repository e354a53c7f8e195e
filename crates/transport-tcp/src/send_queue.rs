//! Frames that a connection has to send, without I/O.
//!
//! Each lane is a queue of *blocks*. A block is one or more whole chunks, at most about as large as
//! the largest chunk, and is the unit of credit and of overtaking:
//! - small frames are encoded straight into the lane's *open* block, one after the other;
//! - a large frame becomes one block per chunk, whose body is a slice of the caller's bytes.
//!
//! [`SendQueue::fill`] moves what may go out now into a [`Batch`]: the transport's own frames, then
//! control, then data, each lane as far as its credit goes. The bytes of a block are what it costs.
//!
//! ```text
//!  append ──▶ open block ─(full, or a large frame follows)─▶ sealed blocks ─(credit)─▶ batch
//! ```

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_transport::parts::SendShare;
use convoke_transport::{Appended, Lane, NotWritable};

use crate::batch::{Batch, Completed};
use crate::credit::SendCredit;
use crate::framing::{self, Fault, Head, WORD_BYTES, index};

/// A frame from head and body up to this size is copied into the open block; copying and a vectored
/// write cost the same at 4 KiB, and a copy spares an entry per frame.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// Bytes that go into one batch, about. A control frame waits behind no more than this and a block;
/// larger batches gain nothing, since a write of this size hardly notices the system call.
const BATCH_BYTES: usize = 128 * 1024;

/// The bounds of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// Credit that the peer granted, in bytes on the wire.
    pub(crate) window: u32,
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
    /// The largest chunk the peer takes, without its word.
    pub(crate) chunk_bytes_max: usize,
    pub(crate) control: LaneLimits,
    pub(crate) data: LaneLimits,
}

/// Everything one connection has to send.
#[derive(Debug)]
pub(crate) struct SendQueue {
    frame_bytes_max: usize,
    lanes: [LaneQueue; 2],
    /// Credit to give back, per lane. A number, not a queue: it cannot grow while nobody reads.
    credit_due: [u32; 2],
    is_keep_alive_due: bool,
    ending: Ending,
    /// Share of the queue and the batch it last filled in the room for all connections.
    share: SendShare,
    /// Bytes of that batch.
    batch_bytes: usize,
    /// Buffer in which the transport's own frames are encoded.
    scratch: BytesMut,
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
    pub(crate) fn new(limits: &Limits, share: SendShare) -> Self {
        let lane = |lane, of| LaneQueue::new(lane, of, limits.chunk_bytes_max);
        Self {
            frame_bytes_max: limits.frame_bytes_max,
            lanes: [lane(Lane::Control, limits.control), lane(Lane::Data, limits.data)],
            credit_due: [0; 2],
            is_keep_alive_due: false,
            ending: Ending::Open,
            share,
            batch_bytes: 0,
            scratch: BytesMut::new(),
        }
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
            queue.put_written(len, write);
        } else {
            let mut body = BytesMut::zeroed(len);
            write(&mut body);
            queue.put_large(&[], body.freeze());
        }
        Ok(self.appended(lane))
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
            queue.put_small(head, &body);
        } else {
            queue.put_large(head, body);
        }
        Ok(self.appended(lane))
    }

    /// The peer gave credit back.
    pub(crate) fn grant(&mut self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.lanes[index(lane)].credit.give_back(bytes)
    }

    /// Gives credit back to the peer, before anything else goes out.
    pub(crate) fn return_credit(&mut self, lane: Lane, bytes: u32) {
        self.credit_due[index(lane)] += bytes;
    }

    /// Tells the peer that this end is alive, before anything else goes out.
    pub(crate) fn keep_alive(&mut self) {
        self.is_keep_alive_due = true;
    }

    /// Takes no more frames, and ends with a goodbye: after what was appended (`is_kept`), or right
    /// after the batch being written.
    pub(crate) fn close(&mut self, text: String, is_kept: bool) {
        if !is_kept {
            self.clear();
        }
        if matches!(self.ending, Ending::Open) {
            self.ending = Ending::Goodbye(text);
        }
    }

    /// Drops everything; nothing goes out any more.
    pub(crate) fn abandon(&mut self) {
        self.batch_bytes = 0;
        self.clear();
        self.ending = Ending::Finished;
    }

    /// Moves what may go out now into `batch`, which is empty: what was in it is written, and gives
    /// its room back.
    ///
    /// Control comes first, but data always gets a block in, so that neither starves.
    pub(crate) fn fill(&mut self, batch: &mut Batch) {
        debug_assert!(batch.is_empty());
        if matches!(self.ending, Ending::Finished) {
            return;
        }
        self.fill_own(batch);
        let [control, data] = &mut self.lanes;
        let used = control.fill(batch, BATCH_BYTES);
        self.batch_bytes = used + data.fill(batch, BATCH_BYTES.saturating_sub(used).max(1));
        self.share.shrink(self.bytes());
        if self.is_empty() {
            self.fill_goodbye(batch);
        }
    }

    /// True when everything appended is in a batch or beyond.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queued_bytes == 0)
    }

    /// True when everything there will ever be is in a batch or beyond, the goodbye included.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.ending, Ending::Finished)
    }

    /// True when the lane is below its soft bound, and the connection not near its share of the
    /// room for all. What it has itself is what makes it wait: so it is woken as that leaves.
    pub(crate) fn is_writable(&self, lane: Lane) -> bool {
        let queue = &self.lanes[index(lane)];
        queue.queued_bytes < queue.limits.soft_bytes && self.share.has_room(self.bytes())
    }

    /// True when those who wait for the lane should be woken: at half the soft bound, so that they
    /// do not come for every frame.
    pub(crate) fn is_worth_waking(&self, lane: Lane) -> bool {
        let queue = &self.lanes[index(lane)];
        queue.queued_bytes <= queue.limits.soft_bytes / 2
    }

    fn admit(&mut self, lane: Lane, len: usize) -> Result<(), NotWritable> {
        if !matches!(self.ending, Ending::Open) {
            return Err(NotWritable::Closed);
        }
        if len > self.frame_bytes_max {
            return Err(NotWritable::TooLarge { size: len, limit: self.frame_bytes_max });
        }
        let queue = &self.lanes[index(lane)];
        let bytes = len + len.div_ceil(queue.chunk_bytes_max).max(1) * WORD_BYTES;
        let is_full = queue.queued_bytes + bytes > queue.limits.hard_bytes;
        if is_full && queue.queued_bytes > 0 {
            return Err(NotWritable::Full);
        }
        if self.share.grow(self.bytes() + bytes) { Ok(()) } else { Err(NotWritable::Full) }
    }

    fn appended(&self, lane: Lane) -> Appended {
        if self.is_writable(lane) { Appended::Writable } else { Appended::Full }
    }

    /// Bytes that it has, those that are being written included.
    fn bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queued_bytes).sum::<usize>() + self.batch_bytes
    }

    fn clear(&mut self) {
        self.lanes.iter_mut().for_each(LaneQueue::clear);
        self.share.shrink(self.batch_bytes);
    }

    fn fill_own(&mut self, batch: &mut Batch) {
        let mut transport_frames = 0;
        for lane in [Lane::Control, Lane::Data] {
            let due = std::mem::take(&mut self.credit_due[index(lane)]);
            if due > 0 {
                framing::put_credit(&mut self.scratch, lane, due);
                transport_frames += 1;
            }
        }
        if std::mem::take(&mut self.is_keep_alive_due) {
            framing::put_keep_alive(&mut self.scratch);
            transport_frames += 1;
        }
        self.push_scratch(batch, transport_frames);
    }

    fn fill_goodbye(&mut self, batch: &mut Batch) {
        if let Ending::Goodbye(text) = &self.ending {
            framing::put_goodbye(&mut self.scratch, text);
            self.ending = Ending::Finished;
            self.push_scratch(batch, 1);
        }
    }

    fn push_scratch(&mut self, batch: &mut Batch, transport_frames: u64) {
        if !self.scratch.is_empty() {
            let bytes = self.scratch.split().freeze();
            batch.push(bytes, Completed { frames: 0, transport_frames });
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
    credit: SendCredit,
    sealed: VecDeque<Block>,
    open: BytesMut,
    open_frames: u64,
    /// The size of the last block of small frames.
    block_bytes: usize,
    queued_bytes: usize,
}

impl LaneQueue {
    fn new(lane: Lane, limits: LaneLimits, chunk_bytes_max: usize) -> Self {
        let credit = SendCredit::new(lane, limits.window);
        Self {
            lane,
            limits,
            chunk_bytes_max: chunk_bytes_max.min(credit.block_bytes_max() - WORD_BYTES),
            credit,
            sealed: VecDeque::new(),
            open: BytesMut::new(),
            open_frames: 0,
            block_bytes: 0,
            queued_bytes: 0,
        }
    }

    /// Copies a frame of one chunk into the open block.
    fn put_small(&mut self, head: &[u8], body: &[u8]) {
        let len = head.len() + body.len();
        self.begin_small(len);
        self.open.put_slice(head);
        self.open.put_slice(body);
        self.end_small(len);
    }

    /// Encodes a frame of one chunk into the open block.
    fn put_written(&mut self, len: usize, write: &mut dyn FnMut(&mut [u8])) {
        let start = self.begin_small(len);
        let frame = Unfinished { start, buffer: &mut self.open };
        frame.buffer.put_bytes(0, len);
        write(&mut frame.buffer[start + WORD_BYTES..]);
        frame.finish();
        self.end_small(len);
    }

    /// Begins a frame of one chunk, and says where.
    fn begin_small(&mut self, len: usize) -> usize {
        if self.open.len() + len > self.chunk_bytes_max {
            self.seal();
        }
        let start = self.open.len();
        if start == 0 {
            // As much as the last block had: grown step by step it would be copied at each.
            self.open.reserve(self.block_bytes.max(WORD_BYTES + len));
        }
        self.open.put_slice(&Head::chunk(self.lane, true, len).encode());
        start
    }

    fn end_small(&mut self, len: usize) {
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
            let (chunk_head, head_rest) = head.split_at(len.min(head.len()));
            head = head_rest;
            self.open.put_slice(&Head::chunk(self.lane, left == 0, len).encode());
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

    /// Moves blocks into `batch` until `budget` bytes are reached or the credit ends.
    fn fill(&mut self, batch: &mut Batch, budget: usize) -> usize {
        let mut moved = 0;
        while moved < budget {
            let Some(block) = self.next_block() else { break };
            moved += block.len();
            self.queued_bytes -= block.len();
            let frames = |count| Completed { frames: count, transport_frames: 0 };
            if block.body.is_empty() {
                batch.push(block.head, frames(block.frames));
            } else {
                batch.push(block.head, frames(0));
                batch.push(block.body, frames(block.frames));
            }
        }
        moved
    }

    fn next_block(&mut self) -> Option<Block> {
        if self.sealed.is_empty() {
            self.seal();
        }
        if self.credit.take(self.sealed.front()?.len()) { self.sealed.pop_front() } else { None }
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.block_bytes = self.open.len();
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
