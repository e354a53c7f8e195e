//! Spans of calls and handlers as this process sees them: those that are open, and the last that
//! have ended.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Open spans that are kept. A node may have more: they are counted and not shown.
const OPEN_MAX: usize = 1024;

/// Ended spans that are kept.
const ENDED_MAX: usize = 1024;

/// Spans of an endpoint, kept for a [`Page`](super::Page). Clones share them.
///
/// They come from the layer [`Spans::layer`], in memory that is bounded: the last 1,024 that have
/// ended and as many that are open.
#[derive(Clone, Debug, Default)]
pub struct Spans(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    open: BTreeMap<u64, Span>,
    ended: VecDeque<Span>,
    /// Open spans for which there was no room.
    left_out: u64,
}

/// A call or a handler of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// True of a handler, false of a call.
    pub(super) is_task: bool,
    pub(super) begun: Instant,
    /// `None` while it is open.
    pub(super) took: Option<Duration>,
    fields: BTreeMap<&'static str, String>,
}

impl Span {
    /// A field of the span; empty where it has none of this name.
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Fields that are kept.
const FIELDS: [&str; 7] = ["method", "node", "peer", "outcome", "trace_id", "span_id", "parent_id"];

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if let Some(name) = FIELDS.into_iter().find(|name| *name == field.name()) {
            self.fields.insert(name, format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(name) = FIELDS.into_iter().find(|name| *name == field.name()) {
            self.fields.insert(name, value.to_owned());
        }
    }
}

/// All that is kept, at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Oldest first.
    pub(super) open: Vec<Span>,
    /// In the order of their ends.
    pub(super) ended: Vec<Span>,
    pub(super) left_out: u64,
}

impl Spans {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The layer that keeps them. [`logs_and_spans`](super::logs_and_spans) installs it.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        // Other spans and events are not asked for.
        Keeper(self.clone()).with_filter(Targets::new().with_target("convoke", Level::INFO))
    }

    pub(super) fn seen(&self) -> Seen {
        let kept = self.0.lock();
        let mut open: Vec<_> = kept.open.values().cloned().collect();
        let (ended, left_out) = (kept.ended.iter().cloned().collect(), kept.left_out);
        drop(kept);
        open.sort_by_key(|span| span.begun);
        Seen { open, ended, left_out }
    }
}

/// Puts spans where they are kept.
struct Keeper(Spans);

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let is_task = attributes.metadata().name() == "task";
        let fields = BTreeMap::new();
        let mut span = Span { is_task, begun: Instant::now(), took: None, fields };
        attributes.record(&mut span);
        let mut kept = self.0.0.lock();
        if kept.open.len() < OPEN_MAX {
            kept.open.insert(id.into_u64(), span);
        } else {
            kept.left_out += 1;
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(span) = self.0.0.lock().open.get_mut(&id.into_u64()) {
            values.record(span);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut kept = self.0.0.lock();
        let Some(mut span) = kept.open.remove(&id.into_u64()) else { return };
        span.took = Some(span.begun.elapsed());
        if kept.ended.len() == ENDED_MAX {
            kept.ended.pop_front();
        }
        kept.ended.push_back(span);
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::Empty;
    use tracing::{info_span, subscriber::with_default};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn spans_are_kept_within_bounds() {
        let spans = Spans::new();
        let subscriber = tracing_subscriber::registry().with(spans.layer());
        with_default(subscriber, || {
            let open: Vec<_> = (0..OPEN_MAX + 5)
                .map(|_| info_span!(target: "convoke", "call", method = "a.A/B", outcome = Empty))
                .collect();
            let _other = info_span!(target: "another", "call", method = "a.A/B");
            let seen = spans.seen();
            assert_eq!((seen.open.len(), seen.left_out, seen.ended.len()), (OPEN_MAX, 5, 0));
            open[0].record("outcome", "answered");
            drop(open);
            for _ in 0..OPEN_MAX {
                drop(info_span!(target: "convoke", "task", node = %7));
            }
            let seen = spans.seen();
            assert_eq!((seen.open.len(), seen.ended.len()), (0, ENDED_MAX));
            let last = seen.ended.last().unwrap();
            assert_eq!((last.is_task, last.field("node"), last.field("outcome")), (true, "7", ""));
            assert!(last.took.is_some());
        });
    }
}
