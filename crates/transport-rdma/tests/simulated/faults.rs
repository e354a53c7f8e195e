//! Peers and devices that fail: a reason for everybody, nothing left behind, others unaffected.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Hooked, PATIENCE, Recorder, pattern, send};
use convoke_transport::{CloseReason, DialError, Lane, ListenError, NotWritable, Sink, Transport};
use convoke_transport_rdma::RdmaTransport;
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};

use crate::stranger::Stranger;
use crate::support::{ends, ends_with, hasty, socket_of, until};

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
