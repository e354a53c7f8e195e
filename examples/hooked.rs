//! Hooks on a simulated network: a test decides which frames are lost, doubled and late, and sees
//! what callers learn of it.
//!
//! ```sh
//! cargo run --example hooked --features sim
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::sim::transport::{Action, SimNetwork};
use convoke::{Cause, Context, Endpoint, Executed, Method, NodeId, Service, Status};

const RESERVE: Method<u64, u64> = Method::new("shop.Stock/Reserve");

async fn reserve(count: u64, _: Context) -> Result<u64, Status> {
    Ok(count)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::new(42);
    let builder = |number| {
        let builder = Endpoint::builder().transport(network.transport());
        builder.node(NodeId::new(number)).seed(number).listen(format!("sim://node{number}"))
    };
    let stock = builder(2).serve(Service::new().unary(RESERVE, reserve)).start().await?;
    let client = builder(1).start().await?;
    let to_stock = client.peer(stock.node(), ["sim://node2"])?;
    network.default_latency(Duration::from_millis(10));

    // The first reply is lost: the caller learns that its request ran.
    let mut is_first = true;
    let hook = network.hook(client.node(), stock.node(), move |frame| {
        if frame.name() == "REPLY" && std::mem::take(&mut is_first) {
            return Action::Drop;
        }
        Action::Pass
    });
    let error = client.call(RESERVE, 2).to(to_stock).await.expect_err("its reply is lost");
    println!("{error}");
    let failure = error.failure().ok_or("a branch failed")?;
    assert_eq!((failure.cause, failure.executed), (Cause::ReplyLost, Executed::Yes));
    drop(hook);

    // A request is held, and others pass it by.
    let mut is_first = true;
    let hook = network.hook(client.node(), stock.node(), move |frame| {
        let is_meant = frame.is_request_of("shop.Stock/Reserve");
        if is_meant && std::mem::take(&mut is_first) { Action::Hold } else { Action::Pass }
    });
    let held = client.call(RESERVE, 3).to(to_stock).open()?;
    let passed = client.call(RESERVE, 4).to(to_stock).await?;
    println!("{passed} while {} is held", hook.held());
    assert_eq!((passed, hook.release()), (4, 1));
    assert!(held.outcome().await.is_complete());
    Ok(())
}
