//! One connection: what its handles, its reader and its writer share.
//!
//! Each lane has a stream, and the right to write to it is a value, the [`WriteDuty`]; [`Duty`]
//! says where it is. Whoever flushes takes it along, gives QUIC the whole queue with one write, and
//! puts the duty back; whoever comes meanwhile only appends, and the holder finds that before it
//! puts the duty back. QUIC makes packets of what was written when its own task runs next. When a
//! stream has no credit, its duty goes to the writer task; the other lane is not concerned.
//!
//! A frame alone is written at once. When the last read brought several, several callers are about
//! to send, each a frame and a flush: then a flush of few frames is left to the writer task, which
//! lets the others append first. A write costs about as much as the rest of a call.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use convoke_transport::parts::{
    Closing, Duty, Ends, LANES, LiveCounters, Mutex, SendAccount, TEXT_BYTES_MAX, Waiters, Wakers,
    clean_text, cut_text, index,
};
use convoke_transport::{
    Appended, Buffer, CloseReason, Connection, Counters, Lane, Link, NotWritable,
};
use quinn::{ConnectionError, SendStream, VarInt, WriteError, Written};
use tokio::sync::Notify;

use crate::quic::send_lane::{Batch, Large, SendLane};

/// From how many queued frames on a flush is worth a write of its own, however busy the connection.
const FRAMES_WORTH_WRITING: u64 = 8;
/// Number of batches that a caller writes for others before the writer task takes over.
const IN_PLACE_BATCHES_MAX: usize = 8;
/// The code of every close; what is to be said is in its text.
const CLOSE_CODE: VarInt = VarInt::from_u32(0);
/// One QUIC connection that has said hello.
pub(crate) struct QuicConnection {
    link: Link,
    pub(crate) quic: quinn::Connection,
    out: Mutex<Out>,
    counts: LiveCounters,
    /// True when the last read brought several frames.
    is_busy: AtomicBool,
    /// The reader looks at [`QuicConnection::closing`].
    pub(crate) reader_signal: Notify,
    /// The writer task flushes for others.
    pub(crate) flush_signal: Notify,
    /// The writer task finds a lane's duty handed over.
    pub(crate) writer_signals: [Notify; 2],
    /// The writer task finds a large frame.
    pub(crate) large_signal: Notify,
    /// A lane, or a large frame, is done with.
    done_signal: Notify,
}

/// The right to write to a lane's stream, and what is being written.
#[derive(Debug)]
pub(crate) struct WriteDuty {
    stream: SendStream,
    batch: Batch,
    /// The first block that is not written.
    next: usize,
}

impl WriteDuty {
    fn new(stream: SendStream) -> Self {
        Self { stream, batch: Batch::default(), next: 0 }
    }

    /// Writes as much as there is credit for; ready when that is not nothing.
    pub(crate) async fn write(&mut self) -> Result<Written, WriteError> {
        let written = self.stream.write_chunks(&mut self.batch.blocks[self.next..]).await?;
        self.next += written.chunks;
        Ok(written)
    }

    fn is_written(&self) -> bool {
        self.next == self.batch.blocks.len()
    }
}

struct Out {
    lanes: [LaneOut; 2],
    account: SendAccount,
    waiters: Waiters,
    /// Set once; the connection is closed from then on.
    closing: Option<Closing>,
    /// The writer task flushes as soon as others had their turn.
    is_flush_due: bool,
    /// Large frames that the peer does not have yet, but for those that wait.
    large_under_way: usize,
}

struct LaneOut {
    queue: SendLane,
    duty: Duty<WriteDuty>,
    /// The lane's stream once all is written to it.
    finished: Option<SendStream>,
}

impl QuicConnection {
    /// A connection that takes frames and sends none until [`QuicConnection::start`]. Frames of the
    /// data lane above `inline_bytes_max` take streams of their own.
    pub(crate) fn new(
        link: Link,
        quic: quinn::Connection,
        account: SendAccount,
        inline_bytes_max: usize,
    ) -> Self {
        let lane = |lane| {
            let inline_bytes_max = if lane == Lane::Data { inline_bytes_max } else { usize::MAX };
            let queue = SendLane::new(lane, inline_bytes_max);
            LaneOut { queue, duty: Duty::Away, finished: None }
        };
        let out = Out {
            lanes: LANES.map(lane),
            account,
            waiters: Waiters::default(),
            closing: None,
            is_flush_due: false,
            large_under_way: 0,
        };
        Self {
            link,
            quic,
            out: Mutex::new(out),
            counts: LiveCounters::default(),
            is_busy: AtomicBool::new(false),
            reader_signal: Notify::new(),
            flush_signal: Notify::new(),
            writer_signals: [Notify::new(), Notify::new()],
            large_signal: Notify::new(),
            done_signal: Notify::new(),
        }
    }

    /// The hello is out: from now on frames are sent.
    pub(crate) fn start(&self, control: SendStream, data: SendStream) {
        for (lane, stream) in LANES.into_iter().zip([control, data]) {
            self.write_in_place(lane, WriteDuty::new(stream));
        }
        self.large_signal.notify_one();
    }

    /// Writes what is queued, as far as there is credit for it.
    pub(crate) fn flush_now(&self) {
        let mut guard = self.out.lock();
        let out = &mut *guard;
        out.is_flush_due = false;
        let duties = out.lanes.each_mut().map(|lane| lane.take_duty(&mut out.account));
        let has_large = out.lanes[index(Lane::Data)].queue.has_large();
        drop(guard);
        if has_large {
            self.large_signal.notify_one();
        }
        for (lane, duty) in LANES.into_iter().zip(duties) {
            if let Some(duty) = duty {
                self.write_in_place(lane, duty);
            }
        }
    }

    /// A lane's duty that was handed over to the writer task, if any.
    pub(crate) fn take_handed(&self, lane: Lane) -> Option<WriteDuty> {
        self.out.lock().lanes[index(lane)].duty.take_handed()
    }

    /// Composes the next batch when the last is written. `None` when there is nothing to write; the
    /// duty is then home, or gone with the lane.
    pub(crate) fn refill(&self, lane: Lane, mut duty: WriteDuty) -> Option<WriteDuty> {
        if !duty.is_written() {
            return Some(duty);
        }
        duty.next = 0;
        let mut guard = self.out.lock();
        let out = &mut *guard;
        let own = &mut out.lanes[index(lane)];
        if own.duty.is_gone() {
            return None;
        }
        if own.queue.fill(&mut out.account, &mut duty.batch) {
            let woken = out.take_writable();
            drop(guard);
            woken.wake();
            return Some(duty);
        }
        if own.queue.is_closed() {
            own.duty = Duty::Gone;
            // It fails when the connection is lost, which the reader sees as well.
            let _ = duty.stream.finish();
            own.finished = Some(duty.stream);
            drop(guard);
            self.done_signal.notify_one();
            return None;
        }
        own.duty = Duty::Home(duty);
        // What the last batch had of the room for all is given back by now.
        let mut woken = out.take_writable();
        woken.append(&mut out.take_flushed());
        drop(guard);
        woken.wake();
        None
    }

    /// Part of a lane's batch is written.
    pub(crate) fn count_written(&self, duty: &WriteDuty, written: &Written) {
        self.counts.wrote(written.bytes);
        if duty.is_written() {
            self.counts.frames_sent.add(duty.batch.frames);
            self.counts.transport_frames_sent.add(duty.batch.transport_frames);
        }
    }

    /// The next large frame to be sent, in order.
    pub(crate) fn next_large(&self) -> Option<Large> {
        let mut out = self.out.lock();
        let large = out.lanes[index(Lane::Data)].queue.next_large()?;
        out.large_under_way += 1;
        Some(large)
    }

    /// The peer has a large frame.
    pub(crate) fn on_large_done(&self) {
        self.out.lock().large_under_way -= 1;
        self.done_signal.notify_one();
    }

    /// Resolves when the peer has all that was sent, the goodbye of a gentle close included; never
    /// when that was abandoned. One task waits at a time.
    pub(crate) async fn all_arrived(&self) {
        let streams = loop {
            if let Some(streams) = self.take_finished() {
                break streams;
            }
            self.done_signal.notified().await;
        };
        for stream in streams {
            // It fails when the connection is lost, which the reader sees as well.
            let _ = stream.stopped().await;
        }
    }

    /// The streams of the lanes, once nothing is left to be written, and large frames have arrived.
    fn take_finished(&self) -> Option<[SendStream; 2]> {
        let mut out = self.out.lock();
        if out.large_under_way > 0 || out.lanes[index(Lane::Data)].queue.has_large() {
            return None;
        }
        let [control, data] = &mut out.lanes;
        let control = control.finished.take_if(|_| data.finished.is_some())?;
        Some([control, data.finished.take()?])
    }

    /// Part of a large frame is written, or all that was left of it.
    pub(crate) fn count_large_written(&self, bytes: usize, is_last: bool) {
        self.counts.wrote(bytes);
        self.counts.frames_sent.add(u64::from(is_last));
        let mut guard = self.out.lock();
        let out = &mut *guard;
        out.lanes[index(Lane::Data)].queue.finish_large(&mut out.account, bytes);
        let mut woken = out.take_writable();
        woken.append(&mut out.take_flushed());
        drop(guard);
        woken.wake();
    }

    /// Nothing can be written to a stream any more.
    pub(crate) fn on_write_error(&self, error: &WriteError) {
        match error {
            WriteError::ConnectionLost(lost) => self.abandon(close_reason(lost), true),
            // Only a peer that stops a stream of ours brings us here.
            other => self.close(CloseReason::Fault(other.to_string())),
        }
    }

    /// End of the connection, once it has begun.
    pub(crate) fn closing(&self) -> Option<Closing> {
        self.out.lock().closing.clone()
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.counts.read(bytes);
    }

    /// One batch went to the sink.
    pub(crate) fn count_delivered(&self, frames: usize) {
        self.counts.frames_received.add(frames as u64);
        if frames > 0 {
            self.is_busy.store(frames > 1, Ordering::Relaxed);
        }
    }

    fn abandon(&self, reason: CloseReason, is_delivering: bool) {
        let mut out = self.out.lock();
        out.closing.get_or_insert(Closing { reason, is_delivering });
        let gone = out
            .lanes
            .each_mut()
            .map(|lane| (lane.queue.abandon(), std::mem::replace(&mut lane.duty, Duty::Gone)));
        out.account.abandon();
        let woken = out.waiters.take_all();
        drop(out);
        woken.wake();
        drop(gone);
    }

    fn write_in_place(&self, lane: Lane, mut duty: WriteDuty) {
        // Whoever flushes does not wait; the writer task does, with a waker of its own.
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..IN_PLACE_BATCHES_MAX {
            match self.refill(lane, duty) {
                Some(filled) => duty = filled,
                None => return,
            }
            let polled = pin!(duty.write()).poll(&mut cx);
            match polled {
                Poll::Ready(Ok(written)) => self.count_written(&duty, &written),
                Poll::Ready(Err(error)) => return self.on_write_error(&error),
                Poll::Pending => break,
            }
        }
        self.hand_over(lane, duty);
    }

    fn hand_over(&self, lane: Lane, duty: WriteDuty) {
        let handed = self.out.lock().lanes[index(lane)].duty.hand_over(duty);
        match handed {
            Ok(()) => self.writer_signals[index(lane)].notify_one(),
            // Without the lock, for the stream locks its connection when it goes.
            Err(gone) => drop(gone),
        }
    }
}

impl Buffer for Out {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        self.lanes[index(lane)].queue.append_copy(&mut self.account, head, body)
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        self.lanes[index(lane)].queue.append_bytes(&mut self.account, head, body)
    }
}

impl Connection for QuicConnection {
    fn link(&self) -> &Link {
        &self.link
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut *self.out.lock());
    }

    fn flush(&self) {
        if self.is_busy.load(Ordering::Relaxed) {
            let mut out = self.out.lock();
            if out.is_flush_due {
                return;
            }
            if out.frames_queued() < FRAMES_WORTH_WRITING {
                out.is_flush_due = true;
                drop(out);
                return self.flush_signal.notify_one();
            }
        }
        self.flush_now();
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush_now();
        let mut out = self.out.lock();
        if out.is_flushed() || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.waiters.flush.register(cx);
        Poll::Pending
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut out = self.out.lock();
        if out.account.is_writable(lane) || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.waiters.writable[index(lane)].register(cx);
        Poll::Pending
    }

    fn close(&self, reason: CloseReason) {
        if !reason.is_gentle() {
            let mut out = self.out.lock();
            if out.closing.is_some() {
                return;
            }
            out.closing = Some(Closing { reason: reason.clone(), is_delivering: false });
            drop(out);
            self.end(reason);
            return self.reader_signal.notify_one();
        }
        let mut guard = self.out.lock();
        let out = &mut *guard;
        if out.closing.is_some() {
            return;
        }
        let [control, data] = &mut out.lanes;
        control.queue.close();
        data.queue.close_with_goodbye(&mut out.account, &reason.goodbye_text());
        out.account.close();
        out.closing = Some(Closing { reason, is_delivering: true });
        let woken = out.waiters.take_all();
        drop(guard);
        woken.wake();
        self.flush_now();
        self.reader_signal.notify_one();
    }

    fn counters(&self) -> Counters {
        self.counts.snapshot()
    }
}

impl Ends for QuicConnection {
    /// The peer is told, too.
    fn end(&self, reason: CloseReason) {
        let text = reason.goodbye_text();
        self.quic.close(CLOSE_CODE, cut_text(&text, TEXT_BYTES_MAX).as_bytes());
        self.abandon(reason, false);
    }
}

impl fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConnection")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .finish_non_exhaustive()
    }
}

impl Out {
    fn frames_queued(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.queue.frames()).sum()
    }

    fn is_flushed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queue.is_empty() && lane.duty.is_home())
    }

    fn take_flushed(&mut self) -> Wakers {
        if self.is_flushed() { std::mem::take(&mut self.waiters.flush) } else { Wakers::default() }
    }

    fn take_writable(&mut self) -> Wakers {
        let account = &self.account;
        self.waiters.take_writable(|lane| account.is_worth_waking(lane))
    }
}

impl LaneOut {
    /// The duty, if it is home and there is something to do with it.
    fn take_duty(&mut self, account: &mut SendAccount) -> Option<WriteDuty> {
        if self.queue.is_drained() && !self.queue.is_closed() {
            return None;
        }
        let mut duty = self.duty.take_home()?;
        duty.next = 0;
        self.queue.fill(account, &mut duty.batch);
        Some(duty)
    }
}

/// Reason here for the end of a QUIC connection.
pub(crate) fn close_reason(lost: &ConnectionError) -> CloseReason {
    match lost {
        ConnectionError::ApplicationClosed(close) => CloseReason::Peer(clean_text(&close.reason)),
        ConnectionError::ConnectionClosed(close) => {
            CloseReason::Peer(clean_text(close.to_string().as_bytes()))
        }
        ConnectionError::TransportError(error) => CloseReason::Fault(error.to_string()),
        ConnectionError::TimedOut => CloseReason::KeepAlive,
        ConnectionError::LocallyClosed => CloseReason::Local,
        ConnectionError::Reset => {
            CloseReason::Network("the peer no longer knows the connection".into())
        }
        other => CloseReason::Network(other.to_string()),
    }
}
