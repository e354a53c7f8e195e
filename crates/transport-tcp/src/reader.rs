//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! It holds at most one read buffer (64 KiB, or a chunk if that is larger) and, per lane, the part
//! of a frame that has come so far. Frames are slices of the read buffer; a frame of several chunks
//! is put together in its own.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use convoke_transport::CloseReason;
use convoke_transport::parts::{
    Carrier, FRAMES_PER_TURN, Inbound, Life, LifeTerms, Lifetime, Stop, Valve, Verdict, Whole,
};
use tokio::io::{self, AsyncReadExt};
use tokio::time::{Instant, sleep_until};

use crate::connection::TcpConnection;
use crate::socket::{ReadHalf, Socket};
use crate::writer;

/// One read takes up to this much; a system call costs the same for less.
const READ_BYTES: usize = 64 * 1024;
/// With less room than this left, the buffer is renewed before the next read.
const SPARE_BYTES_MIN: usize = 8 * 1024;

/// Terms that the two ends agreed on, as far as receiving and keeping alive goes.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) inbound: Inbound,
    pub(crate) life: LifeTerms,
    pub(crate) keep_alive_interval: Duration,
}

/// Carries frames from now on. The hello is out. The valve is before the sink of the lifetime.
pub(crate) fn start(
    mut lifetime: Lifetime<TcpConnection>,
    valve: impl Deref<Target: Valve + Sized> + Send + 'static,
    stream: Socket,
    terms: Terms,
) {
    let (read_half, write_half) = stream.into_split();
    let connection = Arc::clone(lifetime.connection());
    let writer = writer::run(Arc::clone(&connection), terms.keep_alive_interval);
    lifetime.accompany(tokio::spawn(writer).abort_handle());
    connection.start(write_half);
    let reader = Reader {
        life: Life::new(lifetime, terms.life, Instant::now()),
        half: read_half,
        buffer: BytesMut::new(),
        inbound: terms.inbound,
        has_more: false,
        valve,
    };
    tokio::spawn(reader.run());
}

struct Reader<V> {
    life: Life<TcpConnection>,
    half: ReadHalf,
    buffer: BytesMut,
    inbound: Inbound,
    /// The buffer has frames that the sink was not given yet.
    has_more: bool,
    valve: V,
}

enum Event {
    Signal,
    Read(io::Result<usize>),
    Timer,
}

impl<V: Deref<Target: Valve + Sized>> Reader<V> {
    async fn run(mut self) {
        let connection = Arc::clone(self.life.lifetime().connection());
        let mut signal = pin!(connection.reader_signal.notified());
        let mut timer = pin!(sleep_until(self.life.deadline()));
        // This turn of the task goes on after a read that took all there was.
        let mut has_drained = false;
        let reason = loop {
            self.make_room();
            let mut was_asked = true;
            let event = poll_fn(|cx| {
                // Most turns read once, and then wait. The signal was asked before the read, and
                // wakes the task. The timer was not, and may have used up its wake for this turn.
                was_asked = !std::mem::take(&mut has_drained);
                if was_asked && signal.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Event::Signal);
                }
                if self.is_reading() {
                    let read = pin!(self.half.read_buf(&mut self.buffer));
                    if let Poll::Ready(read) = read.poll(cx) {
                        return Poll::Ready(Event::Read(read));
                    }
                }
                timer.as_mut().poll(cx).map(|()| Event::Timer)
            })
            .await;
            let end = match event {
                Event::Signal => {
                    signal.set(connection.reader_signal.notified());
                    let end = self.life.on_signal(Instant::now());
                    timer.as_mut().reset(self.life.deadline());
                    end.or_else(|| self.on_news())
                }
                Event::Read(read) => {
                    let has_room = self.buffer.len() < self.buffer.capacity();
                    let mut end = self.on_read(read);
                    has_drained = was_asked && has_room && !self.has_more;
                    while end.is_none() && self.has_more {
                        tokio::task::yield_now().await;
                        end = self.on_bytes();
                    }
                    end
                }
                Event::Timer => {
                    let end = self.life.on_timer(Instant::now());
                    timer.as_mut().reset(self.life.deadline());
                    end
                }
            };
            if let Some(reason) = end {
                break reason;
            }
        };
        self.life.end(reason);
    }

    fn is_reading(&self) -> bool {
        self.life.is_reading() && !self.inbound.is_full()
    }

    /// Hands over what has waited at the valve for long enough.
    fn on_news(&mut self) -> Option<CloseReason> {
        if !self.valve.is_shut() {
            return None;
        }
        let stop = match self.life.on_waiting(Instant::now()) {
            Verdict::End(reason) => return Some(reason),
            Verdict::Drop => None,
            Verdict::Deliver => self.valve.resume().err().map(Stop::Fault),
        };
        let mut overrun = None;
        if !self.valve.is_shut() {
            overrun = self.inbound.release(&**self.life.lifetime().connection()).err();
        }
        stop.or(overrun.map(Stop::from))
            .and_then(|stop| self.life.delivered(Some(stop), Instant::now()))
    }

    fn on_read(&mut self, read: io::Result<usize>) -> Option<CloseReason> {
        match read {
            Ok(0) => self.life.on_end_of_peer(Instant::now()),
            Ok(count) => {
                self.life.lifetime().connection().counts().read(count);
                self.on_bytes()
            }
            Err(error) => Some(self.life.end_by_network(error.to_string(), Instant::now())),
        }
    }

    fn on_bytes(&mut self) -> Option<CloseReason> {
        self.has_more = false;
        let stop = match self.life.on_bytes(Instant::now()) {
            Verdict::End(reason) => return Some(reason),
            Verdict::Drop => {
                self.buffer.clear();
                None
            }
            Verdict::Deliver => {
                let lifetime = self.life.lifetime();
                let mut chunks = Whole::of(&mut self.buffer, FRAMES_PER_TURN);
                let delivered = self.inbound.deliver_through(
                    &*self.valve,
                    &mut chunks,
                    FRAMES_PER_TURN,
                    lifetime,
                );
                self.has_more = delivered.has_more;
                delivered.stop
            }
        };
        self.life.delivered(stop, Instant::now())
    }

    /// Makes room for the chunk that has begun, and for a read worth its system call.
    fn make_room(&mut self) {
        let needed = self.inbound.missing(&self.buffer).max(SPARE_BYTES_MIN);
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
