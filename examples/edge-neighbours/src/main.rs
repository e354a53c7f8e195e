//! Starts the port, calls it with gRPC, and stops at Ctrl-C.
//!
//! ```sh
//! cargo run -p edge-neighbours
//! cargo run -p edge-neighbours -- --once
//! ```
//! With `--once` it does not wait for Ctrl-C.

use convoke::grpc::ForeignServer;
use edge_neighbours::{HELLO, Port, prometheus};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port = Port::start(prometheus()?).await?;
    let address = port.address();
    println!("a page:   curl http://{address}/");
    println!("health:   curl http://{address}/healthz");
    println!("metrics:  curl http://{address}/metrics");
    let greeter = ForeignServer::new(address.to_string());
    println!("by gRPC:  {}", greeter.call(HELLO, &"Ada".into()).await?);
    if !std::env::args().any(|argument| argument == "--once") {
        tokio::signal::ctrl_c().await?;
    }
    port.shutdown().await
}
