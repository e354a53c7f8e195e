//! Credits are what keeps receivers ready: a sender that ignores them finds one that is not.

use std::sync::Arc;

use convoke_transport::CloseReason;
use convoke_transport_rdma::{Defect, RdmaTransport};

use crate::child::Child;
use crate::node::{Node, device};
use crate::tally::Habit;

/// Number of times that the device, sending, found a receiver not ready.
fn not_ready_count() -> u64 {
    let device = std::env::var("RDMA_VM_DEV").expect("`cargo xtask rdma` names the device");
    let counters = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
    let names = ["send_rnr_err", "rcvd_rnr_err", "rnr_nak_retry_err"];
    let values = names.iter().filter_map(|name| {
        std::fs::read_to_string(format!("{counters}/{name}")).ok()?.trim().parse::<u64>().ok()
    });
    values.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_ignores_credit_finds_a_receiver_not_ready_and_loses_that_peer_alone() {
    let builder = RdmaTransport::builder(device()).defect(Defect::IgnoresCredit);
    let transport = builder.build().expect("the settings are legal");
    let node = Node::over(Arc::new(transport), 1, Habit::Take);
    let (stopped, healthy) = (Child::start(Habit::Take), Child::start(Habit::Echo));
    let mut line = node.dial(&stopped.address).await.expect("the peer listens");
    let mut other = node.dial(&healthy.address).await.expect("the healthy peer listens");
    let before = not_ready_count();
    stopped.stop();
    line.send_until_closed().await;
    let reason = line.closed().await;
    assert!(matches!(&reason, CloseReason::Network(_)), "{reason}");
    assert!(reason.to_string().contains("no receive posted"), "it says what was broken: {reason}");
    assert!(not_ready_count() > before, "the device noticed");
    other.exchange(10).await;
    other.close().await;
}
