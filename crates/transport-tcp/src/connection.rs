//! One connection: what its handles, its reader and its writer share.
//!
//! The right to write to the socket is a value that whoever flushes takes along, the [`WriteDuty`];
//! [`Duty`] says where it is.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::DerefMut;
use std::task::{Context, Poll};

use convoke_transport::parts::{
    Batch, Carrier, Closing, Duty, Ends, Fault, Flow, LiveCounters, Outbound, QueueLimits,
    SLICES_MAX, SendQueue, SendShare,
};
use convoke_transport::{
    Appended, Buffer, CloseReason, Connection, Counters, Lane, Link, NotWritable,
};

use crate::platform::{Half, Lock, Platform, Signal, Tokio};

/// Number of batches that a caller writes for others before the writer task takes over.
const IN_PLACE_BATCHES_MAX: usize = 8;

/// One TCP connection that has said hello.
pub(crate) struct TcpConnection<P: Platform = Tokio> {
    link: Link,
    out: P::Lock<Out<P::Half>>,
    counts: LiveCounters,
    /// The reader looks at [`Carrier::closing`].
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
        if let Some(bytes) = self.batch.sole() {
            return self.half.try_write(bytes);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let used = self.batch.slices(&mut slices);
        self.half.try_write_vectored(&slices[..used])
    }
}

/// Outcome of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    WouldBlock,
}

/// Queue of what is to be sent, and who writes it.
pub(crate) struct Out<H> {
    outbound: Outbound,
    duty: Duty<WriteDuty<H>>,
}

impl<P: Platform> TcpConnection<P> {
    /// A connection that takes frames and sends none until [`TcpConnection::start`].
    /// Bytes that it has to send are taken from `share`.
    pub(crate) fn new(link: Link, limits: &QueueLimits, share: SendShare) -> Self {
        Self {
            link,
            out: Lock::new(Out {
                outbound: Outbound::new(SendQueue::new(limits, share)),
                duty: Duty::Away,
            }),
            counts: LiveCounters::default(),
            reader_signal: P::Signal::default(),
            writer_signal: P::Signal::default(),
        }
    }

    /// The hello is out: from now on frames are sent.
    pub(crate) fn start(&self, half: P::Half) {
        let filled = self.refill(WriteDuty::new(half));
        self.write_in_place(filled);
    }

    /// The duty that was handed over to the writer task, if any.
    pub(crate) fn take_handed(&self) -> Option<WriteDuty<P::Half>> {
        self.out.lock().duty.take_handed()
    }

    /// Composes the next batch when the last is written. `None` when there is nothing to write; the
    /// duty is then home, or gone with the connection.
    pub(crate) fn refill(&self, duty: WriteDuty<P::Half>) -> Option<WriteDuty<P::Half>> {
        if !duty.batch.is_empty() {
            return Some(duty);
        }
        self.compose(self.out.lock(), duty)
    }

    /// As [`Self::refill`], for whoever has the lock.
    fn compose(
        &self,
        mut out: impl DerefMut<Target = Out<P::Half>>,
        mut duty: WriteDuty<P::Half>,
    ) -> Option<WriteDuty<P::Half>> {
        if out.duty.is_gone() {
            return None;
        }
        out.outbound.queue.fill(&mut duty.batch);
        let mut woken = out.outbound.take_writable();
        let next = if !duty.batch.is_empty() {
            Some(duty)
        } else if out.outbound.queue.is_finished() {
            // Dropping the half that is still in `duty` shuts the direction down: the peer reads to
            // the goodbye and closes.
            out.duty = Duty::Gone;
            self.reader_signal.notify_one();
            None
        } else {
            woken.append(&mut out.outbound.take_flushed());
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
                    self.counts.wrote(count);
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

    /// Writes what is filled, and what is appended meanwhile, but not for ever.
    fn write_in_place(&self, mut filled: Option<WriteDuty<P::Half>>) {
        for _ in 0..IN_PLACE_BATCHES_MAX {
            let Some(mut duty) = filled else { return };
            match self.write_batch(&mut duty) {
                Ok(Written::All) => filled = self.refill(duty),
                Ok(Written::WouldBlock) => return self.hand_over(duty),
                Err(error) => return self.on_write_error(&error),
            }
        }
        if let Some(duty) = filled {
            self.hand_over(duty);
        }
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

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut self.out.lock().outbound.queue);
    }

    fn append_copy(&self, lane: Lane, head: &[u8], body: &[u8]) -> Result<Appended, NotWritable> {
        self.out.lock().outbound.queue.append_copy(lane, head, body)
    }

    fn flush(&self) {
        let mut out = self.out.lock();
        if let Some(duty) = out.duty.take_home() {
            let filled = self.compose(out, duty);
            self.write_in_place(filled);
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        let mut out = self.out.lock();
        let is_idle = out.duty.is_home();
        out.outbound.poll_flush(is_idle, cx)
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        self.out.lock().outbound.poll_writable(lane, cx)
    }

    fn close(&self, reason: CloseReason) {
        let closed = self.out.lock().outbound.close(reason);
        if let Some(ended) = closed {
            let _unsent = ended.wake();
            self.flush();
            self.reader_signal.notify_one();
        }
    }

    fn counters(&self) -> Counters {
        self.counts.snapshot()
    }
}

impl<P: Platform> Ends for TcpConnection<P> {
    fn end(&self, reason: CloseReason) {
        let mut out = self.out.lock();
        let ended = out.outbound.abandon(reason);
        let gone = std::mem::replace(&mut out.duty, Duty::Gone);
        drop(out);
        let _unsent = ended.wake();
        drop(gone);
    }
}

impl<P: Platform> Carrier for TcpConnection<P> {
    fn counts(&self) -> &LiveCounters {
        &self.counts
    }

    fn closing(&self) -> Option<Closing> {
        self.out.lock().outbound.closing()
    }

    fn stop_waiting(&self) {
        let _unsent = self.out.lock().outbound.queue.close(String::new(), false);
        self.flush();
    }

    fn send_rest(&self) {
        self.out.lock().outbound.queue.lift_credit();
        self.flush();
    }

    fn is_all_sent(&self) -> bool {
        self.out.lock().duty.is_gone()
    }

    fn grant(&self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.out.lock().outbound.queue.grant(lane, bytes)
    }

    fn return_credit(&self, lane: Lane, bytes: u32) -> u32 {
        self.out.lock().outbound.queue.return_credit(lane, bytes)
    }

    fn keep_alive(&self) {
        self.out.lock().outbound.queue.keep_alive();
        self.flush();
    }
}

impl<P: Platform> Flow for TcpConnection<P> {
    fn wake_reader(&self) {
        self.reader_signal.notify_one();
    }

    fn expect_goodbye(&self, reason: CloseReason) {
        let woken = self.out.lock().outbound.expect_goodbye(reason);
        woken.wake();
        self.reader_signal.notify_one();
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

#[cfg(test)]
mod model;
