//! A connection from `on_open` to `on_closed`, and what a life needs of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::chunk::Fault;
use super::counters::LiveCounters;
use super::life::Closing;
use super::seats::Seat;
use crate::{CloseReason, Connection, Lane, Sink};

/// A connection that can be ended.
pub trait Ends: Connection + 'static {
    /// Ends it: everything queued is dropped, everybody who waits is woken.
    fn end(&self, reason: CloseReason);
}

/// A connection over one stream of bytes or messages, as its reader and its keep-alive need it.
pub trait Carrier: Ends {
    /// Counts of what it has carried.
    fn counts(&self) -> &LiveCounters;

    /// End of the connection, once it has begun on the sending side.
    fn closing(&self) -> Option<Closing>;

    /// The grace of a close is over: what is queued is dropped, and the goodbye goes out if the
    /// network takes it at once.
    fn stop_waiting(&self) {}

    /// The peer has said goodbye: it reads nothing more.
    fn peer_has_left(&self) {}

    /// The peer has said goodbye, as this end is about to, and reads on: what is left goes out
    /// without credit, of which the peer gives no more.
    fn send_rest(&self) {}

    /// True when all that is ever sent is with the network. The reader is woken when it becomes so.
    fn is_all_sent(&self) -> bool;

    /// The peer gave credit back. A flush follows.
    ///
    /// # Errors
    /// [`Fault`] when it is more than was used.
    fn grant(&self, lane: Lane, bytes: u32) -> Result<(), Fault>;

    /// Gives credit back to the peer. A flush follows. Answers how much is still to go out by now.
    fn return_credit(&self, lane: Lane, bytes: u32) -> u32;

    /// Tells the peer that this process is alive.
    fn keep_alive(&self);
}

/// An open connection from `on_open` to `on_closed`, which its drop calls: exactly once, however
/// the task that has it ends.
#[derive(Debug)]
pub struct Lifetime<C: Ends> {
    connection: Arc<C>,
    /// The same as the sink is shown it.
    handle: Arc<dyn Connection>,
    sink: Arc<dyn Sink>,
    reason: CloseReason,
    companion: Option<AbortHandle>,
    _seat: Option<Seat>,
}

impl<C: Ends> Lifetime<C> {
    /// Starts the life of a connection whose `on_open` succeeded. It keeps `seat` as long.
    pub fn new(connection: Arc<C>, sink: Arc<dyn Sink>, seat: Option<Seat>) -> Self {
        let handle = Arc::clone(&connection) as _;
        // Stands unless the task ends in order: the runtime shut down, or the sink panicked.
        let reason = CloseReason::Local;
        Self { connection, handle, sink, reason, companion: None, _seat: seat }
    }

    /// The connection.
    pub fn connection(&self) -> &Arc<C> {
        &self.connection
    }

    /// The connection as the sink is shown it.
    pub fn handle(&self) -> &Arc<dyn Connection> {
        &self.handle
    }

    /// The sink of its frames.
    pub fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// The same, to be kept beside it.
    pub(super) fn shared_sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    /// A task that is aborted with the connection.
    pub fn accompany(&mut self, task: AbortHandle) {
        self.companion = Some(task);
    }

    /// Ends it.
    pub fn end(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl<C: Ends> Drop for Lifetime<C> {
    fn drop(&mut self) {
        if let Some(companion) = self.companion.take() {
            companion.abort();
        }
        self.connection.end(self.reason.clone());
        self.sink.on_closed(self.connection.link(), self.reason.clone());
    }
}

/// Keeps the peer sure that this process is alive, even while the reader is in the sink. Runs until
/// it is dropped.
///
/// A keep-alive goes out when nothing was sent between two ticks, so a tick is half the interval.
pub async fn keep_alive(connection: &impl Carrier, interval: Duration) {
    let period = (interval / 2).max(Duration::from_millis(1));
    let mut tick = interval_at(Instant::now() + period, period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut bytes_sent_before = 0;
    loop {
        tick.tick().await;
        let bytes_sent = connection.counts().bytes_sent.get();
        if bytes_sent == bytes_sent_before {
            connection.keep_alive();
        }
        bytes_sent_before = connection.counts().bytes_sent.get();
    }
}
