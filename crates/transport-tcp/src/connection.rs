//! One connection: what its handles, its reader and its writer share.
//!
//! The right to write to the socket is a value that whoever flushes takes along, the [`WriteDuty`];
//! [`Duty`] says where it is.

use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_transport::parts::{LiveCounters, SendShare, Wakers};
use convoke_transport::{Appended, CloseReason, Connection, Counters, Lane, Link, NotWritable};

use crate::batch::{Batch, SLICES_MAX};
use crate::duty::Duty;
use crate::framing::{Fault, index};
use crate::platform::{Half, Lock, Platform, Signal, Tokio};
use crate::send_queue::{Limits, SendQueue};

/// Number of batches that a caller writes for others before the writer task takes over.
const IN_PLACE_BATCHES_MAX: usize = 8;

/// One TCP connection that has said hello.
pub(crate) struct TcpConnection<P: Platform = Tokio> {
    link: Link,
    out: P::Lock<Out<P::Half>>,
    counts: LiveCounters,
    /// The reader looks at [`TcpConnection::ending`].
    pub(crate) reader_signal: P::Signal,
    /// The writer task finds the duty handed over.
    pub(crate) writer_signal: P::Signal,
}

/// The right to write, and what is being written.
#[derive(Debug)]
pub(crate) struct WriteDuty<H> {
    half: H,
    batch: Batch,
}

impl<H: Half> WriteDuty<H> {
    pub(crate) fn new(half: H) -> Self {
        Self { half, batch: Batch::default() }
    }

    /// Waits until the socket takes bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }

    fn write(&mut self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        match self.batch.slices(&mut slices) {
            1 => self.half.try_write(&slices[0]),
            used => self.half.try_write_vectored(&slices[..used]),
        }
    }
}

/// Outcome of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    WouldBlock,
}

/// End that began elsewhere, as far as the reader must know it.
#[derive(Clone, Debug)]
pub(crate) struct EndingView {
    pub(crate) reason: CloseReason,
    /// True when frames that still come are for the sink.
    pub(crate) is_delivering: bool,
}

pub(crate) struct Out<H> {
    queue: SendQueue,
    duty: Duty<WriteDuty<H>>,
    /// Set once; the connection is closed from then on.
    closing: Option<CloseReason>,
    flush_wakers: Wakers,
    writable_wakers: [Wakers; 2],
}

impl<P: Platform> TcpConnection<P> {
    /// A connection that takes frames and sends none until [`TcpConnection::start`].
    /// Bytes that it has to send are taken from `share`.
    pub(crate) fn new(link: Link, limits: &Limits, share: SendShare) -> Self {
        Self {
            link,
            out: Lock::new(Out {
                queue: SendQueue::new(limits, share),
                duty: Duty::Away,
                closing: None,
                flush_wakers: Wakers::default(),
                writable_wakers: Default::default(),
            }),
            counts: LiveCounters::default(),
            reader_signal: P::Signal::default(),
            writer_signal: P::Signal::default(),
        }
    }

    /// The hello is out: from now on frames are sent.
    pub(crate) fn start(&self, half: P::Half) {
        self.write_in_place(WriteDuty::new(half));
    }

    /// The duty that was handed over to the writer task, if any.
    pub(crate) fn take_handed(&self) -> Option<WriteDuty<P::Half>> {
        self.out.lock().duty.take_handed()
    }

    /// Composes the next batch when the last is written. `None` when there is nothing to write; the
    /// duty is then home, or gone with the connection.
    pub(crate) fn refill(&self, mut duty: WriteDuty<P::Half>) -> Option<WriteDuty<P::Half>> {
        if !duty.batch.is_empty() {
            return Some(duty);
        }
        let mut out = self.out.lock();
        if out.duty.is_gone() {
            return None;
        }
        out.queue.fill(&mut duty.batch);
        let mut woken = out.take_writable_wakers();
        let next = if !duty.batch.is_empty() {
            Some(duty)
        } else if out.queue.is_finished() {
            // Dropping the half that is still in `duty` shuts the direction down: the peer reads to
            // the goodbye and closes.
            out.duty = Duty::Gone;
            self.reader_signal.notify_one();
            None
        } else {
            if out.queue.is_empty() {
                woken.append(&mut out.flush_wakers);
            }
            out.duty = Duty::Home(duty);
            None
        };
        drop(out);
        woken.wake();
        next
    }

    /// Writes the batch as far as the socket takes it.
    pub(crate) fn write_batch(&self, duty: &mut WriteDuty<P::Half>) -> io::Result<Written> {
        while !duty.batch.is_empty() {
            match duty.write() {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let completed = duty.batch.advance(count);
                    self.counts.writes.add(1);
                    self.counts.bytes_sent.add(count as u64);
                    self.counts.frames_sent.add(completed.frames);
                    self.counts.transport_frames_sent.add(completed.transport_frames);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Written::WouldBlock);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Written::All)
    }

    /// The socket failed; nothing can be written any more.
    pub(crate) fn on_write_error(&self, error: &io::Error) {
        self.end(CloseReason::Network(error.to_string()));
        self.reader_signal.notify_one();
    }

    /// Ends it without a goodbye: everything queued is dropped, everybody waiting is woken.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut out = self.out.lock();
        out.closing.get_or_insert(reason);
        out.queue.abandon();
        let gone = std::mem::replace(&mut out.duty, Duty::Gone);
        let woken = out.take_all_wakers();
        drop(out);
        drop(gone);
        woken.wake();
    }

    /// The grace of a close is over: what is queued is dropped, and the goodbye goes out if the
    /// socket takes it.
    pub(crate) fn stop_waiting(&self) {
        self.out.lock().queue.close(String::new(), false);
        self.flush();
    }

    /// End of the connection, once it has begun.
    pub(crate) fn ending(&self) -> Option<EndingView> {
        let reason = self.out.lock().closing.clone()?;
        // After a failed write the peer's last frames and its goodbye may still be there to read.
        let is_delivering = reason.is_gentle() || matches!(reason, CloseReason::Network(_));
        Some(EndingView { reason, is_delivering })
    }

    /// The peer gave credit back. The caller flushes.
    pub(crate) fn grant(&self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.out.lock().queue.grant(lane, bytes)
    }

    /// Gives credit back to the peer. The caller flushes.
    pub(crate) fn return_credit(&self, lane: Lane, bytes: u32) {
        self.out.lock().queue.return_credit(lane, bytes);
    }

    /// Tells the peer that this end is alive.
    pub(crate) fn keep_alive(&self) {
        self.out.lock().queue.keep_alive();
        self.flush();
    }

    /// Bytes written so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.counts.bytes_sent.get()
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.counts.reads.add(1);
        self.counts.bytes_received.add(bytes as u64);
    }

    pub(crate) fn count_frame_received(&self) {
        self.counts.frames_received.add(1);
    }

    fn write_in_place(&self, mut duty: WriteDuty<P::Half>) {
        for _ in 0..IN_PLACE_BATCHES_MAX {
            match self.refill(duty) {
                Some(filled) => duty = filled,
                None => return,
            }
            match self.write_batch(&mut duty) {
                Ok(Written::All) => {}
                Ok(Written::WouldBlock) => break,
                Err(error) => return self.on_write_error(&error),
            }
        }
        self.hand_over(duty);
    }

    fn hand_over(&self, duty: WriteDuty<P::Half>) {
        let handed = self.out.lock().duty.hand_over(duty);
        match handed {
            Ok(()) => self.writer_signal.notify_one(),
            Err(gone) => drop(gone),
        }
    }
}

impl<P: Platform> Connection for TcpConnection<P> {
    fn link(&self) -> &Link {
        &self.link
    }

    fn append(
        &self,
        lane: Lane,
        len: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Appended, NotWritable> {
        self.out.lock().queue.append(lane, len, write)
    }

    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
        self.out.lock().queue.append_bytes(lane, head, body)
    }

    fn flush(&self) {
        let taken = self.out.lock().duty.take_home();
        if let Some(duty) = taken {
            self.write_in_place(duty);
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        let mut out = self.out.lock();
        let is_flushed = out.queue.is_empty() && out.duty.is_home();
        if is_flushed || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.flush_wakers.register(cx);
        Poll::Pending
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut out = self.out.lock();
        if out.queue.is_writable(lane) || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.writable_wakers[index(lane)].register(cx);
        Poll::Pending
    }

    fn close(&self, reason: CloseReason) {
        let mut out = self.out.lock();
        if out.closing.is_some() {
            return;
        }
        out.queue.close(reason.goodbye_text(), reason.is_gentle());
        out.closing = Some(reason);
        let woken = out.take_all_wakers();
        drop(out);
        woken.wake();
        self.flush();
        self.reader_signal.notify_one();
    }

    fn counters(&self) -> Counters {
        self.counts.snapshot()
    }
}

impl<P: Platform> fmt::Debug for TcpConnection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConnection")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .finish_non_exhaustive()
    }
}

impl<H> Out<H> {
    fn take_writable_wakers(&mut self) -> Wakers {
        let mut woken = Wakers::default();
        for lane in [Lane::Control, Lane::Data] {
            if self.queue.is_worth_waking(lane) {
                woken.append(&mut self.writable_wakers[index(lane)]);
            }
        }
        woken
    }

    fn take_all_wakers(&mut self) -> Wakers {
        let mut woken = std::mem::take(&mut self.flush_wakers);
        self.writable_wakers.iter_mut().for_each(|wakers| woken.append(wakers));
        woken
    }
}

#[cfg(test)]
mod model;
