//! The mutex of endpoints and transports, which tests can count.

use std::sync::{MutexGuard, PoisonError};

/// Mutual exclusion without poisoning: a [`std::sync::Mutex`] that is locked whoever has panicked
/// while it held it, since what endpoints and transports keep behind one is whole after each line.
/// With the feature `conformance` each thread counts how often it locks one, so that a test can say
/// how many locks a call takes: `conformance::locks_taken`.
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
        counted::note();
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "conformance")]
pub(crate) mod counted {
    use std::cell::Cell;

    thread_local! {
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn note() {
        TAKEN.set(TAKEN.get() + 1);
    }

    /// Locks that this thread has taken since it began, of endpoints and their transports.
    pub fn locks_taken() -> u64 {
        TAKEN.get()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "conformance")]
    use super::counted::locks_taken;
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
}
