//! Peers and devices that fail: a reason for everybody, nothing left behind, others unaffected.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Hooked, PATIENCE, Recorder, pattern, send};
use convoke_transport::{CloseReason, DialError, Lane, ListenError, NotWritable, Sink, Transport};
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};
use convoke_transport_rdma::{PollMode, RdmaTransport};
use parking_lot::Mutex;

use crate::stranger::{DATA_FRAME, Stranger, hello, message};
use crate::support::{ends, ends_with, hasty, is_not_disturbed, socket_of, until};

fn recorders() -> (Arc<Recorder>, Arc<Recorder>) {
    (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_peer_closes_its_connection_and_no_other() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    let c = Arc::new(Recorder::new(3));
    let third = ends.fabric.device();
    let of_c = RdmaTransport::new(third);
    let address = link.listener.local_address();
    let from_c = of_c.dial(&address, None, c.clone()).await.expect("it listens");
    send(&link.to_b, Lane::Data, &pattern(0, 20_000)).await;
    ends.devices[1].kill();
    let reason = b.closed(link.to_a.link().nonce).await;
    assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
    let refused = link.to_a.append_bytes(Lane::Data, &[], Bytes::new());
    assert_eq!(refused, Err(NotWritable::Closed));
    send(&from_c, Lane::Data, &Bytes::from_static(b"still here")).await;
    b.frames(from_c.link().nonce, 1).await;
    b.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_in_the_middle_of_a_stream_delivers_whole_frames_only() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a, &b).await;
    for number in 0..50 {
        if link.to_b.append_bytes(Lane::Data, &[], pattern(number, 30_000)).is_err() {
            break;
        }
        link.to_b.flush();
        if number == 20 {
            ends.devices[1].kill();
        }
    }
    b.closed(link.to_a.link().nonce).await;
    let frames = b.seen(link.to_a.link().nonce).expect("it was open").frames;
    for (number, (_, frame)) in frames.iter().enumerate() {
        assert!(*frame == pattern(number, 30_000), "frame {number} is not whole");
    }
    b.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_falls_silent_is_given_up_and_can_be_dialled_again() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), hasty);
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    ends.devices[1].cut_off();
    let nonce = link.to_b.link().nonce;
    assert_eq!(a.closed(nonce).await, CloseReason::KeepAlive);
    assert_eq!(b.closed(nonce).await, CloseReason::KeepAlive);
    ends.nothing_is_left().await;
    let again = RdmaTransport::simulated(&ends.fabric);
    let address = link.listener.local_address();
    let to_b = again.dial(&address, None, a.clone()).await.expect("it still listens");
    send(&to_b, Lane::Data, &Bytes::from_static(b"again")).await;
    assert_eq!(b.frames(to_b.link().nonce, 1).await[0].1, "again");
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_probed_and_stays() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), hasty);
    let (a, b) = recorders();
    let link = ends.connect(a, &b).await;
    // More than there is time for within the timeout: who is not heard of would have been closed.
    until("it was probed for long", || ends.fabric.counters().probes >= 20).await;
    send(&link.to_b, Lane::Data, &Bytes::from_static(b"awake")).await;
    assert_eq!(b.frames(link.to_a.link().nonce, 1).await[0].1, "awake");
    ends.check();
}

/// It has no credit to speak, for this end has none to give it some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_gives_no_credit_and_has_spent_its_own_is_dead_once_it_is_silent() {
    const SLOTS: u16 = 4;
    let set = |builder| hasty(builder).slots(SLOTS);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), set);
    let (_, b) = recorders();
    let listener = ends.setup.listen(&b).await;
    let mut liar = Stranger::introduced(&ends.fabric, socket_of(&*listener)).await;
    let nonce = b.opened(0).await.link().nonce;
    until("it is taken for dead", || {
        liar.spend(SLOTS);
        b.seen(nonce).is_some_and(|seen| seen.closed.is_some())
    })
    .await;
    assert_eq!(b.closed(nonce).await, CloseReason::KeepAlive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_closes_everything_and_says_why_ever_after() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), hasty);
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    ends.devices[1].lose();
    let nonce = link.to_b.link().nonce;
    match a.closed(nonce).await {
        CloseReason::Network(text) => assert!(text.contains("device is lost"), "{text}"),
        other => panic!("expected the loss of the device, not {other:?}"),
    }
    assert_eq!(b.closed(nonce).await, CloseReason::KeepAlive);
    let address = link.listener.local_address();
    match ends.setup.dialling.dial(&address, None, a.clone()).await {
        Err(DialError::Unreachable { message, .. }) => {
            assert!(message.contains("device is lost"), "{message}");
        }
        other => panic!("expected the loss of the device, not {other:?}"),
    }
    let listened = ends.setup.dialling.listen(&ends.setup.listen, a.clone()).await;
    assert!(matches!(listened, Err(ListenError::Bind { .. })), "{listened:?}");
    ends.nothing_is_left().await;
    a.check();
    b.check();
}

/// A sink that panics when this is asked of it.
fn panicking(at: &'static str) -> Arc<dyn Sink> {
    Hooked::new(3, move |asked, _| assert!(asked != at, "a sink panics on purpose"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_panics_costs_its_own_connection_only() {
    for at in ["open", "batch", "closed"] {
        let ends = ends();
        let (a, b) = recorders();
        let link = ends.connect(a, &b).await;
        let address = link.listener.local_address();
        let dialled = ends.setup.dialling.dial(&address, None, panicking(at)).await;
        if at == "open" {
            assert!(matches!(dialled, Err(DialError::Handshake { .. })), "{dialled:?}");
        } else {
            let to_b = dialled.expect("its sink has taken it");
            let to_panicking = b.opened(1).await;
            // To a sink that cannot take it, or one that cannot bear the end.
            send(&to_panicking, Lane::Data, &Bytes::from_static(b"a frame")).await;
            if at == "closed" {
                to_b.close(CloseReason::Local);
            }
            b.closed(to_b.link().nonce).await;
        }
        send(&link.to_b, Lane::Data, &Bytes::from_static(b"not disturbed")).await;
        assert_eq!(b.frames(link.to_a.link().nonce, 1).await[0].1, "not disturbed");
        link.to_b.close(CloseReason::Local);
        link.listener.close();
        ends.nothing_is_left().await;
        ends.check();
    }
}

/// Panics as it is dropped, and says so before: a body, or of a sink.
struct Bomb(mpsc::Sender<()>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.send(()).expect("the test waits for it");
        assert!(std::thread::panicking(), "an owner panics on purpose");
    }
}

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &[7; 32 << 10]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_panic_as_they_are_dropped_disturb_nobody() {
    const COUNT: usize = 40;
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    let (bomb, dropped) = mpsc::channel();
    // Far more than there is credit for, so that the engine sends the most of them.
    link.to_a.with_buffer(&mut |buffer| {
        for _ in 0..COUNT {
            let body = Bytes::from_owner(Bomb(bomb.clone()));
            buffer.append_bytes(Lane::Data, &[], body).expect("there is room");
        }
    });
    link.to_a.flush();
    a.frames(link.to_b.link().nonce, COUNT).await;
    let mut count = 0;
    until("all are dropped", || {
        count += dropped.try_iter().count();
        count == COUNT
    })
    .await;
    is_not_disturbed(&ends, &link, &b).await;
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_panics_as_it_is_dropped_disturbs_nobody() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    // Of the listening end, whose engine drops it with the connection.
    let (others, c) = (RdmaTransport::simulated(&ends.fabric), Arc::new(Recorder::new(4)));
    let listener = others.listen(&ends.setup.listen, c.clone()).await.expect("the port is free");
    let (bomb, dropped) = mpsc::channel();
    let bomb = Bomb(bomb);
    let sink = Hooked::new(5, move |_, _| {
        let _ = &bomb;
    });
    let dialled = ends.setup.listening.dial(&listener.local_address(), None, sink).await;
    let nonce = dialled.expect("it is taken").link().nonce;
    c.opened(0).await.close(CloseReason::Local);
    c.closed(nonce).await;
    until("it is dropped", || dropped.try_recv().is_ok()).await;
    is_not_disturbed(&ends, &link, &b).await;
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_panics_goes_on_for_its_listeners() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    ends.devices[0].panic_in_polls(1);
    assert_eq!(b.closed(link.to_a.link().nonce).await, CloseReason::Local);
    let address = link.listener.local_address();
    let again = RdmaTransport::simulated(&ends.fabric);
    let to_b = again.dial(&address, None, a.clone()).await.expect("it listens");
    send(&to_b, Lane::Data, &Bytes::from_static(b"again")).await;
    assert_eq!(b.frames(to_b.link().nonce, 1).await[0].1, "again");
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_panics_whatever_it_does_gives_its_device_up() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    ends.devices[0].panic_in_polls(u32::MAX);
    b.closed(link.to_a.link().nonce).await;
    let given_up = async {
        loop {
            match ends.setup.listening.listen(&ends.setup.listen, a.clone()).await {
                Ok(listener) => listener.close(),
                Err(error) => break error.to_string(),
            }
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::time::timeout(PATIENCE, given_up).await.expect("it is given up");
    assert!(error.contains("is lost"), "{error}");
    let again = RdmaTransport::simulated(&ends.fabric);
    let error = again.dial(&link.listener.local_address(), None, a).await.unwrap_err();
    assert!(error.to_string().contains("nobody listens"), "{error}");
}

/// A bug of a provider within the keep-alive costs the connection that met it.
#[tokio::test(start_paused = true)]
async fn a_keep_alive_that_panics_ends_its_connection_and_others_are_watched_as_before() {
    // The second time, its end panics, too.
    for panics in [1, 2] {
        let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
            hasty(builder).poll_mode(PollMode::Adaptive { spin: Duration::ZERO })
        });
        let (_, b) = recorders();
        let listener = ends.setup.listen(&b).await;
        ends.devices[0].panic_in_probes(panics);
        let _met = Stranger::introduced(&ends.fabric, socket_of(&*listener)).await;
        let nonce = b.opened(0).await.link().nonce;
        assert_eq!(b.closed(nonce).await, CloseReason::Local);
        let _quiet = Stranger::introduced(&ends.fabric, socket_of(&*listener)).await;
        let nonce = b.opened(1).await.link().nonce;
        assert_eq!(b.closed(nonce).await, CloseReason::KeepAlive);
    }
}

/// Its listener goes with it, so that peers dial another address at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_device_that_cannot_be_waited_for_nobody_listens() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    ends.devices[0].stop_waiting();
    let _ = link.to_b.append_bytes(Lane::Data, &[], Bytes::from_static(b"wakes it"));
    link.to_b.flush();
    b.closed(link.to_a.link().nonce).await;
    let address = link.listener.local_address();
    let error = ends.setup.dialling.dial(&address, None, a).await.unwrap_err();
    assert!(error.to_string().contains("nobody listens"), "{error}");
    link.listener.close();
    ends.nothing_is_left().await;
}

/// Each costs the memory and the queue pair of a connection.
#[tokio::test]
async fn requests_that_come_at_once_let_frames_pass_between_them() {
    // It sleeps before they come, and so looks for requests first.
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.poll_mode(PollMode::Adaptive { spin: Duration::ZERO })
    });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let sink = Hooked::new(2, {
        let asked = Arc::clone(&asked);
        move |what, _| asked.lock().push(what)
    });
    let listener = ends.setup.listening.listen(&ends.setup.listen, sink.clone()).await;
    let listener = listener.expect("the port is free");
    let at = socket_of(&*listener);
    let open = Stranger::introduced(&ends.fabric, at).await;
    sink.recorder.opened(0).await;
    asked.lock().clear();
    let device = ends.fabric.device();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let asking: Vec<_> =
        (0..8).map(|of| Stranger::asking(device.clone(), of, at, &hello(1, 70))).collect();
    open.say(&[message(DATA_FRAME, b"passes")]);
    until("all have asked", || asked.lock().iter().filter(|what| **what == "hello").count() == 8)
        .await;
    let before = asked.lock().iter().position(|what| *what == "batch");
    assert!(before.is_some_and(|hellos| hellos <= 1), "{:?}", asked.lock());
    drop(asking);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_sink_panics_refuses_and_harms_no_other() {
    let ends = ends();
    let (a, b) = recorders();
    let link = ends.connect(a.clone(), &b).await;
    let listener = ends.setup.listening.listen(&ends.setup.listen, panicking("hello")).await;
    let listener = listener.expect("the port is free");
    match ends.setup.dialling.dial(&listener.local_address(), None, a).await {
        Err(DialError::Handshake { message, .. }) => assert!(message.contains("panicked")),
        other => panic!("expected a refusal, not {other:?}"),
    }
    send(&link.to_b, Lane::Data, &Bytes::from_static(b"not disturbed")).await;
    assert_eq!(b.frames(link.to_a.link().nonce, 1).await[0].1, "not disturbed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_given_back_after_many_connections() {
    let ends = ends();
    for _ in 0..50 {
        let (a, b) = recorders();
        let link = ends.connect(a.clone(), &b).await;
        send(&link.to_b, Lane::Data, &pattern(0, 50_000)).await;
        link.to_a.close(CloseReason::Local);
        a.closed(link.to_b.link().nonce).await;
        b.closed(link.to_b.link().nonce).await;
    }
    ends.nothing_is_left().await;
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_its_sink_closes_as_it_opens_ends_though_its_peer_keeps_quiet() {
    let hour = Duration::from_secs(3_600);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        let builder = builder.keep_alive_interval(hour).keep_alive_timeout(3 * hour);
        builder.close_grace(Duration::from_millis(50))
    });
    let closing = Hooked::new(2, |_, opened| {
        if let Some(connection) = opened {
            connection.close(CloseReason::Local);
        }
    });
    let listener = ends.setup.listening.listen(&ends.setup.listen, closing).await;
    let listener = listener.expect("the port is free");
    let quiet = Stranger::introduced(&ends.fabric, socket_of(&*listener)).await;
    until("that of the stranger alone is left", || ends.fabric.counters().queue_pairs == 1).await;
    drop(quiet);
    ends.nothing_is_left().await;
}

#[test]
fn to_listen_or_dial_on_a_runtime_that_has_ended_fails() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let handle = runtime.handle().clone();
    drop(runtime);
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let _entered = handle.enter();
        let transport = RdmaTransport::simulated(&Fabric::new());
        let (any, sink) = ("rdma://127.0.0.1:0".parse().expect("it is"), Recorder::new(1));
        let sink: Arc<dyn Sink> = Arc::new(sink);
        let listened = at_once(transport.listen(&any, sink.clone())).map(|_| ());
        let dialled = at_once(transport.dial(&any, None, sink)).map(|_| ());
        let errors = (listened.map_err(|e| e.to_string()), dialled.map_err(|e| e.to_string()));
        done.send(errors).expect("the test waits for it");
    });
    let (listened, dialled) = is_done.recv_timeout(PATIENCE).expect("it comes back");
    for result in [listened, dialled] {
        let error = result.expect_err("nothing is driven");
        assert!(error.contains("the runtime of the device has ended"), "{error}");
    }
}

/// Result of a future that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits for a runtime"),
    }
}
