//! Answers that outlive their handlers, in virtual time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use convoke::prost::bytes::{Buf, BytesMut};
use convoke::{
    Cause, Code, DecodeError, Deferred, End, Endpoint, Executed, Finish, Method, Outcome, Payload,
    SendError, Service, Status, Task,
};
use tokio::sync::mpsc;

/// Gives its token to the test, which answers.
const LATER: Method<u64, u64> = Method::new("deferred.Test/Later");
/// The same, one after the other for each peer.
const IN_TURN: Method<u64, u64> = Method::new("deferred.Test/InTurn").ordered();
/// Replies 1, then gives its token to the test.
const REPLY_FIRST: Method<u64, u64> = Method::new("deferred.Test/ReplyFirst");
/// Gives its token to the test, waits for so many milliseconds, then returns: with an error if that
/// is 0.
const RETURN_LATE: Method<u64, u64> = Method::new("deferred.Test/ReturnLate");

/// Streams five numbers and answers with a sixth, all before it returns.
const STREAM_FIRST: Method<u64, u64> = Method::new("deferred.Test/StreamFirst");

type Tokens = mpsc::UnboundedReceiver<Deferred<u64>>;

async fn start() -> (Endpoint, Tokens) {
    let (given, tokens) = mpsc::unbounded_channel();
    let [in_turn, first, late] = std::array::from_fn(|_| given.clone());
    let defer = |given: &mpsc::UnboundedSender<Deferred<u64>>, task: Task<u64>| {
        let (later, finish) = task.defer();
        given.send(later).expect("the test listens");
        Ok::<_, Status>(finish)
    };
    let service = Service::new()
        .tree(LATER, move |_, task| std::future::ready(defer(&given, task)))
        .tree(IN_TURN, move |_, task| std::future::ready(defer(&in_turn, task)))
        .tree(REPLY_FIRST, move |_, task: Task<u64>| {
            let replied = task.reply(&1).map_err(Status::from);
            std::future::ready(replied.and_then(|()| defer(&first, task)))
        })
        .tree(STREAM_FIRST, |_, task: Task<u64>| async move {
            let (later, finish) = task.defer();
            let mut items = later.task().stream()?;
            for number in 0..5 {
                items.send(&number).await?;
            }
            later.answer(&99)?;
            drop(items);
            Ok(finish)
        })
        .tree(RETURN_LATE, move |ms, task: Task<u64>| {
            let deferred = defer(&late, task);
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                if ms == 0 { Err(Status::new(Code::Aborted, "changed its mind")) } else { deferred }
            }
        });
    let service: Service = service;
    (Endpoint::builder().serve(service).start().await.expect("it listens nowhere"), tokens)
}

/// Asks, and gives the token once it is here.
async fn ask(
    endpoint: &Endpoint,
    tokens: &mut Tokens,
    method: Method<u64, u64>,
    number: u64,
) -> (convoke::Call<u64>, Deferred<u64>) {
    let call = endpoint.call(method, number).deadline(Duration::from_secs(3)).to(endpoint.me());
    let call = call.open().expect("there is room");
    (call, tokens.recv().await.expect("the handler has run"))
}

fn only(outcome: &Outcome) -> (Cause, Executed) {
    let [failure] = &outcome.failures[..] else { panic!("one branch failed: {outcome:?}") };
    (failure.cause, failure.executed)
}

#[tokio::test(start_paused = true)]
async fn a_task_is_answered_when_its_handler_is_long_gone() {
    let (endpoint, mut tokens) = start().await;
    let mut waiting = Vec::new();
    for number in 0..5 {
        waiting.push(ask(&endpoint, &mut tokens, LATER, number).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // One round answers all.
    for (number, (call, later)) in (10..).zip(waiting) {
        assert!(!later.is_stopped());
        later.answer(&number).expect("it is waited for");
        let (replies, outcome) = call.collect().await.expect("they decode");
        let replies: Vec<u64> = replies.into_iter().map(convoke::Reply::into_inner).collect();
        assert_eq!((&replies[..], outcome.end), (&[number][..], End::Complete));
    }
    // Nothing of them is kept, but what is remembered of every task.
    let load = endpoint.load();
    assert_eq!((load.tasks, load.waiting, load.calls), (0, 0, 0), "{load:?}");
    assert!(endpoint.shutdown(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_replied_before_leaves_with_the_handler() {
    let (endpoint, mut tokens) = start().await;
    let (mut call, later) = ask(&endpoint, &mut tokens, REPLY_FIRST, 0).await;
    assert_eq!(*call.next().await.expect("one").expect("it is a reply").message(), 1);
    later.task().reply(&2).expect("it is waited for");
    assert_eq!(*call.next().await.expect("another").expect("it is a reply").message(), 2);
    later.finish();
    assert!(call.next().await.is_none());
    assert!(call.outcome().await.is_complete());
}

#[tokio::test(start_paused = true)]
async fn what_was_streamed_before_an_answer_comes_before_it() {
    let (endpoint, _tokens) = start().await;
    let call = endpoint.call(STREAM_FIRST, 0).to(endpoint.me()).open().expect("there is room");
    let (replies, outcome) = call.collect().await.expect("they decode");
    let replies: Vec<u64> = replies.into_iter().map(convoke::Reply::into_inner).collect();
    assert_eq!((&replies[..], outcome.end), (&[0, 1, 2, 3, 4, 99][..], End::Complete));
}

#[tokio::test(start_paused = true)]
async fn who_asks_nobody_is_told_so_at_once() {
    let (endpoint, _tokens) = start().await;
    let nobody: [convoke::Peer; 0] = [];
    let begun = tokio::time::Instant::now();
    // Polled again when that time is over, whoever called it or not.
    let call = tokio::time::timeout(Duration::from_secs(1), async {
        endpoint.call(LATER, 0).to_all(nobody).await
    });
    let error = call.await.expect("it resolves").expect_err("nobody was asked");
    assert!(matches!(error, convoke::CallError::NoPeer), "{error}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_error_given_later_is_the_tasks() {
    let (endpoint, mut tokens) = start().await;
    let (call, later) = ask(&endpoint, &mut tokens, LATER, 0).await;
    later.fail(Status::new(Code::FailedPrecondition, "not the leader").without_effect());
    let error = call.first().await.expect_err("it failed");
    let status = error.status().expect("of the service");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not the leader"));
    assert!(error.is_safe_to_repeat());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_dropped_fails_its_task() {
    let (endpoint, mut tokens) = start().await;
    let (call, later) = ask(&endpoint, &mut tokens, LATER, 0).await;
    drop(later);
    assert_eq!(only(&call.outcome().await), (Cause::Dropped, Executed::Maybe));
}

#[tokio::test(start_paused = true)]
async fn a_token_knows_when_nobody_waits_any_more() {
    let (endpoint, mut tokens) = start().await;
    // Its deadline passes.
    let (call, mut late) = ask(&endpoint, &mut tokens, LATER, 0).await;
    late.stopped().await;
    assert_eq!(only(&call.outcome().await).0, Cause::Deadline);
    assert!(late.is_stopped());
    assert_eq!(late.answer(&1), Err(SendError::Ended));
    // Its call is dropped.
    let (call, mut unwanted) = ask(&endpoint, &mut tokens, LATER, 0).await;
    drop(call);
    unwanted.stopped().await;
    // Its endpoint is shut down.
    let (call, mut left) = ask(&endpoint, &mut tokens, LATER, 0).await;
    assert!(!endpoint.shutdown(Duration::from_millis(10)).await);
    left.stopped().await;
    assert_eq!(only(&call.outcome().await).0, Cause::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn the_next_of_an_ordered_method_begins_when_a_handler_has_deferred() {
    let (endpoint, mut tokens) = start().await;
    let (first, one) = ask(&endpoint, &mut tokens, IN_TURN, 1).await;
    let (second, two) = ask(&endpoint, &mut tokens, IN_TURN, 2).await;
    two.answer(&2).expect("it is waited for");
    one.answer(&1).expect("it is waited for");
    assert_eq!(*first.first().await.expect("it was answered").message(), 1);
    assert_eq!(*second.first().await.expect("it was answered").message(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_before_the_handler_returns() {
    let (endpoint, mut tokens) = start().await;
    let (call, later) = ask(&endpoint, &mut tokens, RETURN_LATE, 100).await;
    later.answer(&7).expect("it is waited for");
    assert_eq!(*call.first().await.expect("it was answered").message(), 7);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let load = endpoint.load();
    assert_eq!((load.tasks, load.waiting), (0, 0), "{load:?}");
    // And the handler may fail beside it, which ends the task.
    let (call, later) = ask(&endpoint, &mut tokens, RETURN_LATE, 0).await;
    let error = call.first().await.expect_err("the handler failed");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Aborted));
    assert_eq!(later.answer(&7), Err(SendError::Ended));
}

/// Its handler waits for something else, or fails, with what would let the task go on.
#[tokio::test(start_paused = true)]
async fn a_token_is_told_when_its_task_ends_before_its_handler_has_returned() {
    let (endpoint, mut tokens) = start().await;
    let (call, mut given_up) = ask(&endpoint, &mut tokens, RETURN_LATE, 60_000).await;
    drop(call);
    let (call, mut late) = ask(&endpoint, &mut tokens, RETURN_LATE, 60_000).await;
    assert_eq!(only(&call.outcome().await).0, Cause::Deadline);
    let (call, mut failed) = ask(&endpoint, &mut tokens, RETURN_LATE, 0).await;
    assert_eq!(only(&call.outcome().await).0, Cause::Application);
    for token in [&mut given_up, &mut late, &mut failed] {
        let told = tokio::time::timeout(Duration::from_secs(1), token.stopped()).await;
        assert!(told.is_ok() && token.is_stopped());
    }
}

/// A batching server holds tokens of many calls, on whatever thread.
#[test]
fn a_token_can_be_sent_and_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Deferred<u64>>();
    is_send_and_sync::<Finish>();
}

/// Tokens that end their task before its handler has returned, as where nobody listens.
#[tokio::test]
async fn a_token_that_goes_at_once_leaves_nothing() {
    let drops = |task: Task<u64>| -> Finish { task.defer().1 };
    let fails = |task: Task<u64>| -> Finish {
        let (later, finish) = task.defer();
        later.fail(Status::new(Code::Aborted, "no"));
        finish
    };
    let finishes = |task: Task<u64>| -> Finish {
        let (later, finish) = task.defer();
        later.finish();
        finish
    };
    for goes in [drops, fails, finishes] {
        let service = Service::new()
            .tree(LATER, move |_: u64, task| std::future::ready(Ok::<_, Status>(goes(task))));
        let endpoint = Endpoint::builder().serve(service).start().await.unwrap();
        for _ in 0..20 {
            endpoint.call(LATER, 1).to(endpoint.me()).open().unwrap().outcome().await;
        }
        assert_eq!(endpoint.load().waiting, 0, "{:?}", endpoint.load());
    }
}

/// A message that cannot be encoded.
#[derive(Debug)]
struct Bad;

impl Payload for Bad {
    fn encode(&self, _: &mut BytesMut) {
        panic!("it cannot be encoded");
    }

    fn decode(_: impl Buf) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// A token whose answer panics was dropped without one.
#[tokio::test]
async fn a_token_whose_answer_cannot_be_encoded_fails_its_task() {
    const BAD: Method<u64, Bad> = Method::new("deferred.Test/Bad");
    let (given, mut tokens) = mpsc::unbounded_channel();
    let service = Service::new().tree(BAD, move |_: u64, task: Task<Bad>| {
        let (later, finish) = task.defer();
        given.send(later).expect("the test listens");
        std::future::ready(Ok::<_, Status>(finish))
    });
    let endpoint = Endpoint::builder().serve(service).start().await.unwrap();
    let call = endpoint.call(BAD, 1).to(endpoint.me()).open().unwrap();
    let later: Deferred<Bad> = tokens.recv().await.unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| later.answer(&Bad))).is_err());
    let outcome = call.outcome().await;
    assert_eq!(outcome.failures[0].cause, Cause::Dropped, "{outcome:?}");
}
