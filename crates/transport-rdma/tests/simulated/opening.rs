//! Obstacles to a connection, and what is said then.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Hooked, Recorder};
use convoke_transport::{CloseReason, DialError, Lane, Transport};
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};
use convoke_transport_rdma::{PollMode, RdmaTransport};
use parking_lot::Mutex;

use crate::stranger::{Stranger, hello};
use crate::support::{ends, ends_with, hasty, socket_of, until};

fn message(error: Option<DialError>) -> String {
    error.expect("the dial fails").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_little_locked_memory_names_the_limit_at_both_ends() {
    let settings = DeviceSettings { registered_bytes_max: 100_000, ..DeviceSettings::default() };
    let ends = ends_with(Fabric::new(), settings, |builder| builder);
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    let error = message(ends.setup.dial(&*listener, &a).await.err());
    assert!(error.contains("100000 bytes") && error.contains("ulimit -l"), "{error}");
    let able = RdmaTransport::simulated(&ends.fabric);
    let error = message(able.dial(&listener.local_address(), None, a).await.err());
    assert!(error.contains("refused") && error.contains("100000 bytes"), "{error}");
    assert!(error.contains("ulimit -l"), "it says what to change, too: {error}");
    ends.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_more_than_allowed_is_refused_until_there_is_room() {
    let ends =
        ends_with(Fabric::new(), DeviceSettings::default(), |builder| builder.connections_max(1));
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a.clone(), &b).await;
    let able = RdmaTransport::simulated(&ends.fabric);
    let address = link.listener.local_address();
    let error = message(able.dial(&address, None, a.clone()).await.err());
    assert!(error.contains("open: 1 of 1 are taken"), "{error}");
    let error = message(ends.setup.dialling.dial(&address, None, a.clone()).await.err());
    assert!(error.contains("connections_max"), "{error}");
    link.to_b.close(CloseReason::Local);
    ends.nothing_is_left().await;
    able.dial(&address, None, a).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_that_nobody_answers_ends_in_time_and_leaves_nothing() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.dial_timeout(Duration::from_millis(50))
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    ends.devices[0].cut_off();
    let dialled = ends.setup.dial(&*listener, &a).await;
    assert!(matches!(dialled, Err(DialError::Timeout { .. })), "{dialled:?}");
    ends.nothing_is_left().await;
    assert_eq!(a.opened_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_that_is_dropped_leaves_nothing_whenever_that_is() {
    let ends = ends();
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    let address = listener.local_address();
    for polls in 0..12 {
        let mut dial = ends.setup.dialling.dial(&address, None, a.clone());
        for _ in 0..polls {
            if !crate::support::is_ready(|cx| dial.as_mut().poll(cx).map(drop)).await {
                tokio::task::yield_now().await;
            } else {
                // It was faster: then the connection is the caller's.
                a.opened(a.opened_count() - 1).await.close(CloseReason::Local);
                break;
            }
        }
    }
    ends.nothing_is_left().await;
    a.check();
    b.check();
}

#[tokio::test]
async fn a_flood_of_requests_leaves_open_connections_their_turn() {
    const REQUESTS: usize = 200;
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        // Whoever sleeps and is woken looks for requests first.
        let builder = builder.poll_mode(PollMode::Adaptive { spin: Duration::ZERO });
        builder.slots(2).send_slots(2).slot_bytes(1 << 10)
    });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let sink = Hooked::new(2, move |what, _| log.lock().push(what));
    let listener = ends.setup.listening.listen(&ends.setup.listen, sink).await;
    let listener = listener.expect("the port is free");
    let to_b = ends.setup.dial(&*listener, &Arc::new(Recorder::new(1))).await;
    let to_b = to_b.expect("it listens");
    // Until the listening end sleeps.
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
    asked.lock().clear();
    let at = socket_of(&*listener);
    let ask = |_| Stranger::asking(ends.fabric.device(), 0, at, &hello(1, 66));
    let crowd: Vec<_> = (0..REQUESTS).map(ask).collect();
    to_b.append_bytes(Lane::Data, &[], Bytes::from_static(b"a frame")).expect("it is writable");
    to_b.flush();
    let hellos = |asked: &[&str]| asked.iter().filter(|what| **what == "hello").count();
    until("all requests were handled", || hellos(&asked.lock()) == REQUESTS).await;
    let asked = asked.lock();
    let batch = asked.iter().position(|what| *what == "batch").expect("the frame has come");
    let before = hellos(&asked[..batch]);
    assert!(before <= 16, "{before} requests were handled before the frame");
    drop(crowd);
}

#[tokio::test]
async fn who_is_refused_by_the_sink_keeps_its_seat_until_it_is_gone() {
    let hour = Duration::from_secs(3_600);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.connections_max(4).close_grace(hour)
    });
    let refusing = Arc::new(Recorder::new(2).refusing("not you"));
    let listener = ends.setup.listen(&refusing).await;
    let device = ends.fabric.device();
    let ask = |number| {
        let at = socket_of(&*listener);
        Stranger::asking(device.clone(), number, at, &hello(1, 66)).answered()
    };
    let mut silent = Vec::new();
    for number in 0..2 {
        let mut stranger = ask(number).await.expect("there is a seat");
        stranger.introduce();
        stranger.refused().await;
        silent.push(stranger);
    }
    let error = ask(2).await.err().expect("its address has its share");
    assert!(error.contains("open: 2 of 4 are taken, 2 of them"), "{error}");
    let c = Arc::new(Recorder::new(3));
    let other = ends.setup.dialling.listen(&ends.setup.listen, c).await.expect("it is free");
    let own = Arc::new(Recorder::new(2));
    let dialled = ends.setup.listening.dial(&other.local_address(), None, own).await;
    dialled.expect("there is room for a dial");
}

/// Its keep-alive is counted from when both ends are connected.
#[tokio::test(start_paused = true)]
async fn a_peer_that_is_slow_to_complete_its_handshake_ends_no_connection() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        hasty(builder).poll_mode(PollMode::Adaptive { spin: Duration::ZERO })
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a, &b).await;
    let at = socket_of(&*link.listener);
    let slow = Stranger::asking(ends.fabric.device(), 0, at, &hello(1, 66));
    // Ten times the timeout of keep-alives; the clock is the test's.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let slow = slow.answered().await.expect("it is let in");
    slow.introduce();
    let nonce = b.opened(1).await.link().nonce;
    assert_eq!(b.closed(nonce).await, CloseReason::KeepAlive);
    let seen = b.seen(link.to_a.link().nonce).expect("it was open");
    assert_eq!(seen.closed, None);
}
