//! A peer that dies or stops. Whoever talks to it notices, and nobody else does.

use convoke_transport::{CloseReason, DialError, Lane, NotWritable};

use crate::child::Child;
use crate::frames::frame;
use crate::node::{Line, Node};
use crate::tally::Habit;

/// The frames after which the peer dies: within the first credit, at its end, in the middle of cut
/// frames, after many rounds of the ring.
const POINTS: [u64; 7] = [0, 1, 6, 9, 33, 250, 1_000];

/// Asserts that the reason is one that a connection may give when the peer died without a goodbye.
fn assert_died(reason: &CloseReason) {
    let is_so = matches!(reason, CloseReason::Network(_) | CloseReason::KeepAlive);
    assert!(is_so, "the peer was killed, and the reason is: {reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_between_frames_ends_its_connection_alone() {
    let node = Node::new(1, Habit::Take);
    let healthy = Child::start(Habit::Echo);
    let mut other = node.dial(&healthy.address).await.expect("the healthy peer listens");
    for point in POINTS {
        let child = Child::start(Habit::Echo);
        let mut line = node.dial(&child.address).await.expect("the peer listens");
        line.exchange(point).await;
        child.kill();
        assert_died(&line.closed().await);
        assert_eq!(
            line.connection.append_bytes(Lane::Data, &[], frame(0)).err(),
            Some(NotWritable::Closed)
        );
        other.exchange(50).await;
    }
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_under_load_frees_whoever_waits_for_room() {
    let node = Node::new(1, Habit::Take);
    for point in POINTS {
        let child = Child::start(Habit::Take);
        let mut line = node.dial(&child.address).await.expect("the peer listens");
        line.send(point).await;
        let killed = async {
            tokio::task::yield_now().await;
            child.kill();
        };
        let ((), ()) = tokio::join!(line.send_until_closed(), killed);
        assert_died(&line.closed().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_while_stopped_with_much_under_way_fails_what_is_pending() {
    let node = Node::new(1, Habit::Take);
    let child = Child::start(Habit::Take);
    let mut line = node.dial(&child.address).await.expect("the peer listens");
    child.stop();
    let taken = fill(&mut line).await;
    assert!(taken > 0, "a connection takes some frames without the peer's help");
    child.kill();
    assert_died(&line.closed().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_killed_while_it_is_dialled_is_unreachable_or_gone() {
    let node = Node::new(1, Habit::Take);
    for _ in 0..8 {
        let child = Child::start(Habit::Take);
        let address = child.address.clone();
        let (dialled, ()) = tokio::join!(node.dial(&address), async { child.kill() });
        match dialled {
            Ok(line) => assert_died(&line.closed().await),
            Err(
                DialError::Unreachable { .. }
                | DialError::Timeout { .. }
                | DialError::Handshake { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_the_next_life_of_a_peer_is_dialled_with_a_fresh_count() {
    let node = Node::new(1, Habit::Take);
    for _ in 0..4 {
        let child = Child::start(Habit::Echo);
        let mut line = node.dial(&child.address).await.expect("each life listens");
        line.exchange(100).await;
        child.kill();
        assert_died(&line.closed().await);
    }
}

/// Appends until nothing more is taken; answers how many were.
async fn fill(line: &mut Line<'_>) -> u64 {
    let before = line.sent;
    loop {
        match line.connection.append_bytes(Lane::Data, &[], frame(line.sent)) {
            Ok(_) => line.sent += 1,
            Err(NotWritable::Full) => return line.sent - before,
            Err(error) => panic!("a stopped peer is no reason to fail: {error}"),
        }
        line.connection.flush();
        // The engine may run between any two frames, and find out that there is no credit left.
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_stops_consuming_stops_the_sender_and_nothing_is_lost() {
    let node = Node::new(1, Habit::Take);
    let child = Child::start(Habit::Take);
    let mut line = node.dial(&child.address).await.expect("the peer listens");
    line.send(100).await;
    child.stop();
    let taken = fill(&mut line).await;
    assert!(taken > 0, "a connection takes some frames without the peer's help");
    child.go_on();
    line.writable().await;
    line.send(100).await;
    let sent = line.sent;
    line.close().await;
    assert_eq!(child.finish(), sent);
}
