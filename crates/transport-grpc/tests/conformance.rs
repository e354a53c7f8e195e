//! The suite every transport runs, over real loopback sockets.

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{self, Setup};
use convoke_transport_grpc::GrpcTransport;

fn setup(transport: &GrpcTransport) -> Setup {
    Setup {
        listening: Arc::new(transport.clone()),
        dialling: Arc::new(GrpcTransport::new()),
        listen: "grpc://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpc_keeps_the_promises_of_a_transport() {
    let transport = GrpcTransport::new();
    conformance::all(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpc_keeps_them_with_the_smallest_messages_and_windows() {
    let builder = GrpcTransport::builder().message_bytes_max(4 << 10).window_bytes(65_535);
    let transport = builder.build().expect("the settings are legal");
    conformance::all(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed() {
    let builder = GrpcTransport::builder().keep_alive_interval(Duration::from_millis(100));
    let transport = builder.keep_alive_timeout(Duration::from_millis(500)).build();
    let transport = transport.expect("the settings are legal");
    let setup = || Setup { dialling: Arc::new(transport.clone()), ..setup(&transport) };
    conformance::a_hung_process_is_noticed(setup).await;
}
