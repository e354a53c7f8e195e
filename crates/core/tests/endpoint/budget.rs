//! Streams that are ready again and again, and yet let the other tasks of their thread have a turn.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};

use convoke_core::{Context, Endpoint, Items, Method, Service, Status, Task};
use tokio::sync::Notify;
use tokio::task::coop::{has_budget_remaining, poll_proceed};

const REPLIES: Method<u64, u64> = Method::new("test.Budget/Replies");
const ITEMS: Method<Items<u64>, u64> = Method::new("test.Budget/Items");

fn use_up(cx: &mut Polling<'_>) {
    while has_budget_remaining() {
        if let Poll::Ready(taken) = poll_proceed(cx) {
            taken.made_progress();
        }
    }
}

/// True when it is ready, though its task has used up its turn.
async fn is_ready_out_of_turn(future: impl Future) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| {
        use_up(cx);
        Poll::Ready(future.as_mut().poll(cx).is_ready())
    })
    .await
}

#[tokio::test]
async fn who_reads_and_sends_without_waiting_lets_others_have_their_turn() {
    let are_sent = Arc::new(Notify::new());
    let told = are_sent.clone();
    let service = Service::new()
        .tree(REPLIES, async |_: u64, task: Task<u64>| {
            let mut stream = task.stream()?;
            assert!(!is_ready_out_of_turn(stream.send(&0)).await, "of a reply stream");
            for number in 1..3 {
                stream.send(&number).await?;
            }
            Ok::<_, Status>(task.finish())
        })
        .unary(ITEMS, move |mut items: Items<u64>, _: Context| {
            let told = told.clone();
            async move {
                told.notified().await;
                assert!(!is_ready_out_of_turn(items.next()).await, "of items");
                let mut sum = 0;
                while let Some(item) = items.next().await {
                    sum += item?;
                }
                Ok::<_, Status>(sum)
            }
        });
    let endpoint = Endpoint::builder().serve(service).start().await.expect("nothing to bind");
    let mut call = endpoint.call(REPLIES, 0).to(endpoint.me()).open().expect("there is room");
    while endpoint.load().tasks > 0 {
        tokio::task::yield_now().await;
    }
    assert!(!is_ready_out_of_turn(call.next()).await, "of a call");
    let first = call.next().await.expect("a reply").expect("a reply");
    let second = call.next().await.expect("a reply").expect("a reply");
    assert_eq!([*first.message(), *second.message()], [1, 2], "nothing was lost");
    assert!(call.next().await.is_none());
    assert!(is_ready_out_of_turn(call.outcome()).await, "it was read to its end");

    let opened = endpoint.call_stream(ITEMS).to(endpoint.me()).open();
    let (mut items, sum) = opened.expect("there is room");
    assert!(!is_ready_out_of_turn(items.send(&1)).await, "of a request stream");
    for item in [2, 3] {
        items.send(&item).await.expect("there is credit");
    }
    items.finish();
    are_sent.notify_one();
    assert_eq!(sum.first().await.expect("it is answered").into_inner(), 5, "nothing was lost");
}
