//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! It reads a message when the sink has taken the last one, and HTTP/2 gives the window back as
//! messages are read; so a sink that is slow stops the sender. Frames are slices of their message.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::{CloseReason, Connection, Received, Sink};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::connection::GrpcConnection;
use crate::framing::{Decoder, Item};

/// Agreement of the two ends, as far as receiving and keeping alive goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) frame_bytes_max: u32,
    /// This end's own.
    pub(crate) keep_alive_timeout: Duration,
    /// Longest time between two messages of this end, so that neither the setting nor the peer's
    /// timeout is missed.
    pub(crate) keep_alive_interval: Duration,
    pub(crate) close_grace: Duration,
}

/// An open connection from `on_open` to `on_closed`, which its drop calls: exactly once, however
/// the task ends.
pub(crate) struct Lifetime {
    connection: Arc<GrpcConnection>,
    sink: Arc<dyn Sink>,
    reason: CloseReason,
    keep_alive: Option<AbortHandle>,
}

impl Lifetime {
    /// Starts the life of a connection whose `on_open` succeeded.
    pub(crate) fn new(connection: Arc<GrpcConnection>, sink: Arc<dyn Sink>) -> Self {
        // Stands unless the task ends in order: the runtime shut down, or the sink panicked.
        let reason = CloseReason::Local;
        Self { connection, sink, reason, keep_alive: None }
    }

    /// Carries frames from now on. `kept` lives as long as the connection does.
    pub(crate) fn start(
        mut self,
        incoming: Streaming<Bytes>,
        terms: Terms,
        kept: impl Send + 'static,
    ) -> Arc<dyn Connection> {
        let connection: Arc<dyn Connection> = Arc::clone(&self.connection) as _;
        let keep_alive = keep_alive(Arc::clone(&self.connection), terms.keep_alive_interval);
        self.keep_alive = Some(tokio::spawn(keep_alive).abort_handle());
        let reader = Reader::new(self, Arc::clone(&connection), incoming, terms);
        tokio::spawn(async move {
            let incoming = reader.run().await;
            linger(incoming, terms.close_grace).await;
            drop(kept);
        });
        connection
    }
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        if let Some(keep_alive) = self.keep_alive.take() {
            keep_alive.abort();
        }
        self.connection.end(self.reason.clone());
        let link = self.connection.link();
        tracing::info!(
            peer = %link.peer.node,
            nonce = link.nonce.0,
            reason = %self.reason,
            "connection closed"
        );
        self.sink.on_closed(link, self.reason.clone());
    }
}

/// Reads to the peer's end, so that the last words of this end are not taken back: a stream whose
/// reader is dropped is reset, and what has arrived of it is then lost to the peer.
pub(crate) async fn linger(mut incoming: Streaming<Bytes>, grace: Duration) {
    let drained = async {
        loop {
            match incoming.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                // There is no telling when the peer has read: it gets all of the grace.
                Err(_) => pending().await,
            }
        }
    };
    // The connection is given up either way.
    let _ = timeout(grace, drained).await;
}

/// Keeps the peer sure that this end is alive, even while its reader is in the sink.
///
/// A keep-alive goes out when nothing was sent between two ticks, so a tick is half the interval.
async fn keep_alive(connection: Arc<GrpcConnection>, interval: Duration) {
    let period = (interval / 2).max(Duration::from_millis(1));
    let mut tick = interval_at(Instant::now() + period, period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut bytes_sent_before = 0;
    loop {
        tick.tick().await;
        let bytes_sent = connection.bytes_sent();
        if bytes_sent == bytes_sent_before {
            connection.keep_alive();
        }
        bytes_sent_before = bytes_sent;
    }
}

struct Reader {
    lifetime: Lifetime,
    /// The connection as the sink is shown it.
    handle: Arc<dyn Connection>,
    incoming: Streaming<Bytes>,
    decoder: Decoder,
    terms: Terms,
    last_heard: Instant,
    ending: Option<Ending>,
}

/// The connection is closing; it is read until the peer closes too, or the grace is over.
struct Ending {
    reason: CloseReason,
    is_delivering: bool,
    deadline: Instant,
}

enum Event {
    Signal,
    Message(Result<Option<Bytes>, Status>),
    Timer,
}

impl Reader {
    fn new(
        lifetime: Lifetime,
        handle: Arc<dyn Connection>,
        incoming: Streaming<Bytes>,
        terms: Terms,
    ) -> Self {
        let decoder = Decoder::new(terms.frame_bytes_max);
        let last_heard = Instant::now();
        Self { lifetime, handle, incoming, decoder, terms, last_heard, ending: None }
    }

    /// Answers what is left to [`linger`] over.
    async fn run(mut self) -> Streaming<Bytes> {
        let connection = Arc::clone(&self.lifetime.connection);
        let mut timer = std::pin::pin!(sleep_until(self.deadline()));
        let reason = loop {
            let event = tokio::select! {
                biased;
                () = connection.signalled() => Event::Signal,
                message = self.incoming.message() => Event::Message(message),
                () = timer.as_mut() => Event::Timer,
            };
            let end = match event {
                Event::Signal => {
                    self.on_signal();
                    timer.as_mut().reset(self.deadline());
                    None
                }
                Event::Message(message) => self.on_message(message),
                Event::Timer => {
                    let end = self.on_timer();
                    timer.as_mut().reset(self.deadline());
                    end
                }
            };
            if let Some(reason) = end {
                break reason;
            }
        };
        self.lifetime.reason = reason;
        self.incoming
    }

    /// Something outside wants the end, or the stream to the peer is gone.
    fn on_signal(&mut self) {
        if self.ending.is_none() {
            self.ending = self.lifetime.connection.ending().map(|view| Ending {
                reason: view.reason,
                is_delivering: view.is_delivering,
                deadline: Instant::now() + self.terms.close_grace,
            });
        }
    }

    fn on_timer(&mut self) -> Option<CloseReason> {
        if Instant::now() < self.deadline() {
            return None;
        }
        Some(match &self.ending {
            Some(ending) => ending.reason.clone(),
            None => self.end_at_once(CloseReason::KeepAlive),
        })
    }

    fn on_message(&mut self, message: Result<Option<Bytes>, Status>) -> Option<CloseReason> {
        match message {
            Ok(Some(message)) => {
                self.lifetime.connection.count_message_received(message.len());
                self.on_bytes(message)
            }
            Ok(None) => Some(self.end_by_network("it was closed without a goodbye".into())),
            Err(status) if is_fault(&status) => {
                let reason = CloseReason::Fault(status.message().to_owned());
                Some(self.end_at_once(reason))
            }
            Err(status) => Some(self.end_by_network(describe(&status))),
        }
    }

    fn on_bytes(&mut self, message: Bytes) -> Option<CloseReason> {
        match &self.ending {
            Some(ending) if ending.deadline <= Instant::now() => {
                return Some(ending.reason.clone());
            }
            // The timer would have closed the connection had this process been running: what has
            // waited meanwhile may be too old to act on.
            None if self.last_heard + self.terms.keep_alive_timeout < Instant::now() => {
                return Some(self.end_at_once(CloseReason::Stale));
            }
            _ => {}
        }
        let is_delivering = self.ending.as_ref().is_none_or(|ending| ending.is_delivering);
        let stop = if is_delivering { self.deliver(message) } else { None };
        // Taken again, since the time the sink takes is not the peer's.
        self.last_heard = Instant::now();
        match stop? {
            Stop::Fault(text) => self.end_by_fault(text),
            Stop::Goodbye(text) => Some(self.end_by_peer(text)),
        }
    }

    /// Hands the frames of a message to the sink.
    fn deliver(&mut self, message: Bytes) -> Option<Stop> {
        let mut frames = Frames { decoder: &mut self.decoder, message, count: 0, stop: None };
        let refused = frames.hand_to(&*self.lifetime.sink, &self.handle);
        self.lifetime.connection.count_frames_received(frames.count);
        refused.err().map(Stop::Fault).or(frames.stop)
    }

    /// Closes without waiting for anything: the peer does not listen, or must not be listened to.
    fn end_at_once(&self, reason: CloseReason) -> CloseReason {
        self.lifetime.connection.close(reason.clone());
        reason
    }

    /// The goodbye goes out, and the peer gets the grace to read it.
    fn end_by_fault(&mut self, text: String) -> Option<CloseReason> {
        self.lifetime.connection.close(CloseReason::Fault(text));
        // A reason from before stays, but nothing more of this peer is delivered.
        self.ending = None;
        self.on_signal();
        self.ending.as_mut().expect("the connection was closed above").is_delivering = false;
        None
    }

    fn end_by_peer(&mut self, text: String) -> CloseReason {
        self.on_signal();
        self.lifetime.connection.finish_sending();
        match self.ending.take() {
            Some(ending) if !matches!(ending.reason, CloseReason::Network(_)) => ending.reason,
            _ => CloseReason::Peer(text),
        }
    }

    fn end_by_network(&mut self, message: String) -> CloseReason {
        // The signal of an end from outside may still be on its way.
        self.on_signal();
        match self.ending.take() {
            Some(ending) => ending.reason,
            None => CloseReason::Network(message),
        }
    }

    /// Next moment at which the timer matters. It is not moved by every message: when it fires
    /// early, it is set to what this says then.
    fn deadline(&self) -> Instant {
        match &self.ending {
            Some(ending) => ending.deadline,
            None => self.last_heard + self.terms.keep_alive_timeout,
        }
    }
}

/// True when the peer broke gRPC's own rules: a message above the limit, or one that is none.
fn is_fault(status: &Status) -> bool {
    matches!(status.code(), tonic::Code::OutOfRange | tonic::Code::Internal)
        && std::error::Error::source(status).is_none()
}

/// gRPC's word on a stream that failed.
pub(crate) fn describe(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {source}", status.message()),
        None => status.message().to_owned(),
    }
}

/// Reason why no more frames are decoded.
#[derive(Debug)]
enum Stop {
    Fault(String),
    Goodbye(String),
}

/// The frames of one message, decoded as the sink takes them; the transport's own are handled here.
struct Frames<'a> {
    decoder: &'a mut Decoder,
    message: Bytes,
    count: u64,
    stop: Option<Stop>,
}

impl Frames<'_> {
    /// Calls the sink if there is a frame; what it leaves in the iterator is dropped.
    fn hand_to(&mut self, sink: &dyn Sink, from: &Arc<dyn Connection>) -> Result<(), String> {
        let mut frames = self.by_ref().peekable();
        if frames.peek().is_some() {
            sink.on_batch(from, &mut frames)?;
            frames.for_each(drop);
        }
        Ok(())
    }

    /// Handles items until one is a frame for the sink.
    fn advance(&mut self) -> Result<Option<Received>, Stop> {
        let fault = |fault: crate::framing::Fault| Stop::Fault(fault.to_string());
        while let Some(item) = self.decoder.decode(&mut self.message).map_err(fault)? {
            match item {
                Item::Frame { lane, bytes } => {
                    self.count += 1;
                    return Ok(Some(Received { lane, bytes }));
                }
                Item::Part | Item::KeepAlive => {}
                Item::Goodbye(text) => return Err(Stop::Goodbye(text)),
            }
        }
        Ok(None)
    }
}

impl Iterator for Frames<'_> {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        if self.stop.is_some() {
            return None;
        }
        self.advance().unwrap_or_else(|stop| {
            self.stop = Some(stop);
            None
        })
    }
}
