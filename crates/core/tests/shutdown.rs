//! Ends of an endpoint that others still hold.

use std::future::pending;
use std::time::Duration;

use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_sim::transport::SimNetwork;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Never answers.
const NEVER: Method<u64, u64> = Method::new("test.Test/Never");

const HOUR: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_given_up_closes_at_once() {
    let network = SimNetwork::new(7);
    let started = std::sync::Arc::new(Notify::new());
    let starts = started.clone();
    let service = Service::new().unary(NEVER, move |_: u64, _: Context| {
        starts.notify_one();
        pending::<Result<u64, Status>>()
    });
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let server = builder(1).listen("sim://server:0").serve(service);
    let server = server.start().await.expect("its address is free");
    let client = builder(2).start().await.expect("it listens nowhere");
    let peer = client.connect(server.addresses()).await.expect("the server listens");
    let call = client.call(NEVER, 1).to(peer).deadline(HOUR / 10).open().expect("there is room");
    started.notified().await;
    let held = server.clone();
    assert!(timeout(SOON, server.shutdown(HOUR)).await.is_err(), "a handler runs");
    let ended = timeout(SOON, call.first()).await.expect("nothing runs there any more");
    let error = ended.expect_err("it was stopped").to_string();
    assert!(error.contains("shutting down"), "{error}");
    drop(held);
}
