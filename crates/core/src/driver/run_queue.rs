//! Handlers to be started on this thread, one after another.
//!
//! A handler that is polled in place may, by ending or by asking its own node, cause the next one
//! to start. Started from within, each would stand on the other's stack; so they queue, and whoever
//! came first starts them all. What those that end at once have to say is sent for all of them
//! together, under one lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::visits::Start;

use crate::server::TaskHandle;

use super::Driver;
use super::gate::GateKey;

/// A handler to be started.
struct Job {
    driver: Arc<Driver>,
    start: Box<Start>,
    /// The gate that it has passed.
    gate: Option<GateKey>,
}

impl Job {
    fn run(self) {
        let Self { driver, start, gate } = self;
        driver.run_handler(start, gate);
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Replies of handlers that have ended meanwhile.
    answers: Vec<(Arc<TaskHandle>, Bytes)>,
    is_draining: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Handlers that others have caused and that are started before anything else has its turn: so many
/// that nobody is held up for long, so few that no chain of them keeps its thread for ever.
const IN_A_ROW_MAX: usize = 256;

/// Starts a handler, now or after those that are being started on this thread.
pub(super) fn run(driver: &Arc<Driver>, start: Box<Start>, gate: Option<GateKey>) {
    let job = Job { driver: driver.clone(), start, gate };
    together(|| QUEUE.with_borrow_mut(|queue| queue.jobs.push_back(job)));
}

/// Starts a handler that has waited at a gate: before those whose turn came later than its own.
pub(super) fn run_next(driver: &Arc<Driver>, start: Box<Start>, gate: GateKey) {
    let job = Job { driver: driver.clone(), start, gate: Some(gate) };
    together(|| QUEUE.with_borrow_mut(|queue| queue.jobs.push_front(job)));
}

/// Starts the handlers that `act` brings, all of them after it.
pub(super) fn together(act: impl FnOnce()) {
    let is_draining =
        QUEUE.with_borrow_mut(|queue| std::mem::replace(&mut queue.is_draining, true));
    if is_draining {
        return act();
    }
    let _draining = Draining;
    act();
    drain();
}

fn drain() {
    // What was brought together begins together, in its order; only what it causes is bounded.
    let brought = QUEUE.with_borrow(|queue| queue.jobs.len());
    for _ in 0..brought + IN_A_ROW_MAX {
        match QUEUE.with_borrow_mut(|queue| queue.jobs.pop_front()) {
            Some(job) => job.run(),
            None if send_answers() => {}
            None => return,
        }
    }
    send_answers();
    let rest = QUEUE.with_borrow_mut(|queue| std::mem::take(&mut queue.jobs));
    if let Some(runtime) = rest.front().map(|job| job.driver.runtime.clone()) {
        runtime.spawn(async move { resume(rest) });
    }
}

fn resume(jobs: VecDeque<Job>) {
    together(|| QUEUE.with_borrow_mut(|queue| queue.jobs.extend(jobs)));
}

/// Leaves the reply that ends a task to be sent with others, if handlers are being started on this
/// thread; otherwise gives it back.
pub(crate) fn answer_later(handle: &Arc<TaskHandle>, payload: Bytes) -> Result<(), Bytes> {
    QUEUE.with_borrow_mut(|queue| {
        if !queue.is_draining {
            return Err(payload);
        }
        queue.answers.push((handle.clone(), payload));
        Ok(())
    })
}

/// True when there were any.
fn send_answers() -> bool {
    let mut answers = QUEUE.with_borrow_mut(|queue| std::mem::take(&mut queue.answers));
    let has_some = !answers.is_empty();
    let mut left = answers.iter_mut().peekable();
    while let Some((handle, payload)) = left.next() {
        let driver = handle.driver();
        driver.with_node(|node, now| {
            handle.answer(node, now, std::mem::take(payload));
            let is_of_driver =
                |(next, _): &&mut (Arc<TaskHandle>, _)| Arc::ptr_eq(next.driver(), driver);
            while let Some((handle, payload)) = left.next_if(is_of_driver) {
                handle.answer(node, now, std::mem::take(payload));
            }
        });
    }
    // Not under the lock: what users keep with a task goes with its handle, and may call back.
    answers.clear();
    QUEUE.with_borrow_mut(|queue| {
        if queue.answers.is_empty() {
            queue.answers = answers; // Its room, for the next batch.
        }
    });
    has_some
}

/// Ends the draining however it ends.
struct Draining;

impl Drop for Draining {
    fn drop(&mut self) {
        QUEUE.with_borrow_mut(|queue| queue.is_draining = false);
    }
}
