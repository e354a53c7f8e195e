//! A service of one's own on a simulated network: latency, a partition and a crash in virtual time,
//! exact to the millisecond and the same in every run.
//!
//! ```sh
//! cargo run --example simulated --features sim
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::sim::transport::SimNetwork;
use convoke::{CallError, Cause, Context, Endpoint, Method, NodeId, Peer, Service, Status, Task};
use tokio::time::{Instant, sleep};

const GET: Method<String, String> = Method::new("cache.Cache/Get").read_only();
const LOAD: Method<String, String> = Method::new("cache.Store/Load").read_only();

/// Service to be tested: a cache that has nothing, so that the store behind it answers the client.
fn cache(store: Peer) -> Service {
    Service::new().tree(GET, move |key: String, task: Task<String>| async move {
        Ok::<_, Status>(task.tail(&store, LOAD.request(key)).await?)
    })
}

fn store() -> Service {
    let load = |key, _: Context| async move { Ok::<_, Status>(format!("the {key} of the store")) };
    Service::new().unary(LOAD, load)
}

async fn start(
    network: &SimNetwork,
    node: u64,
    service: Service,
) -> Result<Endpoint, Box<dyn Error>> {
    let endpoint = Endpoint::builder()
        .transport(network.transport())
        .node(NodeId::new(node))
        .seed(node) // what is random of a node is drawn from this
        .listen(format!("sim://node{node}"))
        .serve(service);
    Ok(endpoint.start().await?)
}

/// Result of a call, and how many milliseconds of virtual time it takes.
async fn get(client: &Endpoint, cache: &Peer) -> (Result<String, CallError>, u128) {
    let start = Instant::now();
    let request = GET.request("heron".into()).deadline(Duration::from_secs(5));
    let result = client.invoke(request).to(cache).await;
    (result, start.elapsed().as_millis())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::new(42);
    let store = start(&network, 3, store()).await?;
    let cache = start(&network, 2, cache(store.me())).await?;
    let client = start(&network, 1, Service::new()).await?;
    let to_cache = client.peer(cache.node(), ["sim://node2"])?;
    client.warm_up(&to_cache).await?;
    client.warm_up(&client.peer(store.node(), ["sim://node3"])?).await?;
    cache.warm_up(&cache.peer(store.node(), ["sim://node3"])?).await?;

    // Three trips of 10 ms: client, cache, store, client. Nested calls would make it four.
    network.default_latency(Duration::from_millis(10));
    let (result, ms) = get(&client, &to_cache).await;
    println!("after {ms} ms: {}", result?);
    assert_eq!(ms, 30);

    // The cache does not hear the client: the deadline ends the call, on the dot.
    network.partition(client.node(), cache.node());
    let (result, ms) = get(&client, &to_cache).await;
    let error = result.expect_err("nobody heard of it");
    println!("after {ms} ms: {error}");
    assert_eq!((ms, error.failure().map(|failure| failure.cause)), (5_000, Some(Cause::Deadline)));
    network.heal(client.node(), cache.node());

    // The store crashes with the request on its way.
    let crash = async {
        sleep(Duration::from_millis(15)).await;
        network.crash(store.node());
    };
    let ((result, ms), ()) = tokio::join!(get(&client, &to_cache), crash);
    let error = result.expect_err("the store is gone");
    println!("after {ms} ms: {error}");
    let failure = error.failure().ok_or("a branch failed")?;
    assert_eq!((failure.node, failure.is_safe_to_repeat()), (Some(store.node()), false));
    assert!(ms < 5_000, "it is noticed long before the deadline");
    Ok(())
}
