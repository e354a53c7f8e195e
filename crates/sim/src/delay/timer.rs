//! The thread that hands frames over when they are due.
//!
//! One thread for all connections of a delay line, and no tokio timer: those have steps of one
//! millisecond, while a thread that waits for a condition wakes within a tenth of that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Action when the time has come. Never waits.
pub(crate) trait Turn: Send + Sync {
    /// Does everything due at `now`.
    fn turn(self: Arc<Self>, now: Instant);
}

/// Gives turns at set times. Its thread ends with it.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    agenda: Mutex<Agenda>,
    changed: Condvar,
}

#[derive(Default)]
struct Agenda {
    /// By time, and by a number that keeps those of the same time apart and in order.
    turns: BTreeMap<(Instant, u64), Arc<dyn Turn>>,
    last_number: u64,
    is_stopped: bool,
}

impl Timer {
    /// Starts the thread.
    ///
    /// # Panics
    /// When the operating system starts no thread.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run()
        };
        let thread = thread::Builder::new().name("convoke-delay".into()).spawn(run);
        Self { shared, thread: Some(thread.expect("the system starts a thread")) }
    }

    /// Gives `turn` its turn at `at`, or at once if that is past.
    pub(crate) fn schedule(&self, at: Instant, turn: Arc<dyn Turn>) {
        let mut agenda = self.shared.agenda.lock();
        agenda.last_number += 1;
        let key = (at, agenda.last_number);
        agenda.turns.insert(key, turn);
        let is_first = agenda.turns.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(agenda);
        // Otherwise the thread already waits for something earlier, and finds this then.
        if is_first {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut agenda = self.shared.agenda.lock();
        agenda.is_stopped = true;
        drop(agenda);
        self.shared.changed.notify_one();
        // The thread may itself have dropped the last connection, and with it this.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic there has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl Shared {
    fn run(&self) {
        while let Some((now, due)) = self.next_due() {
            due.into_iter().for_each(|turn| turn.turn(now));
        }
    }

    /// Waits until something is due, and takes everything that is. `None` once stopped.
    fn next_due(&self) -> Option<(Instant, Vec<Arc<dyn Turn>>)> {
        let mut agenda = self.agenda.lock();
        loop {
            if agenda.is_stopped {
                return None;
            }
            let now = Instant::now();
            let due = agenda.take_due(now);
            if !due.is_empty() {
                return Some((now, due));
            }
            match agenda.turns.first_key_value().map(|((at, _), _)| *at) {
                Some(at) => {
                    self.changed.wait_until(&mut agenda, at);
                }
                None => self.changed.wait(&mut agenda),
            }
        }
    }
}

impl Agenda {
    /// Each once, however often it is due.
    fn take_due(&mut self, now: Instant) -> Vec<Arc<dyn Turn>> {
        let mut due: Vec<Arc<dyn Turn>> = Vec::new();
        while let Some(entry) = self.turns.first_entry().filter(|entry| entry.key().0 <= now) {
            let turn = entry.remove();
            if !due.iter().any(|known| Arc::ptr_eq(known, &turn)) {
                due.push(turn);
            }
        }
        due
    }
}
