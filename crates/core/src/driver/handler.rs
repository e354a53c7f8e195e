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
use crate::carrier::{self, REFERENCE_BYTES_MAX};
use crate::error::{Code, Status};
use crate::transport::BoxFuture;

use super::flush::FlushScope;
use super::gate::GateKey;
use super::methods::{HandlerFuture, MethodEntry};
use super::run_queue;
use super::stopper::Stopper;
use super::task::{HandlerResult, TaskHandle};
use super::{Driver, State};

/// A handler under way.
struct Running {
    handle: Arc<TaskHandle>,
    future: Option<HandlerFuture>,
    /// Once it has not ended at its first poll.
    stopper: Option<Arc<Stopper>>,
}

impl Driver {
    /// Gives a handler that may start to `run`, with its method and the gate that it has passed.
    /// One that may not run fails; one of an ordered method waits while an earlier one of the same
    /// peer runs.
    pub(super) fn admit(
        self: &Arc<Self>,
        start: Start,
        run: impl FnOnce(Start, &MethodEntry, Option<GateKey>),
    ) {
        let Some(method) = self.methods.get(start.method) else {
            let failure = TaskFailure::new(Cause::UnknownMethod, Executed::No, "");
            return self.with_node(|node, now| node.fail(now, &start.task, failure));
        };
        // Asked on the thread that brought the request, so that the connection it came over is
        // still known.
        if let Some(authorize) = self.methods.rule()
            && let Some(denied) = self.denial(&start, authorize, method.name)
        {
            return self.with_node(|node, now| node.fail(now, &start.task, denied));
        }
        let Some(name) = method.order_by else { return run(start, method, None) };
        let key = (start.from, name);
        let passed = self.state.lock().gates.enter(key, start);
        if let Some(start) = passed {
            run(start, method, Some(key));
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
        tracing::info!(?caller, method, panicked = asked.is_err(), "call denied");
        Some(caller.denied(method))
    }

    /// Caller that opened a branch.
    pub(crate) fn caller(&self, start: &Start) -> Caller {
        let client = Extension::client_among(&start.extensions);
        if start.from == self.identity.node {
            return Caller::local(start.from).for_client(client);
        }
        let state = self.state.lock();
        let from = state.connections().get(start.link);
        Caller::over(start.from, from.map(|from| from.connection.link())).for_client(client)
    }

    /// Lets the next handler through a gate, past those whose task was stopped while it waited.
    pub(crate) fn leave_gate(self: &Arc<Self>, key: GateKey) {
        let next = {
            let State { gates, node, .. } = &mut *self.state.lock();
            std::iter::from_fn(|| gates.leave(key)).find(|start| node.is_running(&start.task))
        };
        if let Some(start) = next {
            run_queue::run_next(self, start, key);
        }
    }

    /// Keeps what stops a handler, unless its task was stopped before it could.
    pub(crate) fn keep_stopper(&self, task: &TaskRef, stopper: Arc<Stopper>) {
        let mut state = self.state.lock();
        if state.node.is_running(task) {
            state.stoppers.insert(task.clone(), stopper);
        } else {
            stopper.stop();
        }
    }

    /// Starts a handler on this thread, which has entered its runtime and a flush scope.
    pub(super) fn run_handler(
        self: &Arc<Self>,
        mut start: Start,
        method: &MethodEntry,
        gate: Option<GateKey>,
    ) {
        let unpacked = self.packing.unpack_request(std::mem::take(&mut start.payload));
        let (payload, held) = match unpacked {
            Ok(unpacked) => unpacked,
            Err(failure) => {
                self.with_node(|node, now| node.fail(now, &start.task, failure));
                if let Some(key) = gate {
                    self.leave_gate(key);
                }
                return;
            }
        };
        let handle = Arc::new(TaskHandle::new(self.clone(), start, gate, method.name, held));
        let started = || match carrier::reference_in(&payload) {
            None => (method.start)(handle.clone(), payload),
            Some(reference) => self.start_with_body(handle.clone(), reference),
        };
        let future = match std::panic::catch_unwind(AssertUnwindSafe(started)) {
            Ok(future) => future,
            Err(panic) => {
                let failure = panicked(panic.as_ref());
                return handle.finish(HandlerResult::Failed(failure));
            }
        };
        let mut running = Running { handle, future: Some(future), stopper: None };
        // Nothing waits on this waker: a pending handler is polled again by the task below.
        let cx = &mut Context::from_waker(Waker::noop());
        if running.poll_in_scope(cx).is_pending() {
            let stopper = Arc::new(Stopper::default());
            running.stopper = Some(stopper.clone());
            running.handle.note_kept();
            self.keep_stopper(running.handle.task(), stopper);
            let rest: BoxFuture<()> = Box::pin(running);
            self.runtime.spawn(rest);
        }
    }
}

impl Driver {
    /// Starts a handler whose message travels beside its request, once that is here.
    fn start_with_body(
        self: &Arc<Self>,
        handle: Arc<TaskHandle>,
        reference: Bytes,
    ) -> HandlerFuture {
        let driver = self.clone();
        let Some(carrier) = self.carrier() else {
            let text = "the message travels beside its request, and this node has no overlay to \
                        take it from";
            let status = Status::new(Code::FailedPrecondition, text);
            return Box::pin(async { HandlerResult::Failed(not_begun(status)) });
        };
        if reference.len() > REFERENCE_BYTES_MAX {
            let status =
                Status::new(Code::InvalidArgument, "the reference to the message is too long");
            return Box::pin(async { HandlerResult::Failed(not_begun(status)) });
        }
        Box::pin(async move {
            let payload = match carrier.body(handle.start().from, reference).await {
                Ok(payload) => payload,
                Err(error) => return HandlerResult::Failed(not_begun(error.into())),
            };
            let method =
                driver.methods.get(handle.start().method).expect("its task was started by it");
            (method.start)(handle, payload).await
        })
    }
}

/// The failure of a task whose handler was not reached.
fn not_begun(status: Status) -> TaskFailure {
    TaskFailure { executed: Executed::No, ..TaskFailure::from(status) }
}

impl Future for Running {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let scope = FlushScope::enter();
        let polled = self.poll_in_scope(cx);
        self.handle.driver().end_scope(scope);
        polled
    }
}

impl Running {
    fn poll_in_scope(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stopper.as_ref().is_some_and(|stopper| stopper.poll_stopped(cx)) {
            self.drop_future();
            self.handle.end();
            return Poll::Ready(());
        }
        let Self { handle, future: Some(future), .. } = self else { return Poll::Ready(()) };
        let poll = AssertUnwindSafe(|| handle.polling(|| future.as_mut().poll(cx)));
        let polled = std::panic::catch_unwind(poll);
        let result = match polled {
            Ok(Poll::Pending) => {
                self.handle.yield_now();
                return Poll::Pending;
            }
            Ok(Poll::Ready(result)) => result,
            Err(panic) => HandlerResult::Failed(panicked(panic.as_ref())),
        };
        self.drop_future();
        self.handle.finish(result);
        Poll::Ready(())
    }

    /// True when there was one. A panic in its destructor is the handler's own matter.
    fn drop_future(&mut self) -> bool {
        let Some(future) = self.future.take() else { return false };
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(future))) {
            panicked(panic.as_ref());
        }
        true
    }
}

impl Drop for Running {
    /// A handler dropped with its runtime, or at shutdown, still says so.
    fn drop(&mut self) {
        if self.drop_future() {
            let failure = TaskFailure::new(Cause::Dropped, Executed::Maybe, "");
            self.handle.finish(HandlerResult::Failed(failure));
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TaskFailure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text, "a handler panicked");
    TaskFailure::new(Cause::Panicked, Executed::Yes, text.unwrap_or_default())
}
