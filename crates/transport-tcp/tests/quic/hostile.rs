//! Peers that break the rules are closed with the reason, and harm nobody else.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Hooked, Recorder, pattern, send};
use convoke_transport::{Appended, CloseReason, Connection, DialError, Lane, NotWritable};
use convoke_transport::{Listener, Transport};
use tokio::sync::mpsc::unbounded_channel;

use crate::raw::{Raw, client_config, socket, word};
use crate::{Cluster, any, assert_serves, dial, listen};

/// Node 2, its cluster, and a peer that has said a good hello as node 9.
struct Scene {
    cluster: Cluster,
    sink: Arc<Recorder>,
    listener: Box<dyn Listener>,
    raw: Raw,
    connection: Arc<dyn Connection>,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let sink = Arc::new(Recorder::new(2));
        let listener = listen(&cluster.node(2), &sink).await;
        let raw = Raw::hello(&listener.local_address(), &cluster.issue(9), 9).await;
        let connection = sink.opened(0).await;
        Self { cluster, sink, listener, raw, connection }
    }

    /// That the peer was closed for what contains `text`, told so, and nobody else was harmed.
    async fn assert_fault(self, text: &str) {
        match self.sink.closed(self.connection.link().nonce).await {
            CloseReason::Fault(fault) => assert!(fault.contains(text), "{fault}"),
            other => panic!("expected a fault, not {other}"),
        }
        let told = self.raw.close_text().await;
        assert!(told.contains(text), "{told}");
        assert_serves(&self.cluster, 1, &*self.listener, &self.sink).await;
        self.sink.check();
    }
}

#[tokio::test]
async fn an_oversized_frame_closes_before_its_bytes_come() {
    let mut scene = Scene::new().await;
    scene.raw.send(&word(0, (1 << 20) + 1)).await;
    scene.assert_fault("over the limit of 1048576").await;
}

#[tokio::test]
async fn a_frame_that_belongs_on_a_stream_of_its_own_closes() {
    let mut scene = Scene::new().await;
    scene.raw.send(&word(0, (64 << 10) + 1)).await;
    scene.assert_fault("came on the lane").await;
}

#[tokio::test]
async fn a_large_frame_of_another_length_closes() {
    for len in [999, 1_001] {
        let mut scene = Scene::new().await;
        scene.raw.send(&[&word(1, 1_152)[..], &[7; 152]].concat()).await;
        let mut stream = scene.raw.quic.open_uni().await.expect("there is credit");
        stream.write_all(&vec![7; len]).await.expect("it is open");
        stream.finish().expect("it is open");
        scene.assert_fault("announced as 1152 bytes").await;
    }
}

#[tokio::test]
async fn a_large_frame_or_a_lane_given_up_closes() {
    let mut scene = Scene::new().await;
    scene.raw.send(&[&word(1, 1_152)[..], &[7; 152]].concat()).await;
    let mut stream = scene.raw.quic.open_uni().await.expect("there is credit");
    stream.write_all(b"so far").await.expect("it is open");
    stream.reset(5_u32.into()).expect("it is open");
    scene.assert_fault("given up half-way").await;

    let mut scene = Scene::new().await;
    scene.raw.data.0.reset(5_u32.into()).expect("it is open");
    scene.assert_fault("a lane was given up").await;
}

#[tokio::test]
async fn a_lane_that_is_no_longer_read_closes() {
    let mut scene = Scene::new().await;
    scene.raw.data.1.stop(5_u32.into()).expect("it is open");
    // The stop is found by whoever writes.
    while !matches!(
        scene.connection.append_bytes(Lane::Data, &[], Bytes::from_static(b"x")),
        Err(NotWritable::Closed)
    ) {
        scene.connection.flush();
        tokio::task::yield_now().await;
    }
    scene.assert_fault("stopped").await;
}

#[tokio::test]
async fn streams_nobody_announced_take_a_bounded_share_and_block_nothing() {
    let mut scene = Scene::new().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = scene.raw.quic.open_uni().await.expect("it is within the limit");
        stream.write_all(&[1; 4_096]).await.expect("it is open");
        streams.push(stream);
    }
    let mut cx = Context::from_waker(Waker::noop());
    let one_more = pin!(scene.raw.quic.open_uni()).poll(&mut cx);
    assert!(one_more.is_pending(), "eight are the limit");
    scene.raw.send(&[&word(0, 5)[..], b"hello"].concat()).await;
    let frames = scene.sink.frames(scene.connection.link().nonce, 1).await;
    assert_eq!(frames, [(Lane::Data, Bytes::from_static(b"hello"))]);
    assert_serves(&scene.cluster, 1, &*scene.listener, &scene.sink).await;
}

#[tokio::test]
async fn many_lanes_are_not_granted() {
    let scene = Scene::new().await;
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(scene.raw.quic.open_bi()).poll(&mut cx).is_pending(), "there are two lanes");
}

#[tokio::test]
async fn a_peer_that_does_not_read_fills_its_own_buffer_only() {
    let scene = Scene::new().await;
    let mut count = 0;
    let mut was_full = false;
    // Nobody reads at the other end, so this ends at the hard bound, whatever the network does.
    loop {
        match scene.connection.append_bytes(Lane::Data, &[], pattern(count, 32 << 10)) {
            Ok(appended) => was_full |= appended == Appended::Full,
            Err(error) => break assert_eq!(error, NotWritable::Full),
        }
        count += 1;
        scene.connection.flush();
        assert!(count < 2_000, "the send buffer has no bound");
        tokio::task::yield_now().await;
    }
    assert!(was_full);
    let control = scene.connection.append_bytes(Lane::Control, &[], Bytes::from_static(b"now"));
    control.expect("the control lane has room of its own");
    assert_serves(&scene.cluster, 1, &*scene.listener, &scene.sink).await;
    scene.connection.close(CloseReason::Overloaded);
    let reason = scene.sink.closed(scene.connection.link().nonce).await;
    assert_eq!(reason, CloseReason::Overloaded);
    assert!(scene.raw.close_text().await.contains("did not read"));
}

/// The grace is over before the sink has taken what came first: nothing is read any more of a peer
/// that always has more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_comes_after_the_grace_of_a_close_is_not_delivered() {
    let cluster = Cluster::new();
    let (comes, mut has_come) = unbounded_channel();
    let (may_go_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let sink = Hooked::new(2, move |asked, _| {
        if asked == "batch" {
            comes.send(()).expect("the test waits for it");
            let waits = waits.lock().expect("nobody panics");
            let _ = tokio::task::block_in_place(|| waits.recv());
        }
    });
    let transport = cluster.builder(2).close_grace(Duration::ZERO).build();
    let transport = transport.expect("the settings go together");
    let listening = transport.listen(&any(), Arc::clone(&sink) as _).await;
    let listener = listening.expect("a loopback port is free");
    let mut raw = Raw::hello(&listener.local_address(), &cluster.issue(9), 9).await;
    let connection = sink.recorder.opened(0).await;

    let frame = [&word(0, 1_000)[..], &[7; 1_000]].concat();
    raw.send(&frame).await;
    has_come.recv().await.expect("the first frame comes");
    raw.send(&frame.repeat(100)).await;
    raw.data.0.finish().expect("it is open");
    assert_eq!(raw.data.0.stopped().await, Ok(None), "the other end has all of it");
    connection.close(CloseReason::Local);
    drop(may_go_on);
    let nonce = connection.link().nonce;
    assert_eq!(sink.recorder.closed(nonce).await, CloseReason::Local);
    assert_eq!(sink.recorder.frame_count(nonce), 1);
    sink.recorder.check();
}

/// The clock goes on only while no task of this thread is ready to run.
#[tokio::test]
async fn a_close_after_a_goodbye_waits_for_what_is_missing_without_running() {
    let mut scene = Scene::new().await;
    let frame = [&word(0, 3)[..], b"now"].concat();
    let missing = [&word(1, 1_152)[..], &[7; 152]].concat();
    scene.raw.send(&[&frame[..], &missing, &word(2, 3), b"bye"].concat()).await;
    let nonce = scene.connection.link().nonce;
    scene.sink.frames(nonce, 1).await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.connection.close(CloseReason::Local);
    assert_eq!(scene.sink.closed(nonce).await, CloseReason::Local);
    scene.sink.check();
}

#[tokio::test]
async fn garbage_datagrams_are_ignored() {
    let (cluster, sink) = (Cluster::new(), Arc::new(Recorder::new(2)));
    let pair = cluster.setup().connect().await;
    let stranger = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    let to = socket(&pair.listener.local_address());
    for number in 0..200_usize {
        let mut datagram = pattern(number, 1 + number * 37 % 1_400).to_vec();
        // Half look like the first packet of QUIC version 1, the others like later ones.
        if number % 2 == 0 && datagram.len() > 6 {
            datagram[0] = 0xc0;
            datagram[1..5].copy_from_slice(&[0, 0, 0, 1]);
        }
        stranger.send_to(&datagram, to).expect("loopback takes datagrams");
        send(&pair.to_b, Lane::Data, &pattern(number, 500)).await;
    }
    let frames = pair.b.frames(pair.to_a.link().nonce, 200).await;
    let expected = (0..200).map(|number| (Lane::Data, pattern(number, 500)));
    assert!(frames.into_iter().eq(expected));
    assert_eq!(pair.b.opened_count(), 1);
    sink.check();
    pair.finish().await;
}

#[tokio::test]
async fn another_protocol_over_quic_is_refused() {
    let (cluster, sink) = (Cluster::new(), Arc::new(Recorder::new(2)));
    let listener = listen(&cluster.node(2), &sink).await;
    let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port is free");
    endpoint.set_default_client_config(client_config(Some(&cluster.issue(9)), b"h3"));
    let to = socket(&listener.local_address());
    let refused = endpoint.connect(to, "any").expect("the address is good").await;
    assert!(matches!(refused, Err(quinn::ConnectionError::ConnectionClosed(_))), "{refused:?}");
    assert_serves(&cluster, 1, &*listener, &sink).await;
}

#[tokio::test]
async fn nobody_listening_is_unreachable_after_the_dial_timeout() {
    let cluster = Cluster::new();
    let dialling = cluster.builder(1).dial_timeout(Duration::from_millis(300));
    let dialling = dialling.build().expect("it is legal");
    // Bound, so that nobody else gets the port, and deaf.
    let deaf = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    let address = format!("quic://{}", deaf.local_addr().expect("it is bound"));
    let address = address.parse().expect("it is an address");
    let dialled = dialling.dial(&address, None, Arc::new(Recorder::new(1))).await;
    assert!(matches!(dialled, Err(DialError::Unreachable { .. })), "{dialled:?}");
}

#[tokio::test]
async fn connections_above_the_limit_are_refused_with_the_reason() {
    let (cluster, sink) = (Cluster::new(), Arc::new(Recorder::new(2)));
    let listening = cluster.builder(2).connections_max(1).build().expect("it is legal");
    let listener = listen(&listening, &sink).await;
    let first = Arc::new(Recorder::new(1));
    let held = dial(&cluster.node(1), &*listener, &first).await.expect("there is room for one");
    let refused = dial(&cluster.node(3), &*listener, &Arc::new(Recorder::new(3))).await;
    let Err(DialError::Handshake { message, .. }) = refused else {
        panic!("expected a refusal, not {refused:?}")
    };
    assert!(message.contains("open: 1 of 1 are taken"), "{message}");
    held.close(CloseReason::Local);
    sink.closed(held.link().nonce).await;
}

#[tokio::test]
async fn who_is_refused_before_the_handshake_is_told_why() {
    let (cluster, sink) = (Cluster::new(), Arc::new(Recorder::new(2)));
    let transport = cluster.builder(2).handshakes_max(2).build().expect("it is a setting");
    let listener = listen(&transport, &sink).await;
    // One has proven nothing when it begins. The other has to prove its address first.
    let _unproven = Raw::connect(&listener.local_address(), &cluster.issue(9)).await;
    let _proven = Raw::connect(&listener.local_address(), &cluster.issue(9)).await;
    let dialler = Arc::new(Recorder::new(1));
    let refused = dial(&cluster.node(1), &*listener, &dialler).await.map(drop);
    let Err(DialError::Handshake { message, .. }) = refused else {
        panic!("one of two is what one address may have: {refused:?}")
    };
    assert!(message.contains("handshakes_max"), "{message}");
}

/// The peers here have the address that the others forge.
#[tokio::test]
async fn forged_beginnings_do_not_lock_out_whose_address_they_name() {
    let (cluster, sink) = (Cluster::new(), Arc::new(Recorder::new(2)));
    let patient = cluster.builder(2).handshake_timeout(Duration::from_secs(600));
    let listener = listen(&patient.build().expect("it is legal"), &sink).await;
    let bind = || tokio::net::UdpSocket::bind(("127.0.0.1", 0));
    let deaf = bind().await.expect("a port is free");
    let forger = bind().await.expect("a port is free");
    let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port is free");
    endpoint.set_default_client_config(client_config(None, b"convoke/1"));
    let (mut datagram, mut answer) = ([0; 1_500], [0; 1_500]);
    let to = (socket(&listener.local_address()), deaf.local_addr().expect("it is bound"));
    // As many as one address may have in their handshake.
    let (mut dialling, mut begun) = (Vec::new(), BTreeSet::new());
    while begun.len() < 128 {
        dialling.push(endpoint.connect(to.1, "any").expect("the address is good"));
        let len = deaf.recv(&mut datagram).await.expect("it is bound");
        // By the first bytes of the id that it gives the listener: some come twice.
        if begun.insert(datagram[6..14].to_vec()) {
            forger.send_to(&datagram[..len], to.0).await.expect("loopback takes datagrams");
            forger.recv(&mut answer).await.expect("it is bound");
        }
    }
    assert_serves(&cluster, 1, &*listener, &sink).await;
}
