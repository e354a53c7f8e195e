//! Events that a device tells outside of completions.

use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

use rdma_sys::*;

/// An asynchronous event, copied and acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// The queue pair of this key has failed; the number of the event.
    QueuePairFailed(u64, u32),
    /// Something came for the queue pair of this key before its peer's last word of the handshake.
    Established(u64),
    /// The completion queue overflowed or failed.
    CompletionQueueFailed,
    /// The device is gone.
    DeviceLost,
    /// Something that changes nothing here, such as a port that comes and goes.
    Other,
}

impl AsyncEvent {
    /// The next of an open context whose descriptor does not block.
    pub(super) fn take(context: NonNull<ibv_context>) -> Option<Self> {
        // The type is a Rust enum in the bindings, and a library may know more types than they do:
        // an event is never assumed to be initialised, its fields are read through pointers.
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the event outlives the call.
        let result = unsafe { ibv_get_async_event(context.as_ptr(), event.as_mut_ptr()) };
        if result != 0 {
            return None;
        }
        let start = event.as_mut_ptr();
        // SAFETY: the field is inside the event, four bytes long, and filled by the library; any
        // bits are a `u32`.
        let kind = unsafe {
            start.cast::<u8>().add(offset_of!(ibv_async_event, event_type)).cast::<u32>().read()
        };
        let copied = match kind {
            0 => Self::CompletionQueueFailed,
            1..=3 => Self::QueuePairFailed(queue_pair_key(&event), kind),
            4 => Self::Established(queue_pair_key(&event)),
            8 => Self::DeviceLost,
            _ => Self::Other,
        };
        // SAFETY: taken above, acknowledged once; destroying the object it concerns waits for this.
        unsafe { ibv_ack_async_event(start) };
        Some(copied)
    }
}

/// The key of the queue pair an event is about. Only for the kinds that are about one.
fn queue_pair_key(event: &MaybeUninit<ibv_async_event>) -> u64 {
    // SAFETY: the event is of a kind that names a queue pair, which lives at least until the event
    // is acknowledged; its user pointer is the key it was made with.
    unsafe {
        let element = event.as_ptr().cast::<u8>().add(offset_of!(ibv_async_event, element));
        let queue_pair = element.cast::<*mut ibv_qp>().read();
        (*queue_pair).qp_context as u64
    }
}
