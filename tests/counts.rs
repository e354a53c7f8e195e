//! Cost of a call, counted: locks, allocations, writes to sockets, frames. Client and servers are
//! in this process, on one thread, so that the counts are of both.

#[path = "../benches/profile/src/kinds.rs"]
mod kinds;
#[path = "../benches/profile/src/servers.rs"]
mod servers;
#[allow(dead_code, reason = "other tests use the rest")]
mod support;
#[path = "../benches/profile/src/wire.rs"]
#[allow(dead_code, reason = "calls of one transport are counted")]
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alloc_tracker::{Allocator, Session};
use convoke::transport::TcpTransport;
use convoke::{
    Call, Context, Deferred, End, Endpoint, Finish, Limits, Method, NodeId, Peer, Service, Status,
    Task,
};
use convoke_transport::conformance::{locks_taken, note_locks, take_noted_locks};
use kinds::{Cluster, Kind};
use support::{builder, peer};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use wire::{Ends, Wire};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: prost::bytes::Bytes,
}

const ECHO: Method<Body, Body> = Method::new("counts.Counts/Echo");
const HOP: Method<Body, Body> = Method::new("counts.Counts/Hop");

fn body() -> Body {
    Body { bytes: prost::bytes::Bytes::from_static(&[7; 100]) }
}

async fn echo(body: Body, _: Context) -> std::result::Result<Body, Status> {
    Ok(body)
}

/// No call is so slow that somebody asks how it is, however busy the machine.
fn patient() -> Limits {
    let mut limits = Limits::default();
    (limits.worry_min, limits.worry_max) = (Duration::from_secs(9), Duration::from_secs(9));
    limits
}

async fn server(node: u64) -> Endpoint {
    let service = Service::new().unary(ECHO, echo);
    let builder = builder(node).limits(patient()).serve(service);
    support::start(builder.listen("tcp://127.0.0.1:0")).await
}

async fn client() -> Endpoint {
    let builder = Endpoint::builder().transport(TcpTransport::new());
    builder.limits(patient()).start().await.expect("nothing to bind")
}

/// `callers` at once, each `calls_each` times in a row.
async fn ask(client: &Endpoint, to: &Peer, callers: usize, calls_each: usize) {
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (client, to) = (client.clone(), *to);
            tokio::spawn(async move {
                for _ in 0..calls_each {
                    let answer = client.call(ECHO, body()).to(to).await;
                    assert_eq!(answer.unwrap(), body());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Most that a call of a kind may take, or an item of a stream, client and servers together.
struct Row {
    kind: Kind,
    callers: usize,
    calls_each: usize,
    locks: f64,
    allocations: f64,
}

const fn row(kind: Kind, callers: usize, calls_each: usize, locks: f64, allocations: f64) -> Row {
    Row { kind, callers, calls_each, locks, allocations }
}

const ENDS: Ends = Ends { wire: Wire::Tcp, cores: None };

/// Locks are of endpoints and of their connections. A call alone takes five and six. Of many in
/// flight each takes two of its endpoints and one of its connection, and its part of what a batch
/// takes; its messages and its task take the room of those before. Buffers to read into come now
/// and then, and each caller that is spawned allocates two.
const ROWS: [Row; 8] = [
    row(Kind::Unary, 64, 100, 3.6, 0.1),
    row(Kind::Unary, 1, 6_400, 11.2, 0.1),
    row(Kind::Quorum, 16, 100, 9.5, 4.6),
    row(Kind::Tree, 32, 100, 13.0, 1.0),
    row(Kind::Hops, 32, 100, 18.0, 0.5),
    row(Kind::Fan, 16, 100, 17.0, 36.5),
    row(Kind::Items, 1, 10_000, 3.4, 0.1),
    row(Kind::Replies, 1, 10_000, 2.4, 0.1),
];

#[tokio::test]
async fn locks_and_allocations_of_each_kind_of_call() {
    let mut over = Vec::new();
    for Row { kind, callers, calls_each, locks: locks_max, allocations: allocations_max } in ROWS {
        let cluster = Cluster::start(kind, ENDS).await;
        kind.run(&cluster, callers, calls_each.min(200)).await;
        let (session, before) = (Session::new(), locks_taken());
        let span = session.operation("calls").measure_thread();
        kind.run(&cluster, callers, calls_each).await;
        drop(span);
        let report = session.to_report();
        let allocations = report.operations().map(|(_, spent)| spent.total_allocations_count());
        let each = |count: u64| count as f64 / (callers * calls_each) as f64;
        let (locks, allocations) = (each(locks_taken() - before), each(allocations.sum()));
        let line = format!("{kind:?}, {callers}: {locks:.2} locks, {allocations:.2} allocations");
        println!("{line}");
        if locks > locks_max || allocations > allocations_max {
            over.push(format!("{line}, of {locks_max} and {allocations_max}"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

/// As an endpoint that serves more than one has them.
#[tokio::test]
async fn calls_of_several_methods_in_turn_allocate_nothing_on_either_side() {
    const NAMES: [Method<Body, Body>; 4] = [
        Method::new("counts.Turns/A"),
        Method::new("counts.Turns/B"),
        Method::new("counts.Turns/C"),
        Method::new("counts.Turns/D"),
    ];
    let mut service = Service::new();
    for method in NAMES {
        service = service.unary(method, echo);
    }
    let server =
        support::start(builder(1).limits(patient()).serve(service).listen("tcp://127.0.0.1:0"));
    let (server, client) = (server.await, client().await);
    let to = peer(&client, &server);
    let in_turn = async |rounds| {
        for _ in 0..rounds {
            for method in NAMES {
                let answer = client.call(method, body()).to(to).await;
                assert_eq!(answer.expect("it echoes"), body());
            }
        }
    };
    in_turn(50).await;
    let session = Session::new();
    let span = session.operation("calls").measure_thread();
    in_turn(250).await;
    drop(span);
    let report = session.to_report();
    let count: u64 = report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    assert!(count <= 100, "{count} allocations in 1,000 calls");
}

#[tokio::test]
async fn a_lone_call_writes_once_on_each_side() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 1, 100).await;
    let before = (client.counters(), server.counters());
    ask(&client, &to, 1, 1_000).await;
    let after = (client.counters(), server.counters());
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        assert_eq!(after.frames_sent - before.frames_sent, 1_000);
        let writes = after.writes - before.writes;
        // Credit goes back with the frames, or by itself every now and then.
        assert!((1_000..=1_050).contains(&writes), "{writes} writes of 1,000 calls");
    }
    Ok(())
}

#[tokio::test]
async fn calls_in_flight_together_share_their_writes() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 64, 10).await;
    let before = (client.counters(), server.counters());
    ask(&client, &to, 64, 100).await;
    let after = (client.counters(), server.counters());
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        assert_eq!(after.frames_sent - before.frames_sent, 6_400);
        let writes = after.writes - before.writes;
        assert!(writes < 6_400 / 16, "{writes} writes of 6,400 calls");
    }
    Ok(())
}

/// A caller that opens one call after the other lets nobody else have a turn: what fills the
/// connection leaves all the same.
#[tokio::test]
async fn a_caller_that_fills_its_connection_writes_at_once() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 1, 10).await;
    let large = Body { bytes: vec![7; 8 << 10].into() };
    let open = || client.call(ECHO, large.clone()).to(to).open();
    let first = open();
    let alone = client.counters().writes;
    let mut calls: Vec<_> = (0..400).map(|_| open()).collect();
    assert!(client.counters().writes > alone, "nothing was written of 3 MiB");
    calls.push(first);
    for call in calls {
        assert_eq!(call?.first().await?.into_inner(), large);
    }
    Ok(())
}

/// Hands a call on in the way that its number says, and tells how many locks that took.
const HAND_ON: Method<u64, u64> = Method::new("counts.Counts/HandOn");
const SAY: Method<u64, u64> = Method::new("counts.Counts/Say");

#[tokio::test]
async fn a_handler_hands_its_call_on_under_one_lock_of_its_node() {
    let say = async |number, _: Context| Ok::<u64, Status>(number);
    let next = builder(2).limits(patient()).serve(Service::new().unary(SAY, say));
    let next = support::start(next.listen("tcp://127.0.0.1:0")).await;
    let (told, mut taken) = mpsc::unbounded_channel();
    let to = Peer::from(next.node());
    let service = Service::new().tree(HAND_ON, move |count: u64, task: Task<u64>| {
        let told = told.clone();
        async move {
            let before = locks_taken();
            let finish = match count {
                0 => task.tail(to, SAY.request(0)).await?,
                1 => {
                    task.delegate(to, SAY.request(1)).await?;
                    task.finish()
                }
                _ => task.fan_out((0..count).map(|number| (to, SAY.request(number)))).await?,
            };
            told.send(locks_taken() - before).expect("the test listens");
            Ok::<Finish, Status>(finish)
        }
    });
    let first = builder(1).limits(patient()).serve(service).listen("tcp://127.0.0.1:0");
    let first = support::start(first).await;
    first.connect(&next.addresses()[0]).await.expect("it listens");
    let client = client().await;
    client.connect(&next.addresses()[0]).await.expect("it listens");
    let to = peer(&client, &first);
    // Each output of a task but its end hands over what items are before it, under a lock of its
    // own, and each branch but the last two is appended to its connection.
    for (count, locks) in [(0, 1), (1, 2), (2, 2), (4, 4), (32, 32)] {
        let call = client.call(HAND_ON, count).to(to).open().expect("there is room");
        let (replies, _) = call.collect().await.expect("they can be read");
        assert_eq!(replies.len() as u64, count.max(1));
        assert_eq!(taken.recv().await, Some(locks), "locks of {count} branches");
    }
}

/// Waits until the client has received so many frames more than before.
async fn received(client: &Endpoint, before: u64, frames: u64) {
    while client.counters().frames_received - before < frames {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn replies_that_are_there_are_read_under_one_lock() {
    let cluster = Cluster::start(Kind::Quorum, ENDS).await;
    let client = &cluster.client;
    for _ in 0..3 {
        let before = client.counters().frames_received;
        let call = client.call(servers::ECHO, servers::Body::visiting(0));
        let mut call = call.to_all(&cluster.members).open().expect("there is room");
        received(client, before, 4).await;
        let mut locks = [0; 5];
        for locks in &mut locks {
            let before = locks_taken();
            let reply = call.next().await;
            *locks = locks_taken() - before;
            assert!(reply.is_none_or(|reply| reply.is_ok()), "a member fails");
        }
        assert_eq!((locks, call.end()), ([1, 0, 0, 0, 0], Some(End::Complete)));
    }
}

#[tokio::test]
async fn items_that_are_there_are_handed_out_without_a_lock() {
    let cluster = Cluster::start(Kind::Replies, ENDS).await;
    let client = &cluster.client;
    for _ in 0..3 {
        let before = client.counters().frames_received;
        let call = client.call(servers::GIVE, 8).to(cluster.members.members()[0]);
        let mut call = call.open().expect("there is room");
        received(client, before, 8).await;
        let mut locks = [0; 9];
        for locks in &mut locks {
            let before = locks_taken();
            let item = call.next().await;
            *locks = locks_taken() - before;
            assert!(item.is_none_or(|item| item.is_ok()), "the stream breaks");
        }
        assert_eq!((locks[0], &locks[1..8], call.end()), (1, &[0; 7][..], Some(End::Complete)));
    }
}

/// Part of a server's locks that is of mutexes which the calls of all its connections lock: by
/// which nobody can have more workers.
fn common_part(cores: u8) -> f64 {
    let workers = Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(note_locks)
        .enable_all()
        .build()
        .expect("a runtime");
    let server = workers.block_on(async {
        let service = Service::new().unary(ECHO, echo);
        let builder = builder(1).limits(patient()).cores(cores).serve(service);
        support::start(builder.listen("tcp://127.0.0.1:0")).await
    });
    let callers = Builder::new_current_thread().enable_all().build().expect("a runtime");
    // Where the calls of each are, a mix of random numbers says.
    let noted: Vec<BTreeMap<usize, u64>> = callers.block_on(async {
        let mut noted = Vec::new();
        for _ in 0..12 {
            let client = client().await;
            let to = peer(&client, &server);
            ask(&client, &to, 16, 5).await;
            take_noted_locks();
            ask(&client, &to, 16, 50).await;
            noted.push(take_noted_locks());
        }
        noted
    });
    drop(server);
    let of_all = |mutex| noted.iter().map(|of| of.get(mutex).copied().unwrap_or(0)).min();
    let common: u64 = noted[0].keys().filter_map(of_all).sum();
    let locks: u64 = noted.iter().flat_map(BTreeMap::values).sum();
    (common * noted.len() as u64) as f64 / locks as f64
}

#[test]
fn a_server_with_several_workers_has_no_lock_that_all_connections_share() {
    let (alone, several) = (common_part(1), common_part(4));
    assert!(alone > 0.2, "the lock of the only core is not seen");
    assert!(several <= 0.02, "with four cores {several} of the locks are common to all");
}

const LATER: Method<Body, Body> = Method::new("counts.Counts/Later");

/// Many calls to a server whose handlers have all returned, and the tokens to answer them by. Its
/// connections have no room from these bytes on.
async fn waiting(calls: usize, bytes: usize) -> (Endpoint, Vec<Call<Body>>, Vec<Deferred<Body>>) {
    let (given, mut tokens) = mpsc::unbounded_channel();
    let service = Service::new().tree(LATER, move |_: Body, task: Task<Body>| {
        let (later, finish) = task.defer();
        given.send(later).expect("the test listens");
        std::future::ready(Ok::<Finish, Status>(finish))
    });
    let transport = TcpTransport::builder().send_buffer_bytes_soft(bytes).build();
    let builder = Endpoint::builder().transport(transport.expect("it is legal"));
    let builder = builder.node(NodeId::new(1)).limits(patient()).serve(service);
    let (server, client) =
        (support::start(builder.listen("tcp://127.0.0.1:0")).await, client().await);
    let to = peer(&client, &server);
    let open = |_| client.call(LATER, body()).to(to).open().expect("there is room");
    let open: Vec<_> = (0..calls).map(open).collect();
    let mut waiting = Vec::new();
    while waiting.len() < calls {
        waiting.push(tokens.recv().await.expect("its handler has run"));
    }
    (server, open, waiting)
}

async fn answered(open: Vec<Call<Body>>, reply: &Body) {
    for call in open {
        assert_eq!(call.first().await.expect("it is answered").into_inner(), *reply);
    }
}

#[tokio::test]
async fn answers_that_are_given_together_leave_in_one_write() {
    let mut writes = [0; 2];
    for (is_together, writes) in [false, true].into_iter().zip(&mut writes) {
        let (server, open, waiting) = waiting(64, 1 << 20).await;
        let before = server.counters().writes;
        let answer_all = || {
            for later in waiting {
                later.answer(&body()).expect("it is waited for");
            }
        };
        if is_together {
            server.together(answer_all)
        } else {
            answer_all()
        }
        answered(open, &body()).await;
        *writes = server.counters().writes - before;
    }
    // Credit goes back by itself now and then.
    assert!(writes[0] >= 64 && (1..=3).contains(&writes[1]), "{writes:?}");
}

/// More than a connection should have to send: it is written to in between.
#[tokio::test]
async fn large_answers_that_are_given_together_do_not_wait_for_all() {
    let (server, open, waiting) = waiting(32, 64 << 10).await;
    let large = Body { bytes: vec![7; 4 << 10].into() };
    let before = server.counters().writes;
    server.together(|| {
        for later in waiting {
            later.answer(&large).expect("it is waited for");
        }
        assert!(server.counters().writes > before, "128 KiB wait, of 64 that may");
    });
    answered(open, &large).await;
}

/// Frames that others rely on a caller to flush are written even if the caller is never polled
/// again.
#[tokio::test]
async fn a_caller_that_is_not_polled_again_strands_nobody() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 1, 1).await;
    let call = || Box::pin(std::future::IntoFuture::into_future(client.call(ECHO, body()).to(to)));
    let (mut lone, mut idle) = (call(), call());
    let mut noop = std::task::Context::from_waker(std::task::Waker::noop());
    // The first writes for itself, the second takes the flush on and is left alone with it.
    assert!(lone.as_mut().poll(&mut noop).is_pending());
    assert!(idle.as_mut().poll(&mut noop).is_pending());
    let other = call();
    assert_eq!(other.await?, body());
    drop(idle);
    assert_eq!(lone.await?, body());
    Ok(())
}

#[tokio::test]
async fn a_call_over_five_hops_is_six_frames() -> Result {
    let mut next: Option<Endpoint> = None;
    let mut all = Vec::new();
    for node in (1..=5).rev() {
        let here: Arc<OnceLock<Option<Peer>>> = Arc::default();
        let service = {
            let here = here.clone();
            Service::new().tree(HOP, move |body: Body, task: Task<Body>| {
                let here = here.clone();
                async move {
                    match here.get().copied().flatten() {
                        None => task.answer(&body),
                        Some(next) => {
                            Ok::<Finish, Status>(task.tail(&next, HOP.request(body)).await?)
                        }
                    }
                }
            })
        };
        let listening = builder(node).limits(patient()).listen("tcp://127.0.0.1:0");
        let listening = listening.serve(service);
        let endpoint = support::start(listening).await;
        here.set(next.as_ref().map(|next| peer(&endpoint, next))).unwrap();
        all.push(endpoint.clone());
        next = Some(endpoint);
    }
    let client = client().await;
    for server in &all {
        client.connect(server.addresses()).await?;
    }
    let first = peer(&client, &next.expect("there are five"));
    all.push(client.clone());
    // Where they come: a sender counts a frame when its write has returned, which may be later.
    let frames = || all.iter().map(|endpoint| endpoint.counters().frames_received).sum::<u64>();
    let call = || client.call(HOP, body()).to(first);
    for _ in 0..20 {
        call().await?;
    }
    let before = frames();
    for _ in 0..100 {
        assert_eq!(call().await?, body());
    }
    // The four that the client sends nothing to ask it once what is settled.
    assert_eq!(frames() - before, 600 + 2 * 4);
    Ok(())
}
