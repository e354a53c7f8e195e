//! Lives of endpoints: what their ends leave behind, and addresses that change hands.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::{
    Context, Endpoint, EndpointBuilder, Limits, Method, NodeId, Service, Status,
};
use tokio::runtime::Runtime;
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number of the node that answers.
const WHO: Method<(), u64> = Method::new("lives.Test/Who");
/// So many bytes.
const LARGE: Method<u64, String> = Method::new("lives.Test/Large");
/// Bounds what hangs.
const LONG: Duration = Duration::from_secs(20);

fn builder(node: u64) -> EndpointBuilder {
    let who =
        |(), context: Context| async move { Ok::<_, Status>(context.endpoint().node().get()) };
    let large = |bytes: u64, _: Context| async move {
        Ok::<_, Status>("a".repeat(usize::try_from(bytes).expect("it is small")))
    };
    let mut limits = Limits::default();
    limits.backoff_min = Duration::from_millis(1);
    let service = Service::new().unary(WHO, who).unary(LARGE, large);
    convoke::endpoint().node(NodeId::new(node)).limits(limits).serve(service)
}

async fn server(node: u64, address: &str) -> Result<Endpoint> {
    Ok(builder(node).listen(address).start().await?)
}

const ANY: &str = "tcp://127.0.0.1:0";

#[test]
fn the_last_replies_have_left_when_a_shutdown_is_over() -> Result {
    let (its, ours) = (Runtime::new()?, Runtime::new()?);
    let server = its.block_on(server(1, ANY))?;
    let answers = ours.block_on(async {
        let client = builder(2).start().await?;
        let peer = client.connect(server.addresses()).await?;
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push(client.call(LARGE, 3 << 20).to(peer).open()?);
        }
        client.call(WHO, ()).to(peer).await?; // behind them
        Ok::<_, Box<dyn std::error::Error>>((client, calls))
    });
    let (client, calls) = answers?;
    assert!(its.block_on(server.shutdown(LONG)));
    // As at the end of a program.
    its.shutdown_background();
    ours.block_on(async {
        for call in calls {
            assert_eq!(call.first().await?.message().len(), 3 << 20);
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    drop(client);
    Ok(())
}

#[test]
fn calls_of_an_endpoint_whose_runtime_is_gone_end() -> Result {
    let (its, ours) = (Runtime::new()?, Runtime::new()?);
    let server = ours.block_on(server(1, ANY))?;
    let client = its.block_on(builder(2).start())?;
    let connected = client.clone();
    let peer = its.block_on(async move { connected.connect(server.addresses()).await })?;
    its.shutdown_background();
    let ended = ours.block_on(async {
        let known = timeout(LONG, async { client.call(WHO, ()).to(peer).await }).await;
        let stranger = client.peer(NodeId::new(7), "tcp://127.0.0.1:1")?;
        let unknown = timeout(LONG, async { client.call(WHO, ()).to(stranger).await }).await;
        let own = timeout(LONG, async { client.call(WHO, ()).to(client.me()).await }).await;
        Ok::<_, Box<dyn std::error::Error>>([known, unknown, own])
    })?;
    for ended in ended {
        assert!(ended.is_ok_and(|call| call.is_err()));
    }
    Ok(())
}
