use std::future::{pending, ready};
use std::net::SocketAddr;
use std::time::Duration;

use convoke::health::ServingState;
use convoke::{Endpoint, Method};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const LOOPBACK: &str = "127.0.0.1:0";

/// The whole answer to these bytes, as far as there is one.
async fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Refused, it may be closed before all is read.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn listener(health: &NodeHealth) -> (Listener, Metrics) {
    let (recorder, metrics) = Metrics::recorder().unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        ::metrics::counter!("commits_total", "role" => "leader").increment(3);
        ::metrics::histogram!("sync_seconds").record(0.003);
        ::metrics::histogram!("batch_records").record(70.0);
    });
    let address = LOOPBACK.parse().unwrap();
    (Listener::start(address, metrics.clone(), health.clone()).await.unwrap(), metrics)
}

#[tokio::test]
async fn metrics_are_served_as_prometheus_reads_them() {
    let (listener, metrics) = listener(&NodeHealth::new("starting")).await;
    let (status, body) = get(listener.address(), "/metrics").await.unwrap();
    assert_eq!(status, 200);
    for line in [
        "commits_total{role=\"leader\"} 3",
        "sync_seconds_bucket{le=\"0.002\"} 0",
        "sync_seconds_bucket{le=\"0.005\"} 1",
        "batch_records_bucket{le=\"64\"} 0",
        "batch_records_bucket{le=\"128\"} 1",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} is not in {body}");
    }
    metrics.settle();
    assert_eq!(metrics.text(), body);
}

#[tokio::test]
async fn frames_by_peer_are_told_once_there_is_an_endpoint() {
    const NOT_SERVED: Method<String, String> = Method::new("operation.Operation/NotServed");
    let (listener, metrics) = listener(&NodeHealth::new("starting")).await;
    assert_eq!(get(listener.address(), "/traffic").await.unwrap().0, 503);
    let node = convoke::endpoint().listen("tcp://127.0.0.1:0").start().await.unwrap();
    metrics.sample(&node);
    let client = endpoint().await;
    let peer = client.connect(node.addresses()).await.unwrap();
    client.call(NOT_SERVED, String::new()).to(peer).await.unwrap_err();
    let told = async || -> Traffic {
        let (status, table) = get(listener.address(), "/traffic").await.unwrap();
        assert_eq!(status, 200);
        table.parse().unwrap()
    };
    // A frame may come before its sender has counted it.
    let mirrored = |own: &Frames| Frames { sent: own.received, received: own.sent };
    while told().await.open.get(&client.node()).map(mirrored)
        != Traffic::of(&client).open.get(&node.node()).copied()
    {
        tokio::task::yield_now().await;
    }
    let carried = Traffic::of(&client).sum();
    assert!(carried.sent > 0 && carried.received > 0, "{carried:?}");

    client.shutdown(Duration::from_secs(60)).await;
    while !told().await.open.is_empty() {
        tokio::task::yield_now().await;
    }
    // One word each, as the client leaves.
    let carried = Frames { sent: carried.sent + 1, received: carried.received + 1 };
    assert_eq!(mirrored(&told().await.ended), carried);
    node.shutdown(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_node_is_healthy_before_it_is_ready_and_broken_for_good() {
    let health = NodeHealth::new("replaying the ledger");
    let (listener, _) = listener(&health).await;
    let both = async || {
        let asked = async |path| get(listener.address(), path).await.unwrap();
        (asked("/healthz").await.0, asked("/readyz").await)
    };
    let serving = || health.endpoint().state("").unwrap();
    assert_eq!(both().await, (200, (503, "not ready: replaying the ledger\n".to_owned())));
    assert_eq!(serving(), ServingState::NotServing);
    health.ready();
    assert_eq!(both().await, (200, (200, "ready\n".to_owned())));
    assert_eq!(serving(), ServingState::Serving);
    health.not_ready("no leader");
    assert_eq!(both().await, (200, (503, "not ready: no leader\n".to_owned())));
    health.stopping();
    health.ready();
    assert_eq!(both().await, (200, (503, "stopping\n".to_owned())));
    health.broken("the disk is full");
    health.broken("and more");
    health.stopping();
    assert_eq!(both().await, (503, (503, "broken: the disk is full\n".to_owned())));
    assert_eq!(serving(), ServingState::NotServing);
}

#[tokio::test]
async fn what_is_no_question_of_its_is_refused() {
    let (listener, _) = listener(&NodeHealth::new("starting")).await;
    let address = listener.address();
    assert_eq!(get(address, "/").await.unwrap().0, 404);
    assert_eq!(get(address, "/metrics/../etc").await.unwrap().0, 404);
    let post = ask(address, b"POST /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    let garbage = ask(address, &[0xff; 100]).await;
    assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    let refused = ask(address, long.as_bytes()).await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
    assert_eq!(get(address, "/healthz").await.unwrap().0, 200);
}

#[tokio::test(start_paused = true)]
async fn connections_that_say_nothing_make_room_for_others() {
    let (listener, _) = listener(&NodeHealth::new("starting")).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(listener.address()).await.unwrap());
    }
    assert_eq!(get(listener.address(), "/healthz").await.unwrap().0, 200);
}

#[tokio::test(start_paused = true)]
async fn for_a_request_the_oldest_silent_connection_makes_room() {
    // While a thread works, the clock stands still.
    let (go_on, stands) = std::sync::mpsc::channel::<()>();
    let standing = tokio::task::spawn_blocking(move || stands.recv().unwrap_err());
    let (listener, _) = listener(&NodeHealth::new("starting")).await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(TcpStream::connect(listener.address()).await.unwrap());
    }
    let begun = tokio::time::Instant::now();
    assert_eq!(get(listener.address(), "/healthz").await.unwrap().0, 200);
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
    let is_open = silent[1].try_read(&mut [0]).unwrap_err();
    assert_eq!(is_open.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(begun.elapsed(), Duration::ZERO);

    drop(go_on);
    standing.await.unwrap();
    assert_eq!(silent[1].read(&mut [0]).await.unwrap(), 0);
    assert!((1..3).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn it_listens_on_the_loopback_alone_and_says_what_is_taken() {
    let health = NodeHealth::new("starting");
    let (listener, metrics) = listener(&health).await;
    let start = async |address: SocketAddr| {
        Listener::start(address, metrics.clone(), health.clone()).await.unwrap_err()
    };
    let open = start("0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(open, ListenError::NotLoopback(_)), "{open}");
    let taken = start(listener.address()).await.to_string();
    assert!(taken.contains(&listener.address().to_string()), "{taken}");
    assert!(taken.contains("another `operation` in the cluster file"), "{taken}");
}

#[tokio::test]
async fn a_node_ends_in_order() {
    let (steps, health) = (Mutex::new(Vec::new()), NodeHealth::new("starting"));
    health.ready();
    let endpoint = convoke::endpoint().start().await.unwrap();
    let step = async |name| {
        assert_eq!(health.state(), State::Stopping);
        steps.lock().push(name);
        name
    };
    let hand_over = async {
        step("handed over").await;
    };
    let ended = Shutdown::new(&health).run_until(pending(), hand_over, endpoint, step("closed"));
    let ended = ended.await;
    assert_eq!(*steps.lock(), ["handed over", "closed"]);
    assert_eq!(ended.closed, Some("closed"));
    assert!(ended.is_orderly());
    assert_eq!(ended.to_string(), "ended in good order");
}

async fn endpoint() -> Endpoint {
    convoke::endpoint().start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_left_and_the_rest_still_comes() {
    let health = NodeHealth::new("starting");
    let (end, endpoint) = (Shutdown::new(&health), endpoint().await);
    let ended = end.run_until(pending(), pending(), endpoint, ready(7)).await;
    assert_eq!((ended.handed_over, ended.drained, ended.closed), (false, true, Some(7)));
    assert_eq!(ended.to_string(), "ended out of time, leadership not handed over");
}

#[tokio::test]
async fn a_second_signal_leaves_out_the_rest() {
    let health = NodeHealth::new("starting");
    let (end, endpoint) = (Shutdown::new(&health), endpoint().await);
    let ended = end.run_until(ready(()), pending(), endpoint, pending::<()>()).await;
    assert!(ended.in_haste && ended.closed.is_none());
    assert!(ended.to_string().starts_with("ended in haste"), "{ended}");
}

#[cfg(unix)]
#[tokio::test]
async fn signals_are_taken_also_before_they_are_awaited() {
    let mut stop = StopSignal::listen().unwrap();
    let me = rustix::process::getpid();
    for (raised, expected) in [
        (rustix::process::Signal::TERM, Signal::Terminate),
        (rustix::process::Signal::INT, Signal::Interrupt),
    ] {
        rustix::process::kill_process(me, raised).unwrap();
        assert_eq!(stop.received().await, expected);
    }
}

#[test]
fn words_that_do_not_say_what_to_log_are_refused() {
    assert!(filter(None, "info,paxos=debug").is_ok());
    let error = filter(Some("paxos=loud"), "info").unwrap_err().to_string();
    assert!(error.starts_with("RUST_LOG \"paxos=loud\" does not say what to log"), "{error}");
}
