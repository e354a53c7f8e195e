//! Handlers of this node that a call of its own has started, and that must not run on its caller's
//! task: one that blocks its thread would hold up the call, past its deadline, though the other
//! nodes had answered.
//!
//! They start one after another on a task of the runtime, as those that one connection brings do.
//! On a runtime of one thread they start in place: there whoever blocks it holds up everything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::visits::Start;
use parking_lot::Mutex;
use tokio::runtime::RuntimeFlavor;

use super::drain::Aftermath;
use super::{Driver, run_queue};

/// Starts that wait for their turn, while a task sees to them.
#[derive(Debug, Default)]
pub(super) struct OwnStarts {
    waiting: Mutex<VecDeque<Start>>,
    is_running: AtomicBool,
}

/// Handlers after which others have their turn on the thread.
const IN_A_ROW_MAX: usize = 256;

impl Driver {
    /// As [`Self::finish`], of a call that was opened: what starts is at this node itself. `apart`
    /// when its caller is not to wait for handlers that block.
    pub(super) fn finish_opening(self: &Arc<Self>, aftermath: &mut Aftermath, apart: bool) {
        if !aftermath.is_nothing() {
            if !aftermath.starts.is_empty() {
                self.start_own(&mut aftermath.starts, apart);
            }
            self.finish_all(aftermath);
        }
    }

    /// Takes the starts that are to run apart, and all behind such as still wait: handlers of one
    /// peer begin in the order of submission.
    fn start_own(self: &Arc<Self>, starts: &mut Vec<Start>, apart: bool) {
        let is_one_thread = self.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if is_one_thread || !(apart || self.own_starts.is_running.load(Ordering::Acquire)) {
            return;
        }
        let mut waiting = self.own_starts.waiting.lock();
        waiting.extend(starts.drain(..));
        if !self.own_starts.is_running.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(run_own(self.clone()));
        }
    }

    /// The next one; without any the task ends.
    fn next_own(&self) -> Option<Start> {
        let mut waiting = self.own_starts.waiting.lock();
        let next = waiting.pop_front();
        if next.is_none() {
            self.own_starts.is_running.store(false, Ordering::Release);
        }
        next
    }
}

async fn run_own(driver: Arc<Driver>) {
    loop {
        for _ in 0..IN_A_ROW_MAX {
            let Some(start) = driver.next_own() else { return };
            run_queue::start_all(&driver, vec![start]);
        }
        tokio::task::yield_now().await;
    }
}
