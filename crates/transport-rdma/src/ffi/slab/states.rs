//! Owners of the slots, and those that have come back: what threads share of a slab without a lock.
//!
//! Slots that are returned are put at the head of a list, from which the engine takes all at once.
//! Nothing is ever taken from the middle, so it does no harm when a slot is taken, lent and
//! returned again while somebody is about to put another one before it.
//!
//! An engine that is going to sleep first says that it is starved, then looks at the list; whoever
//! returns a slot puts it on the list, then looks whether somebody is starved. These steps are
//! sequentially consistent, so at least one of the two sees the other.
//!
//! The atomics are a parameter, so that the model test runs this on those of loom.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::Waker;

/// The end of the list of returned slots.
const NONE: u32 = u32::MAX;

pub(super) const FREE: u8 = 0;
pub(super) const WRITING: u8 = 1;
pub(super) const SENDING: u8 = 2;
pub(super) const POSTED: u8 = 3;
pub(super) const FILLING: u8 = 4;
pub(super) const DELIVERED: u8 = 5;
pub(super) const FILLED: u8 = 6;
pub(super) const READING: u8 = 7;
pub(super) const LENT: u8 = 8;
pub(super) const READING_LENT: u8 = 9;
pub(super) const READING_RETURNED: u8 = 10;

/// The states of all slots.
pub(super) struct States<A: Atomics = Std> {
    states: Box<[A::State]>,
    /// Links of the list of returned slots.
    next: Box<[A::Link]>,
    /// Its head.
    returned: A::Link,
    /// True when somebody waits for a slot to be returned.
    is_starved: A::Flag,
    on_returned: Waker,
}

impl<A: Atomics> States<A> {
    /// All free. `on_returned` is woken when a slot comes back while somebody is starved.
    pub(super) fn new(count: usize, on_returned: Waker) -> Self {
        Self {
            states: (0..count).map(|_| Atomic::new(FREE)).collect(),
            next: (0..count).map(|_| Atomic::new(NONE)).collect(),
            returned: Atomic::new(NONE),
            is_starved: Atomic::new(false),
            on_returned,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Enters a state from another; answers whether the slot exists and was in it.
    #[inline]
    pub(super) fn step(&self, slot: u32, from: u8, to: u8) -> bool {
        self.states.get(index(slot)).is_some_and(|state| {
            state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    /// Leaves a state that the caller alone has entered.
    #[inline]
    pub(super) fn leave(&self, slot: u32, to: u8) {
        self.states[index(slot)].store(to, Ordering::Release);
    }

    /// The reader of a filled slot is done. One that was lent meanwhile and has come back is
    /// returned.
    pub(super) fn end_reading(&self, slot: u32) {
        if !self.step(slot, READING, FILLED) && !self.step(slot, READING_LENT, LENT) {
            self.return_slot(slot);
        }
    }

    /// The slot was lent and comes back. Whoever reads on returns it instead.
    pub(super) fn end_loan(&self, slot: u32) {
        if !self.step(slot, READING_LENT, READING_RETURNED) {
            self.return_slot(slot);
        }
    }

    /// Calls `take` with every slot that was returned since the last time; they are free.
    #[inline]
    pub(super) fn take_returned(&self, mut take: impl FnMut(u32)) {
        if !self.has_returned() {
            return;
        }
        let mut slot = self.returned.swap(NONE, Ordering::SeqCst);
        while slot != NONE {
            // Read before the slot is given away: once taken, it may be lent and returned again.
            let next = self.next[index(slot)].load(Ordering::Relaxed);
            take(slot);
            slot = next;
        }
    }

    /// True when slots were returned since the last time.
    #[inline]
    pub(super) fn has_returned(&self) -> bool {
        self.returned.load(Ordering::SeqCst) != NONE
    }

    /// Sets whether the next returned slot wakes.
    #[inline]
    pub(super) fn set_starved(&self, is_starved: bool) {
        if self.is_starved.load(Ordering::Relaxed) != is_starved {
            self.is_starved.store(is_starved, Ordering::SeqCst);
        }
    }

    /// Puts a slot that nobody refers to any more on the list.
    fn return_slot(&self, slot: u32) {
        self.leave(slot, FREE);
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            self.next[index(slot)].store(head, Ordering::Relaxed);
            // Sequentially consistent, as the flag is: either the engine that sets it finds the
            // slot, or this finds it set.
            let pushed = self.returned.compare_exchange_weak(
                head,
                slot,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if self.is_starved.load(Ordering::SeqCst) && self.is_starved.swap(false, Ordering::SeqCst) {
            self.on_returned.wake_by_ref();
        }
    }
}

pub(super) fn index(slot: u32) -> usize {
    slot as usize
}

/// Atomics that the states are made of.
pub(super) trait Atomics {
    type State: Atomic<u8>;
    type Link: Atomic<u32>;
    type Flag: Atomic<bool>;
}

/// Those of the standard library.
pub(super) enum Std {}

impl Atomics for Std {
    type State = AtomicU8;
    type Link = AtomicU32;
    type Flag = AtomicBool;
}

/// As the atomics of the standard library.
pub(super) trait Atomic<T>: Sized {
    fn new(value: T) -> Self;
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;

    /// May fail for no reason.
    fn compare_exchange_weak(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
}

macro_rules! implement_atomic {
    ($($atomic:ty, $value:ty;)*) => { $(
        impl Atomic<$value> for $atomic {
            #[inline]
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }

            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }

            #[inline]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange_weak(current, new, success, failure)
            }
        }
    )* };
}

implement_atomic! {
    AtomicU8, u8;
    AtomicU32, u32;
    AtomicBool, bool;
}

#[cfg(test)]
mod model;
