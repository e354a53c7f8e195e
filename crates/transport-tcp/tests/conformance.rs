//! The suite every transport runs, over real loopback sockets.

use std::sync::Arc;

use convoke_core::transport::conformance::{self, Setup};
use convoke_transport_tcp::TcpTransport;

fn setup(transport: &TcpTransport, listen: &str) -> Setup {
    Setup {
        listening: Arc::new(transport.clone()),
        dialling: Arc::new(TcpTransport::new()),
        listen: listen.parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_the_promises_of_a_transport() {
    let transport = TcpTransport::new();
    conformance::all(|| setup(&transport, "tcp://127.0.0.1:0")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_them_with_the_smallest_chunks_and_windows() {
    let builder = TcpTransport::builder();
    let builder = builder.chunk_bytes(1 << 10).data_window_bytes(4 << 10);
    let transport = builder.control_window_bytes(4 << 10).build().expect("the settings are legal");
    conformance::all(|| setup(&transport, "tcp://127.0.0.1:0")).await;
}
