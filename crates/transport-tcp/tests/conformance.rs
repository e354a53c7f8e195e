//! The suite every transport runs, over real loopback sockets.

#[cfg(any(feature = "quic", feature = "tls"))]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;

use std::sync::Arc;
use std::time::Duration;

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
fn over_tls(builder: convoke_transport_tcp::TcpTransportBuilder) -> Setup {
    let authority = certificates::Authority::new();
    let issued = authority.issue((1..=32).chain([1_000]));
    let identity = convoke_transport_tcp::Identity::from_pem(
        &issued.certificate,
        &issued.key,
        authority.pem(),
    );
    let builder = builder.tls(identity.expect("the certificate is good"));
    let transport = || Arc::new(builder.clone().build().expect("the settings are legal"));
    Setup {
        listening: transport(),
        dialling: transport(),
        listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_keeps_the_promises_of_a_transport() {
    let setup = over_tls(TcpTransport::builder());
    conformance::all(|| setup.clone()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_keeps_them_with_the_smallest_chunks_and_windows() {
    let builder = TcpTransport::builder().chunk_bytes(1 << 10);
    let setup = over_tls(builder.data_window_bytes(4 << 10).control_window_bytes(4 << 10));
    conformance::all(|| setup.clone()).await;
}

/// The same over QUIC.
#[cfg(feature = "quic")]
fn over_quic(
    set: impl Fn(
        convoke_transport_tcp::QuicTransportBuilder,
    ) -> convoke_transport_tcp::QuicTransportBuilder,
) -> Setup {
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
    Setup {
        listening: transport(),
        dialling: transport(),
        listen: "quic://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quic_keeps_the_promises_of_a_transport() {
    let setup = over_quic(|builder| builder);
    conformance::all(|| setup.clone()).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quic_keeps_them_with_the_smallest_windows_and_many_large_frames() {
    let setup = over_quic(|builder| {
        builder
            .lane_frame_bytes_max(1 << 10)
            .window_bytes(4 << 10)
            .large_frames_max(2)
            .large_bytes_max(10 << 10)
    });
    conformance::all(|| setup.clone()).await;
}

/// Keep-alive settings under which a process that hangs is noticed soon.
const SHORT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed_over_tcp() {
    let transport = || {
        let builder = TcpTransport::builder().keep_alive_interval(SHORT.0);
        Arc::new(builder.keep_alive_timeout(SHORT.1).build().expect("the settings are legal"))
    };
    let setup = || Setup {
        listening: transport(),
        dialling: transport(),
        listen: "tcp://127.0.0.1:0".parse().expect("it is an address"),
    };
    conformance::a_hung_process_is_noticed(setup).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed_over_tls() {
    let builder = TcpTransport::builder().keep_alive_interval(SHORT.0);
    let builder = builder.keep_alive_timeout(SHORT.1);
    conformance::a_hung_process_is_noticed(|| over_tls(builder.clone())).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_hangs_is_noticed_over_quic() {
    let setup = || over_quic(|builder| builder.keep_alive_timeout(SHORT.1));
    conformance::a_hung_process_is_noticed(setup).await;
}
