//! The task of one end: hands what has arrived to the sink, and tells it the end.

use std::sync::Arc;

use convoke_transport::{CloseReason, Connection, Sink};
use tokio::time::{Instant, sleep_until};

use super::connection::SimConnection;
use super::pipe::Batch;
use super::wire::Step;

/// Starts to deliver to `sink`, which has heard `on_open`.
pub(crate) fn start(end: Arc<SimConnection>, sink: Arc<dyn Sink>) {
    end.wire.ensure_carrier();
    // Stands unless the task ends in order: the runtime shut down, or the sink panicked.
    let delivery = Delivery { end, sink, reason: None };
    tokio::spawn(delivery.run());
}

struct Delivery {
    end: Arc<SimConnection>,
    sink: Arc<dyn Sink>,
    /// Known once the end came in order.
    reason: Option<CloseReason>,
}

impl Delivery {
    async fn run(mut self) {
        let end = Arc::clone(&self.end);
        let from: Arc<dyn Connection> = Arc::clone(&self.end) as _;
        loop {
            match end.wire.next_step(end.side, Instant::now()) {
                Step::Deliver(batch) => self.deliver(&from, batch),
                Step::End(reason) => {
                    self.reason = Some(reason);
                    return;
                }
                Step::Wait(None) => end.wire.changed(end.side).await,
                Step::Wait(Some(until)) => tokio::select! {
                    biased;
                    () = end.wire.changed(end.side) => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn deliver(&self, from: &Arc<dyn Connection>, batch: Batch) {
        let count = batch.frames.len();
        let refused = self.sink.on_batch(from, &mut batch.frames.into_iter());
        self.end.wire.taken(self.end.side, count, batch.bytes);
        if let Err(text) = refused {
            self.end.wire.refuse(self.end.side, text);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let reason = self.reason.take().unwrap_or_else(|| {
            self.end.wire.abandon(self.end.side);
            CloseReason::Local
        });
        self.sink.on_closed(self.end.link(), reason);
    }
}
