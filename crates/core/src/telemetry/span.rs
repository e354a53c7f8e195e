//! A `tracing` span for each call and each handler, and their place in the distributed trace.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::failure::Failure;
use convoke_proto::id::{CallId, NodeId};
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::Start;
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::method::Request;
use crate::peer::Peer;
use crate::trace_context::TraceContext;

/// Ties the spans of an endpoint to a tracing system that has ids of its own, such as
/// OpenTelemetry; see [`EndpointBuilder::propagator`](crate::EndpointBuilder::propagator). The
/// endpoint's own gives each span a random id.
pub trait Propagator: Send + Sync + 'static {
    /// A span begins that the subscriber wants. `parent` is the span of another node, or of another
    /// system, that caused it; without one, the parent is the `tracing` span it was made in.
    ///
    /// Gives the span's own place in the trace, which the requests sent from it carry. Called once
    /// for each span, on whatever thread brought the request: it must not block.
    fn begin(&self, span: &Span, parent: Option<TraceContext>) -> Option<TraceContext>;
}

/// The propagator of an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Propagation(pub(crate) Option<Arc<dyn Propagator>>);

impl Propagation {
    fn begin(&self, span: &Span, parent: Option<TraceContext>) -> Option<TraceContext> {
        match &self.0 {
            Some(propagator) => propagator.begin(span, parent),
            None => {
                let parent = parent.or_else(|| CURRENT.get());
                let own = parent.as_ref().map_or_else(TraceContext::root, TraceContext::child);
                span.record("trace_id", format_args!("{:032x}", own.trace_id()));
                span.record("span_id", format_args!("{:016x}", own.span_id()));
                if let Some(parent) = parent {
                    span.record("parent_id", format_args!("{:016x}", parent.span_id()));
                }
                Some(own)
            }
        }
    }
}

impl fmt::Debug for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Propagation(custom)" } else { "Propagation(own ids)" })
    }
}

thread_local! {
    /// The span of the task whose handler is being polled on this thread: the parent of calls it
    /// makes.
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// The span of a call.
#[derive(Debug)]
pub(super) struct CallSpan(Span);

impl CallSpan {
    pub(super) fn begin<Resp>(
        propagation: &Propagation,
        me: NodeId,
        branches: &mut [(Peer, Request<Resp>)],
    ) -> Self {
        let Some((peer, request)) = branches.first() else { return Self(Span::none()) };
        let span = info_span!(
            target: "convoke",
            "call",
            otel.name = request.name,
            otel.kind = "client",
            otel.status_code = Empty,
            method = request.name,
            node = %me,
            peer = %peer.node(),
            branches = branches.len(),
            call = Empty,
            outcome = Empty,
            trace_id = Empty,
            span_id = Empty,
            parent_id = Empty,
        );
        if !span.is_disabled() {
            let parent = TraceContext::among(&request.extensions);
            if let Some(own) = propagation.begin(&span, parent) {
                for (_, request) in branches {
                    *request = request.clone().trace_context(own);
                }
            }
        }
        Self(span)
    }

    pub(super) fn opened(&self, id: CallId) {
        self.0.record("call", tracing::field::debug(id));
    }

    pub(super) fn branch_failed(&self, failure: &Failure) {
        if !self.0.is_disabled() {
            tracing::info!(target: "convoke", parent: &self.0, %failure, "a branch failed");
        }
    }

    /// Ends the span, once.
    pub(super) fn end(&mut self, outcome: &'static str) {
        let span = std::mem::replace(&mut self.0, Span::none());
        span.record("outcome", outcome);
        if matches!(outcome, "partial" | "exhausted") {
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// The span of a task's handler.
#[derive(Debug)]
pub(super) struct TaskSpan {
    span: Span,
    context: Option<TraceContext>,
    is_over: AtomicBool,
}

impl TaskSpan {
    /// One of a task that is over: no span.
    pub(super) fn over() -> Self {
        Self { span: Span::none(), context: None, is_over: AtomicBool::new(true) }
    }

    pub(super) fn begin(
        propagation: &Propagation,
        me: NodeId,
        method: &'static str,
        start: &Start,
        now: impl Fn() -> Timestamp,
    ) -> Self {
        // The fields are made only if somebody wants the span, the time among them.
        let remaining_ms = || start.deadline.since(now()).as_millis();
        // Its parent is at another node, not what this thread happens to be in.
        let span = info_span!(
            target: "convoke",
            parent: None,
            "task",
            otel.name = method,
            otel.kind = "server",
            otel.status_code = Empty,
            method,
            node = %me,
            peer = %start.from,
            initiator = %start.origin,
            call = ?start.task.call,
            path = %start.task.task,
            remaining_ms = u64::try_from(remaining_ms()).unwrap_or(u64::MAX),
            outcome = Empty,
            trace_id = Empty,
            span_id = Empty,
            parent_id = Empty,
        );
        let parent = TraceContext::among(&start.extensions);
        let context = if span.is_disabled() { None } else { propagation.begin(&span, parent) };
        Self { span, context, is_over: AtomicBool::new(false) }
    }

    pub(super) fn context(&self) -> Option<TraceContext> {
        self.context
    }

    pub(super) fn enter(&self) -> Entered<'_> {
        let outer = CURRENT.replace(self.context);
        Entered { _span: self.span.enter(), outer }
    }

    /// It ended so, unless it has before.
    pub(super) fn end(&self, outcome: &'static str, failure: Option<&TaskFailure>) {
        if self.span.is_disabled() || self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.span.record("outcome", outcome);
        if let Some(failure) = failure {
            self.span.record("otel.status_code", "ERROR");
            let (cause, text) = (failure.cause, failure.text.as_str());
            tracing::info!(target: "convoke", parent: &self.span, %cause, text, "the task failed");
        }
    }
}

/// While it lives, what happens on this thread happens in the span of a task.
pub(super) struct Entered<'a> {
    _span: tracing::span::Entered<'a>,
    outer: Option<TraceContext>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}
