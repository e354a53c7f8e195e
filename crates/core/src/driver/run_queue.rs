//! Handlers to be started on this thread, one after another.
//!
//! A handler that is polled in place may, by ending or by asking its own node, cause the next one
//! to start. Started from within, each would stand on the other's stack; so they queue, and whoever
//! came first starts them all. What those that end at once have to say is sent for all of them
//! together, under one lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, TaskRef};

use crate::error::Status;

use super::ending::LastWord;
use super::flush::FlushScope;
use super::gate::GateKey;
use super::spare::Spare;
use super::{Driver, Node};

/// A handler to be started.
struct Job {
    driver: Arc<Driver>,
    start: Start,
    /// The gate that it has passed.
    gate: Option<GateKey>,
}

impl Job {
    fn run(self) {
        let Self { driver, mut start, gate } = self;
        let _runtime = driver.runtime.enter();
        let method = driver.methods.get(start.method).expect("it was admitted by it");
        driver.run_handler(&mut start, method, gate);
    }
}

/// The end of a task. Its handler is gone, and its handle with it, whose room the next one takes.
struct Ending {
    driver: Arc<Driver>,
    task: TaskRef,
    word: LastWord,
}

impl Ending {
    fn is_of_core_of(&self, other: &Self) -> bool {
        let [one, next] = [self, other].map(|ending| ending.task.call.origin);
        let routes = &self.driver.cores.routes;
        Arc::ptr_eq(&self.driver, &other.driver)
            && (one == next || routes.of(one) == routes.of(next))
    }
}

#[derive(Default)]
struct Queue {
    /// Those that have waited at a gate: before the others.
    passed: VecDeque<Job>,
    jobs: VecDeque<Job>,
    /// Tasks of handlers that have ended meanwhile, and the bytes that they end with.
    endings: Vec<Ending>,
    ending_bytes: usize,
    /// That of the last batch of starts, for the next one.
    room: Vec<Start>,
    is_draining: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Handlers that others have caused and that are started before anything else has its turn: so many
/// that nobody is held up for long, so few that no chain of them keeps its thread for ever.
pub(super) const IN_A_ROW_MAX: usize = 256;

/// Bytes that are sent together: from here on they are handed over before the next handler starts.
/// Until then they are in nobody's share, so a batch of requests for large replies may not pile
/// them up; small ones rarely come to as much in a batch.
const ENDING_BYTES_MAX: usize = 64 << 10;

/// Starts handlers that were brought together, in their order: now, in what room there is, or after
/// those that are being started on this thread.
pub(super) fn start_all(driver: &Arc<Driver>, mut starts: Vec<Start>, mut spare: Spare) {
    let Some(_draining) = Draining::begin() else {
        return starts.iter_mut().for_each(|start| {
            driver.admit(start, |start, _, gate| {
                let job = Job { driver: driver.clone(), start: start.take(), gate };
                QUEUE.with_borrow_mut(|queue| queue.jobs.push_back(job));
            });
        });
    };
    // Whoever brought the requests may be outside the runtime that the handlers expect.
    let runtime = driver.runtime.enter();
    let mut left = IN_A_ROW_MAX;
    driver.run_batch(&mut starts, &mut spare, || {
        while left > 0
            && let Some(job) = QUEUE.with_borrow_mut(|queue| queue.passed.pop_front())
        {
            left -= 1;
            job.run();
        }
    });
    drop(runtime);
    starts.clear();
    QUEUE.with_borrow_mut(|queue| queue.room = starts);
    drain(Some((driver, spare)));
}

/// Room for the starts of a batch.
pub(super) fn room() -> Vec<Start> {
    QUEUE.with_borrow_mut(|queue| std::mem::take(&mut queue.room))
}

/// Starts a handler that has waited at a gate: before those whose turn came later than its own.
pub(super) fn run_next(driver: &Arc<Driver>, start: Start, gate: GateKey) {
    let job = Job { driver: driver.clone(), start, gate: Some(gate) };
    QUEUE.with_borrow_mut(|queue| queue.passed.push_back(job));
    if let Some(_draining) = Draining::begin() {
        drain(None);
    }
}

/// Starts what waits on this thread, as long as others have their turn soon. What room a batch has
/// left goes back to its driver with the ends of its tasks.
fn drain(mut spare: Option<(&Arc<Driver>, Spare)>) {
    for _ in 0..IN_A_ROW_MAX {
        match QUEUE.with_borrow_mut(Queue::next) {
            Some(job) => job.run(),
            None if end_tasks(&mut spare) => {}
            None => return,
        }
    }
    end_tasks(&mut spare);
    let rest = QUEUE.with_borrow_mut(|queue| {
        let mut rest = std::mem::take(&mut queue.passed);
        rest.append(&mut queue.jobs);
        rest
    });
    if let Some(runtime) = rest.front().map(|job| job.driver.runtime.clone()) {
        runtime.spawn(async move { resume(rest) });
    }
}

fn resume(jobs: VecDeque<Job>) {
    QUEUE.with_borrow_mut(|queue| queue.jobs.extend(jobs));
    if let Some(_draining) = Draining::begin() {
        drain(None);
    }
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        self.passed.pop_front().or_else(|| self.jobs.pop_front())
    }
}

impl Driver {
    /// Leaves a task to be ended with others, if handlers are being started on this thread;
    /// otherwise gives its last word back.
    pub(super) fn say_later(
        self: &Arc<Self>,
        task: &TaskRef,
        word: LastWord,
    ) -> Result<(), LastWord> {
        let is_full = QUEUE.with_borrow_mut(|queue| {
            if !queue.is_draining {
                return Err(word);
            }
            let (driver, task) = (self.clone(), task.clone());
            queue.ending_bytes += word.len();
            queue.endings.push(Ending { driver, task, word });
            Ok(queue.ending_bytes >= ENDING_BYTES_MAX)
        })?;
        if is_full {
            end_tasks(&mut None);
        }
        Ok(())
    }
}

/// True when there were any.
fn end_tasks(spare: &mut Option<(&Arc<Driver>, Spare)>) -> bool {
    let mut endings = QUEUE.with_borrow_mut(|queue| {
        queue.ending_bytes = 0;
        std::mem::take(&mut queue.endings)
    });
    let has_some = !endings.is_empty();
    for of_core in endings.chunk_by_mut(Ending::is_of_core_of) {
        let driver = of_core[0].driver.clone();
        let core = driver.cores.routes.of(of_core[0].task.call.origin);
        let spare = spare.take_if(|(of, _)| Arc::ptr_eq(of, &driver)).map(|(_, spare)| spare);
        let _dropped_unlocked = driver.with_core(core, |core, now, aftermath| {
            say_all(&mut core.node, now, of_core);
            if !core.stoppers.is_empty() || !core.parts.is_empty() {
                for Ending { task, .. } in of_core {
                    // A token that ended the task before its handler returned.
                    core.stoppers.remove(task);
                    // Parts of it that were spawned may have begun to wait since its handler ended.
                    core.take_parts(task, aftermath);
                }
            }
            spare.map(|spare| std::mem::replace(&mut core.spare, spare))
        });
    }
    endings.clear();
    QUEUE.with_borrow_mut(|queue| {
        if queue.endings.is_empty() {
            queue.endings = endings; // Its room, for the next batch.
        }
    });
    has_some
}

/// Ends the tasks of one core, in their order; those that answer one after the other together.
fn say_all(node: &mut Node, now: Timestamp, endings: &mut [Ending]) {
    let is_answer = |ending: &Ending| matches!(ending.word, LastWord::Reply(_));
    for alike in endings.chunk_by_mut(|one, next| is_answer(one) && is_answer(next)) {
        if let [Ending { task, word, .. }] = alike
            && !matches!(word, LastWord::Reply(_))
        {
            std::mem::replace(word, LastWord::Nothing).say(node, now, task);
            continue;
        }
        let answers = alike.iter_mut().filter_map(|Ending { task, word, .. }| match word {
            LastWord::Reply(payload) => Some((&*task, payload)),
            _ => None,
        });
        let refused = node.answer_each(now, answers);
        for (task, refusal) in refused {
            node.fail(now, task, TaskFailure::from(Status::from(refusal)));
        }
    }
}

/// Handlers are being started on this thread, until it is dropped. What they send is flushed then.
struct Draining {
    _scope: FlushScope,
}

impl Draining {
    /// `None` while another is.
    fn begin() -> Option<Self> {
        let begun = QUEUE.with_borrow_mut(|queue| !std::mem::replace(&mut queue.is_draining, true));
        // Not `then_some`: one that is made and dropped would end the draining of the other.
        if begun { Some(Self { _scope: FlushScope::enter() }) } else { None }
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        QUEUE.with_borrow_mut(|queue| queue.is_draining = false);
    }
}
