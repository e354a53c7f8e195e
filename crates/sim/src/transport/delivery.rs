//! The task of one end: hands what has arrived to the sink, and tells it the end.

use std::collections::VecDeque;
use std::sync::Arc;

use convoke_transport::{CloseReason, Connection, Received, Sink};
use tokio::time::{Instant, sleep_until};

use super::connection::SimConnection;
use super::hook::Action;
use super::pipe::{Arrived, index};
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

    fn deliver(&self, from: &Arc<dyn Connection>, arrived: Vec<Arrived>) {
        let passed = self.pass_hooks(arrived);
        let count = passed.frames.len();
        let mut refused = None;
        if count > 0 {
            refused = self.sink.on_batch(from, &mut passed.frames.into_iter()).err();
        }
        self.end.wire.taken(self.end.side, count, passed.bytes);
        if let Some(text) = refused.or(passed.fault) {
            self.end.wire.refuse(self.end.side, text);
        }
    }

    /// Does with each frame what the hooks decide, one after the other.
    fn pass_hooks(&self, arrived: Vec<Arrived>) -> Passed {
        let (wire, side) = (&self.end.wire, self.end.side);
        let mut passed = Passed::default();
        let mut rest = VecDeque::from(arrived);
        while let Some(mut frame) = rest.pop_front() {
            let asked = wire.ask_hook(side, &frame);
            if passed.fault.is_some() || wire.is_over(side) {
                // The hook has cut it, perhaps. What was before it has arrived.
                break;
            }
            let Some((hook, action)) = asked else {
                passed.take(frame, wire.frame_bytes_max(side));
                continue;
            };
            frame.passed = hook;
            match action {
                Action::Pass => rest.push_front(frame),
                Action::Drop => passed.bytes[index(frame.lane)] += frame.cost,
                Action::Hold => wire.keep_back(side, frame, None),
                Action::HoldFor(time) => {
                    let until = Instant::now().checked_add(time);
                    wire.keep_back(side, frame, until);
                }
                Action::Duplicate => {
                    // The copy has taken nothing of the window.
                    rest.push_front(Arrived { cost: 0, ..frame.clone() });
                    rest.push_front(frame);
                }
                Action::Replace(bytes) => rest.push_front(Arrived { bytes, ..frame }),
            }
        }
        passed
    }
}

/// Remainder, after the hooks, of the frames that arrived at once.
#[derive(Default)]
struct Passed {
    frames: Vec<Received>,
    /// Bytes of each window that come back.
    bytes: [usize; 2],
    /// Nothing behind this is delivered.
    fault: Option<String>,
}

impl Passed {
    fn take(&mut self, frame: Arrived, bytes_max: usize) {
        self.bytes[index(frame.lane)] += frame.cost;
        let len = frame.bytes.len();
        if len > bytes_max {
            self.fault = Some(format!("a frame has {len} bytes, and {bytes_max} are allowed"));
        } else {
            self.frames.push(Received { lane: frame.lane, bytes: frame.bytes });
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
