//! The suite every transport runs, over real loopback sockets.

#[cfg(any(feature = "quic", feature = "tls"))]
#[path = "support/certificates.rs"]
mod certificates;

use std::sync::Arc;

use convoke_transport::conformance::{self, Setup};
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

/// A certificate for every node of the suite, the same for both ends.
#[cfg(feature = "tls")]
async fn conforms_over_tls(builder: convoke_transport_tcp::TcpTransportBuilder) {
    let authority = certificates::Authority::new();
    let issued = authority.issue((1..=32).chain([1_000]));
    let identity = convoke_transport_tcp::Identity::from_pem(
        &issued.certificate,
        &issued.key,
        authority.pem(),
    );
    let identity = identity.expect("the certificate is good");
    let listening = builder.tls(identity.clone()).build().expect("the settings are legal");
    let dialling = TcpTransport::builder().tls(identity).build().expect("the settings are legal");
    conformance::all(|| Setup {
        listening: Arc::new(listening.clone()),
        dialling: Arc::new(dialling.clone()),
        listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
    })
    .await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_keeps_the_promises_of_a_transport() {
    conforms_over_tls(TcpTransport::builder()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_keeps_them_with_the_smallest_chunks_and_windows() {
    let builder = TcpTransport::builder().chunk_bytes(1 << 10);
    conforms_over_tls(builder.data_window_bytes(4 << 10).control_window_bytes(4 << 10)).await;
}

/// The same over QUIC.
#[cfg(feature = "quic")]
async fn conforms_over_quic(
    set: impl Fn(
        convoke_transport_tcp::QuicTransportBuilder,
    ) -> convoke_transport_tcp::QuicTransportBuilder,
) {
    let authority = certificates::Authority::new();
    let issued = authority.issue((1..=32).chain([1_000]));
    let identity = convoke_transport_tcp::Identity::from_pem(
        &issued.certificate,
        &issued.key,
        authority.pem(),
    );
    let identity = identity.expect("the certificate is good");
    let transport = || {
        let builder = set(convoke_transport_tcp::QuicTransport::builder(identity.clone()));
        Arc::new(builder.build().expect("the settings are legal"))
    };
    let (listening, dialling) = (transport(), transport());
    conformance::all(|| Setup {
        listening: Arc::clone(&listening) as _,
        dialling: Arc::clone(&dialling) as _,
        listen: "quic://127.0.0.1:0".parse().expect("it is an address"),
    })
    .await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quic_keeps_the_promises_of_a_transport() {
    conforms_over_quic(|builder| builder).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quic_keeps_them_with_the_smallest_windows_and_many_large_frames() {
    conforms_over_quic(|builder| {
        builder
            .lane_frame_bytes_max(1 << 10)
            .window_bytes(4 << 10)
            .large_frames_max(2)
            .large_bytes_max(10 << 10)
    })
    .await;
}
