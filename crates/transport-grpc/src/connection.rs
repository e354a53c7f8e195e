//! One connection: what its handles, its reader and the HTTP/2 stream that carries it share.
//!
//! Nobody writes to a socket here. The body of the HTTP/2 stream, an [`Outgoing`], asks for the
//! next message whenever the stream's window has room; `flush` only wakes it when it had to wait.
//!
//! ```text
//!   append ──▶ SendQueue ◀──next message── Outgoing ◀──window has room── HTTP/2
//!                               ▲
//!   flush ───────wakes──────────┘
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use convoke_transport::parts::{LiveCounters, Wakers};
use convoke_transport::{Appended, CloseReason, Connection, Counters, Lane, Link, NotWritable};
use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::codec::Parts;
use crate::framing::index;
use crate::send_queue::{Limits, SendQueue};

/// One connection that has said hello.
pub(crate) struct GrpcConnection {
    link: Link,
    pipe: Arc<Pipe>,
}

/// State that a connection shares with its stream; there before the connection is.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    out: Mutex<Out>,
    counts: LiveCounters,
    /// The reader looks at [`GrpcConnection::ending`].
    signal: Notify,
}

#[derive(Debug, Default)]
struct Out {
    /// Goes out before anything else.
    hello: Option<Bytes>,
    /// `None` until the other end has said hello.
    queue: Option<SendQueue>,
    /// The stream is gone: nothing is sent any more.
    is_gone: bool,
    /// Set once; the connection is closed from then on.
    closing: Option<CloseReason>,
    outgoing: Option<Waker>,
    flush_wakers: Wakers,
    writable_wakers: [Wakers; 2],
}

/// An end that began elsewhere, as the reader must know of it.
#[derive(Clone, Debug)]
pub(crate) struct EndingView {
    pub(crate) reason: CloseReason,
    /// True when frames that still come are for the sink.
    pub(crate) is_delivering: bool,
}

impl Pipe {
    /// One whose first message is this hello.
    pub(crate) fn greeting(hello: Bytes) -> Arc<Self> {
        let pipe = Self::default();
        pipe.out.lock().hello = Some(hello);
        Arc::new(pipe)
    }

    /// The body of the HTTP/2 stream. There is one.
    pub(crate) fn outgoing(self: &Arc<Self>) -> Outgoing {
        Outgoing { pipe: Arc::clone(self) }
    }

    /// Says goodbye where there will be no connection.
    pub(crate) fn refuse(&self, text: String) {
        self.out.lock().queue = Some(SendQueue::closed(text));
        self.wake_outgoing();
    }

    fn wake_outgoing(&self) {
        let waker = self.out.lock().outgoing.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Parts>> {
        let mut out = self.out.lock();
        if out.is_gone {
            return Poll::Ready(None);
        }
        if let Some(hello) = out.hello.take() {
            return Poll::Ready(Some(hello.into()));
        }
        let filled = out.queue.as_mut().and_then(SendQueue::fill);
        let is_finished = out.queue.as_ref().is_some_and(SendQueue::is_finished);
        if filled.is_none() && !is_finished {
            out.outgoing = Some(cx.waker().clone());
        }
        // Counted before anybody can see that the queue is empty.
        if let Some(filled) = &filled {
            self.counts.writes.add(1);
            self.counts.bytes_sent.add(filled.bytes as u64);
            self.counts.frames_sent.add(filled.frames);
            self.counts.transport_frames_sent.add(filled.transport_frames);
        }
        let woken = out.take_wakers_of_progress();
        drop(out);
        woken.wake();
        match filled {
            Some(filled) => Poll::Ready(Some(filled.parts)),
            None if is_finished => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// The stream is gone, in order or not. Whoever waits is woken, and the reader ends.
    fn on_gone(&self) {
        let mut out = self.out.lock();
        out.is_gone = true;
        let is_early = !out.queue.as_ref().is_some_and(SendQueue::is_finished);
        if is_early && out.queue.is_some() {
            out.closing
                .get_or_insert_with(|| CloseReason::Network("the HTTP/2 stream was reset".into()));
        }
        let woken = out.abandon();
        drop(out);
        woken.wake();
        self.signal.notify_one();
    }
}

impl GrpcConnection {
    /// A connection whose frames go out from now on, behind the hello.
    pub(crate) fn new(link: Link, pipe: Arc<Pipe>, limits: &Limits) -> Self {
        pipe.out.lock().queue = Some(SendQueue::new(limits));
        Self { link, pipe }
    }

    /// Resolves when the reader has to look at [`GrpcConnection::ending`].
    pub(crate) async fn signalled(&self) {
        self.pipe.signal.notified().await;
    }

    /// Ends it: what is queued is dropped, everybody waiting is woken, and the goodbye goes out if
    /// the peer takes it.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut out = self.pipe.out.lock();
        let reason = out.closing.get_or_insert(reason).clone();
        if let Some(queue) = &mut out.queue {
            queue.close(reason.goodbye_text(), false);
        }
        let woken = out.take_all_wakers();
        drop(out);
        woken.wake();
    }

    /// The peer has said goodbye: nothing more is sent, and the stream ends in order.
    pub(crate) fn finish_sending(&self) {
        let mut out = self.pipe.out.lock();
        let woken = out.abandon();
        drop(out);
        woken.wake();
    }

    /// Resolves to the end of the connection.
    pub(crate) fn ending(&self) -> Option<EndingView> {
        let reason = self.pipe.out.lock().closing.clone()?;
        // After a failed write the peer's last frames and its goodbye may still be there to read.
        let is_delivering = reason.is_gentle() || matches!(reason, CloseReason::Network(_));
        Some(EndingView { reason, is_delivering })
    }

    /// Tells the peer that this end is alive.
    pub(crate) fn keep_alive(&self) {
        if let Some(queue) = &mut self.pipe.out.lock().queue {
            queue.keep_alive();
        }
        self.flush();
    }

    /// Bytes handed to HTTP/2 so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.pipe.counts.bytes_sent.get()
    }

    pub(crate) fn count_message_received(&self, bytes: usize) {
        self.pipe.counts.reads.add(1);
        self.pipe.counts.bytes_received.add(bytes as u64);
    }

    pub(crate) fn count_frames_received(&self, count: u64) {
        self.pipe.counts.frames_received.add(count);
    }
}

impl Connection for GrpcConnection {
    fn link(&self) -> &Link {
        &self.link
    }

    fn append(
        &self,
        lane: Lane,
        len: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Appended, NotWritable> {
        self.pipe.out.lock().open_queue()?.append(lane, len, write)
    }

    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
        self.pipe.out.lock().open_queue()?.append_bytes(lane, head, body)
    }

    fn flush(&self) {
        self.pipe.wake_outgoing();
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        let mut out = self.pipe.out.lock();
        let is_flushed = out.queue.as_ref().is_none_or(SendQueue::is_empty);
        if is_flushed || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.flush_wakers.register(cx);
        Poll::Pending
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut out = self.pipe.out.lock();
        let is_writable = out.queue.as_ref().is_none_or(|queue| queue.is_writable(lane));
        if is_writable || out.closing.is_some() {
            return Poll::Ready(());
        }
        out.writable_wakers[index(lane)].register(cx);
        Poll::Pending
    }

    fn close(&self, reason: CloseReason) {
        let mut out = self.pipe.out.lock();
        if out.closing.is_some() {
            return;
        }
        if let Some(queue) = &mut out.queue {
            queue.close(reason.goodbye_text(), reason.is_gentle());
        }
        out.closing = Some(reason);
        let woken = out.take_all_wakers();
        drop(out);
        woken.wake();
        self.pipe.signal.notify_one();
    }

    fn counters(&self) -> Counters {
        self.pipe.counts.snapshot()
    }
}

impl fmt::Debug for GrpcConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcConnection")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .finish_non_exhaustive()
    }
}

impl Out {
    /// The queue of a connection that takes frames.
    fn open_queue(&mut self) -> Result<&mut SendQueue, NotWritable> {
        let is_open = self.closing.is_none() && !self.is_gone;
        self.queue.as_mut().filter(|_| is_open).ok_or(NotWritable::Closed)
    }

    fn abandon(&mut self) -> Wakers {
        if let Some(queue) = &mut self.queue {
            queue.abandon();
        }
        self.take_all_wakers()
    }

    /// Those for whom it may matter that a message has left.
    fn take_wakers_of_progress(&mut self) -> Wakers {
        let mut woken = Wakers::default();
        let Some(queue) = &self.queue else { return woken };
        if queue.is_empty() {
            woken.append(&mut self.flush_wakers);
        }
        for lane in [Lane::Control, Lane::Data] {
            if queue.is_worth_waking(lane) {
                woken.append(&mut self.writable_wakers[index(lane)]);
            }
        }
        woken
    }

    fn take_all_wakers(&mut self) -> Wakers {
        let mut woken = std::mem::take(&mut self.flush_wakers);
        self.writable_wakers.iter_mut().for_each(|wakers| woken.append(wakers));
        woken.extend(self.outgoing.take());
        woken
    }
}

/// The messages of a connection as the body of an HTTP/2 stream, of a request.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pipe: Arc<Pipe>,
}

impl Stream for Outgoing {
    type Item = Parts;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Parts>> {
        self.pipe.poll_message(cx)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.pipe.on_gone();
    }
}

/// The same for a response, which could end with an error but does not.
#[derive(Debug)]
pub(crate) struct Answering(pub(crate) Outgoing);

impl Stream for Answering {
    type Item = Result<Parts, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.pipe.poll_message(cx).map(|message| message.map(Ok))
    }
}
