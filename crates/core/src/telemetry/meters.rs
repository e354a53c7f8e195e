//! Counters, gauges and histograms through the `metrics` facade.
//!
//! Handles are resolved once per method, so that counting is an atomic addition; what the node
//! knows anyway is sampled. `docs/metrics.md` lists every name with its unit and labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::encoded::Encoded;
use convoke_proto::failure::Failure;
use convoke_proto::id::{MethodId, NodeId};
use convoke_proto::node::IgnoredCounts;
use convoke_proto::wire::{Cause, Executed, Frame, Head, Message};
use convoke_transport::parts::Mutex;
use metrics::{Counter, Gauge, Histogram, Label, Unit};
use tokio::time::Instant;

use crate::method::Request;
use crate::peer::Peer;
use crate::transport::{CloseReason, Connection, Counters, Link};
use crate::way::Way;

use super::{CallEnd, RECORDER, Rising, TaskEnd};

/// Counters of an endpoint.
#[derive(Debug)]
pub(crate) struct Meters {
    /// Tells the endpoints of one process apart.
    node: String,
    /// Methods that were called, as they come: as many as the program has.
    /// By the name in the labels: whatever a gateway asks for by names of strangers is one.
    calls: Mutex<BTreeMap<&'static str, Arc<CallMeters>>>,
    /// Methods that are served.
    tasks: BTreeMap<MethodId, Arc<TaskMeters>>,
    batch_frames: Histogram,
    /// By [`Way`].
    replies: [Counter; WAYS.len()],
    sampled: Sampled,
}

/// Gauges, which are asked of the node rather than counted.
#[derive(Debug)]
struct Sampled {
    calls_open: Gauge,
    tasks_running: Gauge,
    tasks_waiting: Gauge,
    connections_open: Gauge,
    ignored: [Rising; IGNORED.len()],
    carried: [Rising; CARRIED.len()],
}

/// The metrics of a method as it is called.
#[derive(Debug)]
struct CallMeters {
    node: String,
    method: &'static str,
    opened: Counter,
    ended: [Counter; CallEnd::ALL.len()],
    duration: Histogram,
}

/// The metrics of a method as it is served.
#[derive(Debug)]
struct TaskMeters {
    started: Counter,
    ended: [Counter; TaskEnd::ALL.len()],
    duration: Histogram,
}

impl Meters {
    /// Registers with the recorder that is installed.
    pub(crate) fn new(
        node: NodeId,
        methods: impl Iterator<Item = (MethodId, &'static str)>,
    ) -> Self {
        describe();
        let node = node.to_string();
        let tasks = methods.map(|(id, name)| (id, Arc::new(TaskMeters::new(&node, name))));
        let carried = CARRIED
            .map(|(name, ..)| metrics::counter!(name, vec![Label::new("node", node.clone())]))
            .map(Rising::new);
        let ignored = IGNORED.map(|(reason, _)| {
            let labels = [("node", node.clone()), ("reason", reason.to_owned())];
            Rising::new(metrics::counter!("convoke_frames_ignored_total", &labels))
        });
        let replies = WAYS.map(|way| {
            let labels = [("node", node.clone()), ("way", way.to_owned())];
            metrics::counter!("convoke_replies_total", &labels)
        });
        let gauge = |name: &'static str| metrics::gauge!(name, "node" => node.clone());
        Self {
            tasks: tasks.collect(),
            calls: Mutex::default(),
            replies,
            batch_frames: metrics::histogram!("convoke_batch_frames", "node" => node.clone()),
            sampled: Sampled {
                calls_open: gauge("convoke_calls_open"),
                tasks_running: gauge("convoke_tasks_running"),
                tasks_waiting: gauge("convoke_tasks_waiting"),
                connections_open: gauge("convoke_connections_open"),
                ignored,
                carried,
            },
            node,
        }
    }

    pub(super) fn call<Resp>(&self, branches: &[(Peer, Request<Resp>)]) -> Option<CallMeter> {
        let (_, request) = branches.first()?;
        let mut calls = self.calls.lock();
        let meters = calls.entry(request.name);
        let meters =
            meters.or_insert_with(|| Arc::new(CallMeters::new(&self.node, request.name))).clone();
        meters.opened.increment(1);
        Some(CallMeter { meters, since: now() })
    }

    pub(super) fn task(&self, method: MethodId) -> Option<TaskMeter> {
        let meters = self.tasks.get(&method)?.clone();
        meters.started.increment(1);
        Some(TaskMeter { meters, since: now(), is_over: AtomicBool::new(false) })
    }

    pub(super) fn on_open(&self, link: &Link) {
        let labels = [("node", self.node.clone()), ("scheme", link.scheme.to_owned())];
        metrics::counter!("convoke_connections_opened_total", &labels).increment(1);
    }

    pub(super) fn on_refused(&self, link: &Link, reason: &'static str) {
        let labels = [
            ("node", self.node.clone()),
            ("scheme", link.scheme.to_owned()),
            ("reason", reason.to_owned()),
        ];
        metrics::counter!("convoke_connections_refused_total", &labels).increment(1);
    }

    pub(super) fn on_closed(&self, connection: &dyn Connection, reason: &CloseReason) {
        let labels = [
            ("node", self.node.clone()),
            ("scheme", connection.link().scheme.to_owned()),
            ("reason", reason.name().to_owned()),
        ];
        metrics::counter!("convoke_connections_closed_total", &labels).increment(1);
    }

    pub(super) fn on_reply(&self, way: Way) {
        self.replies[way as usize].increment(1);
    }

    pub(super) fn on_dial_failed(&self) {
        metrics::counter!("convoke_dials_failed_total", "node" => self.node.clone()).increment(1);
    }

    #[expect(clippy::cast_precision_loss, reason = "a read has few frames")]
    pub(super) fn on_batch(&self, frames: u64) {
        self.batch_frames.record(frames as f64);
    }

    /// Counts the requests of others that this node answers without having run them.
    pub(super) fn on_refusal(&self, cause: Cause) {
        let labels = [("node", self.node.clone()), ("cause", cause.name().to_owned())];
        metrics::counter!("convoke_refusals_total", &labels).increment(1);
    }

    /// Takes what is sampled.
    #[expect(clippy::cast_precision_loss, reason = "counts of what is open are small")]
    pub(crate) fn sample(&self, seen: Seen) {
        let Seen { calls, tasks, waiting, ignored, connections, carried } = seen;
        self.sampled.calls_open.set(calls as f64);
        self.sampled.tasks_running.set(tasks as f64);
        self.sampled.tasks_waiting.set(waiting as f64);
        self.sampled.connections_open.set(connections as f64);
        for ((_, read), counter) in IGNORED.iter().zip(&self.sampled.ignored) {
            counter.rise_to(read(&ignored));
        }
        for ((_, _, read), counter) in CARRIED.iter().zip(&self.sampled.carried) {
            counter.rise_to(read(&carried));
        }
    }
}

impl Drop for Sampled {
    /// An endpoint that is gone has nothing open.
    fn drop(&mut self) {
        let Self { calls_open, tasks_running, tasks_waiting, connections_open, .. } = self;
        for gauge in [calls_open, tasks_running, tasks_waiting, connections_open] {
            RECORDER.call(|| gauge.set(0.0));
        }
    }
}

/// The cause of a failure, if it is that of a request which this node has not run.
pub(super) fn refusal(head: Head<'_>, payload: &Encoded) -> Option<Cause> {
    let Frame { message, relayed, .. } = head.frame(payload.clone().into_bytes()).ok()?;
    let Message::Fail(fail) = message else { return None };
    let is_own = (fail.executed, fail.node, relayed) == (Executed::No, None, None);
    is_own.then_some(fail.cause)
}

/// Sample of the driver.
pub(crate) struct Seen {
    pub(crate) calls: usize,
    pub(crate) tasks: usize,
    pub(crate) waiting: usize,
    pub(crate) ignored: IgnoredCounts,
    pub(crate) connections: usize,
    /// Traffic of all connections, of those that have ended, too: it never falls.
    pub(crate) carried: Counters,
}

/// One call, from its opening.
#[derive(Debug)]
pub(super) struct CallMeter {
    meters: Arc<CallMeters>,
    since: Instant,
}

impl CallMeter {
    pub(super) fn branch_failed(&self, failure: &Failure) {
        let labels = [
            ("node", self.meters.node.clone()),
            ("method", self.meters.method.to_owned()),
            ("cause", failure.cause.name().to_owned()),
        ];
        metrics::counter!("convoke_call_failures_total", &labels).increment(1);
    }

    pub(super) fn end(self, end: CallEnd) {
        self.meters.ended[end as usize].increment(1);
        self.meters.duration.record(now().duration_since(self.since));
    }
}

/// One task, from the start of its handler.
#[derive(Debug)]
pub(super) struct TaskMeter {
    meters: Arc<TaskMeters>,
    since: Instant,
    is_over: AtomicBool,
}

impl TaskMeter {
    /// It ended so, unless it has before.
    pub(super) fn end(&self, end: TaskEnd) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.meters.ended[end as usize].increment(1);
            self.meters.duration.record(now().duration_since(self.since));
        }
    }
}

impl CallMeters {
    fn new(node: &str, method: &'static str) -> Self {
        let labels = [("node", node.to_owned()), ("method", method.to_owned())];
        let ended = CallEnd::ALL.map(|end| {
            let [node, method] = labels.clone();
            let labels = [node, method, ("outcome", end.name().to_owned())];
            metrics::counter!("convoke_calls_ended_total", &labels)
        });
        Self {
            node: node.to_owned(),
            method,
            opened: metrics::counter!("convoke_calls_opened_total", &labels),
            ended,
            duration: metrics::histogram!("convoke_call_duration_seconds", &labels),
        }
    }
}

impl TaskMeters {
    fn new(node: &str, method: &'static str) -> Self {
        let labels = [("node", node.to_owned()), ("method", method.to_owned())];
        let ended = TaskEnd::ALL.map(|end| {
            let [node, method] = labels.clone();
            let labels = [node, method, ("outcome", end.name().to_owned())];
            metrics::counter!("convoke_tasks_ended_total", &labels)
        });
        Self {
            started: metrics::counter!("convoke_tasks_started_total", &labels),
            ended,
            duration: metrics::histogram!("convoke_task_duration_seconds", &labels),
        }
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a duration that is recorded, not acted on")]
    Instant::now()
}

/// Ways of replies as labels, in the order of [`Way`].
const WAYS: [&str; 3] = ["local", "direct", "relayed"];

type Read = fn(&Counters) -> u64;

/// Traffic of connections: name, unit, and the field to read.
const CARRIED: [(&str, Unit, Read); 6] = [
    ("convoke_bytes_sent_total", Unit::Bytes, |all| all.bytes_sent),
    ("convoke_bytes_received_total", Unit::Bytes, |all| all.bytes_received),
    ("convoke_frames_sent_total", Unit::Count, |all| all.frames_sent),
    ("convoke_frames_received_total", Unit::Count, |all| all.frames_received),
    ("convoke_writes_total", Unit::Count, |all| all.writes),
    ("convoke_reads_total", Unit::Count, |all| all.reads),
];

type ReadIgnored = fn(&IgnoredCounts) -> u64;

/// Frames that did not count: the reason as a label, and where its count is.
const IGNORED: [(&str, ReadIgnored); 2] = [
    ("speaks_for_other", |counts| counts.speaks_for_other),
    ("orders_other", |counts| counts.orders_other),
];

/// Tells the recorder units and meanings.
fn describe() {
    use metrics::describe_histogram as histogram;
    use metrics::{describe_counter as counter, describe_gauge as gauge};
    let count = Unit::Count;
    counter!("convoke_calls_opened_total", count, "calls that this node opened");
    counter!("convoke_calls_ended_total", count, "calls that ended, by outcome");
    counter!("convoke_call_failures_total", count, "failed branches of calls, by cause");
    histogram!("convoke_call_duration_seconds", Unit::Seconds, "from opening a call to its end");
    counter!("convoke_tasks_started_total", count, "handlers started");
    counter!("convoke_tasks_ended_total", count, "handlers ended, by outcome");
    histogram!("convoke_task_duration_seconds", Unit::Seconds, "from a handler's start to its end");
    counter!("convoke_replies_total", count, "replies to calls of this node, by their way");
    counter!("convoke_refusals_total", count, "requests of others refused without running them");
    histogram!("convoke_batch_frames", count, "frames that one read brought");
    counter!("convoke_connections_opened_total", count, "connections that opened");
    counter!("convoke_connections_closed_total", count, "connections that closed, by reason");
    counter!("convoke_connections_refused_total", count, "connections not taken, by reason");
    counter!("convoke_frames_ignored_total", count, "frames that did not count, by reason");
    counter!("convoke_dials_failed_total", count, "dials that failed at all addresses of a node");
    gauge!("convoke_calls_open", count, "calls of this node that are open");
    gauge!("convoke_tasks_running", count, "tasks of others that run or wait here");
    gauge!("convoke_tasks_waiting", count, "tasks behind an earlier one of their ordered method");
    gauge!("convoke_connections_open", count, "connections that are open");
    for (name, unit, _) in CARRIED {
        counter!(name, unit, "carried by all connections so far");
    }
}
