//! Memory that the application holds: never overwritten, alive after everything else, missed when
//! it is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{Recorder, pattern, send};
use convoke_transport::{CloseReason, Lane};

use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};

use crate::support::{Ends, Link, ends, ends_with, hasty, until};

const FRAME_BYTES: usize = 4_000;

/// Sends large frames to a recorder, which keeps them all.
async fn send_to_keep(ends: &Ends, count: usize) -> (Arc<Recorder>, Link) {
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a, &b).await;
    for number in 0..count {
        send(&link.to_b, Lane::Data, &pattern(number, FRAME_BYTES)).await;
    }
    b.frames(link.to_a.link().nonce, count).await;
    (b, link)
}

fn are_unchanged(frames: &[Bytes]) -> bool {
    frames.iter().enumerate().all(|(number, frame)| *frame == pattern(number, FRAME_BYTES))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_never_changes_while_the_peer_saturates() {
    let ends = ends();
    let (b, link) = send_to_keep(&ends, 5_000).await;
    let frames = b.frames(link.to_a.link().nonce, 5_000).await;
    let frames: Vec<_> = frames.into_iter().map(|(_, frame)| frame).collect();
    assert!(are_unchanged(&frames));
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_outlives_connection_transport_and_device() {
    let ends = ends();
    let (b, link) = send_to_keep(&ends, 40).await;
    let nonce = link.to_a.link().nonce;
    let frames: Vec<_> = b.frames(nonce, 40).await.into_iter().map(|(_, frame)| frame).collect();
    link.to_b.close(CloseReason::Local);
    b.closed(nonce).await;
    ends.nothing_is_left().await;
    drop((b, link, ends));
    let checked = std::thread::spawn(move || are_unchanged(&frames));
    assert!(checked.join().expect("nothing panics"));
}

/// Nothing is expected of a peer that has no credit: it is alive, and cannot say so. (While one end
/// has credit, its keep-alives have the other give credit back, which tells as much.)
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn ends_without_credit_do_not_take_each_other_for_dead() {
    const COUNT: usize = 20;
    let ends =
        ends_with(Fabric::new(), DeviceSettings::default(), |builder| hasty(builder).slots(4));
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(Arc::clone(&a) as _, &b).await;
    for (to, sink) in [(&link.to_b, &b), (&link.to_a, &a)] {
        sink.gate().shut();
        for number in 0..COUNT {
            let frame = pattern(number, FRAME_BYTES);
            to.append_bytes(Lane::Data, &[], frame).expect("the queue has room");
        }
        to.flush();
    }
    let (nonce, probes) = (link.to_a.link().nonce, ends.fabric.counters().probes);
    until("several timeouts are over", || ends.fabric.counters().probes >= probes + 100).await;
    for sink in [&a, &b] {
        sink.gate().open();
        assert_eq!(sink.frames(nonce, COUNT).await.len(), COUNT);
    }
    assert!([&a, &b].iter().all(|sink| sink.seen(nonce).is_some_and(|seen| seen.closed.is_none())));
    ends.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_back_on_another_thread_wakes_an_engine_whose_peer_is_starved() {
    // Without probes, whose completions would wake it, too.
    let hour = Duration::from_secs(3_600);
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.keep_alive_interval(hour).keep_alive_timeout(3 * hour)
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Holder::new()));
    let listener = ends.setup.listening.listen(&ends.setup.listen, b.clone()).await;
    let listener = listener.expect("the port is free");
    let to_b = ends.setup.dial(&*listener, &a).await.expect("it listens");
    for number in 0..100 {
        send(&to_b, Lane::Data, &pattern(number, FRAME_BYTES)).await;
    }
    until("all have come", || b.held.lock().len() == 100).await;
    until("credit is no longer under way", {
        let mut before = 0;
        let fabric = ends.fabric.clone();
        move || std::mem::replace(&mut before, fabric.counters().delivered) == before
    })
    .await;
    let before = ends.fabric.counters().delivered;
    let held = std::mem::take(&mut *b.held.lock());
    std::thread::spawn(move || drop(held)).join().expect("nothing panics");
    until("credit is given for what came back", || ends.fabric.counters().delivered > before).await;
    ends.check();
}

/// Holds every frame until told otherwise.
#[derive(Debug)]
struct Holder {
    held: parking_lot::Mutex<Vec<Bytes>>,
}

impl Holder {
    fn new() -> Self {
        Self { held: parking_lot::Mutex::default() }
    }
}

impl convoke_transport::Sink for Holder {
    fn hello(&self) -> convoke_transport::Hello {
        Recorder::new(2).hello()
    }

    fn on_open(&self, _: Arc<dyn convoke_transport::Connection>) -> Result<(), String> {
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn convoke_transport::Connection>,
        frames: &mut dyn Iterator<Item = convoke_transport::Received>,
    ) -> Result<(), String> {
        self.held.lock().extend(frames.map(|frame| frame.bytes));
        Ok(())
    }

    fn on_closed(&self, _: &convoke_transport::Link, _: CloseReason) {}
}
