//! Writing: what the socket does not take is written later, and no frame is above the limits.

#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;
#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/trust.rs"]
mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Recorder, Setup};
use convoke_transport::{Lane, NotWritable};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};

fn setup(builder: TcpTransportBuilder) -> Setup {
    setup_at("tcp://127.0.0.1:0", builder)
}

#[cfg(feature = "tls")]
fn setup_with_tls(builder: TcpTransportBuilder) -> Setup {
    setup_at("tls://127.0.0.1:0", builder.tls(trust::identity_of_suite()))
}

fn setup_at(listen: &str, builder: TcpTransportBuilder) -> Setup {
    let transport = Arc::new(builder.build().expect("the settings are legal"));
    Setup {
        listening: Arc::clone(&transport) as _,
        dialling: transport,
        listen: listen.parse().expect("it is an address"),
    }
}

#[tokio::test]
async fn what_the_socket_does_not_take_at_once_is_written_without_another_flush() {
    write_more_than_the_socket_takes(setup(patient())).await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn what_the_socket_does_not_take_at_once_is_written_in_order_under_tls() {
    write_more_than_the_socket_takes(setup_with_tls(patient())).await;
}

/// Credit for everything, so that only the socket can be in the way.
fn patient() -> TcpTransportBuilder {
    let builder = TcpTransport::builder().data_window_bytes(1 << 30);
    // And no keep-alive that would flush on the side.
    let builder = builder.keep_alive_interval(Duration::from_secs(600));
    let builder = builder.keep_alive_timeout(Duration::from_secs(1_800));
    builder.send_buffer_bytes_hard(64 << 20)
}

async fn write_more_than_the_socket_takes(setup: Setup) {
    const BYTES: usize = 50_000;
    const COUNT: usize = 1_000;
    let pair = setup.connect().await;
    for number in 0..COUNT {
        // Nothing is read meanwhile: this task does not yield.
        let body = vec![u8::try_from(number % 251).expect("it is small"); BYTES];
        pair.to_b.append_bytes(Lane::Data, &[], Bytes::from(body)).expect("there is room for all");
        pair.to_b.flush();
    }
    let frames = pair.b.frames(pair.to_a.link().nonce, COUNT).await;
    for (number, (_, frame)) in frames.iter().enumerate() {
        assert_eq!(frame.len(), BYTES);
        assert!(frame.iter().all(|byte| usize::from(*byte) == number % 251));
    }
    pair.finish().await;
}

#[tokio::test]
async fn the_smaller_limit_of_transport_and_sink_is_told_and_kept() {
    let limits = [(40_000, 50_000), (50_000, 40_000)];
    for (of_transport, of_sink) in limits {
        let setup = setup(TcpTransport::builder().frame_bytes_max(of_transport));
        let b = Recorder::new(2).taking(of_sink);
        let pair = setup.connect_as(Recorder::new(1).taking(1 << 20), b).await;
        assert_eq!(pair.to_b.link().peer.frame_bytes_max, 40_000);
        let refused = pair.to_b.append_copy(Lane::Data, &[1], &[0; 40_000]);
        assert_eq!(refused, Err(NotWritable::TooLarge { size: 40_001, limit: 40_000 }));
        pair.finish().await;
    }
}
