//! Every way to set a deadline without a configuration, against a handler that takes longer, in
//! virtual time. Those of quorum calls are tested with them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke::{
    Call, CallBuilder, CallError, Cause, Code, Context, Endpoint, Failure, Finish, Method, Service,
    Status, Task,
};
use tokio::time::Instant;

/// Answers after this many milliseconds.
const SLEEP: Method<u64, u64> = Method::new("deadlines.Test/Sleep");
/// Asks `SLEEP` by a call of its own, with a deadline of so many milliseconds, if that is not 0.
const ASK: Method<u64, u64> = Method::new("deadlines.Test/Ask");
/// Opens branches of `SLEEP` with a deadline of 200 ms: 0 delegates one, 1 is a tail, 2 fans out.
const BRANCH: Method<u64, u64> = Method::new("deadlines.Test/Branch");

const DEADLINE: Duration = Duration::from_millis(200);
const LONG: u64 = 1_500;

async fn sleep(stopped: Arc<AtomicUsize>, for_ms: u64) -> Result<u64, Status> {
    /// Counts the handlers that were stopped.
    struct Guard(Option<Arc<AtomicUsize>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if let Some(stopped) = &self.0 {
                stopped.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let mut guard = Guard(Some(stopped));
    tokio::time::sleep(Duration::from_millis(for_ms)).await;
    guard.0 = None;
    Ok(for_ms)
}

async fn ask(deadline_ms: u64, context: Context) -> Result<u64, Status> {
    let call = context.call(SLEEP, LONG);
    let call = match deadline_ms {
        0 => call,
        ms => call.deadline(Duration::from_millis(ms)),
    };
    Ok(call.to(context.endpoint().me()).await?)
}

async fn branch(way: u64, task: Task<u64>) -> Result<Finish, Status> {
    let me = task.context().endpoint().me();
    let short = SLEEP.request(LONG).deadline(DEADLINE);
    match way {
        0 => {
            task.delegate(me, short).await?;
            Ok(task.finish())
        }
        1 => Ok(task.tail(me, short).await?),
        _ => task.fan_out([(me, short), (me, SLEEP.request(1))]).await,
    }
}

async fn start() -> (Endpoint, Arc<AtomicUsize>) {
    let stopped = Arc::<AtomicUsize>::default();
    let counted = stopped.clone();
    let service = Service::new()
        .unary(SLEEP, move |ms, _: Context| sleep(counted.clone(), ms))
        .unary(ASK, ask)
        .tree(BRANCH, branch);
    (Endpoint::builder().serve(service).start().await.expect("it listens nowhere"), stopped)
}

async fn awaited(call: CallBuilder<u64>) -> Failure {
    let error = call.await.expect_err("it is late");
    error.failure().expect("a branch of it is late").clone()
}

async fn opened(call: CallBuilder<u64>) -> Failure {
    let mut call: Call<u64> = call.open().expect("there is room");
    loop {
        match call.next().await.expect("a branch of it is late") {
            Err(CallError::Branch(failure)) => return failure,
            other => assert_eq!(*other.expect("only branches fail").message(), 1),
        }
    }
}

type Way<'a> = (&'static str, Pin<Box<dyn Future<Output = Failure> + 'a>>);

#[tokio::test(start_paused = true)]
async fn whichever_way_a_deadline_is_set_it_is_kept() {
    let (endpoint, stopped) = start().await;
    let me = endpoint.me();
    let client = endpoint.client().deadline(DEADLINE);
    let short = || SLEEP.request(LONG).deadline(DEADLINE);
    let ways: [Way<'_>; 10] = [
        ("an invocation", Box::pin(awaited(endpoint.call(SLEEP, LONG).deadline(DEADLINE).to(me)))),
        ("a call", Box::pin(awaited(endpoint.call(SLEEP, LONG).to(me).deadline(DEADLINE)))),
        ("the request of an invocation", Box::pin(awaited(endpoint.invoke(short()).to(me)))),
        ("the request of a branch", Box::pin(opened(endpoint.fan_out([(me, short())])))),
        ("a client", Box::pin(awaited(client.call(SLEEP, LONG).to(me)))),
        ("a client, of a call of branches", {
            Box::pin(opened(client.fan_out([(me, SLEEP.request(LONG))])))
        }),
        ("a call, beside a longer one of its client", {
            let client = endpoint.client().deadline(DEADLINE * 2);
            Box::pin(awaited(client.call(SLEEP, LONG).deadline(DEADLINE).to(me)))
        }),
        ("the request of a delegated branch", Box::pin(opened(endpoint.call(BRANCH, 0).to(me)))),
        ("the request of a tail", Box::pin(opened(endpoint.call(BRANCH, 1).to(me)))),
        ("the request of a branch of a task", Box::pin(opened(endpoint.call(BRANCH, 2).to(me)))),
    ];
    let count = ways.len();
    for (way, asked) in ways {
        let start = Instant::now();
        let failure = asked.await;
        assert_eq!((failure.cause, start.elapsed()), (Cause::Deadline, DEADLINE), "{way}");
    }
    // The requests left with that deadline, so the handlers were stopped with it.
    endpoint.shutdown(Duration::from_secs(1)).await;
    assert_eq!(stopped.load(Ordering::SeqCst), count);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_handler_has_no_more_time_than_its_task() {
    let (endpoint, stopped) = start().await;
    let start = Instant::now();
    // What is asked has a deadline of its own, far away, or none.
    for own_ms in [0, 60_000] {
        let call = endpoint.call(ASK, own_ms).deadline(DEADLINE).to(endpoint.me());
        assert_eq!(awaited(call).await.cause, Cause::Deadline);
    }
    assert_eq!(start.elapsed(), 2 * DEADLINE);
    // One that is shorter ends the call alone, and the handler says so.
    let error = endpoint.call(ASK, 100).to(endpoint.me()).await.expect_err("it is late");
    assert_eq!(error.status().expect("the handler's own").code(), Code::DeadlineExceeded);
    assert_eq!(start.elapsed(), 2 * DEADLINE + Duration::from_millis(100));
    endpoint.shutdown(Duration::from_secs(1)).await;
    assert_eq!(stopped.load(Ordering::SeqCst), 3);
}
