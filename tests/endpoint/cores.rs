//! Endpoints with several cores over TCP: what callers and handlers see does not depend on which
//! core a call lives in. A call is in the core of the first node that it goes to.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use convoke::cast::{Announce, CastBody, Digest};
use convoke::transport::TcpTransport;
use convoke::{
    Bytes, Call, CallBuilder, Context, Endpoint, EndpointBuilder, Limits, Method, NodeId, Peer,
    Service, Status,
};
use tokio::runtime::Handle;

const NOTE: Method<u64, u64> = Method::new("test.Cores/Note").ordered();
const NEVER: Method<u64, u64> = Method::new("test.Cores/Never");
const CORES: u8 = 4;
const THREADS: usize = 4;

fn builder() -> EndpointBuilder {
    Endpoint::builder().transport(TcpTransport::new()).cores(CORES)
}

fn never() -> Service {
    Service::new().unary(NEVER, |_: u64, _: Context| pending::<Result<u64, Status>>())
}

async fn serve(service: Service, limits: Limits) -> Endpoint {
    let server = builder().limits(limits).serve(service).listen("tcp://127.0.0.1:0");
    server.start().await.expect("loopback can be bound")
}

async fn meet(client: &Endpoint, server: &Endpoint) -> Peer {
    client.connect(server.addresses()).await.expect("it listens")
}

/// Servers without any method, for a client to name first in its calls: those of each are in
/// another core.
async fn doors(client: &Endpoint) -> Vec<(Endpoint, Peer)> {
    let mut doors = Vec::new();
    // Names that the four cores share evenly.
    for node in [1, 2, 3, 5].map(NodeId::new) {
        let door = builder().node(node).listen("tcp://127.0.0.1:0");
        let door = door.start().await.expect("loopback can be bound");
        let peer = meet(client, &door).await;
        doors.push((door, peer));
    }
    doors
}

fn peers(doors: &[(Endpoint, Peer)]) -> Vec<Peer> {
    doors.iter().map(|(_, peer)| *peer).collect()
}

/// A call to a node through the core of another one, which is asked first and refuses.
fn through(
    client: &Endpoint,
    door: Peer,
    peer: Peer,
    method: Method<u64, u64>,
    number: u64,
) -> CallBuilder<u64> {
    client.fan_out([(door, NEVER.request(0)), (peer, method.request(number))])
}

/// Runs `act` on several threads.
fn on_threads<T: Send + 'static>(act: impl Fn(usize) -> T + Clone + Send + 'static) -> Vec<T> {
    let runtime = Handle::current();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (runtime, act) = (runtime.clone(), act.clone());
            thread::spawn(move || {
                let _entered = runtime.enter();
                act(number)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
}

/// Until `is_so`, in bounded time.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let met = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap_or_else(|_| panic!("{what}"));
}

/// I46 of `streams.md`: calls that happen one after the other begin in that order, whichever
/// threads make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_ordered_method_begins_in_the_order_in_which_threads_call_in_turn() {
    const ROUNDS: u64 = 500;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let service = Service::new().unary(NOTE, move |number: u64, _: Context| {
        noted.lock().expect("nobody panics").push(number);
        async move { Ok::<_, Status>(number) }
    });
    let server = serve(service, Limits::default()).await;
    let client = builder().start().await.expect("it listens nowhere");
    let (peer, doors) = (meet(&client, &server).await, doors(&client).await);
    let first = peers(&doors);
    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let opened = on_threads(move |number| {
        let (next, changed) = &*turn;
        let mut calls: Vec<Call<u64>> = Vec::new();
        while (calls.len() as u64) < ROUNDS {
            let is_other = |next: &mut u64| *next % THREADS as u64 != number as u64;
            let next = next.lock().expect("nobody panics");
            let mut next = changed.wait_while(next, is_other).expect("nobody panics");
            let call = through(&client, first[number], peer, NOTE, *next);
            calls.push(call.open().expect("there is room"));
            *next += 1;
            changed.notify_all();
        }
        calls
    });
    let origins: BTreeSet<_> = opened.iter().map(|calls| calls[0].id().origin).collect();
    assert_eq!(origins.len(), THREADS, "each has called from a core of its own");
    for call in opened.into_iter().flatten() {
        call.first().await.expect("it answers");
    }
    let seen = seen.lock().expect("nobody panics");
    assert!(seen.is_sorted(), "{:?}", seen.windows(2).find(|pair| pair[0] > pair[1]));
    assert_eq!(seen.len() as u64, ROUNDS * THREADS as u64);
}

/// One thread may use up the calls of all cores, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_as_many_calls_open_as_it_may_whatever_its_cores() {
    let mut limits = Limits::default();
    limits.calls_max = 10;
    let endpoint =
        builder().limits(limits).serve(never()).start().await.expect("it listens nowhere");
    let open = || endpoint.call(NEVER, 0).to(endpoint.me()).open();
    let mut held: Vec<_> = (0..10).map(|_| open().expect("there is room")).collect();
    let refused = open().expect_err("there are as many as may be").to_string();
    assert!(refused.starts_with("10 calls are open, as many as calls_max allows"), "{refused}");
    drop(held.pop());
    until("the room of a call that is over is another's", || open().is_ok()).await;
}

/// A peer whose calls are spread over the cores of a server has its share of what runs there once,
/// not once for each core.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_peer_has_one_share_in_all_cores() {
    const TASKS_MAX: usize = 600;
    let mut limits = Limits::default();
    limits.tasks_max = TASKS_MAX;
    let server = serve(never(), limits).await;
    let client = builder().start().await.expect("it listens nowhere");
    let (peer, doors) = (meet(&client, &server).await, doors(&client).await);
    let (asking, first) = (client.clone(), peers(&doors));
    let calls = on_threads(move |number| {
        let open = |_| through(&asking, first[number], peer, NEVER, 0).open();
        (0..TASKS_MAX).map(|at| open(at).expect("there is room")).collect::<Vec<_>>()
    });
    let refused = Arc::new(AtomicUsize::new(0));
    for call in calls.into_iter().flatten() {
        let refused = refused.clone();
        tokio::spawn(async move {
            call.first().await.expect_err("nobody answers");
            refused.fetch_add(1, Ordering::Relaxed);
        });
    }
    until("all are refused but those that run", || {
        let tasks = server.load().tasks;
        tasks > 0 && tasks + refused.load(Ordering::Relaxed) == TASKS_MAX * THREADS
    })
    .await;
    let (tasks, share) = (server.load().tasks, TASKS_MAX * 2 / 3);
    // Each core tells the others of two tasks or more, and a batch may be under way in each.
    let slack = usize::from(CORES) * 70;
    assert!((share - slack..=share + slack).contains(&tasks), "{tasks} of {share}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_connection_ends_the_calls_of_every_core() {
    let server = serve(never(), Limits::default()).await;
    let client = builder().start().await.expect("it listens nowhere");
    let (peer, doors) = (meet(&client, &server).await, doors(&client).await);
    let (asking, first) = (client.clone(), peers(&doors));
    let calls = on_threads(move |number| {
        let open = |_| through(&asking, first[number], peer, NEVER, 0).open();
        (0..50).map(|at| open(at).expect("there is room")).collect::<Vec<_>>()
    });
    until("they run", || server.load().tasks == 50 * THREADS).await;
    client.forget(peer);
    for call in calls.into_iter().flatten() {
        let failed = tokio::time::timeout(Duration::from_secs(10), call.first()).await;
        failed.expect("it ends with its connection").expect_err("nobody answers");
    }
}

/// Spaces are in different cores, and who is a member of one is known in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_space_are_no_strangers_in_any_core() {
    const SPACES: u64 = 32;
    let announce = || Announce { senders_min: 1, source: None };
    // Somebody is named as a member, so others are strangers until they are named, too.
    let service = never().hears([NodeId::new(77)]);
    let server = serve(service, Limits::default()).await;
    let clients = [builder().node(NodeId::new(1)), builder().node(NodeId::new(2))];
    let cast = async |client: &Endpoint| {
        meet(client, &server).await;
        for space in 0..SPACES {
            let space = client.cast_space(space, 1, announce(), None).expect("it is not open");
            let body = CastBody {
                phase: 0,
                sender: 0,
                epoch: 0,
                digest: Digest::ZERO,
                payload: Bytes::new(),
            };
            space.send((0, client.node().get()), Duration::from_secs(60), [server.node()], body);
        }
    };
    let space = server.cast_space(SPACES, 1, announce(), Some(&[NodeId::new(1)]));
    let space = space.expect("it is not open");
    for (number, client) in (1..).zip(clients) {
        space.change_members([NodeId::new(number)]);
        let client = client.start().await.expect("it listens nowhere");
        cast(&client).await;
        until("all are kept", || server.load().mailboxes as u64 == SPACES * number).await;
    }
    assert_eq!(server.casts_dropped().strangers, 0);
}

/// Origins of calls to each of four nodes, made by an endpoint that nobody gave a number of cores.
async fn origins() -> BTreeSet<u64> {
    let client = Endpoint::builder().transport(TcpTransport::new()).start().await;
    let client = client.expect("it listens nowhere");
    let doors = doors(&client).await;
    let ask = |(_, door): &(Endpoint, Peer)| client.call(NOTE, 0).to(*door).open();
    let twice = doors.iter().chain(&doors);
    twice.map(|door| ask(door).expect("there is room").id().origin.0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_has_two_cores_for_each_worker_unless_told_otherwise() {
    assert_eq!(origins().await.len(), 4);
}

#[tokio::test]
async fn an_endpoint_on_a_runtime_of_one_thread_has_one_core_unless_told_otherwise() {
    assert_eq!(origins().await.len(), 1);
}

/// Cores that need the same node at once share one dial.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_several_cores_ask_is_dialled_once() {
    let service = Service::new()
        .unary(NOTE, |number: u64, _: Context| async move { Ok::<_, Status>(number) });
    let server = serve(service, Limits::default()).await;
    for _ in 0..20 {
        let client = builder().start().await.expect("it listens nowhere");
        let doors = doors(&client).await;
        let peer = client.peer(server.node(), server.addresses()).expect("they are addresses");
        let (asking, first) = (client.clone(), peers(&doors));
        let together = Arc::new(Barrier::new(THREADS));
        let calls = on_threads(move |number| {
            together.wait();
            let call = through(&asking, first[number], peer, NOTE, number as u64);
            call.open().expect("there is room")
        });
        for (number, call) in calls.into_iter().enumerate() {
            let answer = call.first().await.expect("it answers");
            assert_eq!(answer.into_inner(), number as u64);
        }
        assert_eq!(client.load().connections, 1 + doors.len());
        client.shutdown(Duration::from_secs(5)).await;
    }
}
