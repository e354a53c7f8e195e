//! The suite every transport runs, over real loopback sockets.

#[cfg(any(feature = "quic", feature = "tls"))]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;
#[path = "../../transport/tests/support/descriptors.rs"]
mod descriptors;
#[path = "support/places.rs"]
mod places;
#[cfg(any(feature = "quic", feature = "tls"))]
#[path = "../../transport/tests/support/trust.rs"]
mod trust;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{self, Setup};
#[cfg(any(feature = "quic", feature = "tls"))]
use convoke_transport_tcp::Identity;
#[cfg(feature = "quic")]
use convoke_transport_tcp::{QuicTransport, QuicTransportBuilder};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};
use places::Kind;

/// Runs the suite over a kind of socket. Every part listens at the same place, where possible.
async fn keeps_the_promises(kind: Kind, builder: TcpTransportBuilder) {
    let place = kind.place();
    let transport = Arc::new(builder.build().expect("the settings are legal"));
    conformance::all(|| Setup {
        listening: Arc::clone(&transport) as _,
        dialling: Arc::new(TcpTransport::new()),
        listen: place.address.clone(),
    })
    .await;
}

fn smallest_chunks_and_windows() -> TcpTransportBuilder {
    let builder = TcpTransport::builder().chunk_bytes(1 << 10);
    builder.data_window_bytes(4 << 10).control_window_bytes(4 << 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_the_promises_of_a_transport() {
    keeps_the_promises(Kind::Tcp, TcpTransport::builder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_them_with_the_smallest_chunks_and_windows() {
    keeps_the_promises(Kind::Tcp, smallest_chunks_and_windows()).await;
}

/// The same for both ends.
fn over_flows(builder: &TcpTransportBuilder, count: u8) -> Setup {
    let transport = || Arc::new(builder.clone().flows(count).build().expect("it is legal"));
    let listen = "tcp://127.0.0.1:0".parse().expect("it is an address");
    Setup { listening: transport(), dialling: transport(), listen }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_the_promises_over_several_flows() {
    let setup = over_flows(&TcpTransport::builder(), 4);
    conformance::all(|| setup.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp_keeps_them_over_several_flows_with_the_smallest_chunks_and_windows() {
    let setup = over_flows(&smallest_chunks_and_windows(), 3);
    conformance::all(|| setup.clone()).await;
}

#[tokio::test]
async fn a_first_flow_that_waits_leaves_its_place_among_the_handshakes_to_the_others() {
    // One place on the network may have half of them: one handshake at a time.
    let setup = over_flows(&TcpTransport::builder().handshakes_max(2), 2);
    let pair = setup.connect().await;
    assert_eq!(pair.to_b.link().nonce, pair.to_a.link().nonce);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unix_keeps_the_promises_of_a_transport() {
    keeps_the_promises(Kind::File, TcpTransport::builder()).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unix_keeps_them_with_the_smallest_chunks_and_windows() {
    keeps_the_promises(Kind::File, smallest_chunks_and_windows()).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unix_keeps_the_promises_at_an_abstract_name() {
    keeps_the_promises(Kind::Name, TcpTransport::builder()).await;
}

/// A certificate for every node of the suite, the same for both ends.
#[cfg(feature = "tls")]
fn over_tls(builder: TcpTransportBuilder) -> Setup {
    over_tls_as(builder, &trust::identity_of_suite())
}

#[cfg(feature = "tls")]
fn over_tls_as(builder: TcpTransportBuilder, identity: &Identity) -> Setup {
    let builder = builder.tls(identity.clone());
    let transport = || Arc::new(builder.clone().build().expect("the settings are legal"));
    Setup {
        listening: transport(),
        dialling: transport(),
        listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_of_what_is_not_sent_may_look_at_the_connection() {
    for flows in [1, 3] {
        let setup = over_flows(&TcpTransport::builder(), flows);
        conformance::an_owner_of_what_is_not_sent_may_look_at_the_connection(setup).await;
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
    let setup = over_tls(smallest_chunks_and_windows());
    conformance::all(|| setup.clone()).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_keeps_the_promises_over_several_flows() {
    // Sixty-four connections at once are 256 handshakes of TLS from one place, which may have half.
    let patient = TcpTransport::builder().handshake_timeout(conformance::PATIENCE);
    let setup = over_tls(patient.handshakes_max(1_024).flows(4));
    conformance::all(|| setup.clone()).await;
}

/// The same over QUIC.
#[cfg(feature = "quic")]
fn over_quic(set: impl Fn(QuicTransportBuilder) -> QuicTransportBuilder) -> Setup {
    over_quic_as(set, &trust::identity_of_suite())
}

#[cfg(feature = "quic")]
fn over_quic_as(
    set: impl Fn(QuicTransportBuilder) -> QuicTransportBuilder,
    identity: &Identity,
) -> Setup {
    let transport = || {
        let builder = set(QuicTransport::builder(identity.clone()));
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
async fn an_owner_of_what_is_not_sent_over_quic_may_look_at_the_connection() {
    let setup = over_quic(|builder| builder);
    conformance::an_owner_of_what_is_not_sent_may_look_at_the_connection(setup).await;
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

/// One whose closes take as long as they need.
fn patient() -> TcpTransportBuilder {
    TcpTransport::builder().close_grace(conformance::PATIENCE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send_over_tcp() {
    for flows in [1, 3] {
        let setup = over_flows(&patient(), flows);
        conformance::both_ends_may_close_with_much_to_send(setup).await;
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send_over_unix() {
    let place = Kind::File.place();
    let setup = over_sockets(&patient(), &place);
    conformance::both_ends_may_close_with_much_to_send(setup).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send_over_tls() {
    let setup = over_tls(patient());
    conformance::both_ends_may_close_with_much_to_send(setup).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_ends_may_close_with_much_to_send_over_quic() {
    for lane_frame_bytes_max in [1 << 10, 1 << 20] {
        let setup = over_quic(|builder| {
            let builder = builder.lane_frame_bytes_max(lane_frame_bytes_max);
            builder.close_grace(conformance::PATIENCE)
        });
        conformance::both_ends_may_close_with_much_to_send(setup).await;
    }
}

/// Keep-alive settings under which a process that hangs is noticed soon.
const SHORT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

fn attentive() -> TcpTransportBuilder {
    TcpTransport::builder().keep_alive_interval(SHORT.0).keep_alive_timeout(SHORT.1)
}

async fn notices_what_becomes_of_processes(kind: Kind) {
    let transport = || Arc::new(attentive().build().expect("the settings are legal"));
    // Two run at once, each at a place of its own.
    let places = RefCell::new(Vec::new());
    let setup = || {
        let place = kind.place();
        let listen = place.address.clone();
        places.borrow_mut().push(place);
        Setup { listening: transport(), dialling: transport(), listen }
    };
    conformance::processes(setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_over_tcp() {
    notices_what_becomes_of_processes(Kind::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_over_several_flows() {
    conformance::processes(|| over_flows(&attentive(), 4)).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_over_unix() {
    notices_what_becomes_of_processes(Kind::File).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_at_an_abstract_name() {
    notices_what_becomes_of_processes(Kind::Name).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_over_tls() {
    conformance::processes(|| over_tls(attentive())).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_over_quic() {
    let setup = || over_quic(|builder| builder.keep_alive_timeout(SHORT.1));
    conformance::processes(setup).await;
}

/// Bounds of a transport that serves many who do not read, and little to each.
fn crowded() -> TcpTransportBuilder {
    let builder = TcpTransport::builder().frame_bytes_max(1 << 20).data_window_bytes(64 << 10);
    let builder = builder.send_bytes_total_max(CROWDED_BYTES);
    builder.keep_alive_timeout(Duration::from_secs(600))
}

/// Peers that never read, and the room that all connections of a transport have for them.
const CROWD: usize = 500;
const CROWDED_BYTES: usize = 32 << 20;
/// One peer may have half of the room; a window of what each was sent, and its first bytes, are
/// besides.
const CROWD_BOUND: (usize, usize) = (CROWDED_BYTES / 2, (64 + 16) << 10);

async fn leaves_others_alone(setup: impl Fn() -> Setup) {
    descriptors::allow_many();
    conformance::peers_that_never_read_leave_others_alone(setup, CROWD, CROWD_BOUND).await;
}

async fn never_read(kind: Kind) {
    let place = kind.place();
    leaves_others_alone(|| over_sockets(&crowded(), &place)).await;
}

/// The same for both ends, which are transports of their own.
fn over_sockets(builder: &TcpTransportBuilder, place: &places::Place) -> Setup {
    let transport = || Arc::new(builder.clone().build().expect("the settings are legal"));
    Setup { listening: transport(), dialling: transport(), listen: place.address.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone_over_tcp() {
    never_read(Kind::Tcp).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone_over_unix() {
    never_read(Kind::File).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone_over_tls() {
    let identity = trust::identity_of_suite();
    leaves_others_alone(|| over_tls_as(crowded(), &identity)).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone_over_quic() {
    let set = |builder: QuicTransportBuilder| {
        let builder = builder.frame_bytes_max(1 << 20).window_bytes(64 << 10);
        let builder = builder.send_bytes_total_max(CROWDED_BYTES);
        builder.keep_alive_timeout(Duration::from_secs(600))
    };
    let identity = trust::identity_of_suite();
    leaves_others_alone(|| over_quic_as(set, &identity)).await;
}

/// Room for all, of which a connection may soon have no more.
const NARROW_BYTES: usize = 256 << 10;
const NARROW_FRAME_BYTES_MAX: u32 = 64 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_share_of_the_room_is_woken_over_tcp() {
    let builder = TcpTransport::builder().frame_bytes_max(NARROW_FRAME_BYTES_MAX);
    let setup = over_flows(&builder.send_bytes_total_max(NARROW_BYTES), 1);
    conformance::who_waits_for_a_share_of_the_room_is_woken(setup).await;
}

#[cfg(feature = "quic")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_share_of_the_room_is_woken_over_quic() {
    let setup = over_quic(|builder| {
        let builder = builder.frame_bytes_max(NARROW_FRAME_BYTES_MAX);
        builder.send_bytes_total_max(NARROW_BYTES)
    });
    conformance::who_waits_for_a_share_of_the_room_is_woken(setup).await;
}

async fn shares_connections(kind: Kind) {
    let place = kind.place();
    let setup = over_sockets(&TcpTransport::builder().connections_max(4), &place);
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_over_tcp() {
    shares_connections(Kind::Tcp).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_over_unix() {
    shares_connections(Kind::File).await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_over_tls() {
    let setup = over_tls(TcpTransport::builder().connections_max(4));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}

#[cfg(feature = "quic")]
#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_over_quic() {
    let setup = over_quic(|builder| builder.connections_max(4));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
}
