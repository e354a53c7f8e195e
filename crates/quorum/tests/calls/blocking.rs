//! Handlers of the caller's own node that block their thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use convoke_core::transport::mem::MemTransport;
use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_quorum::{Configuration, Majority, QuorumExt};

const ASK: Method<u64, u64> = Method::new("test.Blocking/Ask");

/// Far above what anything here takes: only where the caller waits for the handler is it used up.
const PATIENCE: Duration = Duration::from_secs(10);

async fn member(id: u64, service: Service) -> Endpoint {
    let member = Endpoint::builder().node(NodeId::new(id)).transport(MemTransport::new());
    let member = member.serve(service);
    member.listen(format!("mem://blocking-{id}")).start().await.expect("the name is free")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_handler_that_blocks_its_thread_holds_up_no_quorum_of_the_others() {
    let (let_go, waits) = mpsc::channel::<()>();
    let (waits, ended) = (Mutex::new(waits), Arc::new(AtomicU64::new(0)));
    let has_ended = ended.clone();
    let blocking = Service::new().unary(ASK, move |number, _: Context| {
        let _ = waits.lock().expect("nobody panics with it").recv_timeout(PATIENCE);
        has_ended.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Status>(number) }
    });
    let echo =
        || Service::new().unary(ASK, |number, _: Context| async move { Ok::<_, Status>(number) });
    let members = [member(1, blocking).await, member(2, echo()).await, member(3, echo()).await];
    let all = Configuration::new(&members).expect("they differ");
    all.introduce(&members[0]).expect("they are addresses");
    let decided = members[0].call(ASK, 7).to_all(&all).quorum(Majority).await;
    let mut from: Vec<u64> =
        decided.expect("two answer").iter().map(|(from, _)| from.get()).collect();
    from.sort_unstable();
    assert_eq!(from, [2, 3]);
    assert_eq!(ended.load(Ordering::SeqCst), 0, "the handler waits, or will");
    let_go.send(()).expect("it is there");
    let again = members[0].call(ASK, 8).to_all(&all).quorum(Majority);
    let_go.send(()).expect("there is room");
    assert_eq!(again.await.expect("two answer").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_handlers_begin_in_the_order_of_submission_whatever_the_kind_of_call() {
    let last = Arc::new(AtomicU64::new(0));
    let seen = last.clone();
    let ordered = Service::new().unary(ASK, move |number, _: Context| {
        let before = seen.swap(number, Ordering::SeqCst);
        async move { Ok::<_, Status>(before) }
    });
    let own = member(4, ordered).await;
    let all = Configuration::new([own.me()]).expect("one");
    for number in (1..2_000).step_by(2) {
        let quorum = own.call(ASK, number).to_all(&all).quorum_call().open();
        let plain = own.call(ASK, number + 1).to(own.me());
        assert_eq!(plain.await.expect("it answers"), number, "the quorum call came first");
        drop(quorum);
    }
    assert_eq!(last.load(Ordering::SeqCst), 2_000);
}

/// Behind a handler that does not end, tasks come and go: theirs must not run when it ends at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_handler_whose_task_was_stopped_while_it_waited_never_begins() {
    let (let_go, waits) = mpsc::channel::<()>();
    let (waits, begun) = (Mutex::new(waits), Arc::new(Mutex::new(Vec::new())));
    let begins = begun.clone();
    let blocking = Service::new().unary(ASK, move |number, _: Context| {
        begins.lock().expect("nobody panics with it").push(number);
        let _ = waits.lock().expect("nobody panics with it").recv_timeout(PATIENCE);
        async move { Ok::<_, Status>(number) }
    });
    let own = member(5, blocking).await;
    let all = Configuration::new([own.me()]).expect("one");
    let first = own.call(ASK, 0).to_all(&all).quorum_call().open();
    let until = async |done: &dyn Fn() -> bool| {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until(&|| !begun.lock().expect("nobody panics with it").is_empty()).await;
    for number in 1..=200 {
        let late = own.call(ASK, number).deadline(Duration::from_millis(1));
        assert!(late.to_all(&all).quorum(Majority).await.is_err());
    }
    until(&|| own.load().tasks == 1).await;
    (0..2).for_each(|_| let_go.send(()).expect("it is there"));
    let last = own.call(ASK, 201).to_all(&all).quorum(Majority).await;
    assert_eq!(last.expect("it answers").len(), 1);
    assert_eq!(*begun.lock().expect("nobody panics with it"), [0, 201]);
    drop(first);
}
