//! Allocations of frames that are appended to a connection of several flows.

use std::sync::Arc;

use alloc_tracker::{Allocator, Session};
use convoke_transport::Lane;
use convoke_transport::conformance::Setup;
use convoke_transport_tcp::TcpTransport;

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

const FRAMES: u64 = 5_000;
const FRAME_BYTES: usize = 100;
/// Blocks of frames, and what grows now and then.
const ALLOCATIONS_MAX: u64 = 100;

#[tokio::test]
async fn a_frame_that_is_written_in_place_takes_no_allocation_of_its_own() {
    let transport = Arc::new(TcpTransport::builder().flows(4).build().expect("it is legal"));
    let listen = "tcp://127.0.0.1:0".parse().expect("it is an address");
    let setup = Setup { listening: Arc::clone(&transport) as _, dialling: transport, listen };
    let pair = setup.connect().await;
    let session = Session::new();
    let span = session.operation("append").measure_thread();
    for number in 0..FRAMES {
        let (head, body) = (number.to_le_bytes(), [0; FRAME_BYTES - 8]);
        pair.to_b.append_copy(Lane::Data, &head, &body).expect("there is room for all");
    }
    drop(span);
    let report = session.to_report();
    let count: u64 = report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    println!("{count} allocations for {FRAMES} frames");
    assert!(count <= ALLOCATIONS_MAX, "{count} allocations for {FRAMES} frames");
    pair.to_b.flush();
    let frames = usize::try_from(FRAMES).expect("it is small");
    pair.b.frames(pair.to_a.link().nonce, frames).await;
    pair.finish().await;
}
