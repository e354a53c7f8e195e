//! Completions: reports of finished work requests.

use std::ffi::CStr;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, ptr};

use rdma_sys::*;

use super::context::Context;
use super::{duplicate, error};
use crate::provider::VerbsError;

/// Completions that are taken from the device at once.
const POLL_CHUNK: usize = 32;

/// Tells that an armed completion queue has something. Its descriptor never blocks.
pub(crate) struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread-safe, and nothing of a channel is tied to a thread.
unsafe impl Send for CompletionChannel {}
// SAFETY: the same.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A channel, and what becomes readable with an event of it.
    pub(crate) fn new(context: &Arc<Context>) -> Result<(Arc<Self>, OwnedFd), VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { ibv_create_comp_channel(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| error::last("ibv_create_comp_channel"))?;
        let channel = Arc::new(Self { raw, context: Arc::clone(context) });
        // SAFETY: the channel is open, and so is its descriptor.
        let descriptor = unsafe { duplicate(raw.as_ref().fd) }
            .map_err(|error| error::of_code("fcntl", error.raw_os_error().unwrap_or(0)))?;
        Ok((channel, descriptor))
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: created in `new`; the queues that use it hold it, so none is left.
        unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// A completion as the device reports it. On an error only the id and the status mean anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawCompletion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) bytes: u32,
}

/// Meaning of a status of a completion.
pub(crate) fn status_text(status: u32) -> &'static str {
    // SAFETY: the library answers any number with a static, terminated string.
    let text: &'static CStr = unsafe { CStr::from_ptr(ibv_wc_status_str(status)) };
    text.to_str().unwrap_or("a status that the library has no words for")
}

/// Memory into which a device writes completions. The fields that it leaves out are what they were.
pub(crate) struct Chunk(Box<[ibv_wc; POLL_CHUNK]>);

impl Default for Chunk {
    fn default() -> Self {
        // SAFETY: an entry is integers, for which zero is a value.
        Self(Box::new(unsafe { mem::zeroed() }))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chunk").finish_non_exhaustive()
    }
}

/// Takes the completions of any number of queue pairs.
pub(crate) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    channel: Arc<CompletionChannel>,
}

// SAFETY: libibverbs is thread-safe, and nothing of a queue is tied to a thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: the same.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue for at least `capacity` completions.
    pub(crate) fn new(
        channel: &Arc<CompletionChannel>,
        capacity: u32,
    ) -> Result<Arc<Self>, VerbsError> {
        let context = channel.context.raw();
        // SAFETY: context and channel are open, and the queue holds both.
        let raw = unsafe {
            ibv_create_cq(context, int(capacity), ptr::null_mut(), channel.raw.as_ptr(), 0)
        };
        let raw = NonNull::new(raw).ok_or_else(|| error::last("ibv_create_cq"))?;
        Ok(Arc::new(Self { raw, channel: Arc::clone(channel) }))
    }

    /// Makes room for at least `capacity` completions. Those that wait stay.
    pub(crate) fn resize(&self, capacity: u32) -> Result<(), VerbsError> {
        // SAFETY: the queue exists.
        let code = unsafe { ibv_resize_cq(self.raw(), int(capacity)) };
        if code == 0 { Ok(()) } else { Err(error::of_code("ibv_resize_cq", code)) }
    }

    /// Hands at most `budget` completions to `take`, and no more than `chunk` takes; answers
    /// whether no more wait.
    #[inline]
    pub(crate) fn poll(
        &self,
        chunk: &mut Chunk,
        budget: usize,
        mut take: impl FnMut(RawCompletion),
    ) -> Result<bool, VerbsError> {
        let wanted = budget.min(POLL_CHUNK);
        let count = i32::try_from(wanted).expect("a chunk is small");
        // SAFETY: the queue exists, and the chunk has so many entries.
        let count = unsafe { ibv_poll_cq(self.raw(), count, chunk.0.as_mut_ptr()) };
        let count = usize::try_from(count)
            .map_err(|_| VerbsError::DeviceLost("the completion queue has failed".into()))?;
        for completion in &chunk.0[..count] {
            let ibv_wc { wr_id: id, status, byte_len: bytes, .. } = *completion;
            take(RawCompletion { id, status, bytes });
        }
        Ok(count < wanted)
    }

    /// Asks for one event with the next completion.
    pub(crate) fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: the queue exists.
        let code = unsafe { ibv_req_notify_cq(self.raw(), 0) };
        if code == 0 { Ok(()) } else { Err(error::of_code("ibv_req_notify_cq", code)) }
    }

    /// Takes and acknowledges all events that wait; answers whether there were any. Acknowledged at
    /// once: destroying the queue waits for that.
    pub(crate) fn take_events(&self) -> bool {
        let mut count = 0;
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is open and does not block, and both results outlive the call.
        while unsafe { ibv_get_cq_event(self.channel.raw.as_ptr(), &mut queue, &mut context) } == 0
        {
            count += 1;
        }
        if count > 0 {
            // SAFETY: this is the only queue of the channel, so all of its events are of this
            // queue, and each is acknowledged once.
            unsafe { ibv_ack_cq_events(self.raw(), count) };
        }
        count > 0
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created in `new`; the queue pairs that use it hold it, so none is left, and no
        // event is unacknowledged.
        unsafe { ibv_destroy_cq(self.raw()) };
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue").field(&self.channel.context).finish()
    }
}

fn int(capacity: u32) -> i32 {
    i32::try_from(capacity).unwrap_or(i32::MAX)
}
