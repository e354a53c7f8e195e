//! The suite every transport runs, over real loopback sockets.

#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;
#[path = "../../transport/tests/support/descriptors.rs"]
mod descriptors;
#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/trust.rs"]
mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::Lane;
use convoke_transport::conformance::{self, Setup};
#[cfg(feature = "tls")]
use convoke_transport_grpc::Identity;
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
    over_tls_as(builder, &trust::identity_of_suite())
}

#[cfg(feature = "tls")]
fn over_tls_as(builder: GrpcTransportBuilder, identity: &Identity) -> Setup {
    let builder = builder.tls(identity.clone());
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
async fn processes_that_hang_or_end_are_noticed_over_tls() {
    conformance::processes(|| over_tls(hasty())).await;
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
async fn processes_that_hang_or_end_are_noticed() {
    let transport = hasty().build().expect("the settings are legal");
    let setup = || Setup { dialling: Arc::new(transport.clone()), ..setup(&transport) };
    conformance::processes(setup).await;
}

/// A reader that is held up stops the sender when the window of the stream is used up. Each frame
/// is in a DATA frame of its own, of which HTTP/2's implementation has its own opinion.
async fn small_frames_that_are_not_read_end_nothing(builder: GrpcTransportBuilder, count: u8) {
    const EACH: usize = 100;
    let pair = over_plain(builder).connect().await;
    let ends = [(&pair.a, &pair.to_a), (&pair.b, &pair.to_b)];
    for (reader, to_reader) in ends {
        reader.gate().shut();
        let frames = || (0..count).flat_map(|number| [[number; 20]; EACH]).map(Bytes::from_owner);
        for frame in frames() {
            conformance::send(to_reader, Lane::Data, &frame).await;
            conformance::flushed(to_reader).await;
        }
        reader.gate().open();
        let seen = reader.frames(to_reader.link().nonce, usize::from(count) * EACH).await;
        assert!(seen.into_iter().map(|(_, frame)| frame).eq(frames()), "frames were lost");
    }
    pair.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn small_frames_that_a_node_does_not_read_end_nothing() {
    small_frames_that_are_not_read_end_nothing(GrpcTransport::builder(), 40).await;
    small_frames_that_are_not_read_end_nothing(smallest().streams_max(1), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_of_what_is_not_sent_may_look_at_the_connection() {
    let setup = setup(&GrpcTransport::new());
    conformance::an_owner_of_what_is_not_sent_may_look_at_the_connection(setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send() {
    let setup = over_plain(GrpcTransport::builder().close_grace(conformance::PATIENCE));
    conformance::both_ends_may_close_with_much_to_send(setup).await;
}

/// Bounds of a transport that serves many who do not read, and little to each.
fn crowded() -> GrpcTransportBuilder {
    let builder = GrpcTransport::builder().frame_bytes_max(1 << 20).window_bytes(65_535);
    let builder = builder.message_bytes_max(64 << 10).send_bytes_total_max(CROWDED_BYTES);
    builder.keep_alive_timeout(Duration::from_secs(600))
}

const CROWDED_BYTES: usize = 32 << 20;

/// A peer may have half of the room; a window and two messages, in which frames are copied, are
/// under way to each connection.
async fn leaves_others_alone(setup: impl Fn() -> Setup) {
    descriptors::allow_many();
    let bound = (CROWDED_BYTES / 2, (64 + 2 * 64) << 10);
    conformance::peers_that_never_read_leave_others_alone(setup, 500, bound).await;
}

fn over_plain(builder: GrpcTransportBuilder) -> Setup {
    let transport = || Arc::new(builder.clone().build().expect("the settings are legal"));
    Setup {
        listening: transport(),
        dialling: transport(),
        listen: "grpc://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone() {
    leaves_others_alone(|| over_plain(crowded())).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone_over_tls() {
    let identity = trust::identity_of_suite();
    leaves_others_alone(|| over_tls_as(crowded(), &identity)).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_the_connections() {
    let setup = over_plain(GrpcTransport::builder().connections_max(4));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_over_tls() {
    let setup = over_tls(GrpcTransport::builder().connections_max(4));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}
