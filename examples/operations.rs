//! Operating a service: health, a connection that is kept up, bounds with names, a graceful end.
//!
//! ```sh
//! cargo run --example operations
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::health::{CHECK, Health, HealthRequest, ServingState, WATCH};
use convoke::transport::TcpTransport;
use convoke::{Cause, Context, Endpoint, Limits, Method, NodeId, PeerState, Service, Status};

const SELL: Method<String, String> = Method::new("shop.Shop/Sell");

async fn sell(goods: String, context: Context) -> Result<String, Status> {
    // Whatever the caller asked for, the server has cut it to its own bound.
    assert!(context.remaining() <= Duration::from_secs(30));
    Ok(format!("{goods}, sold"))
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.deadline_default = Duration::from_secs(5); // of calls that set none; default 10 s
    limits.deadline_max = Duration::from_secs(30); // of calls and requests; default 10 min
    limits.message_bytes_max = 64 << 10; // both ways; default 4 MiB
    limits.backoff_min = Duration::from_millis(20); // after a failed dial; default 50 ms
    limits.backoff_max = Duration::from_secs(1); // doubling up to this; default 5 s
    limits
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The application says how its services are, and changes it whenever that changes.
    let health = Health::new();
    health.set("shop.Shop", ServingState::NotServing); // the stock is not loaded yet
    let node = NodeId::new(7);
    let server = Endpoint::builder()
        .transport(TcpTransport::new())
        .node(node)
        .listen("tcp://127.0.0.1:0")
        .serve(Service::new().unary(SELL, sell))
        .health(&health)
        .limits(limits())
        .start()
        .await?;
    let client =
        Endpoint::builder().transport(TcpTransport::new()).limits(limits()).start().await?;

    // Dialled now, and again whenever it is lost. Without this, when it is next needed.
    let shop = client.peer(node, server.addresses())?;
    let _kept = client.keep_connected(shop);
    let mut connection = client.watch_peer(shop);
    connection.wait_for(|state| *state == PeerState::Connected).await?;

    // Whoever sends work asks once, or watches.
    let question = HealthRequest::of("shop.Shop");
    let mut watch = client.call(WATCH, question.clone()).to(shop).open()?;
    health.set("shop.Shop", ServingState::Serving);
    while let Some(reply) = watch.next().await {
        println!("the shop is {:?}", reply?.message().state());
        if client.call(CHECK, question.clone()).to(shop).await?.state() == ServingState::Serving {
            break;
        }
    }
    println!("{}", client.call(SELL, "a book".into()).to(shop).await?);

    // Too large, and it says by how much and which setting that was.
    let large = SELL.request("x".repeat(100_000));
    let refused = client.invoke(large).to(shop).await.expect_err("it is too large");
    println!("{refused}");
    assert!(refused.to_string().contains("message_bytes_max"));

    // The end: the node says so, takes nothing new, lets what runs end, and stops in any case.
    assert!(server.shutdown(Duration::from_secs(5)).await);
    connection.wait_for(|state| *state == PeerState::Down).await?;
    let late = client.call(SELL, "a book".into()).to(shop).await;
    let late = late.expect_err("nobody is there");
    println!("{late}");
    assert_eq!(late.failure().map(|failure| failure.cause), Some(Cause::Unreachable));
    assert!(late.is_safe_to_repeat());
    client.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
