//! Two machines on a cable that can be cut and can lose. Each case runs in both at once, here as
//! `a` that dials and there as `b` that listens.

use std::process::Command;
use std::time::Duration;

use convoke_transport::CloseReason;

use crate::node::{Line, Node, at, device_address};
use crate::tally::Habit;

/// Nobody else is in the machine, so the port is free.
const PORT: u16 = 7_100;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`cargo xtask rdma` sets {name}"))
}

fn is_a() -> bool {
    variable("RDMA_VM_ROLE") == "a"
}

/// Loses so many of a hundred packets that leave this machine; at zero the cable is whole.
fn lose(percent: u32) {
    let interface = variable("RDMA_VM_NETDEV");
    let loss = format!("{percent}%");
    let arguments: &[&str] = match percent {
        0 => &["qdisc", "del", "dev", &interface, "root"],
        _ => &["qdisc", "add", "dev", &interface, "root", "netem", "loss", &loss],
    };
    let status = Command::new("tc").args(arguments).status().expect("`tc` can be started");
    assert!(status.success());
}

/// Dials until the other machine is there.
async fn dial(node: &Node) -> Line<'_> {
    let address = at(variable("RDMA_VM_PEER").parse().expect("it is an IP address"), PORT);
    for _ in 0..100 {
        if let Ok(line) = node.dial(&address).await {
            return line;
        }
        // It may not listen yet; the next attempt waits for an answer as long as a dial does.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the other machine cannot be reached");
}

/// Sends everything back until the other machine says goodbye. Connections that end otherwise, or
/// are given up while they open, are what these cases are about.
async fn serve() {
    let node = Node::new(2, Habit::Echo);
    let listener = node.listen(&at(device_address(), PORT)).await;
    node.tally.until(|| node.tally.has_goodbye().then_some(())).await;
    listener.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_partition_is_noticed_and_heals() {
    if !is_a() {
        return serve().await;
    }
    let node = Node::new(1, Habit::Take);
    let mut line = dial(&node).await;
    line.exchange(100).await;
    lose(100);
    line.send(1).await;
    let reason = line.closed().await;
    let is_noticed = matches!(reason, CloseReason::Network(_) | CloseReason::KeepAlive);
    assert!(is_noticed, "the cable was cut, and the reason is: {reason}");
    lose(0);
    let mut line = dial(&node).await;
    line.exchange(100).await;
    line.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_wire_loses_arrives_all_the_same_once_and_in_order() {
    if !is_a() {
        return serve().await;
    }
    let node = Node::new(1, Habit::Take);
    let mut line = dial(&node).await;
    lose(5);
    line.exchange(500).await;
    lose(0);
    line.close().await;
}
