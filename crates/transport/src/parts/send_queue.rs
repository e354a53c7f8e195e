//! Queue of the frames that a connection has to send, as chunks.
//!
//! Each lane is a queue of *blocks*. A block is one or more whole chunks, at most about as large as
//! the largest chunk, and is the unit of credit and of overtaking:
//! - small frames are encoded straight into the lane's *open* block, one after the other;
//! - a large frame becomes one block per chunk, whose body is a slice of the caller's bytes.
//!
//! [`SendQueue::fill`] moves what may go out now into a [`Batch`]: the transport's own chunks, then
//! control, then data, each lane as far as its credit goes. The bytes of a block are what it costs.
//!
//! ```text
//!  append ──▶ open block ─(full, or a large frame follows)─▶ sealed blocks ─(credit)─▶ batch
//! ```

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{Batch, Completed};
use super::chunk::{self, Fault, WORD_BYTES, Words};
use super::credit::SendCredit;
use super::lanes::{LANES, index};
use super::send_account::{SendAccount, SendLimits};
use super::send_pool::SendShare;
use crate::{Appended, Buffer, Lane, NotWritable};

/// A frame from head and body up to this size is copied into the open block; copying and a vectored
/// write cost the same at 4 KiB, and a copy spares an entry per frame.
pub(super) const COPY_BYTES_MAX: usize = 16 * 1024;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Those of frames and of what waits.
    pub send: SendLimits,
    /// The largest chunk the peer takes, without its word.
    pub chunk_bytes_max: usize,
    /// Credit per lane that the peer granted, in bytes on the wire; `None` where the transport has
    /// its own.
    pub windows: Option<[u32; 2]>,
    /// Bytes that go into one batch, about: two blocks more at the most. A control frame waits
    /// behind no more than this.
    pub batch_bytes: usize,
}

/// Everything one connection has to send.
#[derive(Debug)]
pub struct SendQueue {
    account: SendAccount,
    lanes: [LaneQueue; 2],
    words: Words,
    batch_bytes_max: usize,
    /// Credit to give back, per lane. A number, not a queue: while nobody reads it takes no room.
    credit_due: [u32; 2],
    is_keep_alive_due: bool,
    ending: Ending,
    /// Bytes of the batch that it last filled.
    batch_bytes: usize,
    /// Buffer in which the transport's own chunks are encoded.
    scratch: BytesMut,
}

/// Frames that a queue will not send. They are to be dropped without the connection's lock, for the
/// owner of a body may call back.
#[must_use = "it is to be dropped without the lock"]
#[derive(Debug, Default)]
pub struct Unsent {
    _of_lanes: [VecDeque<Block>; 2],
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
    /// An empty one, which takes its room from `share`.
    pub fn new(limits: &QueueLimits, share: SendShare) -> Self {
        let lane = |lane: Lane| {
            let credit = limits.windows.map(|windows| SendCredit::new(lane, windows[index(lane)]));
            LaneQueue::new(lane, credit, limits.chunk_bytes_max)
        };
        Self {
            account: SendAccount::new(limits.send, share),
            lanes: LANES.map(lane),
            words: Words::of(limits.windows),
            batch_bytes_max: limits.batch_bytes,
            credit_due: [0; 2],
            is_keep_alive_due: false,
            ending: Ending::Open,
            batch_bytes: 0,
            scratch: BytesMut::new(),
        }
    }

    /// Has a frame of `len` bytes put into a lane, if the account has room for it.
    fn put(
        &mut self,
        lane: Lane,
        len: usize,
        put: impl FnOnce(&mut LaneQueue),
    ) -> Result<Appended, NotWritable> {
        let queue = &mut self.lanes[index(lane)];
        let bytes = queue.bytes_of(len);
        self.account.admit(lane, len, bytes)?;
        put(queue);
        self.account.add(lane, bytes);
        Ok(self.account.appended(lane))
    }

    /// The peer gave credit back.
    ///
    /// # Errors
    /// [`Fault`] when it is more than was used, or none was granted.
    pub fn grant(&mut self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.lanes[index(lane)].credit.as_mut().ok_or(Fault::NoCredit)?.give_back(bytes)
    }

    /// The peer takes what is left without credit.
    pub fn lift_credit(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.credit = None);
    }

    /// Gives credit back to the peer, before anything else goes out. Answers how much of the lane
    /// is to go out by now.
    pub fn return_credit(&mut self, lane: Lane, bytes: u32) -> u32 {
        let due = &mut self.credit_due[index(lane)];
        *due = due.saturating_add(bytes);
        *due
    }

    /// Tells the peer that this end is alive, before anything else goes out.
    pub fn keep_alive(&mut self) {
        self.is_keep_alive_due = true;
    }

    /// Takes no more frames, and ends with a goodbye: after what was appended (`is_kept`), or right
    /// after the batch being written.
    pub fn close(&mut self, text: String, is_kept: bool) -> Unsent {
        let unsent = if is_kept { Unsent::default() } else { self.clear() };
        self.account.close();
        if matches!(self.ending, Ending::Open) {
            self.ending = Ending::Goodbye(text);
        }
        unsent
    }

    /// Takes everything out; nothing goes out any more.
    pub fn abandon(&mut self) -> Unsent {
        self.batch_bytes = 0;
        let unsent = self.clear();
        self.account.abandon();
        self.ending = Ending::Finished;
        unsent
    }

    /// Moves what may go out now into `batch`, which is empty: what was in it is written, and gives
    /// its room back.
    ///
    /// Control comes first, but data always gets a block in, so that neither starves.
    pub fn fill(&mut self, batch: &mut Batch) {
        debug_assert!(batch.is_empty());
        if matches!(self.ending, Ending::Finished) {
            return;
        }
        let before = std::mem::take(&mut self.batch_bytes);
        self.fill_own(batch);
        if !self.is_empty() {
            self.fill_frames(batch);
        }
        self.account.written(before);
        if self.is_empty() {
            self.fill_goodbye(batch);
        }
    }

    fn fill_frames(&mut self, batch: &mut Batch) {
        let [control, data] = &mut self.lanes;
        let control_bytes = control.fill(batch, self.batch_bytes_max);
        let left = self.batch_bytes_max.saturating_sub(control_bytes).max(1);
        let data_bytes = data.fill(batch, left);
        self.account.leave(Lane::Control, control_bytes);
        self.account.leave(Lane::Data, data_bytes);
        self.batch_bytes = control_bytes + data_bytes;
    }

    /// True when everything appended is in a batch or beyond.
    pub fn is_empty(&self) -> bool {
        self.account.is_empty()
    }

    /// True when everything there will ever be is in a batch or beyond, the goodbye included.
    pub fn is_finished(&self) -> bool {
        matches!(self.ending, Ending::Finished)
    }

    /// See [`SendAccount::is_writable`].
    pub fn is_writable(&self, lane: Lane) -> bool {
        self.account.is_writable(lane)
    }

    /// See [`SendAccount::is_worth_waking`].
    pub fn is_worth_waking(&self, lane: Lane) -> bool {
        self.account.is_worth_waking(lane)
    }

    fn clear(&mut self) -> Unsent {
        self.account.clear();
        Unsent { _of_lanes: self.lanes.each_mut().map(LaneQueue::clear) }
    }

    fn fill_own(&mut self, batch: &mut Batch) {
        if self.credit_due != [0; 2] || self.is_keep_alive_due {
            self.fill_due(batch);
        }
    }

    fn fill_due(&mut self, batch: &mut Batch) {
        let mut transport_frames = 0;
        for lane in LANES {
            let due = std::mem::take(&mut self.credit_due[index(lane)]);
            if due > 0 {
                chunk::put_credit(&mut self.scratch, lane, due);
                transport_frames += 1;
            }
        }
        if std::mem::take(&mut self.is_keep_alive_due) {
            chunk::put_keep_alive(&mut self.scratch);
            transport_frames += 1;
        }
        self.push_scratch(batch, transport_frames);
    }

    fn fill_goodbye(&mut self, batch: &mut Batch) {
        if let Ending::Goodbye(text) = &self.ending {
            chunk::put_goodbye(&mut self.scratch, self.words, text);
            self.ending = Ending::Finished;
            self.push_scratch(batch, 1);
        }
    }

    fn push_scratch(&mut self, batch: &mut Batch, transport_frames: u64) {
        let bytes = self.scratch.split().freeze();
        batch.push(bytes, Completed { frames: 0, transport_frames });
    }
}

impl Buffer for SendQueue {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.put(lane, len, |queue| {
            if len <= queue.chunk_bytes_max {
                queue.put_small(head, body);
            } else {
                queue.put_large(head, Bytes::copy_from_slice(body));
            }
        })
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        if len <= COPY_BYTES_MAX {
            return self.append_copy(lane, head, &body);
        }
        self.put(lane, len, |queue| queue.put_large(head, body))
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
    chunk_bytes_max: usize,
    credit: Option<SendCredit>,
    sealed: VecDeque<Block>,
    open: BytesMut,
    open_frames: u64,
    /// The size of the last block of small frames.
    block_bytes: usize,
}

impl LaneQueue {
    fn new(lane: Lane, credit: Option<SendCredit>, chunk_bytes_max: usize) -> Self {
        let block_bytes_max = credit.as_ref().map_or(usize::MAX, SendCredit::block_bytes_max);
        Self {
            lane,
            chunk_bytes_max: chunk_bytes_max.min(block_bytes_max - WORD_BYTES),
            credit,
            sealed: VecDeque::new(),
            open: BytesMut::new(),
            open_frames: 0,
            block_bytes: 0,
        }
    }

    /// Bytes of a frame with the words of its chunks.
    fn bytes_of(&self, len: usize) -> usize {
        if len <= self.chunk_bytes_max {
            return len + WORD_BYTES;
        }
        len.saturating_add(len.div_ceil(self.chunk_bytes_max).saturating_mul(WORD_BYTES))
    }

    /// Copies a frame of one chunk into the open block.
    #[inline]
    fn put_small(&mut self, head: &[u8], body: &[u8]) {
        let len = head.len() + body.len();
        if self.open.len() + len > self.chunk_bytes_max {
            self.seal();
        }
        if self.open.is_empty() {
            // As much as the last block had: grown step by step it would be copied at each.
            self.open.reserve(self.block_bytes.max(WORD_BYTES + len));
        }
        self.open.extend_from_slice(&chunk::head(self.lane, true, len));
        self.open.extend_from_slice(head);
        self.open.extend_from_slice(body);
        self.open_frames += 1;
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
            self.open.put_slice(&chunk::head(self.lane, left == 0, len));
            self.open.put_slice(chunk_head);
            let block = Block {
                head: self.open.split().freeze(),
                body: body.split_to(len - chunk_head.len()),
                frames: u64::from(left == 0),
            };
            self.sealed.push_back(block);
        }
    }

    /// Moves blocks into `batch` until `budget` bytes are reached or the credit ends.
    fn fill(&mut self, batch: &mut Batch, budget: usize) -> usize {
        let mut moved = 0;
        while moved < budget {
            let Some(block) = self.next_block() else { break };
            moved += block.len();
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
        let bytes = self.sealed.front().map_or(self.open.len(), Block::len);
        if bytes == 0 {
            return None;
        }
        if self.credit.as_mut().is_some_and(|credit| !credit.take(bytes)) {
            if self.sealed.is_empty() {
                self.seal(); // What waits for credit does not grow.
            }
            return None;
        }
        Some(self.sealed.pop_front().unwrap_or_else(|| self.take_open()))
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            let block = self.take_open();
            self.sealed.push_back(block);
        }
    }

    /// The block of small frames, of which there are some.
    fn take_open(&mut self) -> Block {
        self.block_bytes = self.open.len();
        let head = self.open.split().freeze();
        Block { head, body: Bytes::new(), frames: std::mem::take(&mut self.open_frames) }
    }

    fn clear(&mut self) -> VecDeque<Block> {
        self.open = BytesMut::new();
        self.open_frames = 0;
        std::mem::take(&mut self.sealed)
    }
}

#[cfg(test)]
mod tests;
