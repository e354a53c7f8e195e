//! Allocations of a frame once a connection runs: both ends in this process, on one thread, over
//! simulated verbs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloc_tracker::{Allocator, Session};
use convoke_transport::id::{Incarnation, NodeId};
use convoke_transport::{CloseReason, Connection, Hello, Lane, Link, Received, Sink, Transport};
use convoke_transport_rdma::RdmaTransport;
use convoke_transport_rdma::provider::simulated::Fabric;
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

const ROUNDS: u64 = 2_000;
/// Allocations that the clock of the engine may make meanwhile: it ticks by time, not by frames.
const SLACK: u64 = 20;

/// Answers every frame with one of the same size, as long as there are rounds left.
#[derive(Debug)]
struct Echo {
    node: u64,
    left: AtomicU64,
    done: Notify,
}

impl Echo {
    fn new(node: u64, rounds: u64) -> Arc<Self> {
        Arc::new(Self { node, left: AtomicU64::new(rounds), done: Notify::new() })
    }
}

impl Sink for Echo {
    fn hello(&self) -> Hello {
        Hello {
            node: NodeId::new(self.node),
            incarnation: Incarnation(1),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        }
    }

    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        for frame in frames {
            if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.done.notify_one();
                return Ok(());
            }
            send(&**from, frame.bytes.len())?;
        }
        from.flush();
        Ok(())
    }

    fn on_closed(&self, _: &Link, _: CloseReason) {}
}

/// The longest that is sent.
static FRAME: [u8; 4_000] = [7; 4_000];

fn send(to: &dyn Connection, len: usize) -> Result<(), String> {
    let appended = to.append_copy(Lane::Data, &[], &FRAME[..len]);
    appended.map(|_| ()).map_err(|error| error.to_string())
}

/// Allocations of so many round trips of frames of `len` bytes.
async fn allocations(len: usize) -> u64 {
    let fabric = Fabric::new();
    let ends = [(), ()].map(|()| RdmaTransport::simulated(&fabric));
    let answering = Echo::new(2, u64::MAX);
    let address = "rdma://127.0.0.1:0".parse().expect("it is an address");
    let listener = ends[1].listen(&address, answering).await.expect("the port is free");
    let asking = Echo::new(1, ROUNDS / 10);
    let dialled = ends[0].dial(&listener.local_address(), None, asking.clone()).await;
    let connection = dialled.expect("it listens");
    let run = async |rounds| {
        asking.left.store(rounds, Ordering::Relaxed);
        send(&*connection, len).expect("it is open");
        connection.flush();
        asking.done.notified().await;
    };
    run(ROUNDS / 10).await;
    let session = Session::new();
    let span = session.operation("rounds").measure_thread();
    run(ROUNDS).await;
    drop(span);
    let report = session.to_report();
    let count = report.operations().map(|(_, spent)| spent.total_allocations_count()).sum();
    println!("{count} allocations in {ROUNDS} round trips of {len} bytes");
    assert_eq!(fabric.counters().violations, 0);
    count
}

#[tokio::test]
async fn a_small_frame_allocates_nothing() {
    for len in [8, 64, 200, 1_000] {
        assert!(allocations(len).await <= SLACK);
    }
}

#[tokio::test]
async fn a_frame_that_is_lent_allocates_its_owner_only() {
    let count = allocations(4_000).await;
    assert!(count <= 2 * ROUNDS + SLACK, "{count}");
}
