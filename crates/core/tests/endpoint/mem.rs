//! The transport within one process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::transport::mem::MemTransport;
use convoke_core::transport::{Address, Counters, DialError, Transport};
use convoke_core::{Context, Endpoint, Items, Method, RawMessage, Service, Status, Task};
use convoke_transport::conformance::{self, Recorder, Setup};

fn setup(transport: &MemTransport) -> Setup {
    Setup {
        listening: Arc::new(transport.clone()),
        dialling: Arc::new(transport.clone()),
        listen: "mem://node:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_promises_of_a_transport() {
    let transport = MemTransport::new();
    conformance::all(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send() {
    let transport = MemTransport::builder().close_grace(conformance::PATIENCE).build();
    let setup = setup(&transport.expect("the settings go together"));
    conformance::both_ends_may_close_with_much_to_send(setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed() {
    let builder = MemTransport::builder().keep_alive_interval(Duration::from_millis(100));
    let transport = builder.keep_alive_timeout(Duration::from_millis(500)).build();
    let transport = transport.expect("the settings go together");
    conformance::processes(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone() {
    const ROOM: usize = 32 << 20;
    let builder = MemTransport::builder().frame_bytes_max(1 << 20).send_bytes_total_max(ROOM);
    let transport = builder.keep_alive_timeout(Duration::from_secs(600)).build();
    let transport = transport.expect("the settings go together");
    // A peer may have half of the room, beside the first bytes and a message on its way.
    let bound = (ROOM / 2, (16 + 128 + 64) << 10);
    conformance::peers_that_never_read_leave_others_alone(|| setup(&transport), 500, bound).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_the_connections() {
    let transport = MemTransport::builder().connections_max(4).build();
    let setup = setup(&transport.expect("the settings go together"));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}

#[tokio::test]
async fn a_name_is_free_when_its_listener_is_closed() {
    let (transport, sink) = (MemTransport::new(), Arc::new(Recorder::new(1)));
    let name: Address = "mem://one of this test".parse().expect("it is an address");
    let listener = transport.listen(&name, Arc::clone(&sink) as _).await.expect("it is free");
    assert_eq!(listener.local_address(), name);
    listener.close();
    let again = transport.listen(&name, Arc::clone(&sink) as _).await.expect("it is free again");
    drop(listener);
    let other = Arc::new(Recorder::new(2));
    let dialled = transport.dial(&name, None, Arc::clone(&other) as _).await;
    assert!(dialled.is_ok(), "the drop of the first does not close the second: {dialled:?}");
    drop(again);
    let dialled = transport.dial(&name, None, other).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
}

/// It hangs rather than refuses, so the dial has to end by itself.
#[tokio::test]
async fn a_listener_whose_runtime_has_ended_is_unreachable() {
    let sink = Arc::new(Recorder::new(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.expect("the system gives a runtime");
    let listening = MemTransport::new();
    let name: Address = "mem://gone:0".parse().expect("it is an address");
    let listen = listening.listen(&name, Arc::clone(&sink) as _);
    let listener = runtime.spawn(listen).await.expect("it runs").expect("it is free");
    runtime.shutdown_background();
    let transport = MemTransport::builder().handshake_timeout(Duration::from_millis(200));
    let transport = transport.build().expect("the settings go together");
    let other = Arc::new(Recorder::new(2));
    let dialled = transport.dial(&listener.local_address(), None, other).await;
    let is_given_up =
        matches!(dialled, Err(DialError::Unreachable { .. } | DialError::Timeout { .. }));
    assert!(is_given_up, "{dialled:?}");
}

/// Several endpoints in one program: no socket, no port.
#[tokio::test]
async fn endpoints_of_one_program_call_each_other() {
    const GREET: Method<String, String> = Method::new("test.Greeter/Greet");
    let greet = |name: String, _: Context| async move { Ok::<_, Status>(format!("hello, {name}")) };
    let endpoint = || Endpoint::builder().transport(MemTransport::new());
    let server = endpoint()
        .listen("mem://greeter:0")
        .serve(Service::new().unary(GREET, greet))
        .start()
        .await
        .expect("the name is free");
    let client = endpoint().start().await.expect("it needs nothing");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    let reply = client.call(GREET, "Ada".into()).to(peer).await.expect("it answers");
    assert_eq!(reply, "hello, Ada");
    client.shutdown(Duration::from_secs(5)).await;
    server.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_connections_have_carried_is_counted_when_they_have_ended() {
    const ECHO: Method<String, String> = Method::new("mem.Mem/Echo");
    let transport = MemTransport::new();
    let builder = || Endpoint::builder().transport(transport.clone());
    let echo = |text: String, _: Context| async move { Ok::<_, Status>(text) };
    let server = builder().listen("mem://ends:0").serve(Service::new().unary(ECHO, echo));
    let server = server.start().await.expect("the name is free");
    let client = builder().start().await.expect("a client needs nothing");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    client.call(ECHO, "a wren".to_owned()).to(peer).await.expect("it answers");
    let nothing = (0, 0);
    let frames = |of: Counters| (of.frames_sent, of.frames_received);
    assert_eq!(frames(server.ended()), nothing);
    client.clone().shutdown(Duration::from_secs(60)).await;
    while !server.connections().is_empty() {
        tokio::task::yield_now().await;
    }
    let (sent, received) = frames(client.counters());
    assert_ne!((sent, received), nothing);
    assert_eq!(frames(server.counters()), (received, sent), "each end has what the other has");
    assert_eq!(server.counters(), server.ended());
}

/// A transport at one of the ends was told to take only short frames, which the other is told.
#[tokio::test]
async fn messages_above_the_largest_frame_leave_in_several() {
    const SIZES: [usize; 3] = [300_000, 10, 200_000];
    const SEND: Method<u64, RawMessage> = Method::new("mem.Large/Send");
    const TAKE: Method<Items<RawMessage>, u64> = Method::new("mem.Large/Take");
    let of = |len: usize| Bytes::from_iter((0..=250_u8).cycle().take(len));
    let send = move |is_stream: u64, task: Task<RawMessage>| async move {
        if is_stream == 0 {
            task.reply(&of(SIZES[0]).into())?;
            return Ok::<_, Status>(task.finish());
        }
        let mut stream = task.stream()?;
        for len in SIZES {
            stream.send(&of(len).into()).await?;
        }
        drop(stream);
        Ok(task.finish())
    };
    let take = move |mut items: Items<RawMessage>, _: Context| async move {
        for len in SIZES {
            let item = items.next().await.expect("it was sent")?;
            assert_eq!(item.into_bytes(), of(len));
        }
        Ok::<_, Status>(7)
    };
    let short = MemTransport::builder().frame_bytes_max(32 << 10).build();
    let short = short.expect("the settings go together");
    for (of_server, of_client) in
        [(short.clone(), MemTransport::new()), (MemTransport::new(), short)]
    {
        let server = Endpoint::builder().transport(of_server).listen("mem://short:0");
        let server = server.serve(Service::new().tree(SEND, send).unary(TAKE, take)).start().await;
        let server = server.expect("the name is free");
        let client = Endpoint::builder().transport(of_client).start().await;
        let client = client.expect("a client needs nothing");
        let peer = client.connect(server.addresses()).await.expect("it listens");
        let whole: RawMessage = client.call(SEND, 0).to(peer).await.expect("it comes");
        assert_eq!(whole.into_bytes(), of(SIZES[0]));
        let mut call = client.call(SEND, 1).to(peer).open().expect("it is connected");
        for len in SIZES {
            let item = call.next().await.expect("it was sent").expect("it comes");
            assert_eq!(item.into_inner().into_bytes(), of(len));
        }
        assert!(call.next().await.is_none());
        let (mut items, call) = client.call_stream(TAKE).to(peer).open().expect("it is connected");
        for len in SIZES {
            items.send(&of(len).into()).await.expect("it is read");
        }
        items.finish();
        assert_eq!(call.first().await.expect("all came").into_inner(), 7);
        client.shutdown(Duration::from_secs(5)).await;
        server.shutdown(Duration::from_secs(5)).await;
    }
}

/// Hardly a word fits: each that does not would be a line of the log.
#[tokio::test]
async fn a_peer_that_takes_only_tiny_frames_is_refused() {
    let transport = MemTransport::new();
    let builder = Endpoint::builder().transport(transport.clone()).listen("mem://tiny:0");
    let server = builder.start().await.expect("the name is free");
    let address = &server.addresses()[0];
    for (bytes, is_taken) in [(1, false), ((32 << 10) - 1, false), (32 << 10, true)] {
        let sink = Arc::new(Recorder::new(77).taking(bytes));
        let dialled = transport.dial(address, None, sink).await;
        match dialled {
            Ok(_) => assert!(is_taken, "it takes frames of {bytes} bytes"),
            Err(DialError::Handshake { message, .. }) => {
                assert!(!is_taken && message.contains("the least is 32768"), "{message}");
            }
            Err(other) => panic!("expected the refusal, not {other}"),
        }
    }
    server.shutdown(Duration::ZERO).await;
}
