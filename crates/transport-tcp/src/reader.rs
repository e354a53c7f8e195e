//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! It holds at most one read buffer (64 KiB, or a chunk if that is larger) and, per lane, the part
//! of a frame that has come so far. Frames are slices of the read buffer; a frame of several chunks
//! is put together in its own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use convoke_transport::parts::Seat;
use convoke_transport::{CloseReason, Connection, Lane, Received, Sink};
use tokio::io::{self, AsyncReadExt};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::connection::TcpConnection;
use crate::credit::ReceiveCredit;
use crate::framing::{Decoder, Fault, Item, index};
use crate::socket::{ReadHalf, Socket};
use crate::writer;

/// One read takes up to this much; a system call costs the same for less.
const READ_BYTES: usize = 64 * 1024;
/// Frames that the sink is given at once. A read may bring hundreds, each of which may start a
/// handler: after so many others have their turn. Not so few that calls in flight together lose the
/// writes that they share.
const FRAMES_PER_TURN: usize = 128;
/// With less room than this left, the buffer is renewed before the next read.
const SPARE_BYTES_MIN: usize = 8 * 1024;

/// Terms that the two ends agreed on, as far as receiving and keeping alive goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) frame_bytes_max: u32,
    pub(crate) chunk_bytes_max: u32,
    pub(crate) control_window: u32,
    pub(crate) data_window: u32,
    /// This end's own.
    pub(crate) keep_alive_timeout: Duration,
    /// Longest time between sends of this end, so that neither the setting nor the peer's timeout
    /// is missed.
    pub(crate) keep_alive_interval: Duration,
    pub(crate) close_grace: Duration,
}

/// An open connection from `on_open` to `on_closed`, which its drop calls: exactly once, however
/// the task ends.
pub(crate) struct Lifetime {
    connection: Arc<TcpConnection>,
    sink: Arc<dyn Sink>,
    reason: CloseReason,
    writer: Option<AbortHandle>,
    _slot: Option<Seat>,
}

impl Lifetime {
    /// Starts the life of a connection whose `on_open` succeeded.
    pub(crate) fn new(
        connection: Arc<TcpConnection>,
        sink: Arc<dyn Sink>,
        slot: Option<Seat>,
    ) -> Self {
        // Stands unless the task ends in order: the runtime shut down, or the sink panicked.
        let reason = CloseReason::Local;
        Self { connection, sink, reason, writer: None, _slot: slot }
    }

    /// Ends it before it carried anything.
    pub(crate) fn end(mut self, reason: CloseReason) {
        self.reason = reason;
    }

    /// Carries frames from now on. The hello is out.
    pub(crate) fn start(mut self, stream: Socket, terms: Terms) -> Arc<dyn Connection> {
        let (read_half, write_half) = stream.into_split();
        let connection: Arc<dyn Connection> = Arc::clone(&self.connection) as _;
        let writer = writer::run(Arc::clone(&self.connection), terms.keep_alive_interval);
        self.writer = Some(tokio::spawn(writer).abort_handle());
        self.connection.start(write_half);
        tokio::spawn(Reader::new(self, Arc::clone(&connection), read_half, terms).run());
        connection
    }
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abort();
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

struct Reader {
    lifetime: Lifetime,
    /// Handle that the sink is shown: the same connection.
    handle: Arc<dyn Connection>,
    half: ReadHalf,
    buffer: BytesMut,
    decoder: Decoder,
    credit: [ReceiveCredit; 2],
    terms: Terms,
    last_heard: Instant,
    ending: Option<Ending>,
    /// The buffer has frames that the sink was not given yet.
    has_more: bool,
}

/// The connection is closing; the socket is read until the peer closes too, or the grace is over.
struct Ending {
    reason: CloseReason,
    is_delivering: bool,
    deadline: Instant,
}

enum Event {
    Signal,
    Read(io::Result<usize>),
    Timer,
}

impl Reader {
    fn new(lifetime: Lifetime, handle: Arc<dyn Connection>, half: ReadHalf, terms: Terms) -> Self {
        Self {
            lifetime,
            handle,
            half,
            buffer: BytesMut::new(),
            decoder: Decoder::new(terms.frame_bytes_max, terms.chunk_bytes_max),
            credit: [
                ReceiveCredit::new(Lane::Control, terms.control_window),
                ReceiveCredit::new(Lane::Data, terms.data_window),
            ],
            terms,
            last_heard: Instant::now(),
            ending: None,
            has_more: false,
        }
    }

    async fn run(mut self) {
        let connection = Arc::clone(&self.lifetime.connection);
        let mut signal = pin!(connection.reader_signal.notified());
        let mut timer = pin!(sleep_until(self.deadline()));
        let reason = loop {
            self.make_room();
            let event = tokio::select! {
                biased;
                () = signal.as_mut() => Event::Signal,
                read = self.half.read_buf(&mut self.buffer) => Event::Read(read),
                () = timer.as_mut() => Event::Timer,
            };
            let end = match event {
                Event::Signal => {
                    signal.set(connection.reader_signal.notified());
                    self.on_signal();
                    timer.as_mut().reset(self.deadline());
                    None
                }
                Event::Read(read) => {
                    let mut end = self.on_read(read);
                    while end.is_none() && self.has_more {
                        tokio::task::yield_now().await;
                        end = self.on_bytes();
                    }
                    end
                }
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
    }

    /// Something outside wants the end, or the goodbye is out.
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
        let now = Instant::now();
        if now < self.deadline() {
            return None;
        }
        Some(match &self.ending {
            Some(ending) => self.end_of_grace(ending),
            None => self.end_at_once(CloseReason::KeepAlive),
        })
    }

    fn on_read(&mut self, read: io::Result<usize>) -> Option<CloseReason> {
        match read {
            Ok(0) => Some(self.end_by_network("it was closed without a goodbye".into())),
            Err(error) => Some(self.end_by_network(error.to_string())),
            Ok(count) => {
                self.lifetime.connection.count_read(count);
                self.on_bytes()
            }
        }
    }

    fn on_bytes(&mut self) -> Option<CloseReason> {
        self.has_more = false;
        match &self.ending {
            Some(ending) if ending.deadline <= Instant::now() => {
                return Some(self.end_of_grace(ending));
            }
            // The timer would have closed the connection had this process been running: what has
            // waited in the socket meanwhile may be too old to act on.
            None if self.last_heard + self.terms.keep_alive_timeout < Instant::now() => {
                return Some(self.end_at_once(CloseReason::Stale));
            }
            _ => {}
        }
        let stop = match &self.ending {
            Some(ending) if !ending.is_delivering => {
                self.buffer.clear();
                None
            }
            _ => self.deliver(),
        };
        // Taken again, since the time the sink takes is not the peer's.
        self.last_heard = Instant::now();
        match stop? {
            Stop::Fault(text) => self.end_by_fault(text),
            Stop::Goodbye(text) => Some(self.end_by_peer(text)),
        }
    }

    /// Hands the whole frames of the buffer to the sink, and what they cost back to the peer.
    fn deliver(&mut self) -> Option<Stop> {
        let connection = &*self.lifetime.connection;
        let mut batch = Frames {
            connection,
            decoder: &mut self.decoder,
            buffer: &mut self.buffer,
            credit: &mut self.credit,
            left: FRAMES_PER_TURN,
            taken: [0; 2],
            is_flush_due: false,
            stop: None,
        };
        let refused = batch.hand_to(&*self.lifetime.sink, &self.handle);
        let (taken, mut is_flush_due, stop) = (batch.taken, batch.is_flush_due, batch.stop);
        self.has_more = batch.left == 0;
        for lane in [Lane::Control, Lane::Data] {
            if let Some(bytes) = self.credit[index(lane)].take(taken[index(lane)]) {
                connection.return_credit(lane, bytes);
                is_flush_due = true;
            }
        }
        if is_flush_due {
            connection.flush();
        }
        refused.err().map(Stop::Fault).or(stop)
    }

    /// Closes without waiting for anything: the peer does not listen, or must not be listened to.
    fn end_at_once(&self, reason: CloseReason) -> CloseReason {
        self.lifetime.connection.close(reason.clone());
        reason
    }

    fn end_of_grace(&self, ending: &Ending) -> CloseReason {
        self.lifetime.connection.stop_waiting();
        ending.reason.clone()
    }

    /// The goodbye goes out, and the peer gets the grace to read it: a socket closed with bytes
    /// unread may take it back.
    fn end_by_fault(&mut self, text: String) -> Option<CloseReason> {
        self.lifetime.connection.close(CloseReason::Fault(text));
        // A reason from before stays, but nothing more of this peer is delivered.
        self.ending = None;
        self.on_signal();
        self.ending.as_mut().expect("the connection was closed above").is_delivering = false;
        None
    }

    fn end_by_peer(&mut self, text: String) -> CloseReason {
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

    /// When the timer matters next. It is not moved by every read: when it fires early, it is set
    /// to what this says then.
    fn deadline(&self) -> Instant {
        match &self.ending {
            Some(ending) => ending.deadline,
            None => self.last_heard + self.terms.keep_alive_timeout,
        }
    }

    /// Makes room for the chunk that has begun, and for a read worth its system call.
    fn make_room(&mut self) {
        let needed = self.decoder.missing(&self.buffer).max(SPARE_BYTES_MIN);
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare >= needed {
            return;
        }
        let room = needed.max(READ_BYTES.saturating_sub(self.buffer.len()));
        if !self.buffer.try_reclaim(room) {
            // The sink still holds frames of the old one.
            let mut renewed = BytesMut::with_capacity(self.buffer.len() + room);
            renewed.extend_from_slice(&self.buffer);
            self.buffer = renewed;
        }
    }
}

/// Why no more frames are decoded.
#[derive(Debug)]
enum Stop {
    Fault(String),
    Goodbye(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// Frames of one read, decoded as the sink takes them; the transport's own are handled here.
struct Frames<'a> {
    connection: &'a TcpConnection,
    decoder: &'a mut Decoder,
    buffer: &'a mut BytesMut,
    credit: &'a mut [ReceiveCredit; 2],
    /// Number of frames that there may still be now.
    left: usize,
    /// Credit to give back per lane once the sink has returned.
    taken: [u32; 2],
    is_flush_due: bool,
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
        while let Some(item) = self.decoder.decode(self.buffer)? {
            match item {
                Item::Frame { lane, bytes, cost } => {
                    self.charge(lane, cost)?;
                    self.connection.count_frame_received();
                    return Ok(Some(Received { lane, bytes }));
                }
                // Given back before the frame is whole, or a frame above the window would be stuck;
                // what is put aside is bounded by the largest frame.
                Item::Part { lane, cost } => self.charge(lane, cost)?,
                Item::Credit { lane, bytes } => {
                    self.connection.grant(lane, bytes)?;
                    self.is_flush_due = true;
                }
                Item::KeepAlive => {}
                Item::Goodbye(text) => return Err(Stop::Goodbye(text)),
            }
        }
        Ok(None)
    }

    fn charge(&mut self, lane: Lane, cost: u32) -> Result<(), Fault> {
        self.credit[index(lane)].receive(cost)?;
        self.taken[index(lane)] += cost;
        Ok(())
    }
}

impl Iterator for Frames<'_> {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        if self.stop.is_some() || self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.advance().unwrap_or_else(|stop| {
            self.stop = Some(stop);
            None
        })
    }
}
