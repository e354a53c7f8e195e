//! Ends of an endpoint that others still hold.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_core::{
    Call, Cause, ConnectError, Context, Endpoint, Executed, Method, NodeId, OneOf, PeerState,
    Service, Status, Task,
};
use convoke_proto::wire::{Frame, Header, Message, Parting};
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::{Lane, Transport};
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Never answers.
const NEVER: Method<u64, u64> = Method::new("test.Test/Never");

/// Answers with what another node answers, once it is let.
const ASK: Method<u64, u64> = Method::new("test.Test/Ask");
/// Has another node answer in its place.
const ASK_ON: Method<u64, u64> = Method::new("test.Test/AskOn");
/// Answers with the number it was asked.
const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");

const HOUR: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(1);

/// A server, and a client with a call that runs there.
async fn calling() -> (Endpoint, Endpoint, Call<u64>) {
    let network = SimNetwork::new(7);
    let started = std::sync::Arc::new(Notify::new());
    let starts = started.clone();
    let service = Service::new().unary(NEVER, move |_: u64, _: Context| {
        starts.notify_one();
        pending::<Result<u64, Status>>()
    });
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let server = builder(1).listen("sim://server:0").serve(service);
    let server = server.start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(server.addresses()).await.expect("the server listens");
    let call = client.call(NEVER, 1).to(peer).deadline(HOUR / 10).open().expect("there is room");
    started.notified().await;
    (server, client, call)
}

/// As in a program of several runtimes.
#[test]
fn a_shutdown_can_be_awaited_in_a_runtime_without_timers() {
    let mut own = Builder::new_multi_thread();
    let own = own.worker_threads(1).enable_all().build().expect("it builds");
    let endpoint = own.block_on(Endpoint::builder().start()).expect("nothing to bind");
    let other = Builder::new_current_thread().build().expect("it builds");
    assert!(other.block_on(endpoint.shutdown(HOUR)), "nothing runs");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_given_up_closes_at_once() {
    let (server, _client, call) = calling().await;
    let held = server.clone();
    assert!(timeout(SOON, server.shutdown(HOUR)).await.is_err(), "a handler runs");
    let ended = timeout(SOON, call.first()).await.expect("nothing runs there any more");
    let error = ended.expect_err("it was stopped").to_string();
    assert!(error.contains("shutting down"), "{error}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_endpoint_that_is_shut_down_say_so() {
    let (_server, client, call) = calling().await;
    client.shutdown(Duration::ZERO).await;
    let ended = timeout(SOON, call.first()).await.expect("its connections are closed");
    let error = ended.expect_err("nothing answers").to_string();
    assert!(error.contains("the endpoint that made the call has been shut down"), "{error}");
    assert!(error.ends_with("make it by another (it may have run)"), "{error}");
}

/// It is connected with none of those that it asks when the shutdown begins.
#[tokio::test(start_paused = true)]
async fn a_running_handler_reaches_other_nodes_while_its_endpoint_shuts_down() {
    let network = SimNetwork::new(7);
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let echo = Service::new().unary(ECHO, async |n: u64, _: Context| Ok::<_, Status>(n));
    let other = builder(3).listen("sim://other:0").serve(echo);
    let other = other.start().await.expect("its address is free");
    let (started, closing) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, closes) = (started.clone(), closing.clone());
    let ask = Service::new().unary(ASK, move |n: u64, context: Context| {
        let (starts, closes) = (starts.clone(), closes.clone());
        async move {
            starts.notify_one();
            closes.notified().await;
            Ok::<_, Status>(context.endpoint().call(ECHO, n).to(NodeId::new(3)).await?)
        }
    });
    let server = builder(1).listen("sim://server:0").peer(NodeId::new(3), other.addresses());
    let server = server.serve(ask).start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(server.addresses()).await.expect("the server listens");
    let call = client.call(ASK, 7).to(peer).open().expect("there is room");
    started.notified().await;
    let address = server.addresses()[0].clone();
    let asked = async {
        closing.notify_one();
        // A stranger who connects is not let in meanwhile.
        let stranger = builder(4).start().await.expect("it listens nowhere");
        assert!(stranger.connect(&address).await.is_err());
        call.first().await
    };
    let (has_ended, answer) = tokio::join!(server.shutdown(SOON), asked);
    assert_eq!(*answer.expect("it was let end").message(), 7);
    assert!(has_ended);
}

/// The endpoint that closes alone knows where it has handed the branch on, until that answers.
#[tokio::test(start_paused = true)]
async fn a_branch_that_was_handed_on_outlives_the_endpoint_that_closes_at_once() {
    let network = SimNetwork::new(7);
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let started = Arc::new(Notify::new());
    let starts = started.clone();
    let slow = Service::new().unary(ECHO, move |n: u64, _: Context| {
        starts.notify_one();
        async move {
            tokio::time::sleep(SOON).await;
            Ok::<_, Status>(n)
        }
    });
    let other = builder(3).listen("sim://other:0").serve(slow);
    let other = other.start().await.expect("its address is free");
    let pass_on = |n: u64, task: Task<u64>| async move {
        Ok(task.tail(NodeId::new(3), ECHO.request(n)).await?)
    };
    let server = builder(1).listen("sim://server:0").serve(Service::new().tree(ASK_ON, pass_on));
    let server = server.start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    for endpoint in [&server, &client] {
        endpoint.connect(other.addresses()).await.expect("it listens");
    }
    let peer = client.connect(server.addresses()).await.expect("it listens");
    let call: Call<u64> = client.call(ASK_ON, 7).to(peer).open().expect("there is room");
    started.notified().await;
    assert!(server.shutdown(HOUR).await, "nothing runs there");
    let reply = call.first().await.expect("it runs elsewhere");
    assert_eq!(*reply.message(), 7);
}

/// Its first poll drops the last clone of the endpoint.
#[tokio::test(start_paused = true)]
async fn a_handler_that_has_just_begun_when_its_endpoint_closes_is_stopped() {
    let (network, last) = (SimNetwork::new(7), Arc::<Mutex<Option<Endpoint>>>::default());
    let (running, stopped) = oneshot::channel::<()>();
    let (slot, running) = (last.clone(), Mutex::new(Some(running)));
    let service = Service::new().unary(NEVER, move |_: u64, _: Context| {
        let server = slot.lock().expect("nobody panics with it").take();
        let running = running.lock().expect("nobody panics with it").take();
        async move {
            drop(server);
            let _running = running;
            pending::<Result<u64, Status>>().await
        }
    });
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let server = builder(1).listen("sim://server:0").serve(service);
    let server = server.start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(server.addresses()).await.expect("the server listens");
    *last.lock().expect("nobody panics with it") = Some(server);
    let call = client.call(NEVER, 1).to(peer).deadline(HOUR / 10).open().expect("there is room");
    let stopped = timeout(SOON, stopped).await.expect("it is stopped");
    assert!(stopped.is_err(), "it has said nothing");
    drop(call);
}

/// Which ends before any of its tasks has been polled.
#[test]
fn an_endpoint_closes_with_a_runtime_that_only_started_it() {
    let its = Builder::new_current_thread().enable_all().build().expect("it needs little");
    let ours = Builder::new_current_thread().enable_all().start_paused(true).build();
    let network = SimNetwork::new(7);
    let starting = Endpoint::builder().node(NodeId::new(1)).transport(network.transport()).start();
    let endpoint = its.block_on(starting).expect("it listens nowhere");
    drop(its);
    ours.expect("it needs little").block_on(async {
        let peer = endpoint.peer(NodeId::new(2), "sim://other:1").expect("it is an address");
        let call = async { endpoint.call(NEVER, 1).to(peer).deadline(SOON).await };
        let error = timeout(HOUR, call).await.expect("nothing dials any more").expect_err("so");
        assert!(error.to_string().contains("was shut down"), "{error}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_connected_is_warm_while_the_endpoint_shuts_down() {
    let (server, client, call) = calling().await;
    let (peer, stranger) = (server.node(), NodeId::new(7));
    let other = client.clone();
    let warm = async { (other.warm_up(peer).await, other.warm_up(stranger).await, drop(call)) };
    let (has_ended, (met, unmet, ())) = tokio::join!(client.shutdown(HOUR), warm);
    assert!(has_ended && met.is_ok(), "{met:?}");
    assert!(matches!(unmet, Err(ConnectError::Stopped)), "{unmet:?}");
}

/// Well above a round trip, and far below the time that a silent peer is given.
const ROUND_TRIPS: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn an_idle_endpoint_is_shut_down_in_a_round_trip_to_its_peers() {
    let (server, client, call) = calling().await;
    drop(call);
    let mut state = client.watch_peer(server.node());
    assert!(timeout(ROUND_TRIPS, server.shutdown(HOUR)).await.expect("nobody has sent anything"));
    state.wait_for(|state| *state == PeerState::Down).await.expect("the client is open");
    assert!(timeout(ROUND_TRIPS, client.shutdown(HOUR)).await.expect("it has no peer"));
}

/// Words of a peer: nothing, too much, or how it is, and that again and again.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_tell_the_truth_costs_a_second_and_nobody_else() {
    let says: [(&[Parting], bool); 5] = [
        (&[], false),
        (&[Parting::Sent(7)], false),
        (&[Parting::Sent(u64::MAX), Parting::Sent(0)], false),
        (&[Parting::Sent(0), Parting::Sent(u64::MAX)], true),
        (&[Parting::Leaving, Parting::Sent(0), Parting::Leaving, Parting::Leaving], true),
    ];
    for (says, is_true) in says {
        let network = SimNetwork::new(7);
        let builder =
            |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
        let echo = Service::new().unary(ECHO, async |n: u64, _: Context| Ok::<_, Status>(n));
        let server = builder(1).listen("sim://server:0").serve(echo);
        let server = server.start().await.expect("its address is free");
        let client = builder(2).start().await.expect("it listens nowhere");
        let peer = client.connect(server.addresses()).await.expect("the server listens");
        let sink = Arc::new(Recorder::new(9));
        let dialled = network.transport().dial(&server.addresses()[0], None, sink.clone()).await;
        let connection = dialled.expect("the server listens");
        let say = |word: Parting| {
            let frame = Frame::new(Header::without_call(), Message::Parting(word)).to_bytes();
            connection.append_bytes(Lane::Control, &[], frame).expect("there is room");
            connection.flush();
        };
        say(Parting::Sent(3)); // Nobody has asked.
        assert_eq!(client.call(ECHO, 7).to(peer).await.expect("it is answered"), 7);
        let mut shutdown = Box::pin(server.shutdown(HOUR));
        let early = timeout(ROUND_TRIPS, &mut shutdown).await;
        assert!(early.is_err(), "it is waited for");
        says.iter().for_each(|word| say(*word));
        let ended = timeout(ROUND_TRIPS, &mut shutdown).await;
        assert_eq!(ended.is_ok(), is_true, "{says:?}");
        if !is_true {
            assert!(timeout(SOON, shutdown).await.expect("not for longer"), "{says:?}");
        }
        let seen = sink.seen(connection.link().nonce).expect("it was open");
        let words = seen.frames.iter().filter_map(|(_, frame)| {
            match Frame::decode(frame.clone()).map(|frame| frame.message) {
                Ok(Message::Parting(word)) => Some(word),
                _ => None,
            }
        });
        let mut expected = vec![Parting::Leaving];
        expected.extend(says.contains(&Parting::Leaving).then_some(Parting::Sent(0)));
        assert_eq!(words.collect::<Vec<_>>(), expected, "each is said once");
    }
}

/// One of two servers shuts down, and has a call that does not end.
#[tokio::test(start_paused = true)]
async fn a_peer_that_shuts_down_is_asked_by_no_pool_and_dialled_by_nobody() {
    let network = SimNetwork::new(7);
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let serve = async |node: u64| {
        let service = Service::new()
            .unary(ECHO, move |_: u64, _: Context| async move { Ok::<_, Status>(node) })
            .unary(NEVER, |_: u64, _: Context| pending::<Result<u64, Status>>());
        let server = builder(node).listen(format!("sim://n{node}:0")).serve(service);
        server.start().await.expect("its address is free")
    };
    let (leaves, stays) = (serve(1).await, serve(3).await);
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(leaves.addresses()).await.expect("it listens");
    let other = client.connect(stays.addresses()).await.expect("it listens");
    let pools = [
        OneOf::round_robin(&client, [peer, other]).expect("there are two"),
        OneOf::least_loaded(&client, [peer, other]).expect("there are two"),
    ];
    let held = client.call(NEVER, 1).to(peer).deadline(HOUR / 10).open().expect("there is room");
    assert_eq!(client.call(ECHO, 0).to(peer).await.expect("behind it: it has begun"), 1);
    let mut state = client.watch_peer(peer);
    let shutdown = tokio::spawn(leaves.shutdown(SOON));
    state.wait_for(|state| *state == PeerState::Leaving).await.expect("the client is open");
    let sent = client.counters().frames_sent;
    for pool in &pools {
        for _ in 0..10 {
            assert_eq!(client.call(ECHO, 0).to(pool.pick()).await.expect("it serves"), 3);
        }
    }
    assert_eq!(client.counters().frames_sent - sent, 20);
    let refused = client.call(ECHO, 0).to(peer).await.expect_err("it takes no requests");
    let failure = refused.failure().expect("its branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::ShuttingDown, Executed::No));
    assert_eq!(client.counters().frames_sent - sent, 20, "it was not asked");
    client.warm_up(peer).await.expect("it is connected");
    assert_eq!(*state.borrow_and_update(), PeerState::Leaving, "nobody dials it meanwhile");
    assert!(!shutdown.await.expect("it does not panic"), "a handler runs");
    let outcome = held.outcome().await;
    assert_eq!(outcome.failures[0].executed, Executed::Maybe, "it was stopped");
    state.wait_for(|state| *state == PeerState::Down).await.expect("the client is open");
    // Its next life is another connection, and asked again.
    let again = serve(1).await;
    client.peer(again.node(), again.addresses()).expect("they are addresses");
    state.wait_for(|state| *state == PeerState::Connected).await.expect("it is kept connected");
    assert_eq!(client.call(ECHO, 0).to(peer).await.expect("it serves"), 1);
}

/// A frame that is appended to the connection does not leave, and yet the word comes.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_room_fails_as_its_peer_shuts_down() {
    const FILL: Method<String, u64> = Method::new("test.Test/Fill");
    let network = SimNetwork::new(7);
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let fill = |_: String, _: Context| pending::<Result<u64, Status>>();
    let server = builder(1).listen("sim://server:0").serve(Service::new().unary(FILL, fill));
    let server = server.start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(server.addresses()).await.expect("the server listens");
    network.partition(client.node(), server.node());
    let call = || client.call(FILL, "x".repeat(1 << 20)).to(peer).deadline(HOUR / 10);
    let _held: Vec<_> = (0..24).map(|_| call().open().expect("there is room")).collect();
    let mut waiting = tokio::spawn(call().open_when_writable());
    assert!(timeout(ROUND_TRIPS, &mut waiting).await.is_err(), "the connection is full");
    let shutdown = tokio::spawn(server.shutdown(SOON));
    let opened = timeout(ROUND_TRIPS, waiting).await.expect("it waits no longer");
    let opened = opened.expect("it does not panic").expect("there is room for the call");
    let failure = opened.first().await.expect_err("it takes no requests");
    let failure = failure.failure().expect("its branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::ShuttingDown, Executed::No));
    shutdown.abort();
}
