//! Writing: whoever flushes writes for all, what the socket does not take is written later, and
//! nothing is left behind.

#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/certificates.rs"]
mod certificates;
#[cfg(feature = "tls")]
#[path = "../../transport/tests/support/trust.rs"]
mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Recorder, Setup, flushed, of_lane};
use convoke_transport::{Connection, Lane, NotWritable};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};

const THREADS: u32 = 4;
const FRAMES: u32 = 5_000;

fn send_all(connection: &Arc<dyn Connection>, thread: u32) {
    for number in 0..FRAMES {
        let frame = [thread.to_le_bytes(), number.to_le_bytes()].concat();
        let mut write = |out: &mut [u8]| out.copy_from_slice(&frame);
        while let Err(error) = connection.append(Lane::Data, frame.len(), &mut write) {
            assert_eq!(error, NotWritable::Full);
            std::thread::yield_now();
        }
        connection.flush();
    }
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_append_and_flush_at_once_lose_nothing() {
    append_and_flush_at_once(setup(TcpTransport::builder())).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_append_and_flush_at_once_lose_nothing_under_tls() {
    append_and_flush_at_once(setup_with_tls(TcpTransport::builder())).await;
}

async fn append_and_flush_at_once(setup: Setup) {
    let pair = setup.connect().await;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let connection = Arc::clone(&pair.to_b);
            std::thread::spawn(move || send_all(&connection, thread))
        })
        .collect();
    let count = (THREADS * FRAMES) as usize;
    let frames = pair.b.frames(pair.to_a.link().nonce, count).await;
    threads.into_iter().for_each(|thread| thread.join().expect("sending ends"));
    flushed(&pair.to_b).await;
    let frames = of_lane(&frames, Lane::Data);
    for thread in 0..THREADS {
        let of_thread = frames.iter().filter(|frame| frame[..4] == thread.to_le_bytes());
        let expected = (0..FRAMES).map(|number| number.to_le_bytes().to_vec());
        assert!(of_thread.map(|frame: &Bytes| frame[4..].to_vec()).eq(expected));
    }
    let counters = pair.to_b.counters();
    assert_eq!(counters.frames_sent, count as u64);
    assert!(counters.writes < counters.frames_sent, "no write per frame: {counters:?}");
    pair.finish().await;
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
        let refused = pair.to_b.append(Lane::Data, 40_001, &mut |_| unreachable!("it is refused"));
        assert_eq!(refused, Err(NotWritable::TooLarge { size: 40_001, limit: 40_000 }));
        pair.finish().await;
    }
}
