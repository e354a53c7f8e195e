//! Nodes of a simulated network with one uplink and one downlink each, under a paused clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Connection, Lane, Listener};
use tokio::time::Instant;

/// Bytes that a frame costs beyond its own.
const OVERHEAD: usize = 16;

fn node(number: u64) -> NodeId {
    NodeId::new(number)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A node that listens, and dials others.
struct Node {
    sink: Arc<Recorder>,
    listener: Box<dyn Listener>,
}

impl Node {
    async fn start(network: &SimNetwork, number: u64) -> Self {
        let sink = Arc::new(Recorder::new(number));
        let address = format!("sim://n{number}").parse().expect("it is an address");
        let listening = network.transport().listen(&address, Arc::clone(&sink) as _).await;
        Self { sink, listener: listening.expect("the name is free") }
    }

    async fn dial(&self, network: &SimNetwork, to: &Self) -> Arc<dyn Connection> {
        let address = to.listener.local_address();
        let dialled = network.transport().dial(&address, None, Arc::clone(&self.sink) as _).await;
        dialled.expect("it listens")
    }

    /// When that many frames of a connection are here.
    async fn frames(&self, connection: &Arc<dyn Connection>, count: usize) -> Vec<(Lane, Bytes)> {
        self.sink.frames(connection.link().nonce, count).await
    }
}

async fn nodes<const N: usize>(network: &SimNetwork) -> [Node; N] {
    let mut nodes = Vec::new();
    for number in 1..=N as u64 {
        nodes.push(Node::start(network, number).await);
    }
    nodes.try_into().unwrap_or_else(|_| panic!("as many as were started"))
}

/// A frame that costs `cost` bytes.
fn send(connection: &Arc<dyn Connection>, lane: Lane, cost: usize) {
    let frame = vec![7; cost - OVERHEAD];
    connection.append_bytes(lane, &[], frame.into()).expect("the lane has room");
    connection.flush();
}

#[tokio::test(start_paused = true)]
async fn a_frame_takes_uplink_latency_and_downlink_exactly() {
    let network = SimNetwork::new(1);
    let [a, b] = nodes(&network).await;
    network.uplink(node(1), 8_000); // 1,000 bytes a millisecond
    network.downlink(node(2), 4_000);
    network.default_latency(ms(20));
    let to_b = a.dial(&network, &b).await;
    let start = Instant::now();
    send(&to_b, Lane::Data, 10_000);
    send(&to_b, Lane::Data, 10_000);
    send(&to_b, Lane::Control, 10_000);
    for (count, time) in [(1, 20), (2, 10 + 20 + 20), (3, 10 + 20 + 40)] {
        b.frames(&to_b, count).await;
        assert_eq!(start.elapsed(), ms(time), "control takes the latency alone");
    }
}

#[tokio::test(start_paused = true)]
async fn peers_share_the_uplink_and_a_late_one_waits_for_none_of_the_earlier_bytes() {
    let network = SimNetwork::new(1);
    let [a, b, c] = nodes(&network).await;
    network.uplink(node(1), 8_000);
    let (to_b, to_c) = (a.dial(&network, &b).await, a.dial(&network, &c).await);
    let start = Instant::now();
    (0..100).for_each(|_| send(&to_b, Lane::Data, 1_000));
    (0..10).for_each(|_| send(&to_c, Lane::Data, 1_000));
    c.frames(&to_c, 10).await;
    assert!(start.elapsed() <= ms(22), "equal shares: {:?}", start.elapsed());
    b.frames(&to_b, 100).await;
    assert_eq!(start.elapsed(), ms(110), "the uplink was never idle");
}

#[tokio::test(start_paused = true)]
async fn senders_share_the_downlink() {
    let network = SimNetwork::new(1);
    let [a, b, c] = nodes(&network).await;
    network.downlink(node(3), 8_000);
    let (of_a, of_b) = (a.dial(&network, &c).await, b.dial(&network, &c).await);
    let start = Instant::now();
    (0..100).for_each(|_| send(&of_a, Lane::Data, 1_000));
    (0..10).for_each(|_| send(&of_b, Lane::Data, 1_000));
    c.frames(&of_b, 10).await;
    assert!(start.elapsed() <= ms(22), "equal shares: {:?}", start.elapsed());
    c.frames(&of_a, 100).await;
    assert_eq!(start.elapsed(), ms(110));
}

#[tokio::test(start_paused = true)]
async fn a_capacity_may_be_taken_away_and_nothing_overtakes() {
    let network = SimNetwork::new(1);
    let [a, b] = nodes(&network).await;
    network.uplink(node(1), 8);
    let to_b = a.dial(&network, &b).await;
    let start = Instant::now();
    send(&to_b, Lane::Data, 100);
    send(&to_b, Lane::Data, 100);
    network.uplink(node(1), None);
    send(&to_b, Lane::Data, 50);
    let frames = b.frames(&to_b, 3).await;
    assert_eq!(start.elapsed(), ms(100), "the first had begun");
    assert!(frames.iter().map(|(_, bytes)| bytes.len() + OVERHEAD).eq([100, 100, 50]));
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_comes_behind_what_the_uplink_holds() {
    let network = SimNetwork::new(1);
    let [a, b] = nodes(&network).await;
    network.uplink(node(1), 8_000);
    let to_b = a.dial(&network, &b).await;
    (0..50).for_each(|_| send(&to_b, Lane::Data, 1_000));
    to_b.close(CloseReason::Local);
    let start = Instant::now();
    b.sink.closed(to_b.link().nonce).await;
    assert_eq!(start.elapsed(), ms(50));
    assert_eq!(b.frames(&to_b, 50).await.len(), 50);
    b.sink.check();
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_what_has_passed_the_downlink() {
    let network = SimNetwork::new(1);
    let [a, b] = nodes(&network).await;
    network.downlink(node(2), 8_000);
    let to_b = a.dial(&network, &b).await;
    let start = Instant::now();
    send(&to_b, Lane::Data, 1_000);
    network.partition(node(1), node(2));
    tokio::time::sleep(ms(30)).await;
    network.heal(node(1), node(2));
    b.frames(&to_b, 1).await;
    assert_eq!(start.elapsed(), ms(30));
}

#[test]
fn a_network_outlives_a_runtime() {
    let network = SimNetwork::new(1);
    network.uplink(node(1), 8_000);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().expect("it starts");
        runtime.block_on(async {
            let [a, b] = nodes(&network).await;
            let to_b = a.dial(&network, &b).await;
            send(&to_b, Lane::Data, 1_000);
            b.frames(&to_b, 1).await;
        });
    }
}
