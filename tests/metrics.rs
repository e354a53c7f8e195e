//! Metrics that an endpoint counts. The guide lists each of them.

#![cfg(all(feature = "tcp", feature = "metrics"))]

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use convoke::transport::{MemTransport, TcpTransport};
use convoke::{
    CallError, Cause, Code, Context, Endpoint, EndpointBuilder, Finish, Limits, Method, NodeId,
    Peer, PeerState, Service, Status, Task,
};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("test.Test/Echo");
const BYTES: Method<Vec<u8>, Vec<u8>> = Method::new("test.Test/Bytes");
const FAIL: Method<String, String> = Method::new("test.Test/Fail");
const NEVER: Method<String, String> = Method::new("test.Test/Never");
/// Hands the request on to node 3.
const PASS_ON: Method<String, String> = Method::new("test.Test/PassOn");
const NOT_SERVED: Method<String, String> = Method::new("test.Test/NotServed");

async fn fail(how: String, _: Context) -> std::result::Result<String, Status> {
    if how == "panic" {
        panic!("on purpose");
    }
    Err(Status::new(Code::NotFound, "nothing here"))
}

async fn pass_on(text: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    Ok(task.tail(NodeId::new(3), ECHO.request(text)).await?)
}

fn builder(number: u64) -> EndpointBuilder {
    let service = Service::new()
        .unary(ECHO, |text, _: Context| async move { Ok::<_, Status>(text) })
        .unary(BYTES, |bytes: Vec<u8>, _: Context| async move { Ok::<_, Status>(bytes) })
        .unary(FAIL, fail)
        .tree(PASS_ON, pass_on)
        .unary(NEVER, |_: String, _| std::future::pending::<std::result::Result<String, _>>());
    let node = NodeId::new(number);
    Endpoint::builder().transport(TcpTransport::new()).node(node).serve(service)
}

/// A server that counts, a client that counts, and the server as its peer.
async fn pair() -> Result<(Endpoint, Endpoint, Peer)> {
    let server = builder(1).listen("tcp://127.0.0.1:0").metrics().start().await?;
    let client = builder(2).metrics().start().await?;
    let peer = client.connect(server.addresses()).await?;
    Ok((server, client, peer))
}

/// Everything recorded since the last look: names with labels and value.
struct Recorded(Vec<(String, Labels, DebugValue)>);

type Labels = Vec<(String, String)>;

impl Recorded {
    fn of(snapshotter: &Snapshotter) -> Self {
        let all = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let labels = key.labels().map(|l| (l.key().to_owned(), l.value().to_owned()));
            (key.name().to_owned(), labels.collect(), value)
        });
        Self(all.collect())
    }

    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<&DebugValue> {
        let has = |found: &[(String, String)]| {
            found.len() == labels.len()
                && labels.iter().all(|(key, value)| {
                    found.iter().any(|(k, v)| (k.as_str(), v.as_str()) == (*key, *value))
                })
        };
        let found = self.0.iter().find(|(key, found, _)| key == name && has(found));
        found.map(|(_, _, value)| value)
    }

    /// 0 when there is none.
    fn counter(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        match self.find(name, labels) {
            Some(DebugValue::Counter(value)) => *value,
            _ => 0,
        }
    }

    fn gauge(&self, name: &str, node: &str) -> Option<f64> {
        match self.find(name, &[("node", node)]) {
            Some(DebugValue::Gauge(value)) => Some(value.into_inner()),
            _ => None,
        }
    }

    fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        match self.find(name, labels) {
            Some(DebugValue::Histogram(values)) => {
                values.iter().map(|value| value.into_inner()).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[tokio::test]
async fn calls_and_tasks_are_counted_by_method_and_outcome() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (server, client, peer) = pair().await?;
    for _ in 0..3 {
        client.call(ECHO, "a".into()).to(peer).await?;
    }
    let call = client.call(ECHO, "b".into()).to(peer).open()?;
    assert!(call.outcome().await.is_complete());
    for how in ["status", "panic"] {
        let failed = client.call(FAIL, how.into()).to(peer).await;
        assert!(failed.is_err());
    }
    let call = client.call(NEVER, String::new()).to(peer).open()?;
    client.call(ECHO, "behind it".into()).to(peer).await?;
    drop(call);
    // The server is idle once the cancelled handler is gone.
    assert!(server.shutdown(Duration::from_secs(60)).await);

    let seen = Recorded::of(&snapshotter);
    let echo = [("node", "n2"), ("method", "test.Test/Echo")];
    assert_eq!(seen.counter("convoke_calls_opened_total", &echo), 5);
    for (method, outcome, count) in [
        ("test.Test/Echo", "answered", 4),
        ("test.Test/Echo", "complete", 1),
        ("test.Test/Echo", "partial", 0),
        ("test.Test/Fail", "partial", 2),
        ("test.Test/Never", "dropped", 1),
    ] {
        let labels = [("node", "n2"), ("method", method), ("outcome", outcome)];
        let found = seen.counter("convoke_calls_ended_total", &labels);
        assert_eq!(found, count, "{method} {outcome}");
    }
    for cause in ["application", "panicked"] {
        let labels = [("node", "n2"), ("method", "test.Test/Fail"), ("cause", cause)];
        assert_eq!(seen.counter("convoke_call_failures_total", &labels), 1, "{cause}");
    }
    let durations = seen.histogram("convoke_call_duration_seconds", &echo);
    assert!(durations.len() == 5 && durations.iter().all(|seconds| *seconds > 0.0));

    let echo = [("node", "n1"), ("method", "test.Test/Echo")];
    assert_eq!(seen.counter("convoke_tasks_started_total", &echo), 5);
    assert_eq!(seen.histogram("convoke_task_duration_seconds", &echo).len(), 5);
    for (method, outcome, count) in [
        ("test.Test/Echo", "finished", 5),
        ("test.Test/Fail", "failed", 1),
        ("test.Test/Fail", "panicked", 1),
        ("test.Test/Never", "stopped", 1),
    ] {
        let labels = [("node", "n1"), ("method", method), ("outcome", outcome)];
        let found = seen.counter("convoke_tasks_ended_total", &labels);
        assert_eq!(found, count, "{method} {outcome}");
    }
    let batches = seen.histogram("convoke_batch_frames", &[("node", "n1")]);
    assert!(batches.iter().sum::<f64>() >= 8.0, "{batches:?}");
    Ok(())
}

#[tokio::test]
async fn an_awaited_call_is_counted_once_whichever_way_it_takes() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = builder(1).listen("tcp://127.0.0.1:0").start().await?;
    let client = builder(2).metrics().start().await?;
    // The first has to dial, the second finds the connection open.
    let peer = client.peer(server.node(), server.addresses())?;
    for _ in 0..2 {
        client.call(ECHO, "a".into()).to(peer).await?;
    }
    let mut dropped = client.call(NEVER, String::new()).to(peer).into_future();
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut dropped).poll(cx))).await;
    assert!(polled.is_pending());
    drop(dropped);
    // The bytes of a text that is none.
    let bytes = Method::<Vec<u8>, String>::new("test.Test/Bytes");
    let garbled = client.call(bytes, vec![0xff]).to(peer).await;
    assert!(matches!(garbled, Err(CallError::Decode { .. })), "{garbled:?}");

    let seen = Recorded::of(&snapshotter);
    for (method, outcome, count) in [
        ("test.Test/Echo", "answered", 2),
        ("test.Test/Never", "dropped", 1),
        // Its reply came, and was none.
        ("test.Test/Bytes", "partial", 1),
    ] {
        let labels = [("node", "n2"), ("method", method)];
        assert_eq!(seen.counter("convoke_calls_opened_total", &labels), count, "{method}");
        let labels = [("node", "n2"), ("method", method), ("outcome", outcome)];
        let found = seen.counter("convoke_calls_ended_total", &labels);
        assert_eq!(found, count, "{method} {outcome}");
        let durations = seen.histogram("convoke_call_duration_seconds", &labels[..2]);
        assert_eq!(durations.len() as u64, count, "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_cannot_be_opened_counts_as_refused() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut limits = Limits::default();
    limits.calls_max = 1;
    let endpoint = builder(1).limits(limits).metrics().start().await?;
    let _holds_the_place = endpoint.call(NEVER, String::new()).to(endpoint.me()).open()?;
    let call = || endpoint.call(ECHO, String::new()).to(endpoint.me());
    assert!(matches!(call().open(), Err(CallError::NotOpened(_))));
    assert!(matches!(call().await, Err(CallError::NotOpened(_))));

    let seen = Recorded::of(&snapshotter);
    for (outcome, count) in [("refused", 2), ("dropped", 0)] {
        let labels = [("node", "n1"), ("method", "test.Test/Echo"), ("outcome", outcome)];
        assert_eq!(seen.counter("convoke_calls_ended_total", &labels), count, "{outcome}");
    }
    Ok(())
}

/// Neither is said of the other, though both are let run.
#[cfg(feature = "quorum")]
#[tokio::test]
async fn a_quorum_call_counts_as_decided_or_as_failed() -> Result {
    use convoke::quorum::{All, QuorumExt as _};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (_server, client, peer) = pair().await?;
    client.call(ECHO, "a".into()).to_all([peer]).acked_by(All).await?;
    assert!(client.call(FAIL, "status".into()).to_all([peer]).acked_by(All).await.is_err());

    let seen = Recorded::of(&snapshotter);
    for (method, outcome) in [("test.Test/Echo", "decided"), ("test.Test/Fail", "partial")] {
        let labels = [("node", "n2"), ("method", method), ("outcome", outcome)];
        assert_eq!(seen.counter("convoke_calls_ended_total", &labels), 1, "{method}");
    }
    Ok(())
}

/// Every member has answered, or one that has not is asked no more.
#[cfg(feature = "quorum")]
#[tokio::test]
async fn a_quorum_call_whose_rule_says_no_counts_as_failed() -> Result {
    use convoke::quorum::{QuorumError, QuorumExt as _, Replies, Verdict};

    fn no(replies: &Replies<String>) -> Verdict<()> {
        if replies.is_empty() { Verdict::Continue } else { Verdict::Impossible }
    }

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (_server, client, peer) = pair().await?;
    // Takes connections, and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let silent = client.peer(NodeId::new(9), format!("tcp://{}", listener.local_addr()?))?;
    let call = || client.call(ECHO, "a".into());
    for refused in [
        call().to_all([peer]).quorum_by(no).await,
        call().to_all([peer, silent]).quorum_by(no).await,
        call().to_all([peer]).correctable(no).done().await,
        call().to_all([peer, silent]).correctable(no).done().await,
    ] {
        assert!(matches!(refused, Err(QuorumError::Impossible(_))), "{refused:?}");
    }

    let seen = Recorded::of(&snapshotter);
    for (outcome, count) in [("partial", 4), ("complete", 0), ("decided", 0)] {
        let labels = [("node", "n2"), ("method", "test.Test/Echo"), ("outcome", outcome)];
        assert_eq!(seen.counter("convoke_calls_ended_total", &labels), count, "{outcome}");
    }
    Ok(())
}

#[tokio::test]
async fn a_failed_dial_is_counted_once_whoever_has_asked_for_it() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let client = builder(2).transport(MemTransport::new()).metrics().start().await?;
    let addresses = ["mem://nobody:1", "mem://nobody:2"];
    let nobody = client.peer(NodeId::new(9), addresses)?;
    let failed = || {
        let seen = Recorded::of(&snapshotter);
        seen.counter("convoke_dials_failed_total", &[("node", "n2")])
    };
    assert!(client.call(ECHO, String::new()).to(nobody).await.is_err());
    assert_eq!(failed(), 1, "by a call");
    assert!(client.warm_up(nobody).await.is_err());
    assert_eq!(failed(), 1, "by warm_up");
    assert!(client.connect(addresses).await.is_err());
    assert_eq!(failed(), 1, "by connect");
    let mut state = client.watch_peer(nobody);
    let _kept = client.keep_connected(nobody);
    state.changed().await?;
    state.wait_for(|state| *state == PeerState::Down).await?;
    assert_eq!(failed(), 1, "by keep_connected");
    Ok(())
}

#[tokio::test]
async fn refusals_and_failed_dials_are_counted_by_their_reason() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (_server, client, peer) = pair().await?;
    for _ in 0..2 {
        let refused = client.call(NOT_SERVED, String::new()).to(peer).await;
        assert!(refused.is_err());
    }
    // Port 1 is nobody's.
    let nobody = NodeId::new(9);
    let nobody = client.peer(nobody, ["tcp://127.0.0.1:1"])?;
    assert!(client.call(ECHO, String::new()).to(nobody).await.is_err());

    let seen = Recorded::of(&snapshotter);
    let labels = [("node", "n1"), ("cause", "unknown_method")];
    assert_eq!(seen.counter("convoke_refusals_total", &labels), 2);
    assert_eq!(seen.counter("convoke_dials_failed_total", &[("node", "n2")]), 1);
    let labels = [("node", "n2"), ("method", "test.Test/Echo"), ("cause", "unreachable")];
    assert_eq!(seen.counter("convoke_call_failures_total", &labels), 1);
    Ok(())
}

#[tokio::test]
async fn replies_are_counted_by_their_way() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (server, client, peer) = pair().await?;
    // A server behind the first, with which the client has no connection.
    let leaf = builder(3).listen("tcp://127.0.0.1:0").start().await?;
    server.peer(leaf.node(), leaf.addresses())?;
    for _ in 0..2 {
        client.call(ECHO, "a".into()).to(peer).await?;
    }
    client.call(PASS_ON, "a".into()).to(peer).await?;
    server.call(ECHO, "a".into()).to(server.me()).await?;
    let seen = Recorded::of(&snapshotter);
    let ways = [("n2", "direct", 2), ("n2", "relayed", 1), ("n2", "local", 0), ("n1", "local", 1)];
    for (node, way, count) in ways {
        let labels = [("node", node), ("way", way)];
        assert_eq!(seen.counter("convoke_replies_total", &labels), count, "{node} {way}");
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_starts_again_adds_to_what_was_carried_before() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = builder(1).listen("tcp://127.0.0.1:0").start().await?;
    let mut carried = 0;
    for _ in 0..2 {
        let client = builder(2).metrics().start().await?;
        let peer = client.connect(server.addresses()).await?;
        client.call(ECHO, "a".into()).to(peer).await?;
        client.sample_metrics();
        assert!(client.clone().shutdown(Duration::from_secs(60)).await);
        client.sample_metrics();
        carried += client.counters().bytes_received;
    }
    let counted = Recorded::of(&snapshotter);
    let counted = counted.counter("convoke_bytes_received_total", &[("node", "n2")]);
    assert!(counted >= carried, "{counted} of {carried}");
    Ok(())
}

#[test]
fn an_endpoint_that_is_gone_has_nothing_open() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (_server, client, peer) = pair().await?;
        let _call = client.call(NEVER, String::new()).to(peer).open()?;
        client.call(ECHO, "behind it".into()).to(peer).await?;
        client.sample_metrics();
        Result::Ok(())
    })?;
    drop(runtime);
    let seen = Recorded::of(&snapshotter);
    for gauge in ["convoke_calls_open", "convoke_connections_open"] {
        assert_eq!(seen.gauge(gauge, "n2"), Some(0.0), "{gauge}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_open_and_what_was_carried_is_sampled() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (server, client, peer) = pair().await?;
    let call = client
        .fan_out([(&peer, NEVER.request(String::new())), (&peer, NEVER.request(String::new()))])
        .open()?;
    client.call(ECHO, "behind it".into()).to(peer).await?;
    client.sample_metrics();
    server.sample_metrics();
    let carried = client.counters();
    let seen = Recorded::of(&snapshotter);
    assert_eq!(seen.gauge("convoke_calls_open", "n2"), Some(1.0));
    assert_eq!(seen.gauge("convoke_tasks_running", "n1"), Some(2.0));
    assert_eq!(seen.gauge("convoke_tasks_waiting", "n1"), Some(0.0));
    for node in ["n1", "n2"] {
        assert_eq!(seen.gauge("convoke_connections_open", node), Some(1.0));
        let labels = [("node", node), ("scheme", "tcp")];
        assert_eq!(seen.counter("convoke_connections_opened_total", &labels), 1);
    }
    let bytes = seen.counter("convoke_bytes_sent_total", &[("node", "n2")]);
    assert!(bytes > 0 && bytes <= carried.bytes_sent, "{bytes} of {carried:?}");
    assert!(seen.counter("convoke_bytes_received_total", &[("node", "n1")]) > 0);

    drop(call);
    assert!(server.clone().shutdown(Duration::from_secs(60)).await);
    // The connection is gone, what it carried is not.
    let labels = [("node", "n1"), ("scheme", "tcp"), ("reason", "local")];
    let closed = || Recorded::of(&snapshotter).counter("convoke_connections_closed_total", &labels);
    while closed() == 0 {
        tokio::task::yield_now().await;
    }
    server.sample_metrics();
    let seen = Recorded::of(&snapshotter);
    assert_eq!(seen.gauge("convoke_connections_open", "n1"), Some(0.0));
    assert!(server.counters().bytes_received > 0);
    Ok(())
}

/// A recorder that asks endpoints whatever it is told, and whose handles of one name panic.
#[derive(Clone, Default)]
struct Panicking {
    at: Arc<Mutex<Option<String>>>,
    asked: Arc<OnceLock<[Endpoint; 2]>>,
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl Panicking {
    fn handle(&self, key: &Key) -> Arc<PanickingHandle> {
        self.names.lock().expect("nobody panics under it").insert(key.name().to_owned());
        let (name, at, asked) = (key.name().to_owned(), self.at.clone(), self.asked.clone());
        Arc::new(PanickingHandle { name, at, asked })
    }
}

impl Recorder for Panicking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

struct PanickingHandle {
    name: String,
    at: Arc<Mutex<Option<String>>>,
    asked: Arc<OnceLock<[Endpoint; 2]>>,
}

impl PanickingHandle {
    fn on_record(&self) {
        self.asked.get().into_iter().flatten().for_each(|endpoint| _ = endpoint.load());
        let is_due = self.at.lock().expect("nobody panics under it").as_ref() == Some(&self.name);
        assert!(!is_due, "on purpose");
    }
}

impl CounterFn for PanickingHandle {
    fn increment(&self, _: u64) {
        self.on_record();
    }

    fn absolute(&self, _: u64) {
        self.on_record();
    }
}

impl GaugeFn for PanickingHandle {
    fn increment(&self, _: f64) {
        self.on_record();
    }

    fn decrement(&self, _: f64) {
        self.on_record();
    }

    fn set(&self, _: f64) {
        self.on_record();
    }
}

impl HistogramFn for PanickingHandle {
    fn record(&self, _: f64) {
        self.on_record();
    }
}

/// Everything that is recorded, twice over: a connection that opens and is lost, calls that are
/// answered, refused, dropped and cannot be dialled for.
async fn do_everything((server, client): &(Endpoint, Endpoint)) -> Result {
    let peer = Peer::from(server.node());
    let mut state = client.watch_peer(peer);
    for _ in 0..2 {
        state.wait_for(|state| *state == PeerState::Connected).await?;
        for (from, to) in [(client, server), (server, client), (server, server)] {
            assert_eq!(from.call(ECHO, "a".into()).to(to.node()).await?, "a");
        }
        let refused = client.call(NOT_SERVED, String::new()).to(peer).await;
        let nobody = client.peer(NodeId::new(9), "mem://nobody:1")?;
        let undialled = client.call(ECHO, String::new()).to(nobody).await;
        for (failed, cause) in [(refused, Cause::UnknownMethod), (undialled, Cause::Unreachable)] {
            let Err(CallError::Branch(failure)) = failed else { panic!("not {cause}: {failed:?}") };
            assert_eq!(failure.cause, cause);
        }
        drop(client.call(NEVER, String::new()).to(peer).open()?);
        let namesake = Endpoint::builder().transport(MemTransport::new()).node(server.node());
        let namesake = namesake.start().await?;
        assert!(namesake.connect(server.addresses()).await.is_err());
        client.sample_metrics();
        server.sample_metrics();
        server.forget(client.node());
        state.wait_for(|state| *state != PeerState::Connected).await?;
    }
    state.wait_for(|state| *state == PeerState::Connected).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_asks_and_panics_harms_nobody() -> Result {
    let recorder = Panicking::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let builder = |number| builder(number).transport(MemTransport::new()).metrics();
    let server = builder(1).listen("mem://panicking:0").start().await?;
    let client = builder(2).start().await?;
    let _kept = client.keep_connected(client.peer(server.node(), server.addresses())?);
    recorder.asked.set([server.clone(), client.clone()]).expect("it asks nobody yet");
    let pair = (server, client);
    do_everything(&pair).await?;
    let names = recorder.names.lock().expect("nobody panics under it").clone();
    assert!(names.contains("convoke_connections_closed_total") && names.len() > 15, "{names:?}");
    for name in names {
        *recorder.at.lock().expect("nobody panics under it") = Some(name.clone());
        do_everything(&pair).await.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_was_not_told_to_counts_nothing() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = builder(1).listen("tcp://127.0.0.1:0").start().await?;
    let client = builder(2).start().await?;
    let peer = client.connect(server.addresses()).await?;
    client.call(ECHO, "a".into()).to(peer).await?;
    client.sample_metrics();
    assert_eq!(Recorded::of(&snapshotter).0.len(), 0);
    Ok(())
}

#[tokio::test]
async fn the_guide_lists_every_metric_with_its_labels_and_no_other() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (server, client, peer) = pair().await?;
    let refused = client.call(NOT_SERVED, String::new()).to(peer).await;
    assert!(refused.is_err());
    let nobody = NodeId::new(9);
    let nobody = client.peer(nobody, ["tcp://127.0.0.1:1"])?;
    assert!(client.call(ECHO, String::new()).to(nobody).await.is_err());
    let namesake = builder(1).start().await?;
    assert!(namesake.connect(server.addresses()).await.is_err());
    client.shutdown(Duration::from_secs(60)).await;
    // The server sees the end of the connection a moment later.
    let mut seen = BTreeSet::new();
    while !seen.iter().any(|(name, _): &(String, _)| name == "convoke_connections_closed_total") {
        tokio::task::yield_now().await;
        seen.extend(Recorded::of(&snapshotter).0.into_iter().map(|(name, labels, _)| {
            let mut labels: Vec<String> = labels.into_iter().map(|(key, _)| key).collect();
            labels.retain(|label| label != "node");
            labels.sort();
            (name, labels)
        }));
    }
    server.shutdown(Duration::from_secs(60)).await;

    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md"))?;
    let (list, act_on) = guide.split_once("\n## Counters to act on").ok_or("it has both")?;
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `convoke_"));
    let listed: BTreeSet<(String, Vec<String>)> = rows
        .map(|row| {
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            let name = format!("convoke_{}", columns[0].trim_end_matches('`'));
            let mut labels: Vec<String> = columns[3]
                .split(',')
                .map(|label| label.trim().trim_matches('`').to_owned())
                .filter(|label| !label.is_empty())
                .collect();
            labels.sort();
            (name, labels)
        })
        .collect();
    assert_eq!(listed, seen);
    // What is to be acted on is listed.
    let named = act_on.split("`convoke_").skip(1);
    for name in named.filter_map(|text| text.split(['`', '{']).next()) {
        assert!(seen.iter().any(|(seen, _)| *seen == format!("convoke_{name}")), "{name}");
    }
    Ok(())
}
