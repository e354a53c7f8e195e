//! A node of the simulated network that crashes: its endpoint does nothing any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke_core::{CallError, Cause, Context, Endpoint, Method, NodeId, Service, Status};
use convoke_sim::transport::SimNetwork;
use tokio::time::sleep;

const SLOW: Method<u64, u64> = Method::new("test.Test/Slow");
const FAST: Method<u64, u64> = Method::new("test.Test/Fast");

/// Adds to `ended` with each slow request that has run to its end.
fn service(ended: &Arc<AtomicU64>) -> Service {
    let ended = Arc::clone(ended);
    Service::new()
        .unary(SLOW, move |n: u64, _: Context| {
            let ended = Arc::clone(&ended);
            async move {
                sleep(Duration::from_secs(1)).await;
                ended.fetch_add(n, Ordering::Relaxed);
                Ok::<_, Status>(n)
            }
        })
        .unary(FAST, |n: u64, _: Context| async move { Ok::<_, Status>(n) })
}

#[tokio::test(start_paused = true)]
async fn a_crashed_node_stops_its_handlers_and_answers_nobody() {
    let network = SimNetwork::new(7);
    let ended = Arc::new(AtomicU64::new(0));
    let start = |node, seed| {
        let builder = Endpoint::builder().node(NodeId::new(node)).seed(seed);
        let builder = builder.transport(network.transport()).listen(format!("sim://node{node}"));
        builder.serve(service(&ended)).start()
    };
    let server = start(1, 1).await.expect("the address is free");
    let client = start(2, 2).await.expect("the address is free");
    let peer = client.connect(server.addresses()).await.expect("it listens");
    let call = client.call(SLOW, 1).to(peer).open().expect("there is room");
    let own = server.call(SLOW, 10).to(server.me()).open().expect("there is room");
    sleep(Duration::from_millis(500)).await;
    network.crash(server.node());

    let error = call.first().await.expect_err("it has crashed");
    assert_eq!(error.failure().map(|failure| failure.cause), Some(Cause::NodeDown), "{error}");
    assert!(own.first().await.is_err());
    let error = server.call(FAST, 3).to(server.me()).await.expect_err("it has crashed");
    assert!(matches!(error, CallError::Stopped), "{error}");

    // The endpoint is still held. The next life begins with what the first one has left.
    let next = start(1, 11).await.expect("the address is free again");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(ended.load(Ordering::Relaxed), 0, "no handler of the first life has gone on");
    assert_eq!(client.call(SLOW, 100).to(next.node()).await.expect("it answers"), 100);
    drop((server, next));
}
