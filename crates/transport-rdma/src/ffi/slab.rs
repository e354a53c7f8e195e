//! Slots of equal size in one allocation, each with a state that says whose it is.
//!
//! ```text
//!          edit                begin_send              end_send
//!   Free ───────▶ Writing ─▶ Free ──────────▶ Sending ──────────▶ Free
//!          begin_receive             end_receive          read, lend    drop of the guard
//!   Free ────────────────▶ Posted ───────────────▶ Filled ──────────▶ Lent ────▶ Free
//!                 └▶ Filling ─▶ Delivered ─┘         └▶ recycle: Free    (and on the list of
//!                    (the simulated device)                              returned slots)
//! ```
//!
//! Every step is one atomic exchange that fails when the slot is in another state. A reference to
//! the bytes of a slot exists only in the states `Writing` and `Filling` (one, exclusive) and in
//! `Reading`, `Lent` and between (shared), each of which is left only by whoever entered it. A
//! device accesses `Posted` and `Sending` slots, where no reference exists. A slot that is lent
//! while it is still read is free once both have ended; whichever ends last returns it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

mod states;

use states::{
    DELIVERED, FILLED, FILLING, FREE, POSTED, READING, READING_LENT, SENDING, States, WRITING,
    index,
};

/// The slab begins at a multiple of this, so that it shares its last page at most with memory the
/// device may not touch. Its slots follow each other without gaps.
const ALIGN: usize = 4096;

/// Memory for a device to receive into and send from. Lives as long as the last guard of a slot.
pub struct Slab {
    start: NonNull<u8>,
    layout: Layout,
    slot_count: u32,
    slot_bytes: usize,
    states: States,
    /// True when a queue pair works on it.
    is_claimed: AtomicBool,
}

// SAFETY: the memory is owned by the slab, and its bytes are accessed only in states that one
// holder has entered by an atomic exchange; see the module.
unsafe impl Send for Slab {}
// SAFETY: the same.
unsafe impl Sync for Slab {}

impl Slab {
    /// Zeroed slots. `on_returned` is woken when a slot comes back while the slab is
    /// [starved](Self::set_starved).
    ///
    /// # Panics
    /// When there are no slots, they have no bytes, or their sum does not fit the address space.
    pub fn new(slot_count: u32, slot_bytes: usize, on_returned: Waker) -> Arc<Self> {
        let count = slot_count as usize;
        let bytes = count.checked_mul(slot_bytes).filter(|bytes| *bytes > 0);
        let bytes = bytes.expect("a slab has slots that fit the address space");
        let layout =
            Layout::from_size_align(bytes, ALIGN).expect("the alignment is a power of two");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Arc::new(Self {
            start,
            layout,
            slot_count,
            slot_bytes,
            states: States::new(count, on_returned),
            is_claimed: AtomicBool::new(false),
        })
    }

    /// Number of slots.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Bytes of each.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Start of all slots; slot `i` is `i` times [`slot_bytes`](Self::slot_bytes) behind. Only for
    /// a device to be told.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "only a real device is told"))]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A free slot, to be written; free again when dropped.
    pub fn edit(&self, slot: u32) -> Option<SlotMut<'_>> {
        self.states.step(slot, FREE, WRITING).then(|| SlotMut { slab: self, slot })
    }

    /// A queue pair is going to work on it; answers whether none does. Two would free each other's
    /// slots when they [reclaim](Self::reclaim).
    pub(crate) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    /// The engine gives a free slot to the device to send it; answers whether it was free.
    #[inline]
    pub(crate) fn begin_send(&self, slot: u32) -> bool {
        self.states.step(slot, FREE, SENDING)
    }

    /// The device has sent the slot; answers whether it was sending it.
    #[inline]
    pub(crate) fn end_send(&self, slot: u32) -> bool {
        self.states.step(slot, SENDING, FREE)
    }

    /// The engine gives a free slot to the device to receive into; answers whether it was free.
    #[inline]
    pub(crate) fn begin_receive(&self, slot: u32) -> bool {
        self.states.step(slot, FREE, POSTED)
    }

    /// The device has completed the receive and no longer touches the slot; answers whether it was
    /// posted.
    #[inline]
    pub(crate) fn end_receive(&self, slot: u32) -> bool {
        self.states.step(slot, POSTED, FILLED) || self.states.step(slot, DELIVERED, FILLED)
    }

    /// Puts what a simulated device receives into a posted slot; answers whether it was posted and
    /// has the room.
    pub(crate) fn deliver(&self, slot: u32, bytes: &[u8]) -> bool {
        if bytes.len() > self.slot_bytes || !self.states.step(slot, POSTED, FILLING) {
            return false;
        }
        // SAFETY: the slot was posted, so no reference to its bytes existed; `FILLING`, entered
        // above by this call alone, keeps others out until it is left below.
        let to = unsafe { std::slice::from_raw_parts_mut(self.slot_start(slot), bytes.len()) };
        to.copy_from_slice(bytes);
        self.states.leave(slot, DELIVERED);
        true
    }

    /// Takes what a simulated device sends out of a slot being sent, and replaces what is in
    /// `into`; answers whether it was being sent and is as long.
    pub(crate) fn collect(&self, slot: u32, bytes: usize, into: &mut Vec<u8>) -> bool {
        if bytes > self.slot_bytes || !self.states.step(slot, SENDING, READING) {
            return false;
        }
        // SAFETY: no exclusive reference exists in `READING`, which this call alone has entered,
        // and the bytes are initialised, since all were zeroed.
        let sent = unsafe { std::slice::from_raw_parts(self.slot_start(slot), bytes) };
        into.clear();
        into.extend_from_slice(sent);
        self.states.leave(slot, SENDING);
        true
    }

    /// The first bytes of a filled slot, to be judged, copied or lent; `None` when it is not
    /// filled, or is shorter.
    #[inline]
    pub fn read(&self, slot: u32, bytes: usize) -> Option<Reading<'_>> {
        let is_free = bytes <= self.slot_bytes && self.states.step(slot, FILLED, READING);
        is_free.then(|| Reading { slab: self, slot, bytes })
    }

    /// Makes a filled slot free; answers whether it was filled.
    pub fn recycle(&self, slot: u32) -> bool {
        self.states.step(slot, FILLED, FREE)
    }

    /// Calls `take` with every slot that guards have returned since the last time; they are free.
    #[inline]
    pub fn take_returned(&self, take: impl FnMut(u32)) {
        self.states.take_returned(take);
    }

    /// True when guards have returned slots since the last time.
    #[inline]
    pub fn has_returned(&self) -> bool {
        self.states.has_returned()
    }

    /// Sets whether the next returned slot wakes the engine. Set before looking for returned slots,
    /// so that none slips through in between.
    #[inline]
    pub fn set_starved(&self, is_starved: bool) {
        self.states.set_starved(is_starved);
    }

    /// After the device has stopped for good: what it held is free again.
    pub(crate) fn reclaim(&self) {
        for slot in 0..self.slot_count() {
            for state in [SENDING, POSTED, DELIVERED] {
                self.states.step(slot, state, FREE);
            }
        }
        self.is_claimed.store(false, Ordering::Release);
    }

    #[inline]
    fn slot_start(&self, slot: u32) -> *mut u8 {
        debug_assert!(slot < self.slot_count());
        // SAFETY: callers have entered a state of this slot, so it exists, and its offset is inside
        // the allocation.
        unsafe { self.start.as_ptr().add(index(slot) * self.slot_bytes) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here. No guard exists, since
        // each holds the slab; no device accesses it, since a queue pair holds its memory and that
        // the slab.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("slots", &self.states.len())
            .field("slot_bytes", &self.slot_bytes)
            .finish_non_exhaustive()
    }
}

/// A filled slot while it is read. Dereferences to its bytes.
pub struct Reading<'a> {
    slab: &'a Slab,
    slot: u32,
    bytes: usize,
}

impl Reading<'_> {
    /// Lends the bytes until the guard is dropped, which returns the slot; also while this reads
    /// on. `None` when they are lent already, or `slab` is another one.
    pub fn lend(&self, slab: &Arc<Slab>) -> Option<SlotGuard> {
        let is_lent = std::ptr::eq(self.slab, &raw const **slab)
            && self.slab.states.step(self.slot, READING, READING_LENT);
        is_lent.then(|| SlotGuard { slab: Arc::clone(slab), slot: self.slot, bytes: self.bytes })
    }

    /// Ends reading; the slot is free, unless it is lent.
    #[inline]
    pub fn recycle(self) {
        if self.slab.states.step(self.slot, READING, FREE) {
            std::mem::forget(self);
        }
    }
}

impl Deref for Reading<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: while this exists the slot is in one of the three states of reading, which only
        // its drop leaves: nobody writes, and the bytes are initialised, since all were zeroed.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot), self.bytes) }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.slab.states.end_reading(self.slot);
    }
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(&self.slot).finish()
    }
}

/// A slot being written. Dereferences to all its bytes.
pub struct SlotMut<'a> {
    slab: &'a Slab,
    slot: u32,
}

impl Deref for SlotMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: while this exists the slot is in `WRITING`: nobody else has a reference, and the
        // bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.slab.slot_start(self.slot), self.slab.slot_bytes) }
    }
}

impl DerefMut for SlotMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, bytes) = (self.slab.slot_start(self.slot), self.slab.slot_bytes);
        // SAFETY: the same, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }
}

impl Drop for SlotMut<'_> {
    fn drop(&mut self) {
        self.slab.states.leave(self.slot, FREE);
    }
}

impl fmt::Debug for SlotMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotMut").field(&self.slot).finish()
    }
}

/// Received bytes in the slot they came in. Dropping it, on any thread and at any time, returns the
/// slot; it keeps the memory alive.
pub struct SlotGuard {
    slab: Arc<Slab>,
    slot: u32,
    bytes: usize,
}

impl AsRef<[u8]> for SlotGuard {
    fn as_ref(&self) -> &[u8] {
        let start = self.slab.slot_start(self.slot);
        // SAFETY: while this exists the slot is in `LENT` or `READING_LENT`: nobody writes, and the
        // bytes are initialised. There are not more than were read, which are inside the slot.
        unsafe { std::slice::from_raw_parts(start, self.bytes) }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slab.states.end_loan(self.slot);
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard")
            .field("slot", &self.slot)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
