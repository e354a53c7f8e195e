//! Both ends send as much as the other takes, for long: no deadlock, no receiver that is not ready.

use std::time::{Duration, Instant};

use crate::node::{Line, Node, anywhere};
use crate::tally::Habit;

/// Duration of the run, by the clock of the machine.
fn duration() -> Duration {
    let seconds = std::env::var("RDMA_VM_SECONDS")
        .map_or(60, |text| text.parse().expect("RDMA_VM_SECONDS is a number"));
    Duration::from_secs(seconds)
}

async fn send_until(line: &mut Line<'_>, end: Instant) {
    while Instant::now() < end {
        line.send(64).await;
        // Who never has to wait for room would keep the other way from beginning.
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ways_at_once_everything_arrives_in_order_and_held_frames_stay_as_they_are() {
    let (a, b) = (Node::new(1, Habit::Hold), Node::new(2, Habit::Hold));
    let listener = b.listen(&anywhere()).await;
    let mut to_b = a.dial(&listener.local_address()).await.expect("b listens");
    let mut to_a = b.line(to_b.connection.link().nonce).await;
    let end = Instant::now() + duration();
    tokio::join!(send_until(&mut to_b, end), send_until(&mut to_a, end));
    let nonce = to_b.connection.link().nonce;
    b.tally.received(nonce, to_b.sent).await;
    a.tally.received(nonce, to_a.sent).await;
    println!("{} frames one way, {} the other", to_b.sent, to_a.sent);
    let (more, fewer) = (to_b.sent.max(to_a.sent), to_b.sent.min(to_a.sent));
    assert!(fewer > 0 && more / fewer < 10, "one way starved: {more} against {fewer}");
    to_b.close().await;
}
