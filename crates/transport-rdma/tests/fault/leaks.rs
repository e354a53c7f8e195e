//! Leaks: of a transport that nobody holds any more nothing is left.

use std::time::Duration;

use crate::child::Child;
use crate::node::{Node, anywhere, at, device_address};
use crate::tally::Habit;

/// Number of devices that this process has open.
fn open_devices() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("there is /proc");
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("/uverbs")).count()
}

/// The system's library keeps one for itself from its first use on.
const LIBRARYS_OWN: usize = 1;

/// Waits until this process has no device open, as it must once all is closed and dropped.
pub(crate) async fn devices_are_closed() {
    // Longer than a silent peer takes to be given up, and the end of a connection after that.
    for _ in 0..600 {
        if open_devices() <= LIBRARYS_OWN {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} devices are still open", open_devices() - LIBRARYS_OWN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transport_closes_its_device_after_a_gentle_end() {
    let (a, b) = (Node::new(1, Habit::Take), Node::new(2, Habit::Echo));
    assert!(open_devices() >= 2, "two transports have a device each");
    let listener = b.listen(&anywhere()).await;
    let mut line = a.dial(&listener.local_address()).await.expect("b listens");
    line.exchange(50).await;
    line.close().await;
    drop((a, b, listener));
    devices_are_closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transport_closes_its_device_after_a_dial_that_failed() {
    let node = Node::new(1, Habit::Take);
    let nobody = at(device_address(), 1);
    node.dial(&nobody).await.expect_err("nobody listens there");
    drop(node);
    devices_are_closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transport_closes_its_device_after_a_peer_was_killed() {
    let node = Node::new(1, Habit::Take);
    let child = Child::start(Habit::Echo);
    let mut line = node.dial(&child.address).await.expect("the peer listens");
    line.exchange(50).await;
    child.kill();
    line.closed().await;
    drop(line);
    drop(node);
    devices_are_closed().await;
}
