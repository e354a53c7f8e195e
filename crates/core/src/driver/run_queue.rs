//! Handlers to be started on this thread, one after another.
//!
//! A handler that is polled in place may, by ending or by asking its own node, cause the next one
//! to start. Started from within, each would stand on the other's stack; so they queue, and whoever
//! came first starts them all. What those that end at once have to say is sent for all of them
//! together, under one lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use convoke_proto::encoded::Encoded;
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, TaskRef};
use tokio::runtime::Handle;

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

    /// Waits in a line of this thread, or starts on a task as the thread ends.
    fn wait(self, line: impl FnOnce(&mut Queue) -> &mut VecDeque<Self>) {
        let mut job = Some(self);
        with_queue(|queue| line(queue).extend(job.take()));
        leave(VecDeque::from_iter(job));
    }
}

/// The end of a task. Its handler is gone, and its handle with it, whose room the next one takes.
struct Ending {
    task: TaskRef,
    word: Word,
}

/// Last word of a task among others. Most are replies, which are moved less than what is larger.
enum Word {
    Reply(Encoded),
    /// The next of [`Endings::others`].
    Other,
}

/// Tasks of one driver that are to be ended together.
#[derive(Default)]
struct Endings {
    /// While there are any.
    driver: Option<Arc<Driver>>,
    tasks: Vec<Ending>,
    /// Words of them that are no replies, in their order.
    others: Vec<LastWord>,
    /// That they end with.
    bytes: usize,
}

#[derive(Default)]
struct Queue {
    /// Those that have waited at a gate: before the others.
    passed: VecDeque<Job>,
    jobs: VecDeque<Job>,
    /// Tasks of handlers that have ended meanwhile.
    endings: Endings,
    /// That of the last batch of starts, for the next one.
    room: Vec<Start>,
    /// Handlers that are caused meanwhile wait until it is over.
    busy: Option<Busy>,
}

/// Turn that a thread has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Busy {
    /// A handler that has begun is polled.
    Polling,
    /// Handlers are started one after another.
    Draining,
}

thread_local! {
    static QUEUE: RefCell<Queue> = {
        // A thread drops what it was given last first, most often: with a queue it has a runtime.
        let _ = Handle::try_current();
        RefCell::default()
    };
}

/// `None` as the thread ends, where the queue may be gone and a token of a task still there.
fn with_queue<T>(act: impl FnOnce(&mut Queue) -> T) -> Option<T> {
    QUEUE.try_with(|queue| act(&mut queue.borrow_mut())).ok()
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
    let Some(_draining) = Turn::drain() else {
        return starts.iter_mut().for_each(|start| {
            driver.admit(start, |start, _, gate| {
                let job = Job { driver: driver.clone(), start: start.take(), gate };
                job.wait(|queue| &mut queue.jobs);
            });
        });
    };
    // Whoever brought the requests may be outside the runtime that the handlers expect.
    let runtime = driver.runtime.enter();
    let mut left = IN_A_ROW_MAX;
    driver.run_batch(&mut starts, &mut spare, || {
        while left > 0
            && let Some(job) = with_queue(|queue| queue.passed.pop_front()).flatten()
        {
            left -= 1;
            job.run();
        }
    });
    drop(runtime);
    spare.rest();
    starts.clear();
    with_queue(|queue| queue.room = starts);
    drain(Some((driver, spare)));
}

/// Room for the starts of a batch.
pub(super) fn room() -> Vec<Start> {
    with_queue(|queue| std::mem::take(&mut queue.room)).unwrap_or_default()
}

/// Starts a handler that has waited at a gate, before those whose turn came later than its own.
/// Whoever has let it through may hold a lock that it takes: it starts after what is being done on
/// this thread, or else on a task.
pub(super) fn run_next(driver: &Arc<Driver>, start: Start, gate: GateKey) {
    let job = Job { driver: driver.clone(), start, gate: Some(gate) };
    if with_queue(|queue| queue.busy.is_some()) == Some(true) {
        job.wait(|queue| &mut queue.passed);
    } else {
        leave(VecDeque::from([job]));
    }
}

/// Polls a handler that has begun, or drops it: those that it causes to start do so afterwards, for
/// it may hold a lock that they take.
pub(super) fn poll_before_others<T>(poll: impl FnOnce() -> T) -> T {
    let polling = Turn::take(Busy::Polling);
    let polled = poll();
    drop(polling);
    if with_queue(|queue| !queue.is_empty()) == Some(true) {
        drain_in_turn();
    }
    polled
}

/// Starts what waits on this thread, as long as others have their turn soon. What room a batch has
/// left goes back to its driver with the ends of its tasks.
fn drain(mut spare: Option<(&Arc<Driver>, Spare)>) {
    for _ in 0..IN_A_ROW_MAX {
        match with_queue(Queue::next).flatten() {
            Some(job) => job.run(),
            None if end_tasks(&mut spare) => {}
            None => return,
        }
    }
    end_tasks(&mut spare);
    let rest = with_queue(|queue| {
        let mut rest = std::mem::take(&mut queue.passed);
        rest.append(&mut queue.jobs);
        rest
    });
    leave(rest.unwrap_or_default());
}

/// Leaves handlers to a task of their runtime, which is that of their endpoint: with that of
/// another they would be dropped, and their gates stay shut.
fn leave(mut jobs: VecDeque<Job>) {
    while let Some(driver) = jobs.front().map(|job| job.driver.clone()) {
        let (own, others) = jobs.into_iter().partition(|job| Arc::ptr_eq(&job.driver, &driver));
        jobs = others;
        driver.runtime.spawn(async move { resume(own) });
    }
}

fn resume(jobs: VecDeque<Job>) {
    with_queue(|queue| queue.jobs.extend(jobs));
    drain_in_turn();
}

fn drain_in_turn() {
    if let Some(_draining) = Turn::drain() {
        drain(None);
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.passed.is_empty() && self.jobs.is_empty()
    }

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
        mut word: LastWord,
    ) -> Result<(), LastWord> {
        let mut put = |queue: &mut Queue| {
            let Endings { driver, tasks, others, bytes } = &mut queue.endings;
            let is_draining = queue.busy == Some(Busy::Draining);
            if !is_draining || !Arc::ptr_eq(driver.get_or_insert_with(|| self.clone()), self) {
                return None;
            }
            *bytes += word.len();
            let word = match &mut word {
                LastWord::Reply(payload) => Word::Reply(std::mem::take(payload)),
                other => {
                    others.push(std::mem::replace(other, LastWord::Nothing));
                    Word::Other
                }
            };
            tasks.push(Ending { task: task.clone(), word });
            Some(*bytes >= ENDING_BYTES_MAX)
        };
        let mut is_full = with_queue(&mut put).flatten();
        if is_full.is_none() && end_tasks(&mut None) {
            is_full = with_queue(&mut put).flatten(); // Those of another driver were before it.
        }
        match is_full {
            None => return Err(word),
            Some(true) => _ = end_tasks(&mut None),
            Some(false) => {}
        }
        Ok(())
    }
}

/// True when there were any.
fn end_tasks(spare: &mut Option<(&Arc<Driver>, Spare)>) -> bool {
    let endings = with_queue(|queue| {
        let Endings { driver, tasks, others, bytes } = &mut queue.endings;
        let driver = driver.take()?;
        *bytes = 0;
        Some((driver, std::mem::take(tasks), std::mem::take(others)))
    });
    let Some((driver, mut tasks, mut others)) = endings.flatten() else { return false };
    let mut words = others.drain(..);
    let routes = &driver.cores.routes;
    let origin_of = |ending: &Ending| ending.task.call.origin;
    let are_of_one_core = |one: &Ending, next: &Ending| {
        let [one, next] = [one, next].map(origin_of);
        one == next || routes.of(one) == routes.of(next)
    };
    for of_core in tasks.chunk_by_mut(are_of_one_core) {
        let spare = spare.take_if(|(of, _)| Arc::ptr_eq(of, &driver)).map(|(_, spare)| spare);
        let core = routes.of(origin_of(&of_core[0]));
        let _dropped_unlocked = driver.with_core(core, |core, now, aftermath| {
            say_all(&mut core.node, now, of_core, &mut words);
            if !core.stoppers.is_empty() || !core.parts.is_empty() {
                for Ending { task, .. } in of_core {
                    // A token that ended the task before its handler returned. Its waker is not to
                    // be dropped under the lock.
                    let stopper = core.stoppers.remove(task);
                    aftermath.wakers.extend(stopper.and_then(|stopper| stopper.stop_later()));
                    // Parts of it that were spawned may have begun to wait since its handler ended.
                    core.take_parts(task, aftermath);
                }
            }
            spare.map(|spare| std::mem::replace(&mut core.spare, spare))
        });
    }
    drop(words);
    tasks.clear();
    with_queue(|queue| {
        if queue.endings.driver.is_none() {
            // Their room, for the next batch.
            (queue.endings.tasks, queue.endings.others) = (tasks, others);
        }
    });
    true
}

/// Ends the tasks of one core, in their order; those that answer one after the other together.
fn say_all(
    node: &mut Node,
    now: Timestamp,
    endings: &mut [Ending],
    others: &mut impl Iterator<Item = LastWord>,
) {
    let is_answer = |ending: &Ending| matches!(ending.word, Word::Reply(_));
    for alike in endings.chunk_by_mut(|one, next| is_answer(one) && is_answer(next)) {
        if let [Ending { task, word: Word::Other }] = alike {
            let word = others.next().expect("it came with its task");
            word.say(node, now, task);
            continue;
        }
        let answers = alike.iter_mut().filter_map(|Ending { task, word }| match word {
            Word::Reply(payload) => Some((&*task, payload)),
            Word::Other => None,
        });
        let refused = node.answer_each(now, answers);
        for (task, refusal) in refused {
            node.fail(now, task, TaskFailure::from(Status::from(refusal)));
        }
    }
}

/// Turn of this thread, until it is dropped. What handlers send is flushed then.
struct Turn {
    _scope: FlushScope,
}

impl Turn {
    /// `None` while there is another, and as the thread ends.
    fn take(busy: Busy) -> Option<Self> {
        let is_free = with_queue(|queue| {
            let is_free = queue.busy.is_none();
            queue.busy = queue.busy.or(Some(busy));
            is_free
        });
        // Not `then_some`: one that is made and dropped would end the turn of the other.
        if is_free == Some(true) { Some(Self { _scope: FlushScope::enter() }) } else { None }
    }

    fn drain() -> Option<Self> {
        Self::take(Busy::Draining)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        with_queue(|queue| queue.busy = None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::task::{Context as Polling, Wake, Waker};

    use convoke_proto::wire::Cause;
    use tokio::runtime::Builder;

    use super::*;
    use crate::{CallError, Context, Deferred, Endpoint, Method, Service, Task};

    const ASK: Method<u64, u64> = Method::new("test.Test/Ask");
    const ASKED: Method<u64, u64> = Method::new("test.Test/Asked");
    const IN_TURN: Method<bool, bool> = Method::new("test.Test/InTurn").ordered();

    fn asked() -> Service {
        Service::new().unary(ASKED, async |number: u64, _: Context| Ok::<_, Status>(number))
    }

    async fn start(service: Service) -> Endpoint {
        Endpoint::builder().serve(service).start().await.expect("nothing to bind")
    }

    #[tokio::test]
    async fn a_token_that_is_dropped_as_its_thread_ends_fails_its_task() {
        thread_local! {
            static KEPT: RefCell<Option<Deferred<u64>>> = const { RefCell::new(None) };
        }
        let (tokens, token) = mpsc::channel();
        let endpoint = start(Service::new().tree(ASK, move |_: u64, task: Task<u64>| {
            let (later, finish) = task.defer();
            tokens.send(later).expect("the test waits");
            async { Ok::<_, Status>(finish) }
        }));
        let endpoint = endpoint.await;
        let call = endpoint.call(ASK, 0).to(endpoint.me()).open().expect("there is room");
        let thread = std::thread::spawn(move || {
            let _ = Handle::try_current(); // First of all, for the clock of tests.
            KEPT.set(token.recv().ok());
            drop(room()); // After it, so that the queue is gone before.
        });
        thread.join().expect("it ends as any");
        let failed = call.first().await.expect_err("nobody has answered");
        assert!(
            matches!(&failed, CallError::Branch(failure) if failure.cause == Cause::Dropped),
            "{failed:?}"
        );
    }

    /// More than are started in a row, and behind them some of another endpoint, whose runtime goes
    /// on.
    #[test]
    fn handlers_that_are_left_start_by_the_runtime_of_their_endpoint() {
        let [one, other] = [(); 2].map(|()| {
            let mut builder = Builder::new_current_thread();
            builder.enable_all().start_paused(true).build().expect("it builds")
        });
        let ending = one.block_on(start(asked()));
        let service = asked().unary(ASK, move |count: u64, context: Context| {
            let (going_on, mut kept) = (context.endpoint(), Vec::new());
            let ask = |endpoint: &Endpoint, number| {
                endpoint.call(ASKED, number).to(endpoint.me()).open().expect("there is room")
            };
            kept.extend((0..count).map(|number| ask(&ending, number)));
            let last = ask(&going_on, 7);
            async move {
                let reply = *last.first().await?.message();
                drop(kept);
                Ok::<_, Status>(reply)
            }
        });
        other.block_on(async {
            let endpoint = start(service).await;
            let count = IN_A_ROW_MAX as u64 + 10;
            let call = endpoint.call(ASK, count).to(endpoint.me()).open().expect("there is room");
            one.shutdown_background();
            assert_eq!(call.first().await.expect("it is answered").message(), &7);
        });
    }

    /// As if it held a lock that they take.
    #[tokio::test]
    async fn a_handler_that_lets_the_next_one_start_goes_on_before_that_does() {
        let holds = Arc::new(AtomicBool::new(false));
        let service = Service::new().unary(IN_TURN, move |is_apart: bool, context: Context| {
            let holds = holds.clone();
            let is_held = holds.load(Ordering::Relaxed);
            let let_go = move || {
                holds.store(true, Ordering::Relaxed);
                context.release();
                holds.store(false, Ordering::Relaxed);
            };
            async move {
                tokio::task::yield_now().await;
                if is_apart {
                    tokio::spawn(async move { let_go() }).await.expect("it panics nowhere");
                } else {
                    let_go();
                }
                Ok::<_, Status>(is_held)
            }
        });
        let endpoint = start(service).await;
        let calls = [false, false, true, true, false].map(|is_apart| {
            endpoint.call(IN_TURN, is_apart).to(endpoint.me()).open().expect("there is room")
        });
        for call in calls {
            assert!(!call.first().await.expect("it is answered").message());
        }
    }

    /// Asks the endpoint as it is dropped.
    struct Asks(Endpoint);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.load();
        }
    }

    #[tokio::test]
    async fn a_waker_of_a_token_that_ends_its_task_in_its_handler_is_dropped_without_the_lock() {
        let service = Service::new().tree(ASK, |_: u64, task: Task<u64>| async move {
            let waker = Waker::from(Arc::new(Asks(task.context().endpoint())));
            let (mut later, finish) = task.defer();
            let polled = std::pin::pin!(later.stopped()).poll(&mut Polling::from_waker(&waker));
            assert!(polled.is_pending(), "nobody has stopped it");
            drop(waker);
            later.finish();
            Ok::<_, Status>(finish)
        });
        let endpoint = start(service).await;
        let call = endpoint.call(ASK, 0).to(endpoint.me()).open().expect("there is room");
        let (replies, outcome) = call.collect().await.expect("no reply cannot be read");
        assert!(replies.is_empty() && outcome.failures.is_empty(), "{outcome:?}");
        assert_eq!((endpoint.load().tasks, endpoint.load().waiting), (0, 0));
    }
}
