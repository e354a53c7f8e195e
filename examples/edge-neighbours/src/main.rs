//! Starts the port, calls it with gRPC, and stops at Ctrl-C or SIGTERM.
//!
//! ```sh
//! cargo run -p edge-neighbours
//! cargo run -p edge-neighbours -- --once
//! ```
//! With `--once` it does not wait for either.

use std::time::Duration;

use convoke::grpc::ForeignServer;
use edge_neighbours::{HELLO, Port, prometheus};
use node_kit::signals::StopSignal;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let port = Port::start(prometheus()?).await?;
    let address = port.address();
    println!("a page:   curl http://{address}/");
    println!("health:   curl http://{address}/healthz");
    println!("metrics:  curl http://{address}/metrics");
    let greeter = ForeignServer::new(address.to_string());
    println!("by gRPC:  {}", greeter.call(HELLO, &"Ada".into()).await?);
    if !std::env::args().any(|argument| argument == "--once") {
        stop.received().await;
    }
    port.shutdown(Duration::from_secs(5)).await
}
