//! Ids, parents and attributes of an endpoint's spans.

use convoke_core::{Code, Propagator, SpanEnd, SpanKind, SpanStart, TraceContext};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Propagator that gives the spans of an endpoint the ids and parents of OpenTelemetry, and the
/// attributes of its conventions for RPC.
///
/// Without a layer of `tracing-opentelemetry` it does nothing: requests then carry on the trace that
/// their parent is part of.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTelemetry;

impl Propagator for OpenTelemetry {
    fn begin(
        &self,
        span: &Span,
        start: &SpanStart,
        parent: Option<TraceContext>,
    ) -> Option<TraceContext> {
        if let Some(parent) = parent.filter(|parent| !is_above(start, *parent)) {
            // It fails where no layer of OpenTelemetry is installed; there are no ids then either.
            let _ = span.set_parent(Context::new().with_remote_span_context(remote(parent)));
        }
        span.set_attribute("rpc.system.name", "convoke");
        span.set_attribute("rpc.method", start.method);
        if start.kind == SpanKind::Call {
            span.set_attribute("server.address", start.peer.to_string());
        }
        own(span).or(parent)
    }

    fn end(&self, span: &Span, end: &SpanEnd) {
        if let Some(code) = status_code(end) {
            span.set_attribute("rpc.response.status_code", code);
        }
        if let Some(error) = error_type(end) {
            span.set_attribute("error.type", error);
        }
    }
}

/// True of the parent of a call that is made inside a span of its trace: that of its task, or one
/// that the handler has made below it, which is then the parent already.
fn is_above(start: &SpanStart, parent: TraceContext) -> bool {
    let is_of_its_trace = |current: TraceContext| current.trace_id() == parent.trace_id();
    start.kind == SpanKind::Call && own(&Span::current()).is_some_and(is_of_its_trace)
}

/// The place in a trace that came with a request.
fn remote(parent: TraceContext) -> SpanContext {
    let (trace, id) = (TraceId::from(parent.trace_id()), SpanId::from(parent.span_id()));
    SpanContext::new(trace, id, TraceFlags::new(parent.flags()), true, TraceState::default())
}

/// The place of a span, where a layer of OpenTelemetry has given it one.
fn own(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span();
    let own = span.span_context();
    let trace = u128::from_be_bytes(own.trace_id().to_bytes());
    let id = u64::from_be_bytes(own.span_id().to_bytes());
    TraceContext::new(trace, id, own.trace_flags().to_u8()).ok()
}

/// The code of an answer, where there was an answer.
fn status_code(end: &SpanEnd) -> Option<String> {
    if is_success(end) { Some("OK".to_owned()) } else { end.code.map(screaming) }
}

/// True of a call that has what its caller wanted, though a branch of it may have failed.
fn is_success(end: &SpanEnd) -> bool {
    matches!(end.outcome, "answered" | "complete" | "decided" | "finished")
}

fn error_type(end: &SpanEnd) -> Option<String> {
    let cause = end.cause.filter(|_| !is_success(end))?;
    Some(end.code.map_or_else(|| cause.name().to_owned(), screaming))
}

/// A code as the conventions write it: `NOT_FOUND`.
fn screaming(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_the_conventions_do() {
        let codes = [(Code::NotFound, "NOT_FOUND"), (Code::Unavailable, "UNAVAILABLE")];
        for (code, expected) in codes {
            assert_eq!(screaming(code), expected);
        }
    }

    #[test]
    fn a_context_keeps_its_ids_and_flags_on_the_way_through_opentelemetry() {
        let (trace, id) = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);
        let context = TraceContext::new(trace, id, 1).unwrap();
        let remote = remote(context);
        assert!(remote.is_valid() && remote.is_remote() && remote.is_sampled());
        assert_eq!(remote.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(remote.span_id().to_string(), "00f067aa0ba902b7");
    }

    #[test]
    fn a_span_without_a_layer_passes_on_its_parent() {
        let parent = TraceContext::new(7, 8, 0).ok();
        assert_eq!(own(&Span::none()), None);
        assert_eq!(own(&Span::none()).or(parent), parent);
    }
}
