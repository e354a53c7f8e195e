//! The suite every transport runs, over the simulated one.

use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_sim::transport::{Conditions, SimNetwork};
use convoke_transport::conformance::{self, Setup};

fn setup(network: &SimNetwork) -> Setup {
    Setup {
        listening: network.transport(),
        dialling: network.transport(),
        listen: "sim://node:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_simulated_transport_keeps_the_promises_of_a_transport() {
    let network = SimNetwork::new(1);
    conformance::all(|| setup(&network)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_them_with_latency_jitter_and_little_bandwidth() {
    let network = SimNetwork::new(2);
    network.default_conditions(Conditions {
        latency: Duration::from_millis(1),
        jitter: Duration::from_millis(2),
        bandwidth: Some(400 << 20),
        ..Conditions::default()
    });
    conformance::all(|| setup(&network)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_them_with_an_uplink_and_a_downlink_for_all_connections() {
    let network = SimNetwork::new(3);
    network.default_latency(Duration::from_millis(1));
    for node in (1..=2).map(NodeId::new) {
        network.uplink(node, 3_000_000);
        network.downlink(node, 4_000_000);
    }
    conformance::all(|| setup(&network)).await;
}
