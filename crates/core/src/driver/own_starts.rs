//! Handlers of this node that a call of its own has started, and that must not run on its caller's
//! task: one that blocks its thread would hold up the call, past its deadline, though the other
//! nodes had answered.
//!
//! They start one after another on a task of the runtime, as those that one connection brings do,
//! and whatever this node asks itself meanwhile starts behind them. On a runtime of one thread they
//! start in place: there whoever blocks it holds up everything.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::visits::Start;
use convoke_transport::parts::Mutex;

use super::Driver;
use super::gate;
use super::run_queue::{self, IN_A_ROW_MAX};
use super::spare::Spare;

/// Starts that wait for their turn, while a task sees to them.
#[derive(Debug, Default)]
pub(super) struct OwnStarts {
    waiting: Mutex<Waiting>,
    is_running: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    starts: VecDeque<Start>,
    /// Those that were left when the stopped ones were last taken out.
    live: usize,
}

/// Starts that wait without anybody looking for stopped ones among them.
const UNSWEPT_MAX: usize = 64;

impl Driver {
    /// Takes what this node asks itself out of what is to be started: that of a call that `apart`
    /// says, and all else while such waits, for handlers of one peer begin in the order of
    /// submission. The rest may start now.
    pub(super) fn take_own(self: &Arc<Self>, starts: Vec<Start>, apart: bool) -> Vec<Start> {
        let is_apart = apart && !self.is_one_thread;
        if !is_apart && !self.own_starts.is_running.load(Ordering::Acquire) {
            return starts;
        }
        let is_own = |start: &Start| start.from == self.identity.node;
        let (own, others) = starts.into_iter().partition(is_own);
        self.wait_for_turn(own);
        others
    }

    fn wait_for_turn(self: &Arc<Self>, starts: Vec<Start>) {
        if starts.is_empty() {
            return;
        }
        let _dropped_unlocked;
        let mut waiting = self.own_starts.waiting.lock();
        waiting.starts.extend(starts);
        // A task that was stopped is in nobody's share any more: behind a handler that never ends
        // such would pile up.
        if waiting.starts.len() > 2 * waiting.live.max(UNSWEPT_MAX) {
            _dropped_unlocked =
                gate::take_stopped(&mut waiting.starts, |task| self.is_running(task));
            waiting.live = waiting.starts.len();
        }
        if !self.own_starts.is_running.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(run_own(self.clone()));
        }
    }

    /// The next one whose task was not stopped while it waited; without any the task ends.
    fn next_own(&self) -> Option<Start> {
        loop {
            let next = {
                let mut waiting = self.own_starts.waiting.lock();
                let next = waiting.starts.pop_front();
                if next.is_none() {
                    self.own_starts.is_running.store(false, Ordering::Release);
                }
                next?
            };
            if self.is_running(&next.task) {
                return Some(next);
            }
        }
    }
}

async fn run_own(driver: Arc<Driver>) {
    loop {
        for _ in 0..IN_A_ROW_MAX {
            let Some(start) = driver.next_own() else { return };
            let start_it = || run_queue::start_all(&driver, vec![start], Spare::default());
            // Handlers that panic are caught; whatever else does must not silence those behind it.
            if std::panic::catch_unwind(AssertUnwindSafe(start_it)).is_err() {
                tracing::error!("starting a handler panicked");
            }
        }
        tokio::task::yield_now().await;
    }
}
