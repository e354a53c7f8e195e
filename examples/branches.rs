//! One call with several branches: the same request to all, or a different one to each; and what is
//! known at the end.
//!
//! ```sh
//! cargo run --example branches
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Context, Endpoint, Method, Service, Status};

const STOCK: Method<String, u64> = Method::new("shop.Store/Stock").read_only();
const ORDERED: Method<u64, u64> = Method::new("shop.Store/Ordered").read_only();

/// A store with this many of everything, and a tenth of it on order.
async fn start_store(stock: u64) -> Result<Endpoint, Box<dyn Error>> {
    let store = Service::new()
        .unary(STOCK, move |_item, _: Context| async move { Ok::<_, Status>(stock) })
        .unary(ORDERED, move |week, _: Context| async move { Ok::<_, Status>(stock / 10 + week) });
    Ok(convoke::endpoint().listen("tcp://127.0.0.1:0").serve(store).start().await?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let stores = [start_store(100).await?, start_store(20).await?, start_store(3).await?];
    let client = convoke::endpoint().start().await?;
    let mut peers = Vec::new();
    for store in &stores {
        peers.push(client.connect(store.addresses()).await?);
    }

    // The same to all, one branch each. Replies come in no order.
    let mut call = client.call(STOCK, "lamp".into()).to_all(&peers).open()?;
    let mut total = 0;
    while let Some(reply) = call.next().await {
        let reply = reply?;
        println!("branch {}: {} at {}", reply.path(), reply.message(), reply.from());
        total += reply.into_inner();
    }
    println!("{total} lamps in all; the call ended as {:?}", call.outcome().await.end);
    assert_eq!(total, 123);

    // Different ones, to whom they concern. All of a call are answered with the same type.
    let branches = [
        (peers[0], STOCK.request("lamp".into())),
        (peers[0], ORDERED.request(2)),
        (peers[1], ORDERED.request(2)),
    ];
    let call = client.fan_out(branches).deadline(Duration::from_secs(2));
    let (mut replies, outcome) = call.open()?.collect().await?;
    assert!(outcome.is_complete());
    replies.sort_by(|a, b| a.path().cmp(b.path()));
    let counts: Vec<u64> = replies.into_iter().map(|reply| reply.into_inner()).collect();
    println!("by branch: {counts:?}");
    assert_eq!(counts, [100, 12, 4]);

    client.shutdown(Duration::from_secs(1)).await;
    for store in stores {
        store.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
