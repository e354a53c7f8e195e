//! Callers on threads of their own, which have no runtime, or another one than their endpoint.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Polling, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::transport::mem::MemTransport;
use convoke_core::{Code, Context, Endpoint, Method, NodeId, Service, Status};
use convoke_quorum::echo::{EchoPlan, EchoSpace, Payloads, TaggedCast, digest_of};
use convoke_quorum::{Configuration, Majority, QuorumExt, Retry};
use tokio::sync::{mpsc, oneshot};

const ASK: Method<u64, u64> = Method::new("test.Threads/Ask").idempotent();

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Polling::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs a future to its end on a thread without a runtime.
async fn elsewhere<F: Future<Output: Send> + Send + 'static>(future: F) -> F::Output {
    let (tell, told) = oneshot::channel();
    let thread = thread::spawn(move || {
        let _ = tell.send(block_on(future));
    });
    let output = told.await.expect("it does not panic");
    thread.join().expect("it has ended");
    output
}

/// Members 1 to 3, which know where the others are and have these values.
async fn members(test: &str, values: &Payloads) -> Vec<Endpoint> {
    let name = |id: u64| format!("mem://no-runtime-{test}-{id}");
    let mut members = Vec::new();
    for id in 1..=3 {
        let service = values.service();
        let service =
            service.unary(ASK, |number, _: Context| async move { Ok::<_, Status>(number) });
        let member = Endpoint::builder().node(NodeId::new(id)).transport(MemTransport::new());
        let member = (1..=3)
            .filter(|other| *other != id)
            .fold(member, |member, other| member.peer(NodeId::new(other), [name(other)]));
        members.push(member.serve(service).listen(name(id)).start().await.expect("a free name"));
    }
    members
}

fn configuration() -> Configuration {
    Configuration::new((1..=3).map(NodeId::new)).expect("they differ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_call_with_retries_and_hedges_needs_no_runtime() {
    let members = members("call", &Payloads::new(1 << 20)).await;
    let caller = members[0].clone();
    let decided = elsewhere(async move {
        let call = caller.call(ASK, 7).to_all(&configuration()).quorum_call();
        let call = call.retry(Retry::times(1)).hedge(1, Duration::from_millis(1));
        call.quorum(Majority).await.map(|replies| replies.len())
    });
    assert_eq!(decided.await.expect("all answer"), 2);
}

/// Its caller is elsewhere, and waits for the pause alone.
#[test]
fn a_pause_before_a_retry_is_over_with_the_runtime_of_its_endpoint() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("the system has room");
    let has_run = Arc::new(AtomicBool::new(false));
    let runs = has_run.clone();
    let service = Service::new().unary(ASK, move |_: u64, _: Context| {
        runs.store(true, Ordering::Release);
        async { Err::<u64, _>(Status::new(Code::Unavailable, "later")) }
    });
    let start = Endpoint::builder().transport(MemTransport::new()).cores(1).serve(service).start();
    let endpoint = runtime.block_on(start).expect("nothing to bind");
    let own = Configuration::new([endpoint.node()]).expect("it is one");
    let minute = Duration::from_secs(60);
    let call = endpoint.call(ASK, 7).to_all(&own).deadline(2 * minute).quorum_call();
    let mut deciding = pin!(call.retry(Retry::times(1).pause(minute)).quorum(Majority));
    let mut polling = Polling::from_waker(Waker::noop());
    assert!(deciding.as_mut().poll(&mut polling).is_pending(), "it is asked by another thread");
    while !has_run.load(Ordering::Acquire) || endpoint.load().tasks > 0 {
        thread::yield_now();
    }
    assert!(deciding.as_mut().poll(&mut polling).is_pending(), "it is asked again in a minute");
    drop(runtime);
    block_on(deciding).expect_err("nobody can ask any more");
}

/// The third of three members answers when it is told to, long after the caller has gone: whose
/// runtime, if it has one, ends with its thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decided_call_is_read_on_without_the_runtime_of_its_caller() {
    for has_runtime in [true, false] {
        let members = members(&format!("late-{has_runtime}"), &Payloads::new(1 << 20)).await;
        let (go, may_go) = oneshot::channel();
        let may_go = Mutex::new(Some(may_go));
        let slow = Service::new().unary(ASK, move |number, _: Context| {
            let may_go = may_go.lock().expect("nobody panics with it").take();
            async move {
                may_go.expect("it is asked once").await.expect("it is told to go on");
                Ok::<_, Status>(number)
            }
        });
        let name = format!("mem://no-runtime-late-{has_runtime}-4");
        let fourth = Endpoint::builder().node(NodeId::new(4)).transport(MemTransport::new());
        let fourth = fourth.serve(slow).listen(&name).start().await.expect("a free name");
        let caller = members[0].clone();
        caller.peer(fourth.node(), [name]).expect("it is an address");
        caller.warm_up(fourth.node()).await.expect("it listens");

        let (late, mut late_replies) = mpsc::unbounded_channel();
        let deciding = async move {
            let asked = Configuration::new([1, 2, 4].map(NodeId::new)).expect("they differ");
            let call = caller.call(ASK, 7).to_all(&asked).late(move |member, answer| {
                let _ = late.send((member.get(), answer.ok()));
            });
            call.quorum(Majority).await.map(|replies| replies.len())
        };
        let decided = match has_runtime {
            false => elsewhere(deciding).await,
            true => {
                let thread = tokio::task::spawn_blocking(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    runtime.expect("the system has room").block_on(deciding)
                });
                thread.await.expect("it does not panic")
            }
        };
        assert_eq!(decided.expect("two answer"), 2);
        go.send(()).expect("nothing was cancelled");
        let told = late_replies.recv().await;
        assert_eq!(told, Some((4, Some(7))), "a caller with a runtime: {has_runtime}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_pulled_without_a_runtime() {
    let (holder, value) = (Payloads::new(1 << 20), Bytes::from_static(b"heron"));
    let digest = holder.insert(value.clone()).expect("it has room");
    let members = members("pull", &holder).await;
    let caller = members[0].clone();
    let pulled = elsewhere(async move {
        let from = [2, 3].map(NodeId::new);
        Payloads::new(1 << 20).pull(&caller, digest, from, Duration::from_secs(10)).await
    });
    assert_eq!(pulled.await.expect("both have it").value, value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_are_verified_without_a_runtime() {
    let members = members("votes", &Payloads::new(1 << 20)).await;
    let (all, digest) = (configuration(), digest_of(b"heron"));
    let mut rounds = Vec::new();
    for member in &members {
        let space = EchoSpace::builder("log", &all).open(member).expect("once");
        let plan = EchoPlan::majority(3, 1).expect("it is a plan");
        let mut round = space.join(0, 1, plan).expect("it is new");
        round.cast(0, digest, "").expect("it is the first");
        rounds.push((space, round));
    }
    let (_space, round) = rounds.swap_remove(0);
    let reached = elsewhere(async move {
        let mut round = round.verify(|_: &TaggedCast| Ok(()));
        round.quorum(0).await.map(|reached| reached.count)
    });
    assert!(reached.await.expect("all agree") >= 2);
}
