//! Records of calls and tasks: spans (feature `tracing-spans`) and metrics (feature `metrics`).
//!
//! The rest of the crate has one line where something begins or ends. Without the features these
//! are empty, and with one of them they are so as long as nobody listens: no subscriber wants the
//! span, the endpoint was not told to count.

#[cfg(feature = "metrics")]
mod meters;
#[cfg(feature = "metrics")]
mod rising;
#[cfg(feature = "tracing-spans")]
mod span;

use std::marker::PhantomData;

use convoke_proto::call::End;
use convoke_proto::encoded::Encoded;
use convoke_proto::failure::Failure;
#[cfg(feature = "metrics")]
use convoke_proto::id::MethodId;
use convoke_proto::id::{CallId, NodeId};
use convoke_proto::task::TaskFailure;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::Start;
use convoke_proto::wire::{Cause, Extension, Head};
#[cfg(feature = "metrics")]
use convoke_transport::parts::Guest;

use crate::method::Request;
use crate::peer::Peer;
use crate::trace_context::TraceContext;
use crate::transport::{CloseReason, Connection, Link};
use crate::way::Way;

#[cfg(feature = "metrics")]
pub(crate) use meters::{Meters, Seen};
#[cfg(feature = "metrics")]
pub use rising::Rising;
#[cfg(feature = "tracing-spans")]
pub use span::{Propagator, SpanEnd, SpanKind, SpanStart};

/// Records of an endpoint. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telemetry {
    #[cfg(feature = "tracing-spans")]
    pub(crate) propagation: span::Propagation,
    #[cfg(feature = "metrics")]
    pub(crate) meters: Option<std::sync::Arc<Meters>>,
}

#[cfg_attr(
    not(feature = "metrics"),
    expect(clippy::unused_self, reason = "without the feature there is nothing to record")
)]
impl Telemetry {
    /// Counts, if it should, what these methods do.
    #[cfg(feature = "metrics")]
    pub(crate) fn with_meters(
        mut self,
        has: bool,
        node: NodeId,
        methods: impl Iterator<Item = (MethodId, &'static str)>,
    ) -> Self {
        self.meters = has.then(|| std::sync::Arc::new(Meters::new(node, methods)));
        self
    }

    /// A connection is open.
    pub(crate) fn on_open(&self, link: &Link) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_open(link));
        let _ = link;
    }

    /// A connection was not taken.
    pub(crate) fn on_refused(&self, link: &Link, reason: &'static str) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_refused(link, reason));
        let _ = (link, reason);
    }

    /// A connection has ended.
    pub(crate) fn on_closed(&self, connection: &dyn Connection, reason: &CloseReason) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_closed(connection, reason));
        let _ = (connection, reason);
    }

    /// A call of this node got a reply.
    pub(crate) fn on_reply(&self, way: Way) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_reply(way));
        let _ = way;
    }

    /// A dial has failed at all addresses.
    pub(crate) fn on_dial_failed(&self) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_dial_failed());
    }

    /// One read brought so many frames.
    pub(crate) fn on_batch(&self, frames: u64) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_batch(frames));
        let _ = frames;
    }

    /// The cause of a frame by which this node answers a request of another without having run it,
    /// if anybody counts.
    #[inline]
    pub(crate) fn refusal(&self, head: Head<'_>, payload: &Encoded) -> Option<Cause> {
        #[cfg(feature = "metrics")]
        if self.meters.is_some() && head.is_fail() {
            return meters::refusal(head, payload);
        }
        let _ = (head, payload);
        None
    }

    /// A request of another was answered without having run.
    pub(crate) fn on_refusal(&self, cause: Cause) {
        #[cfg(feature = "metrics")]
        self.count(|meters| meters.on_refusal(cause));
        let _ = cause;
    }

    /// Takes what is sampled, if anybody counts.
    #[cfg(feature = "metrics")]
    pub(crate) fn sample(&self, see: impl FnOnce() -> Seen) {
        if let Some(meters) = &self.meters {
            let seen = see();
            RECORDER.call(|| meters.sample(seen));
        }
    }

    #[cfg(feature = "metrics")]
    #[inline]
    fn count(&self, count: impl FnOnce(&Meters)) {
        if let Some(meters) = &self.meters {
            RECORDER.call(|| count(meters));
        }
    }
}

#[cfg(feature = "metrics")]
static RECORDER: Guest = Guest::new("recorder of metrics");

/// Follows one call from its opening to its end.
#[derive(Debug)]
pub(crate) struct CallProbe {
    #[cfg(feature = "tracing-spans")]
    span: span::CallSpan,
    #[cfg(feature = "metrics")]
    meter: Option<meters::CallMeter>,
}

#[cfg_attr(
    not(any(feature = "metrics", feature = "tracing-spans")),
    expect(clippy::unused_self, reason = "without the features there is nothing to record")
)]
impl CallProbe {
    /// A call is about to be opened. Its requests become part of the trace.
    pub(crate) fn begin<Resp>(
        telemetry: &Telemetry,
        me: NodeId,
        branches: &mut [(Peer, Request<Resp>)],
    ) -> Self {
        let _ = (telemetry, me, &branches);
        Self {
            #[cfg(feature = "tracing-spans")]
            span: span::CallSpan::begin(&telemetry.propagation, me, branches),
            #[cfg(feature = "metrics")]
            meter: telemetry
                .meters
                .as_ref()
                .and_then(|meters| RECORDER.call(|| meters.call(branches)).flatten()),
        }
    }

    /// The call has its name.
    pub(crate) fn opened(&self, id: CallId) {
        #[cfg(feature = "tracing-spans")]
        self.span.opened(id);
        let _ = id;
    }

    /// A branch has failed.
    pub(crate) fn branch_failed(&self, failure: &Failure) {
        #[cfg(feature = "tracing-spans")]
        self.span.branch_failed(failure);
        #[cfg(feature = "metrics")]
        if let Some(meter) = &self.meter {
            RECORDER.call(|| meter.branch_failed(failure));
        }
        let _ = failure;
    }

    /// The call has ended.
    pub(crate) fn ended(&mut self, end: End) {
        self.end(match end {
            End::Complete => CallEnd::Complete,
            End::Partial => CallEnd::Partial,
            End::Decided => CallEnd::Decided,
            End::Cancelled => CallEnd::Cancelled,
            // `Exhausted`; whatever is added counts as it until it has a name here.
            _ => CallEnd::Exhausted,
        });
    }

    /// The first reply is here, and no other is wanted.
    pub(crate) fn answered(&mut self) {
        self.end(CallEnd::Answered);
    }

    /// The call could not be opened.
    pub(crate) fn refused(&mut self) {
        self.end(CallEnd::Refused);
    }

    fn end(&mut self, end: CallEnd) {
        #[cfg(feature = "tracing-spans")]
        self.span.end(end.name());
        #[cfg(feature = "metrics")]
        if let Some(meter) = self.meter.take() {
            RECORDER.call(|| meter.end(end));
        }
        let _ = end.name();
    }
}

impl Drop for CallProbe {
    /// Unless it has ended, its owner gave it up.
    fn drop(&mut self) {
        self.end(CallEnd::Dropped);
    }
}

/// End of a call, as its owner saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    Complete,
    Partial,
    Decided,
    Cancelled,
    Exhausted,
    Answered,
    Refused,
    Dropped,
}

impl CallEnd {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 8] = [
        Self::Complete,
        Self::Partial,
        Self::Decided,
        Self::Cancelled,
        Self::Exhausted,
        Self::Answered,
        Self::Refused,
        Self::Dropped,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Decided => "decided",
            Self::Cancelled => "cancelled",
            Self::Exhausted => "exhausted",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
        }
    }
}

/// Follows one task from the start of its handler to its end.
#[derive(Debug)]
pub(crate) struct TaskProbe {
    #[cfg(feature = "tracing-spans")]
    span: span::TaskSpan,
    #[cfg(feature = "metrics")]
    meter: Option<meters::TaskMeter>,
}

#[cfg_attr(
    not(any(feature = "metrics", feature = "tracing-spans")),
    expect(clippy::unused_self, reason = "without the features there is nothing to record")
)]
impl TaskProbe {
    /// A handler is about to start at the node `me`.
    pub(crate) fn begin(
        telemetry: &Telemetry,
        me: NodeId,
        method: &'static str,
        start: &Start,
        now: impl Fn() -> Timestamp,
    ) -> Self {
        let _ = (telemetry, me, method, start, &now);
        Self {
            #[cfg(feature = "tracing-spans")]
            span: span::TaskSpan::begin(&telemetry.propagation, me, method, start, now),
            #[cfg(feature = "metrics")]
            meter: telemetry
                .meters
                .as_ref()
                .and_then(|meters| RECORDER.call(|| meters.task(start.method)).flatten()),
        }
    }

    /// One of a task that is over: it records nothing.
    pub(crate) fn over() -> Self {
        Self {
            #[cfg(feature = "tracing-spans")]
            span: span::TaskSpan::over(),
            #[cfg(feature = "metrics")]
            meter: None,
        }
    }

    /// The handler is polled until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered {
            #[cfg(feature = "tracing-spans")]
            _span: self.span.enter(),
            probe: PhantomData,
        }
    }

    /// The handler has ended by itself.
    pub(crate) fn finished(&self) {
        self.end(TaskEnd::Finished, None);
    }

    /// The handler has failed.
    pub(crate) fn failed(&self, failure: &TaskFailure) {
        let end = match failure.cause {
            Cause::Panicked => TaskEnd::Panicked,
            Cause::Dropped => TaskEnd::Stopped,
            _ => TaskEnd::Failed,
        };
        self.end(end, Some(failure));
    }

    /// The handler is gone. Unless it has ended, it was stopped.
    pub(crate) fn gone(&self) {
        self.end(TaskEnd::Stopped, None);
    }

    fn end(&self, end: TaskEnd, failure: Option<&TaskFailure>) {
        #[cfg(feature = "tracing-spans")]
        self.span.end(end.name(), failure);
        #[cfg(feature = "metrics")]
        if let Some(meter) = &self.meter {
            RECORDER.call(|| meter.end(end));
        }
        let _ = (end.name(), failure);
    }

    /// Extensions of a branch of the task: those it was given, and the task's place in its trace.
    pub(crate) fn extensions_of(&self, given: &[Extension]) -> Vec<Extension> {
        #[cfg(feature = "tracing-spans")]
        if let Some(context) = self.span_context()
            && TraceContext::among(given).is_none()
        {
            return given.iter().cloned().chain([context.to_extension()]).collect();
        }
        given.to_vec()
    }

    /// The span of the task, if there is one.
    pub(crate) fn span_context(&self) -> Option<TraceContext> {
        #[cfg(feature = "tracing-spans")]
        return self.span.context();
        #[cfg(not(feature = "tracing-spans"))]
        None
    }
}

/// End of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskEnd {
    /// It returned.
    Finished,
    /// It returned an error.
    Failed,
    Panicked,
    /// It was dropped: cancelled, too late, or at shutdown.
    Stopped,
}

impl TaskEnd {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 4] = [Self::Finished, Self::Failed, Self::Panicked, Self::Stopped];

    const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Stopped => "stopped",
        }
    }
}

/// While it lives, the handler of a task is polled on this thread.
#[must_use = "the handler is polled while it lives"]
pub(crate) struct Entered<'a> {
    #[cfg(feature = "tracing-spans")]
    _span: span::Entered<'a>,
    probe: PhantomData<&'a TaskProbe>,
}
