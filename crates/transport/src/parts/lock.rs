//! The mutex of endpoints and transports, which tests can count.

use std::sync::{MutexGuard, PoisonError};

/// Mutual exclusion without poisoning: a [`std::sync::Mutex`] that is locked whoever has panicked
/// while it held it, since what endpoints and transports keep behind one is whole after each line.
/// With the feature `conformance` each thread counts how often it locks one, so that a test can say
/// how many locks a call takes (`conformance::locks_taken`), and all threads together for how long
/// they wait (`conformance::lock_waits`); those that are told to note which ones they lock
/// (`conformance::note_locks`).
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// One that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(feature = "conformance")]
        let guard = counted::lock(&self.0);
        #[cfg(not(feature = "conformance"))]
        let guard = self.0.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "conformance")]
pub(crate) mod counted {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LockResult, Mutex, MutexGuard, PoisonError, TryLockError};
    use std::time::{Duration, Instant};

    thread_local! {
        static TAKEN: Cell<u64> = const { Cell::new(0) };
        static NOTES: Cell<bool> = const { Cell::new(false) };
    }

    static NOTED: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

    static WAITS: AtomicU64 = AtomicU64::new(0);
    static WAITED_NANOS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
        TAKEN.set(TAKEN.get() + 1);
        if NOTES.get() {
            let place = std::ptr::from_ref(mutex).addr();
            *noted().entry(place).or_default() += 1;
        }
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => {}
        }
        let begun = Instant::now();
        let locked = mutex.lock();
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        WAITS.fetch_add(1, Ordering::Relaxed);
        WAITED_NANOS.fetch_add(nanos, Ordering::Relaxed);
        locked
    }

    /// Locks that were held by another thread when one was to take them, and for how long all
    /// threads together have waited: since the process began, of endpoints and their transports.
    pub fn lock_waits() -> (u64, Duration) {
        let waited = Duration::from_nanos(WAITED_NANOS.load(Ordering::Relaxed));
        (WAITS.load(Ordering::Relaxed), waited)
    }

    fn noted() -> MutexGuard<'static, BTreeMap<usize, u64>> {
        NOTED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this thread notes each mutex of endpoints and their transports that it locks.
    pub fn note_locks() {
        NOTES.set(true);
    }

    /// How often each mutex was locked by threads that note it, since this was last called: by its
    /// address, which another may have had before.
    pub fn take_noted_locks() -> BTreeMap<usize, u64> {
        std::mem::take(&mut noted())
    }

    /// Locks that this thread has taken since it began, of endpoints and their transports.
    pub fn locks_taken() -> u64 {
        TAKEN.get()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "conformance")]
    use super::counted::{lock_waits, locks_taken, note_locks, take_noted_locks};
    use super::*;

    #[test]
    fn a_holder_that_panics_locks_nobody_out() {
        let mutex = Mutex::new(0);
        let panicked = std::panic::catch_unwind(|| {
            let mut held = mutex.lock();
            *held = 1;
            panic!("while it is held");
        });
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 1);
    }

    #[cfg(feature = "conformance")]
    #[test]
    fn who_finds_it_held_is_counted_with_the_time_it_waits() {
        let (mutex, before) = (Mutex::new(()), lock_waits());
        // The other thread is not seen to wait; after a few tries it has.
        for _ in 0..10_000 {
            let held = mutex.lock();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| drop(mutex.lock()));
                (0..100).for_each(|_| std::thread::yield_now());
                drop(held);
                other.join().expect("it gets it");
            });
            let after = lock_waits();
            if after.0 > before.0 && after.1 > before.1 {
                return;
            }
        }
        panic!("nobody has waited");
    }

    #[cfg(feature = "conformance")]
    #[test]
    fn each_thread_counts_the_locks_it_takes() {
        let (mutex, before) = (Mutex::new(0), locks_taken());
        for _ in 0..3 {
            *mutex.lock() += 1;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() += 1);
        });
        assert_eq!((*mutex.lock(), locks_taken() - before), (4, 4));
    }

    #[cfg(feature = "conformance")]
    #[test]
    fn threads_that_note_what_they_lock_say_which_and_how_often() {
        let (one, other) = (Mutex::new(()), Mutex::new(()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                note_locks();
                drop(one.lock());
                (0..2).for_each(|_| drop(other.lock()));
            });
        });
        drop(one.lock()); // This thread notes nothing.
        let noted: Vec<u64> = take_noted_locks().into_values().collect();
        assert!(noted == [1, 2] || noted == [2, 1], "{noted:?}");
        assert!(take_noted_locks().is_empty(), "they are told once");
    }
}
