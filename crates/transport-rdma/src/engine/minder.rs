//! The task that watches the time: deadlines, silent peers, and sinks that block.
//!
//! The engine hands frames to sinks by itself, which is the shortest way. A sink that blocks its
//! thread there would hold up every other connection of the device. So while there is traffic, the
//! minder looks every few milliseconds whether one delivery has gone on since the last look; then a
//! new task becomes the engine, and the old one ends when its sink returns. The hello of a
//! listener's sink, which the engine asks for at each request, is not watched.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::Engine;
use crate::provider::{Provider, Tag};
use crate::wire::{Pulse, guarded};

/// Period between two looks at deliveries while there is traffic. A blocking sink holds up others
/// for up to twice as long.
const WATCH_PERIOD: Duration = Duration::from_millis(5);

/// Memory of the minder between two looks.
#[derive(Debug)]
struct Memory {
    deliveries: u64,
    next_watch: Option<Instant>,
    /// Scratch.
    due: Vec<Tag>,
}

impl<P: Provider> Engine<P> {
    /// The engine begins a delivery; answers its number. From now on deliveries are watched, until
    /// nothing happens any more.
    #[inline]
    pub(super) fn begin_delivery(&self) -> u64 {
        let number = self.deliveries.fetch_add(1, Ordering::SeqCst) + 1;
        // Counted first, for the minder rests first and then looks at the count: one of the two
        // sees the other.
        if self.is_minder_resting.load(Ordering::SeqCst)
            && self.is_minder_resting.swap(false, Ordering::AcqRel)
        {
            self.wake_minder();
        }
        number
    }

    /// The delivery is over; answers whether the task that made it is still the engine.
    #[inline]
    pub(super) fn end_delivery(&self, number: u64) -> bool {
        let is_engine = self.count_end(number);
        if !is_engine {
            // The relief is in charge as soon as nobody has this lock.
            drop(self.running.lock());
        }
        is_engine
    }

    /// The engine has ended, maybe within a delivery. Called under the lock of `running`.
    pub(super) fn give_up_delivery(&self) {
        let number = self.deliveries.load(Ordering::Relaxed);
        if number % 2 == 1 {
            self.count_end(number);
        }
    }

    /// Counts the end of a delivery; answers whether that was not done before. Who relieves a task
    /// does it in its place.
    #[inline]
    pub(super) fn count_end(&self, number: u64) -> bool {
        let counted = self.deliveries.compare_exchange(
            number,
            number + 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        counted.is_ok()
    }

    /// Runs until the engine ends.
    pub(super) async fn mind(self: Arc<Self>) {
        let now = Instant::now();
        let mut memory =
            Memory { deliveries: 0, next_watch: Some(now + WATCH_PERIOD), due: Vec::new() };
        loop {
            let wake_at = self.looks.lock().first().into_iter().chain(memory.next_watch).min();
            tokio::select! {
                biased;
                () = self.minder_signal.notified() => {
                    memory.next_watch.get_or_insert_with(|| Instant::now() + WATCH_PERIOD);
                    self.is_minder_resting.store(false, Ordering::Release);
                }
                () = sleep_until_some(wake_at) => self.look(&mut memory, wake_at),
            }
        }
    }

    /// Has the minder look at a wire then, and not when it was planned before. Called under the
    /// lock of the wire.
    pub(crate) fn plan_look(&self, tag: Tag, before: Option<Instant>, next: Option<Instant>) {
        let is_first = self.looks.lock().plan(tag, before, next);
        if is_first {
            self.wake_minder();
        }
    }

    /// Wakes the minder, even if this thread blocks next. The task that a worker of the runtime has
    /// woken last is the worker's own to run; those before it any other takes.
    #[cold]
    fn wake_minder(&self) {
        self.minder_signal.notify_one();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async {});
        }
    }

    /// Had this process been running, the minder would have looked at the peers long ago: what has
    /// waited at the device meanwhile may be too old to act on. Whoever takes something from the
    /// device after a long time looks here first.
    pub(super) fn end_what_was_paused(&self, now: Instant) {
        for wire in self.wires() {
            let Pulse { is_connected, next_look } = wire.pulse();
            let timeout = self.config.common.keep_alive_timeout;
            if is_connected && next_look.is_some_and(|at| at + timeout < now) {
                wire.end_as_stale();
            }
        }
    }

    fn look(self: &Arc<Self>, memory: &mut Memory, planned: Option<Instant>) {
        let now = Instant::now();
        if planned.is_some_and(|at| now > at + self.config.common.keep_alive_timeout) {
            self.wires().iter().filter(|wire| wire.pulse().is_connected).for_each(|wire| {
                wire.end_as_stale();
            });
        }
        self.looks.lock().take_due(now, &mut memory.due);
        for tag in memory.due.drain(..) {
            let Some(wire) = self.wire(tag) else { continue };
            if guarded(|| wire.look(now)).is_err() {
                let device = self.provider.limits().name;
                tracing::error!(%device, tag = tag.get(), "a look at a connection panicked");
                // What is left of it is for the engine to deliver.
                self.abort(&wire, |_| ());
            }
        }
        if memory.next_watch.is_some_and(|at| at <= now) {
            memory.next_watch = self.watch(&mut memory.deliveries).then(|| now + WATCH_PERIOD);
        }
    }

    /// Relieves an engine whose sink blocks; answers whether to go on watching.
    fn watch(self: &Arc<Self>, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.deliveries.load(Ordering::Relaxed));
        if *seen != before {
            return true;
        }
        if *seen % 2 == 1 {
            self.relieve(*seen);
            return true;
        }
        self.is_minder_resting.store(true, Ordering::SeqCst);
        let may_rest = self.deliveries.load(Ordering::SeqCst) == *seen;
        if !may_rest {
            self.is_minder_resting.store(false, Ordering::Release);
        }
        !may_rest
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
