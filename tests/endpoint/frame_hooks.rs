//! Whole endpoints under hooks of the simulated network: frames that are lost, late, doubled and
//! garbled.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::sim::transport::{Action, Hook, SimFrame, SimNetwork};
use convoke::{
    CallError, Cause, Context, Endpoint, Executed, Method, NodeId, Peer, Service, Status,
};
use tokio::time::sleep;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
type Answer = std::result::Result<u64, CallError>;

/// Adds to the sum of its node, and answers with the number.
const ADD: Method<u64, u64> = Method::new("hooks.Test/Add");
/// Answers after so many milliseconds, with the number.
const LATER: Method<u64, u64> = Method::new("hooks.Test/Later").read_only();

/// A client and two servers, 5 ms apart.
struct Nodes {
    network: SimNetwork,
    client: Endpoint,
    servers: Vec<Endpoint>,
    to: Vec<Peer>,
    /// Of what was added at the first server.
    sum: Arc<AtomicU64>,
}

impl Nodes {
    async fn start() -> Result<Self> {
        let network = SimNetwork::new(42);
        let sum = Arc::new(AtomicU64::new(0));
        let builder = |number: u64| {
            let builder = Endpoint::builder().transport(network.transport()).seed(number);
            let builder = builder.node(NodeId::new(number)).listen(format!("sim://node{number}"));
            #[cfg(feature = "metrics")]
            let builder = builder.metrics();
            builder
        };
        let client = builder(1).start().await?;
        let (mut servers, mut to) = (Vec::new(), Vec::new());
        for number in [2, 3] {
            let server = builder(number).serve(service(&sum)).start().await?;
            let peer = client.peer(server.node(), [format!("sim://node{number}")])?;
            client.warm_up(&peer).await?;
            servers.push(server);
            to.push(peer);
        }
        network.default_latency(ms(5));
        Ok(Self { network, client, servers, to, sum })
    }

    /// A hook between the client and the first server.
    fn hook(&self, decide: impl FnMut(&SimFrame<'_>) -> Action + Send + 'static) -> Hook {
        self.network.hook(self.client.node(), self.servers[0].node(), decide)
    }

    async fn add(&self, number: u64) -> Answer {
        self.client.call(ADD, number).to(self.to[0]).await
    }

    fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

fn service(sum: &Arc<AtomicU64>) -> Service {
    let sum = Arc::clone(sum);
    let add = move |number: u64, _: Context| {
        sum.fetch_add(number, Ordering::Relaxed);
        std::future::ready(Ok::<_, Status>(number))
    };
    let later = |number: u64, _: Context| async move {
        sleep(ms(number)).await;
        Ok::<_, Status>(number)
    };
    Service::new().unary(ADD, add).unary(LATER, later)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn failure(answer: Answer) -> Option<(Cause, Executed)> {
    let error = answer.err()?;
    error.failure().map(|failure| (failure.cause, failure.executed))
}

/// Does something with the first frame that `is_meant`, and lets the others pass.
fn first(
    is_meant: impl Fn(&SimFrame<'_>) -> bool + Send + 'static,
    action: impl Fn(&SimFrame<'_>) -> Action + Send + 'static,
) -> impl FnMut(&SimFrame<'_>) -> Action + Send + 'static {
    let mut is_open = true;
    move |frame| {
        let is_first = is_open && is_meant(frame);
        is_open &= !is_first;
        if is_first { action(frame) } else { Action::Pass }
    }
}

fn is_add(frame: &SimFrame<'_>) -> bool {
    frame.is_request_of("hooks.Test/Add")
}

fn is_reply(frame: &SimFrame<'_>) -> bool {
    frame.name() == "REPLY"
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_told_from_a_lost_request() -> Result {
    let nodes = Nodes::start().await?;
    let hook = nodes.hook(first(is_reply, |_| Action::Drop));
    assert_eq!(failure(nodes.add(3).await), Some((Cause::ReplyLost, Executed::Yes)));
    assert_eq!(nodes.sum(), 3, "it ran");
    drop(hook);
    let hook = nodes.hook(first(is_add, |_| Action::Drop));
    assert_eq!(failure(nodes.add(4).await), Some((Cause::Lost, Executed::No)));
    assert_eq!(nodes.sum(), 3, "it did not run");
    drop(hook);
    assert_eq!((nodes.add(5).await?, nodes.sum()), (5, 8));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn doubled_frames_count_once() -> Result {
    let nodes = Nodes::start().await?;
    let _hook = nodes.hook(|_| Action::Duplicate);
    for number in 1..=100 {
        assert_eq!(nodes.add(number).await?, number);
    }
    sleep(ms(1_000)).await;
    assert_eq!(nodes.sum(), (1..=100_u64).sum::<u64>());
    let counters = nodes.servers[0].counters();
    assert!(counters.frames_received > nodes.client.counters().frames_sent, "they came twice");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_held_is_passed_by_the_next() -> Result {
    let nodes = Nodes::start().await?;
    let hook = nodes.hook(first(is_add, |_| Action::Hold));
    let others = async {
        let before = nodes.add(20).await?;
        assert_eq!((before, nodes.sum(), hook.held()), (20, 20, 1), "the later one ran first");
        assert_eq!(hook.release(), 1);
        Ok::<_, CallError>(())
    };
    let (late, others) = tokio::join!(nodes.add(1), others);
    others?;
    assert_eq!((late?, nodes.sum()), (1, 21));
    Ok(())
}

/// The call has ended as lost, which is to say that the request never runs: it does not.
#[tokio::test(start_paused = true)]
async fn a_request_that_comes_after_its_call_was_lost_does_not_run() -> Result {
    let nodes = Nodes::start().await?;
    let hook = nodes.hook(first(is_add, |_| Action::Hold));
    assert_eq!(failure(nodes.add(1).await), Some((Cause::Lost, Executed::No)));
    assert_eq!(hook.release(), 1);
    sleep(ms(1_000)).await;
    assert_eq!((nodes.sum(), nodes.add(2).await?, nodes.sum()), (0, 2, 2));
    Ok(())
}

/// As slow as a network can be, without any loss.
#[tokio::test(start_paused = true)]
async fn frames_that_are_held_for_a_while_are_only_late() -> Result {
    let nodes = Nodes::start().await?;
    let _hook = nodes.hook(|_| Action::HoldFor(ms(400)));
    let start = tokio::time::Instant::now();
    assert_eq!((nodes.add(1).await?, start.elapsed()), (1, ms(2 * 405)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_held_when_its_connection_is_cut_is_gone() -> Result {
    let nodes = Nodes::start().await?;
    let hook = nodes.hook(first(is_reply, |_| Action::Hold));
    let cut = async {
        sleep(ms(12)).await;
        assert_eq!(hook.held(), 1);
        nodes.network.cut(nodes.client.node(), nodes.servers[0].node());
        assert_eq!(hook.release(), 0);
    };
    let (answer, ()) = tokio::join!(nodes.add(7), cut);
    assert_eq!(failure(answer), Some((Cause::NodeDown, Executed::Maybe)));
    assert_eq!((nodes.sum(), nodes.add(1).await?), (7, 1));
    Ok(())
}

/// A reply of one server that is made to speak for the call to another: it does not count, and the
/// call that it was of learns that its reply is lost.
#[tokio::test(start_paused = true)]
async fn a_frame_that_speaks_for_another_call_does_not_count() -> Result {
    #[cfg(feature = "metrics")]
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    #[cfg(feature = "metrics")]
    let _guard = metrics::set_default_local_recorder(&recorder);
    let nodes = Nodes::start().await?;
    let target = Arc::new(std::sync::Mutex::new(None));
    let _watch = nodes.network.hook_all({
        let target = Arc::clone(&target);
        move |frame| {
            if frame.is_request_of("hooks.Test/Later") {
                *target.lock().expect("nobody panics with it") = frame.call();
            }
            Action::Pass
        }
    });
    let _garble = nodes.hook(first(is_reply, move |frame| {
        let mut garbled = frame.decode().expect("it is a reply");
        let target = target.lock().expect("nobody panics with it");
        garbled.header.call = target.expect("the other call has begun");
        Action::Replace(garbled.to_bytes())
    }));
    let other = nodes.client.call(LATER, 500).to(nodes.to[1]).open()?;
    sleep(ms(20)).await;
    assert_eq!(failure(nodes.add(3).await), Some((Cause::ReplyLost, Executed::Yes)));
    assert!(other.outcome().await.is_complete(), "it has its own reply");
    assert_eq!(nodes.client.load().connections, 2, "both connections stand");
    #[cfg(feature = "metrics")]
    {
        nodes.client.sample_metrics();
        let counted = recorder.snapshotter().snapshot().into_vec().into_iter();
        let ignored = counted.filter(|(key, ..)| {
            let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
            key.key().name() == "convoke_frames_ignored_total"
                && labels.contains(&"n1")
                && labels.contains(&"speaks_for_other")
        });
        let values: Vec<_> = ignored.map(|(.., value)| value).collect();
        assert_eq!(values, [metrics_util::debugging::DebugValue::Counter(1)]);
    }
    Ok(())
}

/// Bytes that are no frame are a fault of the sender: its connection ends, and the calls on it with
/// it. Calls to others go on.
#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_frame_end_their_connection_and_no_other() -> Result {
    let nodes = Nodes::start().await?;
    let garbage = |_: &SimFrame<'_>| Action::Replace(vec![0xff; 40].into());
    let hook = nodes.hook(first(is_reply, garbage));
    let elsewhere = nodes.client.call(LATER, 500).to(nodes.to[1]).open()?;
    assert_eq!(failure(nodes.add(3).await), Some((Cause::NodeDown, Executed::Maybe)));
    assert_eq!(nodes.client.load().connections, 1);
    drop(hook);
    assert_eq!(nodes.add(4).await?, 4, "it is dialled again");
    // The same the other way: what the server is sent.
    let _hook = nodes.hook(first(is_add, garbage));
    assert!(failure(nodes.add(5).await).is_some());
    assert_eq!((nodes.add(6).await?, nodes.sum()), (6, 13));
    assert!(elsewhere.outcome().await.is_complete());
    Ok(())
}

/// Every byte of every frame in turn, both ways: whatever it does to its call, the endpoints stand,
/// and what comes after it works.
#[tokio::test(start_paused = true)]
async fn no_byte_of_a_frame_can_be_changed_to_harm_the_next_call() -> Result {
    let nodes = Nodes::start().await?;
    for at in 0..60_usize {
        let mut is_open = [true, true];
        let hook = nodes.hook(move |frame| {
            let way = usize::from(is_reply(frame));
            if !std::mem::take(&mut is_open[way]) {
                return Action::Pass;
            }
            let mut bytes = frame.bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << (at % 8);
            Action::Replace(bytes.into())
        });
        let call = nodes.client.call(ADD, 1).deadline(Duration::from_secs(5)).to(nodes.to[0]);
        // It may even be another number.
        let _ = call.await;
        drop(hook);
        assert_eq!(nodes.add(1).await?, 1, "after byte {at}");
    }
    Ok(())
}
