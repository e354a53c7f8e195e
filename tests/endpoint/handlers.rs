//! Running of handlers: in process, so that no network hides what happens.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use convoke::{
    Cause, Context, Endpoint, Executed, Finish, Method, NodeId, Peer, Service, Status, Task,
};
use tokio::sync::Notify;

const COUNT: Method<u64, u64> = Method::new("test.Handlers/Count");
const ORDERED: Method<u64, u64> = Method::new("test.Handlers/Ordered").ordered();

struct Relay(Waker);

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

async fn start(service: Service) -> Endpoint {
    Endpoint::builder().serve(service).start().await.expect("nothing is listened on")
}

/// Goes to the same node again until the number is used up.
async fn count_down(number: u64, task: Task<u64>) -> Result<Finish, Status> {
    let Some(rest) = number.checked_sub(1) else { return task.answer(&7) };
    let me = task.context().parent();
    Ok(task.tail(me, COUNT.request(rest)).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_chain_within_one_node_does_not_grow_the_stack() {
    let run = async {
        let endpoint = start(Service::new().tree(COUNT, count_down)).await;
        let call = endpoint.call(COUNT, 20_000).to(endpoint.me());
        call.deadline(Duration::from_secs(600)).await
    };
    // On a worker, whose stack is small.
    let answer = tokio::spawn(run).await.expect("it does not overflow");
    assert_eq!(answer.expect("the last one answers"), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_queue_at_an_ordered_method_does_not_grow_the_stack() {
    let run = async {
        let gate = Arc::new(Notify::new());
        let waits = gate.clone();
        let service = Service::new().unary(ORDERED, move |number, _: Context| {
            let gate = waits.clone();
            async move {
                if number == 0 {
                    gate.notified().await;
                }
                Ok::<_, Status>(number)
            }
        });
        let endpoint = start(service).await;
        let calls: Vec<_> = (0..10_000)
            .map(|number| {
                let call = endpoint.call(ORDERED, number).to(endpoint.me());
                call.open().expect("there is room")
            })
            .collect();
        gate.notify_one();
        let mut sum = 0;
        for call in calls {
            sum += call.first().await.expect("each has its turn").into_inner();
        }
        sum
    };
    assert_eq!(tokio::spawn(run).await.expect("it does not overflow"), 9_999 * 10_000 / 2);
}

/// Counts its handler among those that have begun and are not gone.
struct Here(Arc<AtomicU32>);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Branches of one call to this node itself start in one batch, and take the room of one another.
#[tokio::test]
async fn tasks_of_a_batch_share_their_room_and_nothing_else() {
    const BRANCHES: u64 = 24;
    let here = Arc::new(AtomicU32::new(0));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let service = Service::new().unary(COUNT, {
        let kept = kept.clone();
        move |number: u64, context: Context| {
            assert_eq!(here.fetch_add(1, Ordering::Relaxed), 0, "the one before is gone");
            let guard = Here(here.clone());
            if number.is_multiple_of(3) {
                kept.lock().expect("nobody panics with it").push(context.clone());
            }
            async move {
                let _guard = guard;
                assert!(number % 8 != 5, "on purpose");
                Ok::<_, Status>(number * u64::from(context.task().is_of_initiator()))
            }
        }
    });
    let endpoint = start(service).await;
    let branches = (0..BRANCHES).map(|number| (endpoint.me(), COUNT.request(number)));
    let call = endpoint.fan_out(branches).open().expect("it is opened");
    let (replies, outcome) = call.collect().await.expect("they come");
    let mut numbers: Vec<u64> = replies.iter().map(|reply| *reply.message()).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = (0..BRANCHES).filter(|number| number % 8 != 5).collect();
    assert_eq!(numbers, expected);
    assert_eq!(outcome.failures.len(), 3);
    assert!(outcome.failures.iter().all(|failure| failure.cause == Cause::Panicked));
    let kept = kept.lock().expect("nobody panics with it");
    let paths: Vec<String> =
        kept.iter().map(|context| context.task().task.path.to_string()).collect();
    let expected: Vec<String> = (0..BRANCHES).step_by(3).map(|index| format!("/{index}")).collect();
    assert_eq!(paths, expected, "who keeps a context keeps its own");
}

#[tokio::test]
async fn a_panic_before_the_handler_is_a_future_is_a_failure_of_the_branch() {
    let service = Service::new().unary(COUNT, |number: u64, _: Context| {
        assert!(number != 1, "on purpose");
        async move { Ok::<_, Status>(number) }
    });
    let endpoint = start(service).await;
    let ask = async |number| endpoint.call(COUNT, number).to(endpoint.me()).await;
    let error = ask(1).await.expect_err("it panics");
    assert_eq!(error.failure().map(|failure| failure.cause), Some(Cause::Panicked));
    assert_eq!(ask(2).await.expect("the endpoint goes on"), 2);
}

#[tokio::test]
async fn what_waits_at_an_ordered_method_never_begins_after_shutdown() {
    let begun = Arc::new(AtomicU32::new(0));
    let counter = begun.clone();
    let service = Service::new().unary(ORDERED, move |_, _: Context| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<u64, Status>>()
    });
    let endpoint = start(service).await;
    let requests = (0..3).map(|number| (endpoint.me(), ORDERED.request(number)));
    let call = endpoint.fan_out(requests).open().expect("there is room");
    assert!(!endpoint.clone().shutdown(Duration::from_millis(10)).await);
    let outcome = call.outcome().await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    let executed: Vec<Executed> = outcome.failures.iter().map(|failure| failure.executed).collect();
    assert_eq!(executed.iter().filter(|executed| **executed == Executed::No).count(), 2);
}

/// What they bring is accounted for as long as their tasks run.
#[tokio::test]
async fn what_is_cancelled_at_an_ordered_method_leaves_while_another_runs() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (log, gate) = (begun.clone(), Arc::new(Notify::new()));
    let opens = gate.clone();
    let service = Service::new().unary(ORDERED, move |number: u64, _: Context| {
        log.lock().expect("nobody panics with it").push(number);
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok::<_, Status>(number)
        }
    });
    let endpoint = start(service).await;
    let ask = |number| endpoint.call(ORDERED, number).to(endpoint.me()).open().expect("it is open");
    let first = ask(0);
    let mut kept = Vec::new();
    for number in 1..=10_000 {
        let call = ask(number);
        if number % 1_000 == 0 {
            kept.push(call);
        }
        let waiting = endpoint.load().waiting;
        assert!(waiting < 64, "{waiting} wait after {number} calls");
    }
    opens.notify_one();
    first.first().await.expect("it was let go");
    for call in kept {
        opens.notify_one();
        call.first().await.expect("each has its turn");
    }
    let begun = begun.lock().expect("nobody panics with it").clone();
    assert_eq!(begun, (0..=10).map(|thousand| thousand * 1_000).collect::<Vec<_>>());
}

/// Combinators that join calls may give them another waker with every poll.
#[test]
fn calls_that_are_joined_in_one_task_are_polled_for_news_alone() {
    let sleepy = |millis, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok::<_, Status>(millis)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let polls = runtime.block_on(async {
        let endpoint = start(Service::new().unary(COUNT, sleepy)).await;
        let call = |millis| {
            let call = endpoint.call(COUNT, millis).to(endpoint.me());
            call.into_future()
        };
        let mut waiting = [Some(call(5)), Some(call(100))];
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            for place in &mut waiting {
                let waker = Waker::from(Arc::new(Relay(cx.waker().clone())));
                if let Some(call) = place
                    && let Poll::Ready(answer) =
                        Pin::new(call).poll(&mut TaskContext::from_waker(&waker))
                {
                    answer.expect("it answers");
                    *place = None;
                }
            }
            if waiting.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        polls
    });
    assert!(polls <= 6, "{polls} polls");
}

#[tokio::test]
async fn a_reply_from_beside_the_handler_is_not_held_back() {
    let service = Service::new().tree(COUNT, |_, task: Task<u64>| async move {
        tokio::spawn(async move { task.reply(&1) });
        std::future::pending().await
    });
    let endpoint = start(service).await;
    let call = endpoint.call(COUNT, 0).to(endpoint.me());
    let mut call = call.deadline(Duration::from_secs(600)).open().expect("there is room");
    let reply = call.next().await.expect("it comes before the handler ends").expect("a reply");
    assert_eq!(reply.into_inner(), 1);
}

#[test]
fn a_call_may_be_opened_outside_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let service = Service::new().unary(COUNT, |number, _: Context| async move {
        tokio::time::sleep(Duration::ZERO).await;
        Ok::<_, Status>(number)
    });
    let endpoint = runtime.block_on(start(service));
    let call = endpoint.call(COUNT, 3).to(endpoint.me());
    let call = call.open().expect("there is room");
    assert_eq!(*runtime.block_on(call.first()).expect("it answers").message(), 3);
}

#[tokio::test]
async fn the_first_reply_counts_whatever_fails_before_it() {
    let endpoint = start(Service::new().tree(COUNT, count_down)).await;
    let nobody = Peer::from(NodeId::new(77));
    let call = endpoint.fan_out([(&nobody, COUNT.request(0)), (&endpoint.me(), COUNT.request(3))]);
    assert_eq!(call.await.expect("one of them answers"), 7);
}

const LONG: Method<u64, Vec<u8>> = Method::new("test.Handlers/Long");

/// Replies of more bytes than a caller grants at once, and a failure behind them.
async fn fail_late(len: u64, task: Task<Vec<u8>>) -> Result<Finish, Status> {
    let message = vec![1; usize::try_from(len).expect("it is small")];
    let mut items = task.stream()?;
    items.send(&message).await?;
    drop(items);
    task.reply(&message)?;
    Err(Status::new(convoke::Code::DataLoss, "the rest is gone"))
}

#[tokio::test]
async fn a_failure_comes_behind_what_was_sent_before_it() {
    let endpoint = start(Service::new().tree(LONG, fail_late)).await;
    let mut call = endpoint.call(LONG, 1 << 20).to(endpoint.me()).open().expect("it is opened");
    for _ in 0..2 {
        let reply = call.next().await.expect("it comes first").expect("it is a reply");
        assert_eq!(reply.message().len(), 1 << 20);
    }
    let failure = call.next().await.expect("it comes last").expect_err("it is the failure");
    assert!(failure.to_string().contains("the rest is gone"), "{failure}");
    assert!(call.next().await.is_none());
}

/// The branch goes on when the handler returns what ends its task, and not before.
#[tokio::test]
async fn a_tail_that_is_not_returned_hands_nothing_on() {
    let service = Service::new().tree(COUNT, |number: u64, task: Task<u64>| async move {
        let me = task.context().parent();
        match number {
            0 => task.answer(&7),
            1 => Ok(task.tail(me, COUNT.request(0)).await?),
            _ => {
                drop(task.tail(me, COUNT.request(0)).await?);
                Err(Status::new(convoke::Code::NotFound, "changed its mind"))
            }
        }
    });
    let endpoint = start(service).await;
    let ask = async |number| endpoint.call(COUNT, number).to(endpoint.me()).await;
    assert_eq!(ask(1).await.expect("the branch goes on"), 7);
    let call = endpoint.call(COUNT, 2).to(endpoint.me()).open().expect("there is room");
    let (replies, outcome) = call.collect().await.expect("it ends");
    assert!(replies.is_empty(), "nobody was asked");
    let causes: Vec<Cause> = outcome.failures.iter().map(|failure| failure.cause).collect();
    assert_eq!(causes, [Cause::Application]);
}

/// The room of the last handler waits for the next one, and keeps nothing that was in it.
#[tokio::test]
async fn what_handlers_hold_goes_with_them_and_their_service_with_its_endpoint() {
    let held = Arc::new(());
    let of_service = held.clone();
    let service = Service::new().unary(COUNT, move |number, _: Context| {
        let held = of_service.clone();
        async move { Ok::<_, Status>(number + Arc::strong_count(&held) as u64) }
    });
    let endpoint = start(service).await;
    for _ in 0..3 {
        let answer = endpoint.call(COUNT, 0).to(endpoint.me()).await;
        assert_eq!(answer.expect("it answers"), 3, "the test's, its own and its service's");
        assert_eq!(Arc::strong_count(&held), 2, "the test's and its service's");
    }
    endpoint.shutdown(Duration::from_secs(60)).await;
    let is_gone = async {
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_gone).await.expect("its endpoint is gone");
}
