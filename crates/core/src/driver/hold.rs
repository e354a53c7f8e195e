//! Output of a task that may be held back in the node, and who lets it go.
//!
//! Output that a handler sends while it is polled may be held back until the poll ends, for the
//! manifest may then ride on it. Parts of it that were spawned send at any time, also between two
//! polls or while one ends.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is shared; a trait so that the model checker can take its own.
pub(super) trait Flag: Default {
    fn get(&self) -> bool;
    /// Sets it, of which others learn when they do.
    fn put(&self, value: bool);
    /// Gives back what it was.
    fn set(&self, value: bool) -> bool;
}

impl Flag for AtomicBool {
    fn get(&self) -> bool {
        self.load(Ordering::SeqCst)
    }

    fn put(&self, value: bool) {
        self.store(value, Ordering::Relaxed);
    }

    fn set(&self, value: bool) -> bool {
        self.swap(value, Ordering::SeqCst)
    }
}

/// Both flags are looked at after the other was set, so that of an output and the end of a poll
/// that meet at least one sees the other. An output that does not see a poll begin lets go itself.
///
/// The last poll of a task needs no end where nobody else has the task: its own end lets all go.
#[derive(Default)]
pub(super) struct Hold<F = AtomicBool> {
    is_polling: F,
    may_hold: F,
}

impl<F: Flag> Hold<F> {
    pub(super) fn begin_poll(&self) {
        self.is_polling.put(true);
    }

    pub(super) fn end_poll(&self) {
        self.is_polling.set(false);
    }

    /// After an output was given to the node, under its lock. Whether the one who did must let go
    /// what is held back: no end of a poll would.
    pub(super) fn on_output(&self) -> bool {
        self.may_hold.set(true);
        !self.is_polling.get()
    }

    /// True when there was output since the last time that all was let go.
    pub(super) fn has_output(&self) -> bool {
        self.may_hold.get()
    }

    /// After a poll. Whether something may be held back that must leave now.
    pub(super) fn take(&self) -> bool {
        self.may_hold.get() && self.may_hold.set(false)
    }
}

#[cfg(test)]
mod model {
    use loom::sync::{Arc, Mutex, atomic};
    use loom::thread;

    use super::*;

    impl Flag for atomic::AtomicBool {
        fn get(&self) -> bool {
            self.load(Ordering::SeqCst)
        }

        fn put(&self, value: bool) {
            self.store(value, Ordering::Relaxed);
        }

        fn set(&self, value: bool) -> bool {
            self.swap(value, Ordering::SeqCst)
        }
    }

    /// A task, and what the node holds back of it.
    #[derive(Default)]
    struct Task {
        hold: Hold<atomic::AtomicBool>,
        held: Mutex<usize>,
    }

    impl Task {
        fn output(&self) {
            let mut held = self.held.lock().unwrap();
            *held += 1;
            if self.hold.on_output() {
                *held = 0;
            }
        }

        fn poll(&self, handler: impl FnOnce()) {
            self.hold.begin_poll();
            handler();
            self.hold.end_poll();
            if self.hold.take() {
                *self.held.lock().unwrap() = 0;
            }
        }
    }

    #[test]
    fn nothing_stays_held_back_once_no_poll_runs() {
        loom::model(|| {
            let task = Arc::new(Task::default());
            let beside = thread::spawn({
                let task = task.clone();
                move || task.output()
            });
            task.poll(|| {});
            task.poll(|| task.output());
            beside.join().unwrap();
            assert_eq!(*task.held.lock().unwrap(), 0);
        });
    }

    #[test]
    fn what_a_handler_sends_may_wait_for_the_end_of_its_poll() {
        loom::model(|| {
            let task = Task::default();
            task.poll(|| {
                task.output();
                assert_eq!(*task.held.lock().unwrap(), 1);
            });
            assert_eq!(*task.held.lock().unwrap(), 0);
        });
    }
}
