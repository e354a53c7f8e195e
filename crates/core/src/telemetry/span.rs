//! A `tracing` span for each call and each handler, and their place in the distributed trace.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use convoke_proto::failure::Failure;
use convoke_proto::id::{CallId, NodeId};
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::Start;
use convoke_proto::wire::Cause;
use convoke_transport::parts::Guest;
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::error::Code;
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
    /// for each span, on whatever thread brought the request: it must not block. One that panics
    /// gives none.
    fn begin(
        &self,
        span: &Span,
        start: &SpanStart,
        parent: Option<TraceContext>,
    ) -> Option<TraceContext>;

    /// A span ends that has begun. Called once for each, and must not block. Default: does nothing.
    fn end(&self, span: &Span, end: &SpanEnd) {
        let _ = (span, end);
    }
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanKind {
    /// A call of this endpoint, from its opening to its end.
    Call,
    /// A handler of this endpoint.
    Task,
}

/// Facts about a span when it begins, for a [`Propagator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanStart {
    /// Call or task.
    pub kind: SpanKind,
    /// The full name of the method. Of a call whose branches differ that of the first.
    pub method: &'static str,
    /// The node of this endpoint.
    pub node: NodeId,
    /// Of a call the node that its first branch goes to, of a task the one that sent it.
    pub peer: NodeId,
}

/// Facts about a span when it ends, for a [`Propagator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanEnd {
    /// Call or task.
    pub kind: SpanKind,
    /// The end in a word, which is the field `outcome` of the span.
    pub outcome: &'static str,
    /// Reason of the failure: of a call that of the first branch that failed, if any did.
    pub cause: Option<Cause>,
    /// The service's code, for [`Cause::Application`].
    pub code: Option<Code>,
}

impl SpanEnd {
    fn new(kind: SpanKind, outcome: &'static str, failed: Option<(Cause, u32)>) -> Self {
        let code = failed.filter(|(cause, _)| *cause == Cause::Application);
        let code = code.map(|(_, number)| Code::from_number(number));
        Self { kind, outcome, cause: failed.map(|(cause, _)| cause), code }
    }
}

/// The propagator of an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Propagation(pub(crate) Option<Arc<dyn Propagator>>);

impl Propagation {
    fn begin(
        &self,
        span: &Span,
        start: &SpanStart,
        parent: Option<TraceContext>,
    ) -> Option<TraceContext> {
        match &self.0 {
            Some(propagator) => PROPAGATOR.call(|| propagator.begin(span, start, parent)).flatten(),
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

    fn end(&self, span: &Span, end: &SpanEnd) {
        if let Some(propagator) = &self.0 {
            PROPAGATOR.call(|| propagator.end(span, end));
        }
    }
}

static PROPAGATOR: Guest = Guest::new("propagator of an endpoint");

/// Panics at the beginning of a span are those of the call or the handler.
static SUBSCRIBER: Guest = Guest::new("subscriber of spans");

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
pub(super) struct CallSpan {
    span: Span,
    /// Of a span that somebody wants.
    propagation: Propagation,
    /// Cause and code of the first branch that failed.
    failed: OnceLock<(Cause, u32)>,
}

impl CallSpan {
    pub(super) fn begin<Resp>(
        propagation: &Propagation,
        me: NodeId,
        branches: &mut [(Peer, Request<Resp>)],
    ) -> Self {
        let Some((peer, request)) = branches.first() else { return Self::default() };
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
        if span.is_disabled() {
            return Self::default();
        }
        let parent = TraceContext::among(&request.root.extensions);
        let (kind, method) = (SpanKind::Call, request.name);
        let start = SpanStart { kind, method, node: me, peer: peer.node() };
        if let Some(own) = propagation.begin(&span, &start, parent) {
            for (_, request) in branches {
                *request = request.clone().trace_context(own);
            }
        }
        Self { span, propagation: propagation.clone(), failed: OnceLock::new() }
    }

    pub(super) fn opened(&self, id: CallId) {
        if !self.span.is_disabled() {
            SUBSCRIBER.call(|| self.span.record("call", tracing::field::debug(id)));
        }
    }

    pub(super) fn branch_failed(&self, failure: &Failure) {
        if !self.span.is_disabled() {
            tracing::info!(target: "convoke", parent: &self.span, %failure, "a branch failed");
            let _ = self.failed.set((failure.cause, failure.code));
        }
    }

    /// Ends the span, once.
    pub(super) fn end(&mut self, outcome: &'static str) {
        let Self { span, propagation, failed } = std::mem::take(self);
        if span.is_disabled() {
            return;
        }
        SUBSCRIBER.call(|| {
            span.record("outcome", outcome);
            if matches!(outcome, "partial" | "exhausted" | "refused") {
                span.record("otel.status_code", "ERROR");
            }
        });
        propagation.end(&span, &SpanEnd::new(SpanKind::Call, outcome, failed.into_inner()));
    }
}

impl Default for CallSpan {
    /// One that nobody wants, or that is over.
    fn default() -> Self {
        let (propagation, failed) = (Propagation::default(), OnceLock::new());
        Self { span: Span::none(), propagation, failed }
    }
}

/// The span of a task's handler.
#[derive(Debug)]
pub(super) struct TaskSpan {
    span: Span,
    /// Of a span that somebody wants.
    propagation: Propagation,
    context: Option<TraceContext>,
    is_over: AtomicBool,
}

impl TaskSpan {
    /// One of a task that is over: no span.
    pub(super) fn over() -> Self {
        let (propagation, is_over) = (Propagation::default(), AtomicBool::new(true));
        Self { span: Span::none(), propagation, context: None, is_over }
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
        if span.is_disabled() {
            return Self::over();
        }
        let parent = TraceContext::among(&start.extensions);
        let of = SpanStart { kind: SpanKind::Task, method, node: me, peer: start.from };
        let context = propagation.begin(&span, &of, parent);
        Self { span, propagation: propagation.clone(), context, is_over: AtomicBool::new(false) }
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
        SUBSCRIBER.call(|| {
            let span = &self.span;
            span.record("outcome", outcome);
            if let Some(failure) = failure {
                span.record("otel.status_code", "ERROR");
                let (cause, text) = (failure.cause, failure.text.as_str());
                tracing::info!(target: "convoke", parent: span, %cause, text, "the task failed");
            }
        });
        let failed = failure.map(|failure| (failure.cause, failure.code));
        self.propagation.end(&self.span, &SpanEnd::new(SpanKind::Task, outcome, failed));
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
