//! One running task: the state that its handles share with the driver, and what they do by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_proto::task::{SendError, TaskFailure};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Branch, Start, TaskRef};
use convoke_proto::wire::Extension;

use crate::caller::Caller;
use crate::error::Status;
use crate::method::Request;
use crate::packing;
use crate::peer::Peer;
use crate::telemetry::TaskProbe;
use crate::trace_context::TraceContext;

use super::gate::GateKey;
use super::hold::Hold;
#[cfg(feature = "tower")]
use super::passage::Passage;
use super::run_queue::{answer, answer_later};
use super::stopper::Stopper;
use super::{Driver, Node};

/// State that the handles of one running task share with the driver.
pub(crate) struct TaskHandle {
    driver: Arc<Driver>,
    start: Start,
    /// While the handler is polled, what it sends may be held back until it waits or ends.
    hold: Hold,
    /// The driver keeps something by the name of the task.
    is_kept: AtomicBool,
    gate: Option<PassedGate>,
    probe: TaskProbe,
    /// Room of its message, if that came packed.
    _held: packing::Held,
    /// Values that its middleware left.
    #[cfg(feature = "tower")]
    pub(crate) passage: Passage,
}

/// End of a handler.
pub(crate) enum HandlerResult {
    /// It returned, after replying or delegating as it liked.
    Finished,
    /// It returned this reply.
    Replied(Bytes),
    /// It returned, and the task goes on without it.
    Deferred(Arc<Stopper>),
    /// It failed.
    Failed(TaskFailure),
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
    pub(super) fn new(
        driver: Arc<Driver>,
        start: Start,
        gate: Option<GateKey>,
        method: &'static str,
        held: packing::Held,
    ) -> Self {
        let me = driver.identity.node;
        let probe = TaskProbe::begin(&driver.telemetry, me, method, &start, || driver.now());
        Self {
            driver,
            start,
            hold: Hold::default(),
            is_kept: AtomicBool::new(false),
            gate: gate.map(PassedGate::new),
            probe,
            _held: held,
            #[cfg(feature = "tower")]
            passage: Passage::default(),
        }
    }

    /// Drops what the task held, which is over: the rest waits for another to take its place.
    pub(super) fn let_go(&mut self) {
        self.start.extensions = Vec::new();
        self.probe = TaskProbe::over();
        self._held = packing::Held::default();
        #[cfg(feature = "tower")]
        {
            self.passage = Passage::default();
        }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The request, as it came.
    pub(crate) fn start(&self) -> &Start {
        &self.start
    }

    pub(crate) fn task(&self) -> &TaskRef {
        &self.start.task
    }

    /// Caller that opened the branch.
    pub(crate) fn caller(&self) -> Caller {
        self.driver.caller(&self.start)
    }

    /// The task's own span, if one is recorded.
    pub(crate) fn span_context(&self) -> Option<TraceContext> {
        self.probe.span_context()
    }
}

/// Output.
impl TaskHandle {
    /// Carries out an output of the task. One that comes from beside the handler, from a part of it
    /// that was spawned, is not held back: no end of a poll would let it go.
    pub(crate) fn output<T>(&self, act: impl FnOnce(&mut Node, Timestamp) -> T) -> T {
        self.driver.with_node(|node, now| {
            let result = act(node, now);
            if self.hold.on_output() {
                node.handle_yield(now, self.task());
            }
            result
        })
    }

    /// A reply as it travels. In process it travels as it is.
    pub(crate) fn packed(&self, payload: Bytes) -> Bytes {
        if self.start.origin == self.driver.identity.node {
            return payload;
        }
        self.driver.packing.pack_reply(&self.start.extensions, payload)
    }

    pub(crate) fn reply(&self, payload: Bytes) -> Result<(), SendError> {
        let payload = self.packed(payload);
        self.output(|node, now| node.reply(now, self.task(), payload))
    }

    pub(crate) fn delegate<Resp>(
        &self,
        request: &Request<Resp>,
        peer: Peer,
    ) -> Result<(), SendError> {
        if let Some((size, limit)) = request.too_large(usize::MAX) {
            return Err(SendError::TooLarge { size, limit });
        }
        let payload = self.driver.packing.pack_request(peer.node(), request.payload.clone());
        let branch = |now: Timestamp| Branch {
            to: peer.node(),
            method: request.method,
            payload,
            extensions: with_epoch(self.probe.extensions_of(&request.extensions), peer),
            deadline: request.deadline.map(|budget| now + budget),
        };
        self.output(|node, now| node.delegate(now, self.task(), branch(now))).map(|_| ())
    }

    pub(crate) fn delegate_even_if_dead<Resp>(
        &self,
        request: &Request<Resp>,
        peer: Peer,
    ) -> Result<(), SendError> {
        match self.delegate(request, peer) {
            Err(SendError::NodeDead) => {
                self.output(|node, now| node.delegate_to_dead(now, self.task(), peer.node()))
            }
            result => result,
        }
    }

    /// Polls for what a part of the task waits for; `Ok(None)` while there is nothing.
    pub(crate) fn poll_stream<T, E>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Node, Timestamp, &TaskRef) -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        self.driver.poll_stream(self.task(), cx.waker(), |node, now| {
            let polled = poll(node, now, self.task()).transpose();
            if polled.is_none() {
                // Before the lock is let go of: the end of the task comes after it.
                self.note_kept();
            }
            polled.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// The same for an output, which is carried out once it can be; see [`Self::output`].
    pub(crate) fn poll_output<T, E>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Node, Timestamp, &TaskRef) -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        self.poll_stream(cx, |node, now, task| {
            let polled = poll(node, now, task);
            if !matches!(polled, Ok(None)) && self.hold.on_output() {
                node.handle_yield(now, task);
            }
            polled
        })
    }

    /// Takes no further items of its request.
    pub(crate) fn drop_items(&self) {
        self.driver.with_node(|node, now| node.drop_items(now, self.task()));
    }
}

/// The extensions of a request to a peer, which may be asked as a member of a configuration.
/// Without an epoch of its own a branch inherits that of its task.
fn with_epoch(mut extensions: Vec<Extension>, peer: Peer) -> Vec<Extension> {
    if peer.epoch() != 0 {
        extensions.push(Extension::epoch(peer.epoch()));
    }
    extensions
}

/// From the first poll of the handler to the end.
impl TaskHandle {
    /// Polls the handler.
    pub(super) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _entered = self.probe.enter();
        self.hold.begin_poll();
        let polled = poll();
        self.hold.end_poll();
        polled
    }

    /// The handler's future returned pending.
    pub(super) fn yield_now(&self) {
        if self.hold.take() {
            self.driver.with_node(|node, now| node.handle_yield(now, self.task()));
        }
    }

    /// The handler ended.
    pub(crate) fn finish(&self, result: HandlerResult) {
        match result {
            HandlerResult::Finished => {
                self.probe.finished();
                self.driver.with_node(|node, now| node.finish(now, self.task()));
            }
            HandlerResult::Replied(payload) => {
                self.probe.finished();
                let payload = self.packed(payload);
                if let Err(payload) = answer_later(&self.driver, self.task(), payload) {
                    self.driver.with_node(|node, now| answer(node, now, self.task(), payload));
                }
            }
            HandlerResult::Failed(failure) => {
                self.probe.failed(&failure);
                self.driver.with_node(|node, now| node.fail(now, self.task(), failure));
            }
            HandlerResult::Deferred(stopper) => return self.defer(stopper),
        }
        self.end();
    }

    /// The handler is gone, and the task goes on until it is answered or stopped.
    fn defer(&self, stopper: Arc<Stopper>) {
        self.note_kept();
        self.driver.keep_stopper(self.task(), stopper);
        self.yield_now();
        self.release();
    }

    /// Sends the only reply of a task whose handler is gone.
    pub(crate) fn answer_deferred(&self, payload: Bytes) -> Result<(), SendError> {
        let payload = self.packed(payload);
        let answered = self.driver.with_node(|node, now| node.answer(now, self.task(), payload));
        match answered {
            Ok(()) => self.probe.finished(),
            Err(refusal) => {
                let failure = Status::from(refusal).into();
                self.probe.failed(&failure);
                self.driver.with_node(|node, now| node.fail(now, self.task(), failure));
            }
        }
        self.end();
        answered
    }

    /// The driver will keep something by the name of the task, until it ends.
    pub(super) fn note_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// The handler is gone, however.
    pub(super) fn end(&self) {
        self.probe.gone();
        if self.is_kept.load(Ordering::Acquire) {
            self.driver.forget_task(self.task());
        }
        self.release();
    }

    /// Lets the next handler of an ordered method start.
    pub(crate) fn release(&self) {
        if let Some(gate) = &self.gate
            && !gate.is_left.swap(true, Ordering::AcqRel)
        {
            self.driver.leave_gate(gate.key);
        }
    }
}
