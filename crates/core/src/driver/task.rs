//! One running task: the state that its handles share with the driver, and what they do by it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::task::{Branch, SendError};
use convoke_proto::time::Timestamp;
use convoke_proto::visits::{Start, TaskRef};
use convoke_proto::wire::Extension;
use convoke_transport::parts::Mutex;

use crate::caller::Caller;
use crate::error::Status;
use crate::method::Request;
use crate::packing;
use crate::peer::Peer;
use crate::telemetry::TaskProbe;
use crate::trace_context::TraceContext;

use super::ahead::Ahead;
use super::ending::{HandlerResult, LastWord};
use super::gate::GateKey;
use super::hold::Hold;
#[cfg(feature = "tower")]
use super::passage::Passage;
use super::run_queue::say_later;
use super::stopper::Stopper;
use super::{Driver, Node};

/// Branches that a fan-out opens before others have their turn at the node.
const BRANCHES_A_LOCK: usize = 64;

/// State that the handles of one running task share with the driver.
pub(crate) struct TaskHandle {
    driver: Arc<Driver>,
    start: Start,
    /// While the handler is polled, what it sends may be held back until it waits or ends.
    hold: Hold,
    ahead: Mutex<Ahead>,
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

/// A branch that a task is about to open.
#[derive(Debug)]
pub(crate) struct NewBranch {
    branch: Branch,
    /// Time that it gets, from when it is opened.
    budget: Option<Duration>,
}

impl NewBranch {
    fn take(&mut self, now: Timestamp) -> Branch {
        Branch { deadline: self.budget.map(|budget| now + budget), ..self.branch.take() }
    }
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
            ahead: Mutex::default(),
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
            self.hand_over(node, now);
            let result = act(node, now);
            self.let_go_beside_poll(node, now);
            result
        })
    }

    /// Gives the node the items that are ahead of it: before anything else that the task says. One
    /// that was stopped has nobody to send them to.
    fn hand_over(&self, node: &mut Node, now: Timestamp) {
        let mut ahead = self.ahead.lock();
        let sent = ahead.drain().map(|(index, items)| {
            (index, node.stream_items(now, self.task(), index, items).unwrap_or(0))
        });
        if let Some((index, credit)) = sent {
            ahead.note_credit(index, credit);
        }
    }

    /// After an output: lets go what is held back, if no end of a poll would.
    fn let_go_beside_poll(&self, node: &mut Node, now: Timestamp) {
        if self.hold.on_output() {
            self.release_held(node, now);
        }
    }

    /// Lets go all that is held back.
    fn release_held(&self, node: &mut Node, now: Timestamp) {
        self.hand_over(node, now);
        node.handle_yield(now, self.task());
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

    /// A branch with a request to a peer, as it travels.
    pub(crate) fn branch<Resp>(
        &self,
        request: &Request<Resp>,
        peer: Peer,
    ) -> Result<NewBranch, SendError> {
        if let Some((size, limit)) = request.too_large(usize::MAX) {
            return Err(SendError::TooLarge { size, limit });
        }
        let branch = Branch {
            to: peer.node(),
            method: request.method,
            payload: self.driver.packing.pack_request(peer.node(), request.payload.clone()),
            extensions: with_epoch(self.probe.extensions_of(&request.extensions), peer),
            deadline: None,
        };
        Ok(NewBranch { branch, budget: request.deadline })
    }

    /// Opens a branch once the connection to its node has room.
    pub(crate) fn poll_delegate(
        &self,
        branch: &mut NewBranch,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.driver.with_state(|state, now, _| {
            ready!(state.poll_room(branch.branch.to, cx));
            self.hand_over(&mut state.node, now);
            let opened = state.node.delegate(now, self.task(), branch.take(now));
            self.let_go_beside_poll(&mut state.node, now);
            Poll::Ready(opened.map(|_| ()))
        })
    }

    /// Opens branches in their order, each once the connection to its node has room, the first few
    /// of them under one lock. One at a node that is known to be dead is a failure record.
    pub(crate) fn poll_fan_out(
        &self,
        branches: &mut VecDeque<NewBranch>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.driver.with_state(|state, now, _| {
            self.hand_over(&mut state.node, now);
            for _ in 0..BRANCHES_A_LOCK {
                let Some(branch) = branches.front_mut() else { break };
                let to = branch.branch.to;
                ready!(state.poll_room(to, cx));
                let node = &mut state.node;
                match node.delegate(now, self.task(), branch.take(now)) {
                    Ok(_) => {}
                    Err(SendError::NodeDead) => node.delegate_to_dead(now, self.task(), to)?,
                    Err(refusal) => return Poll::Ready(Err(refusal)),
                }
                self.let_go_beside_poll(node, now);
                branches.pop_front();
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Gives the branch that the task ends with, once the connection to its node has room.
    pub(crate) fn poll_tail(
        &self,
        branch: &mut NewBranch,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Branch, SendError>> {
        let now = self.driver.now();
        let state = self.driver.state.lock();
        let Branch { to, ref payload, .. } = branch.branch;
        ready!(state.poll_room(to, cx));
        state.node.check_branch(now, self.task(), to, payload.len())?;
        Poll::Ready(Ok(branch.take(now)))
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

    /// Sends an item of a streamed reply once there is credit for it. A small one is left to go to
    /// the node with others, at the latest when the poll of the handler is over.
    pub(crate) fn poll_item(
        &self,
        cx: &Context<'_>,
        index: u32,
        item: &mut Bytes,
    ) -> Poll<Result<(), SendError>> {
        if self.ahead.lock().take(index, item) {
            if self.hold.on_output() {
                self.driver.with_node(|node, now| self.release_held(node, now));
            }
            return Poll::Ready(Ok(()));
        }
        self.poll_stream(cx, |node, now, task| {
            if !self.ahead.lock().leads_to(index) {
                self.hand_over(node, now);
                if node.stream_credit(task, index)? == 0 {
                    return Ok(None);
                }
            }
            let mut ahead = self.ahead.lock();
            let before = ahead.drain().into_iter().flat_map(|(_, items)| items);
            let items = before.chain([std::mem::take(item)]);
            let left = node.stream_items(now, task, index, items)?;
            ahead.note_credit(index, left);
            drop(ahead);
            self.let_go_beside_poll(node, now);
            Ok(Some(()))
        })
    }

    /// Adds metadata to the next reply, item of a stream or failure.
    pub(crate) fn reply_metadata(&self, key: &str, value: &[u8]) -> Result<(), SendError> {
        self.driver.with_node(|node, now| {
            self.hand_over(node, now);
            node.reply_metadata(now, self.task(), key, value)
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
            self.driver.with_node(|node, now| self.release_held(node, now));
        }
    }

    /// The handler ended.
    pub(crate) fn finish(&self, result: HandlerResult) {
        let word = match result {
            HandlerResult::Deferred(stopper) => return self.defer(stopper),
            HandlerResult::Ended(LastWord::Reply(payload)) => LastWord::Reply(self.packed(payload)),
            HandlerResult::Ended(word) => word,
        };
        if self.hold.has_output() && !self.ahead.lock().is_empty() {
            self.driver.with_node(|node, now| self.hand_over(node, now));
        }
        match &word {
            LastWord::Failure(failure) => self.probe.failed(failure),
            _ => self.probe.finished(),
        }
        if let Err(word) = say_later(&self.driver, self.task(), word) {
            self.driver.with_node(|node, now| word.say(node, now, self.task()));
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
