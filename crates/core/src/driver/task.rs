//! One running task: the state that its handles share with the driver, and what they do by it.

mod branches;
mod output;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::encoded::Encoded;
use convoke_proto::id::Incarnation;
use convoke_proto::task::SendError;
use convoke_proto::visits::{Start, TaskRef};
use convoke_transport::parts::Mutex;

use crate::caller::Caller;
use crate::error::Status;
use crate::telemetry::TaskProbe;
use crate::trace_context::TraceContext;

use super::Driver;
use super::ahead::Ahead;
use super::ending::{HandlerResult, LastWord};
use super::gate::GateKey;
use super::hold::Hold;
#[cfg(feature = "tower")]
use super::passage::Passage;
use super::stopper::Stopper;

pub(crate) use branches::NewBranches;

/// Core that the handles of one running task share with the driver.
pub(crate) struct TaskHandle {
    /// Until the handle [rests](Self::rest).
    driver: Option<Arc<Driver>>,
    start: Start,
    /// While the handler is polled, what it sends may be held back until it waits or ends.
    hold: Hold,
    ahead: Mutex<Ahead>,
    /// The driver keeps something by the name of the task.
    is_kept: AtomicBool,
    gate: Option<PassedGate>,
    probe: TaskProbe,
    /// Values that its middleware left.
    #[cfg(feature = "tower")]
    pub(crate) passage: Passage,
}

/// The gate of an ordered method that a task has passed.
struct PassedGate {
    key: GateKey,
    is_left: AtomicBool,
}

impl PassedGate {
    const fn new(key: GateKey) -> Self {
        Self { key, is_left: AtomicBool::new(false) }
    }
}

impl TaskHandle {
    /// A handle of a task that is to begin.
    pub(super) fn new(start: Start) -> Self {
        Self {
            driver: None,
            start,
            hold: Hold::default(),
            ahead: Mutex::default(),
            is_kept: AtomicBool::new(false),
            gate: None,
            probe: TaskProbe::over(),
            #[cfg(feature = "tower")]
            passage: Passage::default(),
        }
    }

    /// Has a task begin in the place of one that is over, whose request goes.
    pub(super) fn replace(&mut self, start: &mut Start) {
        std::mem::swap(&mut self.start, start);
    }

    /// The task begins.
    pub(super) fn begin(
        &mut self,
        driver: &Arc<Driver>,
        gate: Option<GateKey>,
        method: &'static str,
    ) {
        self.gate = gate.map(PassedGate::new);
        // The task before was of this one, too.
        let driver = self.driver.get_or_insert_with(|| driver.clone());
        let me = driver.identity.node;
        // Last: a subscriber may panic, and the task can end then.
        self.probe = TaskProbe::begin(&driver.telemetry, me, method, &self.start, || driver.now());
    }

    /// Drops what the task held, which is over: the rest waits for another to take its place.
    pub(super) fn let_go(&mut self) {
        self.start.extensions = Vec::new();
        self.hold = Hold::default();
        self.ahead = Mutex::default();
        *self.is_kept.get_mut() = false;
        self.gate = None;
        self.probe = TaskProbe::over();
        #[cfg(feature = "tower")]
        {
            self.passage = Passage::default();
        }
    }

    /// The driver keeps the handle now, so that is not to keep the driver.
    pub(super) fn rest(&mut self) {
        self.driver = None;
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.driver.as_ref().expect("nobody has the handle of a task that is over")
    }

    /// The request, as it came.
    pub(crate) fn start(&self) -> &Start {
        &self.start
    }

    pub(crate) fn task(&self) -> &TaskRef {
        &self.start.task
    }

    /// Origin of its call, by which its core is found.
    pub(crate) fn origin(&self) -> Incarnation {
        self.start.task.call.origin
    }

    /// Caller that opened the branch.
    pub(crate) fn caller(&self) -> Caller {
        self.driver().caller(&self.start)
    }

    /// The task's own span, if one is recorded.
    pub(crate) fn span_context(&self) -> Option<TraceContext> {
        self.probe.span_context()
    }
}

/// From the first poll of the handler to the end.
impl TaskHandle {
    /// Polls the handler.
    pub(super) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _entered = self.probe.enter();
        self.hold.begin_poll();
        poll()
    }

    /// The handler was polled, and its task goes on.
    pub(super) fn yield_now(&self) {
        self.hold.end_poll();
        if self.hold.take() {
            self.driver().with_node(self.origin(), |node, now| self.release_held(node, now));
        }
    }

    /// The handler ended, and its future is gone.
    pub(crate) fn finish(self: &Arc<Self>, result: HandlerResult) {
        if Arc::strong_count(self) > 1 {
            self.hold.end_poll(); // A part of the task may still send.
        }
        let word = match result {
            HandlerResult::Deferred(deferral) => return self.defer(deferral.give()),
            HandlerResult::Ended(LastWord::Reply(payload)) => LastWord::Reply(self.packed(payload)),
            HandlerResult::Ended(word) => word,
        };
        let _ended = Ended(self);
        if self.hold.has_output() && !self.ahead.lock().is_empty() {
            self.driver().with_node(self.origin(), |node, now| self.hand_over(node, now));
        }
        match &word {
            LastWord::Failure(failure) => {
                self.probe.failed(failure);
                self.driver().note_details(failure);
            }
            _ => self.probe.finished(),
        }
        if let Err(word) = self.driver().say_later(self.task(), word) {
            self.driver().with_node(self.origin(), |node, now| word.say(node, now, self.task()));
        }
    }

    /// The handler is gone, and the task goes on until it is answered or stopped.
    fn defer(&self, stopper: Arc<Stopper>) {
        self.note_kept();
        self.driver().keep_stopper(self.task(), stopper);
        self.yield_now();
        self.release();
    }

    /// Sends the only reply of a task whose handler is gone.
    pub(crate) fn answer_deferred(&self, payload: Encoded) -> Result<(), SendError> {
        let payload = self.packed(payload);
        let _ended = Ended(self);
        let answered = self.driver().with_node(self.origin(), |node, now| {
            self.hand_over(node, now);
            node.answer(now, self.task(), payload)
        });
        match answered {
            Ok(()) => self.probe.finished(),
            Err(refusal) => {
                let failure = Status::from(refusal).into();
                self.probe.failed(&failure);
                self.driver()
                    .with_node(self.origin(), |node, now| node.fail(now, self.task(), failure));
            }
        }
        answered
    }

    /// The driver will keep something by the name of the task, until it ends.
    pub(super) fn note_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// The handler is gone, however.
    pub(super) fn end(&self) {
        let _released = Released(self);
        self.probe.gone();
        if self.is_kept.load(Ordering::Acquire) {
            self.driver().forget_task(self.task());
        }
    }

    /// Lets the next handler of an ordered method start.
    pub(crate) fn release(&self) {
        if let Some(gate) = &self.gate
            && !gate.is_left.swap(true, Ordering::AcqRel)
        {
            self.driver().leave_gate(gate.key);
        }
    }
}

/// The handler is gone once this is dropped, also where its last word panics.
struct Ended<'a>(&'a TaskHandle);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The next handler of an ordered method may start once this is dropped, also where what was kept
/// by the name of the task panics as it goes.
struct Released<'a>(&'a TaskHandle);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
