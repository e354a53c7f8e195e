//! Runs handlers: the first poll in place, in the order of submission; the rest, where there is
//! any, as a task of the runtime.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use convoke_proto::task::TaskFailure;
use convoke_proto::visits::{Start, TaskRef};
use convoke_proto::wire::{Cause, Executed, Extension};

use crate::caller::{Authorize, Caller};
use crate::carrier::{self, GET, REFERENCE_BYTES_MAX};
use crate::error::{Code, Status};
use crate::transport::BoxFuture;

use super::Driver;
use super::ending::{HandlerResult, LastWord, SUBSCRIBER};
use super::flush::FlushScope;
use super::gate::GateKey;
use super::methods::{HandlerFuture, MethodEntry, room};
use super::pull::not_begun;
use super::run_queue;
use super::spare::Spare;
use super::stopper::Stopper;
use super::task::TaskHandle;

/// A handler that has not ended at its first poll.
struct Running {
    handle: Arc<TaskHandle>,
    /// Until the handler is gone.
    future: Option<HandlerFuture>,
    stopper: Arc<Stopper>,
}

impl Driver {
    /// Gives a handler that may start to `run`, with its method and the gate that it has passed.
    /// One that may not run fails; one of an ordered method waits while an earlier one of the same
    /// peer runs.
    pub(super) fn admit<'a>(
        self: &'a Arc<Self>,
        start: &mut Start,
        run: impl FnOnce(&mut Start, &'a MethodEntry, Option<GateKey>),
    ) {
        let Some(method) = self.methods.get(start.method) else {
            let failure = TaskFailure::new(Cause::UnknownMethod, Executed::No, "");
            return self.with_node(start.task.call.origin, |node, now| {
                node.fail(now, &start.task, failure)
            });
        };
        // Asked on the thread that brought the request, so that the connection it came over is
        // still known.
        if let Some(authorize) = self.methods.rule().filter(|_| method.name != GET.name())
            && let Some(denied) = self.denial(start, authorize, method.name)
        {
            return self.with_node(start.task.call.origin, |node, now| {
                node.fail(now, &start.task, denied)
            });
        }
        let Some(name) = method.order_by else { return run(start, method, None) };
        let key = (start.from, name);
        let passed = self.gates.lock().enter(key, start.take());
        if let Some(mut start) = passed {
            run(&mut start, method, Some(key));
        }
    }

    /// Failure of a task whose caller the rule denies.
    fn denial(
        &self,
        start: &Start,
        authorize: &Authorize,
        method: &'static str,
    ) -> Option<TaskFailure> {
        let caller = self.caller(start);
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| authorize(&caller, method)));
        if matches!(asked, Ok(true)) {
            return None;
        }
        if let Some(left_out) = self.logged.denied.pass() {
            let panicked = asked.is_err();
            SUBSCRIBER.call(|| tracing::info!(?caller, method, panicked, left_out, "call denied"));
        }
        Some(caller.denied(method))
    }

    /// Caller that opened a branch.
    pub(crate) fn caller(&self, start: &Start) -> Caller {
        let client = Extension::client_among(&start.extensions);
        if start.from == self.identity.node {
            return Caller::local(start.from).for_client(client);
        }
        let core = self.cores.lock_of(start.task.call.origin);
        let from = core.connections().get(start.link);
        Caller::over(start.from, from.map(|from| from.connection.link())).for_client(client)
    }

    /// Lets the next handler through a gate, past those whose task was stopped while it waited.
    pub(crate) fn leave_gate(self: &Arc<Self>, key: GateKey) {
        loop {
            let next = self.gates.lock().leave(key);
            let Some(start) = next else { return };
            if self.is_running(&start.task) {
                return run_queue::run_next(self, start, key);
            }
        }
    }

    /// So many tasks were stopped, maybe some that wait at gates.
    pub(super) fn sweep_gates(&self, stopped: usize) {
        let is_running = |task: &TaskRef| self.is_running(task);
        let _dropped_unlocked = self.gates.lock().note_stopped(stopped, is_running);
    }

    /// Keeps what stops a handler, unless its task, or the endpoint, was stopped before it could.
    pub(crate) fn keep_stopper(self: &Arc<Self>, task: &TaskRef, stopper: Arc<Stopper>) {
        let mut core = self.cores.lock_of(task.call.origin);
        if core.node.is_running(task) && !core.is_closed {
            core.stoppers.insert(task.clone(), stopper);
            return;
        }
        drop(core);
        let failure = TaskFailure::new(Cause::ShuttingDown, Executed::Maybe, "");
        self.with_node(task.call.origin, |node, now| node.fail(now, task, failure));
        stopper.stop();
    }

    /// Starts the handlers of a batch on this thread, which has entered their runtime and a flush
    /// scope. One that ends at once leaves its room to the next. The starts are left without
    /// meaning.
    pub(super) fn run_batch(
        self: &Arc<Self>,
        starts: &mut [Start],
        spare: &mut Spare,
        mut after_each: impl FnMut(),
    ) {
        for start in starts {
            self.admit(start, |start, method, gate| {
                self.run_handler_in(start, method, gate, spare);
            });
            after_each();
        }
    }

    /// The same of one handler that may start.
    pub(super) fn run_handler(
        self: &Arc<Self>,
        start: &mut Start,
        method: &MethodEntry,
        gate: Option<GateKey>,
    ) {
        self.run_handler_in(start, method, gate, &mut Spare::default());
    }

    fn run_handler_in(
        self: &Arc<Self>,
        start: &mut Start,
        method: &MethodEntry,
        gate: Option<GateKey>,
        spare: &mut Spare,
    ) {
        let id = start.method;
        let payload = match self.take_message(start) {
            Ok(payload) => payload,
            Err(failure) => {
                self.with_node(start.task.call.origin, |node, now| {
                    node.fail(now, &start.task, failure)
                });
                if let Some(key) = gate {
                    self.leave_gate(key);
                }
                return;
            }
        };
        let mut begun = Ok(());
        let handle = spare.handle_for(start, |handle| {
            let begin = AssertUnwindSafe(|| handle.begin(self, gate, method.name));
            begun = std::panic::catch_unwind(begin);
        });
        let (mut future, payload, is_own) = match carrier::reference_in(&payload) {
            None => (spare.room_of(id, method), payload, true),
            Some(reference) => (room(start_with_body), reference, false),
        };
        let begin = AssertUnwindSafe(|| future.as_mut().start(handle.clone(), payload));
        let started = begun.and_then(|()| std::panic::catch_unwind(begin));
        if let Err(panic) = started {
            let failure = panicked(panic.as_ref());
            return handle.finish(LastWord::from(failure).ended());
        }
        // Nothing waits on this waker: a pending handler is polled again by the task below.
        let cx = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = poll_handler(&handle, &mut future, cx) {
            let room = emptied(future);
            handle.finish(result);
            if let Some(room) = room.filter(|_| is_own) {
                spare.take_room(id, room);
            }
            spare.take_handle(handle);
        } else {
            let stopper = Arc::new(Stopper::default());
            handle.note_kept();
            self.keep_stopper(handle.task(), stopper.clone());
            let running = Running { handle, future: Some(future), stopper };
            let rest: BoxFuture<()> = Box::pin(running);
            self.runtime.spawn(rest);
        }
    }

    /// The message in a request. One that came packed is paid for before it is unpacked.
    fn take_message(self: &Arc<Self>, start: &mut Start) -> Result<Bytes, TaskFailure> {
        let payload = std::mem::take(&mut start.payload);
        let wrong = |text| TaskFailure::new(Cause::BadRequest, Executed::No, text);
        if let Some(bytes) = self.packing.unpacked_len(&payload).map_err(wrong)?
            && bytes as u64 > self.limits.unscheduled_bytes
        {
            let task = &start.task;
            self.with_node(task.call.origin, |node, _| node.resize_request(task, bytes))?;
        }
        self.packing.unpack(payload).map_err(wrong)
    }
}

/// Runs a handler whose message travels beside its request, once that is here.
async fn start_with_body(handle: Arc<TaskHandle>, reference: Bytes) -> HandlerResult {
    let driver = handle.driver().clone();
    if reference.len() > REFERENCE_BYTES_MAX {
        let status = Status::new(Code::InvalidArgument, "the reference to the message is too long");
        return LastWord::from(not_begun(status)).ended();
    }
    let payload = match driver.bring_body(handle.start(), reference).await {
        Ok(payload) => payload,
        Err(failure) => return LastWord::from(failure).ended(),
    };
    let method = driver.methods.get(handle.start().method).expect("its task was started by it");
    method.start(handle, payload).await
}

impl Future for Running {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let scope = FlushScope::enter();
        let polled = run_queue::poll_before_others(|| self.poll_in_scope(cx));
        self.handle.driver().end_scope(scope);
        polled
    }
}

impl Running {
    fn poll_in_scope(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stopper.poll_stopped(cx) {
            drop(self.future.take().and_then(emptied));
            self.handle.end();
            return Poll::Ready(());
        }
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        poll_handler(&self.handle, future, cx).map(|result| {
            drop(self.future.take().and_then(emptied));
            self.handle.finish(result);
        })
    }
}

/// Polls a handler, which is not gone.
fn poll_handler(
    handle: &TaskHandle,
    future: &mut HandlerFuture,
    cx: &mut Context<'_>,
) -> Poll<HandlerResult> {
    let poll = AssertUnwindSafe(|| handle.polling(|| future.as_mut().poll(cx)));
    match std::panic::catch_unwind(poll) {
        Ok(Poll::Pending) => {
            handle.yield_now();
            Poll::Pending
        }
        Ok(ready) => ready,
        Err(panic) => Poll::Ready(LastWord::from(panicked(panic.as_ref())).ended()),
    }
}

/// Drops a handler's future, and gives its room. A panic in its destructor is the handler's own
/// matter, and takes the room along.
fn emptied(mut room: HandlerFuture) -> Option<HandlerFuture> {
    let cleared = std::panic::catch_unwind(AssertUnwindSafe(move || {
        room.as_mut().clear();
        room
    }));
    cleared.inspect_err(|panic| drop(panicked(panic.as_ref()))).ok()
}

impl Drop for Running {
    /// A handler dropped with its runtime, or at shutdown, still says so.
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            run_queue::poll_before_others(|| {
                drop(emptied(future));
                let failure = TaskFailure::new(Cause::Dropped, Executed::Maybe, "");
                self.handle.finish(LastWord::from(failure).ended());
            });
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TaskFailure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    // A subscriber that panics, too, does not keep the task from its end.
    SUBSCRIBER.call(|| tracing::error!(panic = text, "a handler panicked"));
    TaskFailure::new(Cause::Panicked, Executed::Yes, text.unwrap_or_default())
}
