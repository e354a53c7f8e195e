//! When the engine polls on, when it lets others go, and when it sleeps.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use super::ENGINES;
use crate::config::PollMode;
use crate::engine::Engine;
use crate::provider::Provider;

/// After so many polls other tasks get their turn, and the runtime looks for I/O where there is
/// nothing better to do.
const POLLS_PER_YIELD: u32 = 8;
/// After so many polls in a row that brought nothing the kernel gets its turn, where others of the
/// thread had theirs first.
const EMPTY_POLLS_PER_BREAK: u32 = 2;
/// After so many rounds events are looked for though the device did not say that there are any:
/// while it is busy nobody sleeps, and so nobody hears it.
const ROUNDS_PER_EVENT: u32 = 64;
/// Time for which polling goes on after traffic, where there are cores for it: about what sleeping
/// and waking costs.
const SPIN: Duration = Duration::from_micros(50);

/// When to poll on, and when to sleep.
#[derive(Debug)]
pub(super) struct Idle {
    spin: Spin,
    /// Cores of this machine, when it is for them to say whether to poll.
    cores: Option<usize>,
    /// The engine shares its thread with all other tasks of the runtime.
    has_one_thread: bool,
    polls: u32,
    /// Polls in a row that brought nothing.
    empty_polls: u32,
    rounds: u32,
    /// When there last was anything; `None` until asked for, since the time costs more than a poll.
    quiet_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Spin {
    Never,
    For(Duration),
    Always,
}

impl Idle {
    /// Of an engine that runs on this runtime.
    pub(super) fn new<P: Provider>(engine: &Engine<P>) -> Self {
        let cores = || available_parallelism().map_or(1, usize::from);
        let (spin, cores) = match engine.config.poll_mode {
            Some(PollMode::Busy) => (Spin::Always, None),
            Some(PollMode::Adaptive { spin }) if spin.is_zero() => (Spin::Never, None),
            Some(PollMode::Adaptive { spin }) => (Spin::For(spin), None),
            None => (Spin::Never, Some(cores())),
        };
        let has_one_thread = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let (polls, empty_polls, rounds, quiet_since) = (0, 0, 0, None);
        let mut idle =
            Self { spin, cores, has_one_thread, polls, empty_polls, rounds, quiet_since };
        idle.count_engines();
        idle
    }

    /// Looks whether there are cores enough to poll: engines come and go.
    fn count_engines(&mut self) {
        if let Some(cores) = self.cores {
            let engines = ENGINES.load(Ordering::Relaxed);
            self.spin = if cores_suffice(cores, engines) { Spin::For(SPIN) } else { Spin::Never };
        }
    }

    pub(super) fn on_woken(&mut self) {
        self.count_engines();
        // Whoever woke it may have meant an event.
        self.rounds = 0;
        self.quiet_since = None;
    }

    /// The next round looks for events, too.
    pub(super) fn on_more_events(&mut self) {
        self.rounds = 0;
    }

    pub(super) fn is_time_for_events(&mut self) -> bool {
        let is_time = self.rounds.is_multiple_of(ROUNDS_PER_EVENT);
        self.rounds = self.rounds.wrapping_add(1);
        is_time
    }

    pub(super) fn is_spinning(&mut self) -> bool {
        match self.spin {
            Spin::Never => false,
            Spin::Always => true,
            // The clock is asked only when others get their turn anyway.
            Spin::For(_) if !self.polls.is_multiple_of(POLLS_PER_YIELD) => true,
            Spin::For(spin) => {
                let now = Instant::now();
                now.duration_since(*self.quiet_since.get_or_insert(now)) < spin
            }
        }
    }

    /// Something came. Those whom it has woken get a turn, but a busy engine lets them wait a
    /// little, for more may have come.
    #[inline]
    pub(super) fn goes_on_after_traffic(&mut self) -> bool {
        self.quiet_since = None;
        self.empty_polls = 0;
        self.polls = self.polls.wrapping_add(1);
        matches!(self.spin, Spin::Always) && !self.polls.is_multiple_of(POLLS_PER_YIELD)
    }

    pub(super) async fn give_others_a_turn(&self) {
        match self.spin {
            Spin::Always if self.has_one_thread => give_way().await,
            _ => tokio::task::yield_now().await,
        }
    }

    /// Answers whether it is time to look whether there is anything left to drive.
    pub(super) async fn after_nothing(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.empty_polls = self.empty_polls.wrapping_add(1);
        let is_turn_of_others = self.polls.is_multiple_of(POLLS_PER_YIELD);
        let gives_way = matches!(self.spin, Spin::Always) && self.has_one_thread;
        if is_turn_of_others {
            tokio::task::yield_now().await;
        } else if !gives_way || self.empty_polls.is_multiple_of(EMPTY_POLLS_PER_BREAK) {
            // A thread that only spins keeps the kernel from doing what it waits for.
            std::thread::yield_now();
        }
        if gives_way && !is_turn_of_others {
            give_way().await;
        }
        is_turn_of_others
    }
}

/// True when each of so many engines has two cores: one to poll on, and one for whom it polls.
fn cores_suffice(cores: usize, engines: usize) -> bool {
    cores >= 2 * engines.max(1)
}

/// Lets the other tasks of the thread run, each once. Unlike tokio's `yield_now` it does not have
/// the runtime look for I/O each time, which is a system call; the runtime does so every few dozen
/// turns anyway. Only for a runtime of one thread: where there are several, another one would be
/// woken to take the task.
async fn give_way() {
    let mut has_given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_polls_where_each_has_two_cores() {
        assert!(cores_suffice(2, 0) && cores_suffice(2, 1) && !cores_suffice(2, 2));
        assert!(cores_suffice(4, 2) && !cores_suffice(3, 2) && !cores_suffice(1, 1));
    }
}
