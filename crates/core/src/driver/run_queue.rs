//! Handlers to be started on this thread, one after another.
//!
//! A handler that is polled in place may, by ending or by asking its own node, cause the next one to
//! start. Started from within, each would stand on the other's stack; so they queue, and whoever came
//! first starts them all.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::proto::participant::Start;

use super::Driver;
use super::gate::GateKey;

/// A handler to be started.
pub(super) struct Job {
    pub(super) driver: Arc<Driver>,
    pub(super) start: Box<Start>,
    pub(super) gate: Option<GateKey>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_draining: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Handlers that others have caused and that are started before anything else has its turn: so many
/// that nobody is held up for long, so few that no chain of them keeps its thread for ever.
const IN_A_ROW_MAX: usize = 256;

/// Starts a handler, now or after those that are being started on this thread.
pub(super) fn run(job: Job) {
    let is_draining = QUEUE.with_borrow_mut(|queue| {
        queue.jobs.push_back(job);
        std::mem::replace(&mut queue.is_draining, true)
    });
    if is_draining {
        return;
    }
    let _draining = Draining;
    for _ in 0..IN_A_ROW_MAX {
        let Some(job) = QUEUE.with_borrow_mut(|queue| queue.jobs.pop_front()) else { return };
        let driver = job.driver.clone();
        driver.run_handler(job.start, job.gate);
    }
    let rest = QUEUE.with_borrow_mut(|queue| std::mem::take(&mut queue.jobs));
    if let Some(runtime) = rest.front().map(|job| job.driver.runtime.clone()) {
        runtime.spawn(async move { rest.into_iter().for_each(run) });
    }
}

/// Ends the draining however it ends.
struct Draining;

impl Drop for Draining {
    fn drop(&mut self) {
        QUEUE.with_borrow_mut(|queue| queue.is_draining = false);
    }
}
