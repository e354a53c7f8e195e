//! Waits for room at a connection whose peer takes nothing: they end with what they are part of.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Polling, Wake, Waker};
use std::time::Duration;

use convoke_core::proto::task::SendError;
use convoke_core::{
    Call, Cause, Context, Endpoint, Finish, Items, Method, NodeId, OneOf, Peer, Service, Status,
    Task,
};
use convoke_sim::transport::SimNetwork;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::Instant;

const COUNT: Method<Items<String>, u64> = Method::new("test.Full/Count");
const FILL: Method<String, u64> = Method::new("test.Full/Fill");
const PART: Method<u64, u64> = Method::new("test.Full/Part");

/// Far longer than anything here is to take, and shorter than a silent connection lasts.
const LONG: Duration = Duration::from_secs(5);

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn service() -> Service {
    let fill = |_: String, _: Context| pending::<Result<u64, Status>>();
    Service::new().unary(FILL, fill).unary(
        COUNT,
        |mut items: Items<String>, _: Context| async move {
            let mut count = 0;
            while let Some(item) = items.next().await {
                item?;
                count += 1;
            }
            Ok::<_, Status>(count)
        },
    )
}

async fn start(network: &SimNetwork, id: u64, service: Service) -> Endpoint {
    let builder = Endpoint::builder().transport(network.transport()).node(node(id));
    builder.listen(format!("sim://n{id}")).serve(service).start().await.expect("it is free")
}

/// The node 2, which this one is connected to.
async fn meet(endpoint: &Endpoint) -> Peer {
    let peer = endpoint.peer(node(2), "sim://n2").expect("it is an address");
    endpoint.warm_up(peer).await.expect("it listens");
    peer
}

/// Sends until the connection has no room, of which nothing arrives.
async fn fill(network: &SimNetwork, endpoint: &Endpoint, peer: Peer) -> Vec<Call<u64>> {
    network.partition(endpoint.node(), peer.node());
    let mut held = Vec::new();
    for count in 0..24 {
        if count == 20 {
            tokio::time::sleep(Duration::from_millis(1)).await; // What there is credit for leaves.
        }
        let call = endpoint.call(FILL, "x".repeat(1 << 20)).deadline(2 * LONG).to(peer);
        held.push(call.open().expect("there is room for the call"));
    }
    held
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
async fn a_writer_of_items_waits_for_room_no_longer_than_its_call_lasts() {
    let network = SimNetwork::new(1);
    let (_server, client) =
        (start(&network, 2, service()).await, start(&network, 1, Service::new()).await);
    let peer = meet(&client).await;
    for is_dropped in [false, true] {
        let begun = Instant::now();
        let call = client.call_stream(COUNT).deadline(LONG / 2).to(peer);
        let (mut items, call) = call.open().expect("there is room");
        items.send(&"taken".to_owned()).await.expect("there is room");
        let _held = fill(&network, &client, peer).await;
        let item = "waits".to_owned();
        let mut waiting = Box::pin(items.send(&item));
        let early = tokio::time::timeout(LONG / 4, &mut waiting).await;
        assert!(early.is_err(), "the connection has room: {early:?}");
        let call = Some(call).filter(|_| !is_dropped);
        let told = tokio::time::timeout(LONG, waiting).await;
        assert_eq!(told, Ok(Err(SendError::Ended)), "is_dropped: {is_dropped}");
        assert!(begun.elapsed() < LONG, "is_dropped: {is_dropped}, after {:?}", begun.elapsed());
        drop(call);
        network.heal_all();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_spawned_part_waits_for_room_no_longer_than_its_task_runs() {
    let network = SimNetwork::new(2);
    let (told, mut hears) = mpsc::unbounded_channel();
    let part = Service::new().tree(PART, move |_: u64, task: Task<u64>| {
        let told = told.clone();
        async move {
            tokio::spawn(async move {
                let _ = told.send(None);
                let refused = task.delegate(node(2), PART.request(1)).await;
                let _ = told.send(refused.err().map(|refused| refused.reason));
            });
            pending::<Result<Finish, Status>>().await
        }
    });
    let _other = start(&network, 2, service()).await;
    let (server, client) =
        (start(&network, 1, part).await, start(&network, 3, Service::new()).await);
    let peer = meet(&server).await;
    let _held = fill(&network, &server, peer).await;
    let asked = client.peer(node(1), "sim://n1").expect("it is an address");
    let call = client.call(PART, 0).to(asked).open().expect("there is room");
    assert_eq!(hears.recv().await, Some(None), "it has begun");
    drop(call);
    let told = tokio::time::timeout(LONG, hears.recv()).await;
    assert_eq!(told, Ok(Some(Some(SendError::Ended))));
}

/// Calls to the other one wait, and are not open before they have room.
#[tokio::test(start_paused = true)]
async fn the_less_loaded_of_two_is_one_that_has_room() {
    let network = SimNetwork::new(9);
    let (_full, _other) =
        (start(&network, 2, service()).await, start(&network, 3, service()).await);
    let client = start(&network, 1, Service::new()).await;
    let full = meet(&client).await;
    let other = client.peer(node(3), "sim://n3").expect("it is an address");
    client.warm_up(other).await.expect("it listens");
    let pool = OneOf::least_loaded(&client, [full, other]).expect("they are two");
    drop(fill(&network, &client, full).await);
    let busy = client.call(FILL, String::new()).deadline(LONG).to(other);
    let _busy = busy.open().expect("there is room");
    assert_eq!([(); 8].map(|()| pool.pick()), [other; 8]);
    network.heal_all();
    tokio::time::sleep(LONG / 4).await;
    assert_eq!([(); 8].map(|()| pool.pick()), [full; 8], "it has room, and nothing is open");
}

/// Each of them is another task of the runtime.
#[tokio::test(start_paused = true)]
async fn parts_that_give_up_their_wait_for_room_leave_nothing() {
    let network = SimNetwork::new(5);
    let (told, mut hears) = mpsc::unbounded_channel();
    let part = Service::new().tree(PART, move |_: u64, task: Task<u64>| {
        let (told, task) = (told.clone(), Arc::new(task));
        async move {
            for _ in 0..100 {
                let task = task.clone();
                let gives_up = tokio::spawn(async move {
                    let opened = task.delegate(node(2), PART.request(1));
                    tokio::time::timeout(Duration::from_millis(1), opened).await.is_err()
                });
                assert!(gives_up.await.expect("it ends"), "there is no room");
            }
            let _ = told.send(task.context().endpoint().load().waiting);
            pending::<Result<Finish, Status>>().await
        }
    });
    let _other = start(&network, 2, service()).await;
    let (server, client) =
        (start(&network, 1, part).await, start(&network, 3, Service::new()).await);
    let peer = meet(&server).await;
    let _held = fill(&network, &server, peer).await;
    let asked = client.peer(node(1), "sim://n1").expect("it is an address");
    let _call = client.call(PART, 0).to(asked).open().expect("there is room");
    let waiting = tokio::time::timeout(LONG, hears.recv()).await;
    assert_eq!(waiting, Ok(Some(2)), "its handler, and the end of its waits");
}

/// The first reply of several is there, though one of them takes nothing; alone, that is waited
/// for.
#[tokio::test(start_paused = true)]
async fn a_member_that_takes_nothing_does_not_keep_the_others_from_answering() {
    let network = SimNetwork::new(3);
    let part = |_: u64, _: Context| async { Ok::<_, Status>(7) };
    let answering = Service::new().unary(PART, part);
    let (_full, _other) =
        (start(&network, 2, service()).await, start(&network, 3, answering).await);
    let client = start(&network, 1, Service::new()).await;
    let peer = meet(&client).await;
    let other = client.peer(node(3), "sim://n3").expect("it is an address");
    client.warm_up(other).await.expect("it listens");
    let _held = fill(&network, &client, peer).await;
    let reply = tokio::time::timeout(LONG, client.call(PART, 1).to_all([peer, other])).await;
    assert!(matches!(reply, Ok(Ok(7))), "the one that takes requests has answered: {reply:?}");
    let alone = client.call(PART, 1).deadline(LONG / 4).to(peer).await;
    assert_eq!(alone.expect_err("it waits").failure().map(|f| f.cause), Some(Cause::Deadline));
}

/// It is asked once its connection has room, in the order of the requests to it.
#[tokio::test(start_paused = true)]
async fn a_branch_that_waits_for_room_keeps_no_other_from_being_asked() {
    let network = SimNetwork::new(4);
    let (told, mut hears) = mpsc::unbounded_channel();
    let part = move |number: u64, _: Context| {
        let told = told.clone();
        async move {
            let _ = told.send(number);
            Ok::<_, Status>(number)
        }
    };
    let parts = || Service::new().unary(PART, part.clone());
    let hang = |_: String, _: Context| pending::<Result<u64, Status>>();
    let (_full, _other) =
        (start(&network, 2, parts().unary(FILL, hang)).await, start(&network, 3, parts()).await);
    let spread = Service::new().tree(PART, |_: u64, task: Task<u64>| async move {
        let asked = [(2, 21), (2, 22), (3, 31), (2, 23), (3, 32)];
        task.fan_out(asked.map(|(to, number)| (node(to), PART.request(number)))).await
    });
    let (server, client) =
        (start(&network, 1, spread).await, start(&network, 4, Service::new()).await);
    let peer = meet(&server).await;
    let other = server.peer(node(3), "sim://n3").expect("it is an address");
    server.warm_up(other).await.expect("it listens");
    let _held = fill(&network, &server, peer).await;
    let asked = client.peer(node(1), "sim://n1").expect("it is an address");
    let mut call = client.call(PART, 0).to(asked).open().expect("there is room");
    for number in [31, 32] {
        let reply = tokio::time::timeout(LONG, call.next()).await.expect("it has room");
        assert_eq!(reply.expect("a reply").expect("a reply").into_inner(), number);
    }
    network.heal_all();
    let outcome = call.outcome().await;
    assert!(outcome.is_complete(), "{outcome:?}");
    hears.close();
    let mut ran = Vec::new();
    hears.recv_many(&mut ran, 8).await;
    assert_eq!(ran, [31, 32, 21, 22, 23]);
}

/// As by an executor of another kind.
#[test]
fn a_call_that_is_awaited_outside_a_runtime_waits_for_room() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let (runtime, network) = (runtime.expect("it needs little"), SimNetwork::new(4));
    let (_server, client, peer, _held) = runtime.block_on(async {
        let (server, client) =
            (start(&network, 2, service()).await, start(&network, 1, Service::new()).await);
        let peer = meet(&client).await;
        let held = fill(&network, &client, peer).await;
        (server, client, peer, held)
    });
    let mut call = pin!(client.call(PART, 1).deadline(LONG / 4).to(peer).into_future());
    let mut shutdown = pin!(client.clone().shutdown(LONG / 2));
    let cx = &mut Polling::from_waker(Waker::noop());
    assert!(call.as_mut().poll(cx).is_pending(), "the connection is full");
    assert!(shutdown.as_mut().poll(cx).is_pending(), "a call is open");
    let late = runtime.block_on(call).expect_err("it waits");
    assert_eq!(late.failure().map(|failure| failure.cause), Some(Cause::Deadline));
    assert!(!runtime.block_on(shutdown), "calls are open");
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_opened_together_leave_before_the_end_where_they_are_much() {
    let network = SimNetwork::new(6);
    let _server = start(&network, 2, service()).await;
    let client = start(&network, 1, Service::new()).await;
    let peer = meet(&client).await;
    let sent = || client.counters().bytes_sent;
    let before = sent();
    let (calls, after) = client.together(|| {
        let call = || client.call(FILL, "x".repeat(100 << 10)).to(peer).open();
        let calls: Vec<_> = (0..32).map(|_| call().expect("there is room")).collect();
        (calls, sent())
    });
    assert!(after - before >= 1 << 19, "{} bytes of {} calls", after - before, calls.len());
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once, as a task of its own that then ends.
fn poll_and_leave(waits: impl Future) -> Arc<Count> {
    let task = Arc::<Count>::default();
    let waker = Waker::from(task.clone());
    assert!(pin!(waits).poll(&mut Polling::from_waker(&waker)).is_pending(), "there is no room");
    task
}

/// How many of these tasks are kept by somebody.
fn kept(tasks: &[Arc<Count>]) -> usize {
    tasks.iter().filter(|task| Arc::strong_count(task) > 1).count()
}

/// As those do that reach their deadline: a connection that stays full would keep all of them.
#[tokio::test(start_paused = true)]
async fn who_waits_no_longer_leaves_nothing_at_a_full_connection() {
    let network = SimNetwork::new(5);
    let part = |number: u64, _: Context| async move { Ok::<_, Status>(number) };
    let _server = start(&network, 2, service().unary(PART, part)).await;
    let client = start(&network, 1, Service::new()).await;
    let peer = meet(&client).await;
    let call = client.call_stream(COUNT).deadline(2 * LONG).to(peer);
    let (mut items, counted) = call.open().expect("there is room");
    items.send(&"taken".to_owned()).await.expect("there is room");
    let _held = fill(&network, &client, peer).await;
    let (mut opening, mut awaited, mut writing) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..10_000 {
        let call = || client.call(PART, number).to(peer);
        opening.push(poll_and_leave(call().open_when_writable()));
        awaited.push(poll_and_leave(call().into_future()));
        writing.push(poll_and_leave(items.send(&"waits".to_owned())));
    }
    assert_eq!((kept(&opening), kept(&awaited)), (0, 0));
    assert_eq!(kept(&writing), 1, "the last of a call's writers is told of its end");
    let waits = client.call(PART, 7).to(peer).into_future();
    let waiting = tokio::spawn(waits);
    tokio::task::yield_now().await;
    network.heal_all();
    assert!(matches!(waiting.await.expect("it does not panic"), Ok(7)), "there is room again");
    items.send(&"taken, too".to_owned()).await.expect("there is room again");
    items.finish();
    assert_eq!(counted.first().await.expect("it was counted").into_inner(), 2);
}
