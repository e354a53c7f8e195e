//! Recent traces as trees, and each drawn as lanes over time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use charts::escaped;
use tokio::time::Instant;

use crate::operation::spans::{Seen, Span};

/// Traces that are shown.
const TRACES_MAX: usize = 20;

/// Lanes of one of them.
const LANES_MAX: usize = 60;

/// One trace, as far as this process took part in it: parents before children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) id: String,
    pub(super) lanes: Vec<Lane>,
    /// Spans beyond those shown.
    pub(super) left_out: usize,
}

/// A span in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) depth: usize,
    pub(super) span: Span,
}

/// The most recent traces, latest first.
pub(super) fn recent(seen: Seen) -> Vec<Trace> {
    let mut by_trace: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    let spans = seen.ended.into_iter().chain(seen.open);
    for span in spans.filter(|span| !span.field("trace_id").is_empty()) {
        by_trace.entry(span.field("trace_id").to_owned()).or_default().push(span);
    }
    let latest = |spans: &[Span]| spans.iter().map(|span| span.begun).max();
    let mut traces: Vec<_> = by_trace.into_iter().collect();
    traces.sort_by_key(|(_, spans)| std::cmp::Reverse(latest(spans)));
    traces.truncate(TRACES_MAX);
    traces.into_iter().map(|(id, spans)| tree(id, spans)).collect()
}

/// Puts the spans of a trace below their parents. One whose parent is at another node, or is no
/// longer known, begins at the left.
fn tree(id: String, mut spans: Vec<Span>) -> Trace {
    spans.sort_by_key(|span| span.begun);
    let known: BTreeSet<String> = spans.iter().map(|span| span.field("span_id").into()).collect();
    let mut below: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for span in spans {
        let parent = span.field("parent_id");
        // A span that is its own parent would be below nothing.
        let is_known = known.contains(parent) && parent != span.field("span_id");
        let parent = if is_known { parent.to_owned() } else { String::new() };
        below.entry(parent).or_default().push(span);
    }
    let mut lanes = Vec::new();
    let mut waiting: Vec<Lane> = Vec::new();
    let children = |below: &mut BTreeMap<String, Vec<Span>>, of: &str, depth| {
        let spans = below.remove(of).unwrap_or_default();
        spans.into_iter().rev().map(move |span| Lane { depth, span })
    };
    waiting.extend(children(&mut below, "", 0));
    while let Some(lane) = waiting.pop() {
        waiting.extend(children(&mut below, lane.span.field("span_id"), lane.depth + 1));
        lanes.push(lane);
    }
    let left_out = lanes.len().saturating_sub(LANES_MAX);
    lanes.truncate(LANES_MAX);
    Trace { id, lanes, left_out }
}

/// Sizes of a drawing.
const WIDTH: f64 = 900.0;
const LANE: f64 = 24.0;
const BARS: f64 = 420.0;
const BAR_MIN: f64 = 2.0;

/// A trace as lanes over time, of which the first and the last moment are the edges.
pub(super) fn drawn(trace: &Trace, now: Instant) -> String {
    let start = trace.lanes.iter().map(|lane| lane.span.begun).min().unwrap_or(now);
    let end = |span: &Span| span.took.map_or(now, |took| span.begun + took);
    let all = trace.lanes.iter().map(|lane| end(&lane.span).saturating_duration_since(start));
    let all = all.max().unwrap_or_default().max(Duration::from_nanos(1));
    let height = LANE * count(trace.lanes.len());
    let title = format!("trace {}, {}", trace.id, time(all));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n",
        title = escaped(&title)
    );
    for (index, lane) in trace.lanes.iter().enumerate() {
        let (top, left) = (LANE * count(index), 8.0 + 16.0 * count(lane.depth.min(12)));
        let middle = top + LANE / 2.0;
        if let Some(parent) = trace.lanes[..index].iter().rposition(|up| up.depth < lane.depth) {
            let from = LANE * (count(parent) + 1.0) - 4.0;
            let edge = left - 10.0;
            let _ = writeln!(svg, "<path d=\"M{edge} {from}V{middle}H{}\"/>", left - 3.0);
        }
        let span = &lane.span;
        let begun = span.begun.saturating_duration_since(start).as_secs_f64() / all.as_secs_f64();
        let took = end(span).saturating_duration_since(span.begun).as_secs_f64();
        let room = WIDTH - BARS - 8.0;
        let bar = (took / all.as_secs_f64() * room).max(BAR_MIN);
        let x = (BARS + begun * room).min(WIDTH - 8.0 - BAR_MIN);
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><title>{}</title><text x=\"{left}\" y=\"{:.1}\">{}</text>\
             <rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"12\" rx=\"2\"/></g>",
            class(span),
            escaped(&in_words(span, now)),
            middle + 4.0,
            escaped(&label(span, now)),
            middle - 6.0,
        );
    }
    svg + "</svg>\n"
}

/// Short enough to stand before the bars.
fn label(span: &Span, now: Instant) -> String {
    let method = span.field("method").rsplit('/').next().unwrap_or_default();
    let where_to = if span.is_task {
        format!("at {}", span.field("node"))
    } else {
        format!("{} → {}", span.field("node"), span.field("peer"))
    };
    let took = span.took.map_or_else(|| format!("{} so far", time(now - span.begun)), time);
    format!("{method} {where_to}, {took}")
}

/// All that is known of a span.
pub(super) fn in_words(span: &Span, now: Instant) -> String {
    let what = if span.is_task { "handler" } else { "call" };
    let ended = match (span.took, span.field("outcome")) {
        (Some(took), outcome) => format!("{outcome} after {}", time(took)),
        (None, _) => format!("open for {}", time(now - span.begun)),
    };
    let (method, node, peer) = (span.field("method"), span.field("node"), span.field("peer"));
    let towards = if span.is_task { "from" } else { "to" };
    format!("{what} of {method} at {node}, {towards} {peer}: {ended}")
}

/// Kind of a lane, for its colour.
fn class(span: &Span) -> &'static str {
    match (span.field("outcome"), span.is_task) {
        ("failed" | "panicked" | "partial" | "exhausted", _) => "bad",
        ("", _) => "open",
        (_, true) => "task",
        (_, false) => "call",
    }
}

/// A time with the unit that fits it.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0..0.001 => format!("{:.0} µs", seconds * 1e6),
        0.001..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "some hundred lanes at most")]
fn count(count: usize) -> f64 {
    count as f64
}
