//! The link of the device goes down.

use std::process::Command;
use std::sync::Arc;

use convoke_transport::DialError;
use convoke_transport_tcp::TcpTransport;

use crate::leaks::devices_are_closed;
use crate::node::{Node, anywhere};
use crate::tally::Habit;

/// Changes the network interface below the device.
fn set_link(state: &str) {
    let name = std::env::var("RDMA_VM_NETDEV").expect("`cargo xtask rdma` names the interface");
    let status = Command::new("ip").args(["link", "set", &name, state]).status();
    assert!(status.expect("`ip` can be started").success());
}

/// Calls over TCP go on, whatever the device does.
async fn assert_tcp_works() {
    let tcp = |number, habit| Node::over(Arc::new(TcpTransport::new()), number, habit);
    let (a, b) = (tcp(3, Habit::Take), tcp(4, Habit::Echo));
    let listener = b.listen(&"tcp://127.0.0.1:0".parse().expect("it is an address")).await;
    let mut line = a.dial(&listener.local_address()).await.expect("TCP needs no device");
    line.exchange(50).await;
    line.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_link_is_down_tcp_goes_on_and_afterwards_connections_and_dials_do() {
    let (a, b) = (Node::new(1, Habit::Take), Node::new(2, Habit::Echo));
    let listener = b.listen(&anywhere()).await;
    let address = listener.local_address();
    let mut line = a.dial(&address).await.expect("the link is up");
    line.exchange(50).await;
    set_link("down");
    assert_tcp_works().await;
    set_link("up");
    // Both ends are in this machine, so soft-RoCE did not need the link for what was connected.
    line.exchange(50).await;
    line.close().await;
    let mut line = a.dial(&address).await.expect("the link is up again");
    line.exchange(50).await;
    line.close().await;
}

/// The last of its machine's device: a dial without a link is more than the connection manager of
/// soft-RoCE survives. The suite makes a new device afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_link_dials_fail_and_connections_end_with_nothing_left_open() {
    let (a, b) = (Node::new(1, Habit::Take), Node::new(2, Habit::Echo));
    let listener = b.listen(&anywhere()).await;
    let address = listener.local_address();
    let mut line = a.dial(&address).await.expect("the link is up");
    line.exchange(50).await;
    set_link("down");
    let error = a.dial(&address).await.expect_err("the link is down");
    assert!(matches!(error, DialError::Unreachable { .. } | DialError::Timeout { .. }), "{error}");
    assert_tcp_works().await;
    line.close().await;
    drop((a, b, listener));
    devices_are_closed().await;
}
