//! A reliable connected queue pair: its states, and what is posted to it.

use std::fmt;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::*;

use super::completion::CompletionQueue;
use super::domain::MemoryRegion;
use super::error;
use crate::provider::{Data, PostError, SendRequest, VerbsError};

/// Work requests that are chained into one post.
const POST_CHUNK: usize = 16;

/// A queue pair that works on the slots of one memory region. Once it is gone, the slots it had
/// posted are free.
pub(crate) struct QueuePair {
    raw: NonNull<ibv_qp>,
    inline_bytes_max: u32,
    memory: Arc<MemoryRegion>,
    queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs is thread-safe, and nothing of a queue pair is tied to a thread.
unsafe impl Send for QueuePair {}
// SAFETY: the same.
unsafe impl Sync for QueuePair {}

/// Capacity of a queue pair, as wished: how many work requests it holds, and how much it sends
/// inline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) sends_max: u32,
    pub(crate) receives_max: u32,
    pub(crate) inline_bytes: u32,
}

/// The states a connection takes its queue pair through. Receives may be posted from `Initialised`
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Initialised,
    ReadyToReceive,
    ReadyToSend,
}

/// Attributes that a queue pair is told when it enters a state.
pub(crate) struct Attributes {
    pub(super) raw: ibv_qp_attr,
    pub(super) mask: i32,
}

impl Attributes {
    /// Sets how often an unanswered packet is sent again and how long each time waits, whatever the
    /// peer wished; a peer that has no receive posted is an error at once.
    pub(crate) fn set_patience(&mut self, retry_count: u8, ack_timeout_exponent: u8) {
        self.raw.retry_cnt = retry_count;
        self.raw.rnr_retry = 0;
        self.raw.timeout = ack_timeout_exponent;
    }
}

impl QueuePair {
    /// A queue pair, the only one on its slab, that reports to `queue` and whose asynchronous
    /// events carry `key`.
    pub(crate) fn new(
        memory: &Arc<MemoryRegion>,
        queue: &Arc<CompletionQueue>,
        capacity: Capacity,
        key: u32,
    ) -> Result<Self, VerbsError> {
        if !memory.slab().claim() {
            return Err(VerbsError::slab_in_use("ibv_create_qp"));
        }
        // SAFETY: the attributes are integers and pointers, null where optional.
        let mut attributes: ibv_qp_init_attr = unsafe { mem::zeroed() };
        attributes.qp_context = ptr::without_provenance_mut(key as usize);
        attributes.send_cq = queue.raw();
        attributes.recv_cq = queue.raw();
        attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
        attributes.cap.max_send_wr = capacity.sends_max;
        attributes.cap.max_recv_wr = capacity.receives_max;
        attributes.cap.max_send_sge = 1;
        attributes.cap.max_recv_sge = 1;
        attributes.cap.max_inline_data = capacity.inline_bytes;
        // SAFETY: domain and completion queue exist, and the queue pair holds both; the attributes
        // outlive the call.
        let raw = unsafe { ibv_create_qp(memory.domain().raw(), &mut attributes) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = error::last("ibv_create_qp");
            memory.slab().reclaim();
            error
        })?;
        Ok(Self {
            raw,
            inline_bytes_max: attributes.cap.max_inline_data,
            memory: Arc::clone(memory),
            queue: Arc::clone(queue),
        })
    }

    /// Its number on the device, which the peer has to know.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists, and its number never changes.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Bytes that may be sent inline, as granted.
    pub(crate) fn inline_bytes_max(&self) -> u32 {
        self.inline_bytes_max
    }

    /// Enters the state the attributes are for.
    pub(crate) fn enter(&self, mut attributes: Attributes) -> Result<(), VerbsError> {
        // SAFETY: the queue pair exists, and the attributes outlive the call.
        let code =
            unsafe { ibv_modify_qp(self.raw.as_ptr(), &mut attributes.raw, attributes.mask) };
        if code == 0 { Ok(()) } else { Err(error::of_code("ibv_modify_qp", code)) }
    }

    /// Enters the error state: all that is posted comes back, and all that will be.
    pub(crate) fn fail(&self) -> Result<(), VerbsError> {
        // SAFETY: the attributes are integers.
        let mut raw: ibv_qp_attr = unsafe { mem::zeroed() };
        raw.qp_state = ibv_qp_state::IBV_QPS_ERR;
        self.enter(Attributes { raw, mask: mask(ibv_qp_attr_mask::IBV_QP_STATE) })
    }

    /// Posts a receive of each slot, in order, with the id that `id_of` gives it. The slots become
    /// the device's.
    #[inline]
    pub(crate) fn post_receives(
        &self,
        slots: &[u32],
        id_of: impl Fn(u32) -> u64,
    ) -> Result<(), PostError> {
        for (index, slots) in slots.chunks(POST_CHUNK).enumerate() {
            self.post_receive_chain(slots, &id_of).map_err(|(posted, error)| PostError {
                posted: index * POST_CHUNK + posted,
                error,
            })?;
        }
        Ok(())
    }

    #[inline]
    fn post_receive_chain(
        &self,
        slots: &[u32],
        id_of: impl Fn(u32) -> u64,
    ) -> Result<(), (usize, VerbsError)> {
        let slab = self.memory.slab();
        let bytes = u32::try_from(slab.slot_bytes()).unwrap_or(u32::MAX);
        let taken = slots.iter().position(|slot| !slab.begin_receive(*slot));
        let count = taken.unwrap_or(slots.len());
        let mut chain = [const { MaybeUninit::<(ibv_recv_wr, ibv_sge)>::uninit() }; POST_CHUNK];
        let start = chain.as_mut_ptr().cast::<(ibv_recv_wr, ibv_sge)>();
        for (i, slot) in slots[..count].iter().enumerate() {
            let next = if i + 1 < count { receive_at(start, i + 1) } else { ptr::null_mut() };
            // SAFETY: `i` is inside the chain, since chunks are no longer than it; nothing refers
            // to it yet.
            unsafe {
                let entry = &raw mut (*start.add(i)).1;
                entry.write(self.memory.entry(*slot, bytes));
                receive_at(start, i).write(ibv_recv_wr {
                    wr_id: id_of(*slot),
                    next,
                    sg_list: entry,
                    num_sge: 1,
                });
            }
        }
        let posted = if count == 0 { (count, 0) } else { self.ring_receives(start, count) };
        for slot in &slots[posted.0..count] {
            // Refused, so the device never had it.
            slab.end_receive(*slot);
            slab.recycle(*slot);
        }
        match (posted, taken) {
            ((posted, code), _) if code != 0 => {
                Err((posted, post_error("ibv_post_recv", "receive", code)))
            }
            (_, Some(taken)) => Err((taken, VerbsError::SlotInUse(slots[taken]))),
            (_, None) => Ok(()),
        }
    }

    /// Posts a chain of `count`; answers how many were posted, and the error number.
    #[inline]
    fn ring_receives(&self, start: *mut (ibv_recv_wr, ibv_sge), count: usize) -> (usize, i32) {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists. The caller has initialised `count` requests, linked in
        // order, each with its entry; the library copies them. Their slots are the device's by
        // their state, stay registered and allocated as long as the queue pair lives, and hold no
        // reference until the receive completes.
        let code = unsafe { ibv_post_recv(self.raw.as_ptr(), receive_at(start, 0), &mut bad) };
        let posted = if code == 0 {
            count
        } else {
            (0..count).position(|i| ptr::eq(receive_at(start, i), bad)).unwrap_or(0)
        };
        (posted, code)
    }

    /// Posts a send with this id. Inline bytes have been copied when it returns; a slot becomes the
    /// device's.
    #[inline]
    pub(crate) fn post_send(&self, send: &SendRequest<'_>, id: u64) -> Result<(), VerbsError> {
        let mut entry = self.gather(&send.data)?;
        let mut request = request_of(send, id, &mut entry);
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists. Request and entry outlive the call, in which the library
        // copies them and the bytes of an inline one, which the caller has borrowed. A slot is the
        // device's by its state and stays registered and allocated as long as the queue pair lives.
        let code = unsafe { ibv_post_send(self.raw.as_ptr(), &mut request, &mut bad) };
        if code == 0 { Ok(()) } else { Err(self.take_back(send, code)) }
    }

    /// Posts sends in order, the `i`-th with the id `id_of(i)`, each as with
    /// [`post_send`](Self::post_send).
    pub(crate) fn post_sends(
        &self,
        sends: &[SendRequest<'_>],
        id_of: impl Fn(usize) -> u64,
    ) -> Result<(), PostError> {
        for (index, sends) in sends.chunks(POST_CHUNK).enumerate() {
            let before = index * POST_CHUNK;
            self.post_send_chain(sends, |i| id_of(before + i))
                .map_err(|(posted, error)| PostError { posted: before + posted, error })?;
        }
        Ok(())
    }

    /// The device has refused it, so it never had its slot.
    #[cold]
    fn take_back(&self, send: &SendRequest<'_>, code: i32) -> VerbsError {
        if let Data::Slot { slot, .. } = send.data {
            self.memory.slab().end_send(slot);
        }
        post_error("ibv_post_send", "send", code)
    }

    fn post_send_chain(
        &self,
        sends: &[SendRequest<'_>],
        id_of: impl Fn(usize) -> u64,
    ) -> Result<(), (usize, VerbsError)> {
        let mut chain = [const { MaybeUninit::<(ibv_send_wr, ibv_sge)>::uninit() }; POST_CHUNK];
        let start = chain.as_mut_ptr().cast::<(ibv_send_wr, ibv_sge)>();
        let mut refused = None;
        let mut count = 0;
        for send in sends {
            let entry = match self.gather(&send.data) {
                Ok(entry) => entry,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            };
            // SAFETY: `count` is inside the chain, since chunks are no longer than it.
            unsafe {
                let to = &raw mut (*start.add(count)).1;
                to.write(entry);
                let place = send_at(start, count);
                place.write(request_of(send, id_of(count), to));
                if count > 0 {
                    (*send_at(start, count - 1)).next = place;
                }
            }
            count += 1;
        }
        let (posted, code) = if count == 0 { (0, 0) } else { self.ring_sends(start, count) };
        for send in &sends[posted..count] {
            refused = Some(self.take_back(send, code));
        }
        refused.map_or(Ok(()), |error| Err((posted, error)))
    }

    /// Bytes that a send reads. A slot is the device's from here on.
    #[inline]
    fn gather(&self, data: &Data<'_>) -> Result<ibv_sge, VerbsError> {
        match *data {
            Data::Inline(bytes) => match u32::try_from(bytes.len()) {
                Ok(length) if length <= self.inline_bytes_max => {
                    Ok(ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 })
                }
                _ => Err(error::of_code("inline send", libc::EMSGSIZE)),
            },
            Data::Slot { slot, bytes } => {
                let slab = self.memory.slab();
                if bytes as usize > slab.slot_bytes() {
                    return Err(error::of_code("send", libc::EMSGSIZE));
                }
                if !slab.begin_send(slot) {
                    return Err(VerbsError::SlotInUse(slot));
                }
                Ok(self.memory.entry(slot, bytes))
            }
            Data::Probe => Ok(ibv_sge { addr: 0, length: 0, lkey: 0 }),
        }
    }

    /// Posts a chain of `count`; answers how many were posted, and the error number.
    #[inline]
    fn ring_sends(&self, start: *mut (ibv_send_wr, ibv_sge), count: usize) -> (usize, i32) {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists. The caller has initialised `count` requests, linked in
        // order, each with its entry; the library copies them, and the bytes of inline ones, which
        // the caller has borrowed. Slots are the device's by their state and stay registered and
        // allocated as long as the queue pair lives.
        let code = unsafe { ibv_post_send(self.raw.as_ptr(), send_at(start, 0), &mut bad) };
        let posted = if code == 0 {
            count
        } else {
            (0..count).position(|i| ptr::eq(send_at(start, i), bad)).unwrap_or(0)
        };
        (posted, code)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed only here; no asynchronous event of it is
        // unacknowledged, since each is acknowledged where it is taken.
        let code = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        if code == 0 {
            self.memory.slab().reclaim();
        } else {
            // The device may still access the slots: better to lose the memory than to give it to
            // somebody else.
            mem::forget((Arc::clone(&self.memory), Arc::clone(&self.queue)));
        }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number()).finish_non_exhaustive()
    }
}

pub(super) fn mask(mask: ibv_qp_attr_mask) -> i32 {
    i32::try_from(mask.0).expect("a mask of attributes is a small number")
}

/// The work request of a send, by itself, that reads `entry`.
#[inline]
fn request_of(send: &SendRequest<'_>, id: u64, entry: *mut ibv_sge) -> ibv_send_wr {
    // SAFETY: a request is integers and pointers, null where optional.
    let mut request: ibv_send_wr = unsafe { mem::zeroed() };
    request.wr_id = id;
    request.sg_list = entry;
    (request.opcode, request.send_flags, request.num_sge) = match send.data {
        Data::Inline(_) => (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_INLINE.0, 1),
        Data::Slot { .. } => (ibv_wr_opcode::IBV_WR_SEND, 0, 1),
        // A write of nothing names no memory: no key is checked, and no receive is used.
        Data::Probe => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0, 0),
    };
    if send.is_signalled {
        request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
    }
    request
}

fn post_error(call: &'static str, queue: &'static str, code: i32) -> VerbsError {
    // Both are what devices answer when a queue has no room.
    if code.abs() == libc::ENOMEM || code.abs() == libc::EAGAIN {
        VerbsError::QueueFull(queue)
    } else {
        error::of_code(call, code)
    }
}

#[inline]
fn receive_at(start: *mut (ibv_recv_wr, ibv_sge), i: usize) -> *mut ibv_recv_wr {
    // SAFETY: callers stay inside the chain that begins at `start`.
    unsafe { &raw mut (*start.add(i)).0 }
}

#[inline]
fn send_at(start: *mut (ibv_send_wr, ibv_sge), i: usize) -> *mut ibv_send_wr {
    // SAFETY: callers stay inside the chain that begins at `start`.
    unsafe { &raw mut (*start.add(i)).0 }
}
