//! The suite every transport runs, over real loopback sockets.

#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;
#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/trust.rs"]
mod trust;

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{self, Setup};
use convoke_transport_grpc::{GrpcTransport, GrpcTransportBuilder};

fn setup(transport: &GrpcTransport) -> Setup {
    Setup {
        listening: Arc::new(transport.clone()),
        dialling: Arc::new(GrpcTransport::new()),
        listen: "grpc://127.0.0.1:0".parse().expect("it is an address"),
    }
}

/// The smallest messages and windows.
fn smallest() -> GrpcTransportBuilder {
    GrpcTransport::builder().message_bytes_max(4 << 10).window_bytes(65_535)
}

/// A process that hangs is noticed soon.
fn hasty() -> GrpcTransportBuilder {
    let builder = GrpcTransport::builder().keep_alive_interval(Duration::from_millis(100));
    builder.keep_alive_timeout(Duration::from_millis(500))
}

/// A certificate for every node of the suite, the same for both ends.
#[cfg(feature = "tls")]
fn over_tls(builder: GrpcTransportBuilder) -> Setup {
    let builder = builder.tls(trust::identity_of_suite());
    let transport = || Arc::new(builder.clone().build().expect("the settings are legal"));
    Setup {
        listening: transport(),
        dialling: transport(),
        listen: "grpcs://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpcs_keeps_the_promises_of_a_transport() {
    let setup = over_tls(GrpcTransport::builder());
    conformance::all(|| setup.clone()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpcs_keeps_them_with_the_smallest_messages_and_windows() {
    let setup = over_tls(smallest());
    conformance::all(|| setup.clone()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed_over_tls() {
    conformance::a_hung_process_is_noticed(|| over_tls(hasty())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpc_keeps_the_promises_of_a_transport() {
    let transport = GrpcTransport::new();
    conformance::all(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grpc_keeps_them_with_the_smallest_messages_and_windows() {
    let transport = smallest().build().expect("the settings are legal");
    conformance::all(|| setup(&transport)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed() {
    let transport = hasty().build().expect("the settings are legal");
    let setup = || Setup { dialling: Arc::new(transport.clone()), ..setup(&transport) };
    conformance::a_hung_process_is_noticed(setup).await;
}
