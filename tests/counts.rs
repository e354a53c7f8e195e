//! Cost of a call, counted: allocations, writes to sockets, frames. Client and servers are in this
//! process, on one thread, so that the counts are of both.

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alloc_tracker::{Allocator, Session};
use convoke::transport::TcpTransport;
use convoke::{
    Call, Context, Deferred, Endpoint, Finish, Limits, Method, NodeId, Peer, Service, Status, Task,
};
use convoke_transport::conformance::locks_taken;
use support::{builder, peer};
use tokio::sync::mpsc;

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

#[tokio::test]
async fn a_lone_call_allocates_nothing_on_either_side() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 1, 200).await;
    let session = Session::new();
    let span = session.operation("calls").measure_thread();
    ask(&client, &to, 1, 1_000).await;
    drop(span);
    let report = session.to_report();
    let count: u64 = report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    // Its messages and its task take the room of those before; read buffers come now and then.
    assert!(count <= 100, "{count} allocations in 1,000 calls");
    Ok(())
}

#[tokio::test]
async fn calls_in_flight_together_allocate_nothing_on_either_side() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    ask(&client, &to, 64, 10).await;
    let session = Session::new();
    let span = session.operation("calls").measure_thread();
    ask(&client, &to, 64, 100).await;
    drop(span);
    let report = session.to_report();
    let count: u64 = report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    // Two for each of the 64 callers that are spawned, and read buffers now and then.
    assert!(count <= 640, "{count} allocations in 6,400 calls");
    Ok(())
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

#[tokio::test]
async fn locks_of_a_call_on_both_sides_together() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    // The endpoints' five and six of their connections; and two and one, and what a batch takes.
    for (callers, hundredths_max) in [(1, 1_120), (64, 360)] {
        ask(&client, &to, callers, 10).await;
        let before = locks_taken();
        ask(&client, &to, callers, 6_400 / callers).await;
        let locks = locks_taken() - before;
        assert!(locks <= 64 * hundredths_max, "{locks} of 6,400 calls, {callers} at once");
        println!("{callers} at once: {locks} locks of 6,400 calls");
    }
    Ok(())
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
