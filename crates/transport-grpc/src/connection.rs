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

use bytes::{Bytes, BytesMut};
use convoke_transport::parts::{
    Batch, Carrier, Closing, Ends, Fault, LiveCounters, Outbound, QueueLimits, SendQueue,
    SendShare, Wakers, Words, put_goodbye,
};
use convoke_transport::{Appended, CloseReason, Connection, Counters, Lane, Link, NotWritable};
use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::codec::Parts;

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
    /// The reader looks at [`Carrier::closing`].
    signal: Notify,
}

#[derive(Debug, Default)]
struct Out {
    /// Goes out before anything else.
    hello: Option<Bytes>,
    /// A goodbye where there will be no connection.
    refusal: Option<Bytes>,
    /// `None` until the other end has said hello.
    outbound: Option<Outbound>,
    /// What the stream is given next.
    batch: Batch,
    /// The stream is gone: nothing is sent any more.
    is_gone: bool,
    outgoing: Option<Waker>,
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
    pub(crate) fn refuse(&self, text: &str) {
        let mut goodbye = BytesMut::new();
        put_goodbye(&mut goodbye, Words::WITHOUT_CREDIT, text);
        self.out.lock().refusal = Some(goodbye.freeze());
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
        if let Some(goodbye) = out.refusal.take() {
            out.is_gone = true;
            return Poll::Ready(Some(goodbye.into()));
        }
        let Out { outbound: Some(outbound), batch, .. } = &mut *out else {
            out.outgoing = Some(cx.waker().clone());
            return Poll::Pending;
        };
        outbound.queue.fill(batch);
        let is_finished = outbound.queue.is_finished();
        let mut woken = outbound.take_writable();
        woken.append(&mut outbound.take_flushed());
        // Counted before anybody can see that the queue is empty.
        let message = (!batch.is_empty()).then(|| self.take_message(batch));
        if message.is_none() && !is_finished {
            out.outgoing = Some(cx.waker().clone());
        }
        drop(out);
        woken.wake();
        if message.is_none() && !is_finished {
            return Poll::Pending;
        }
        Poll::Ready(message)
    }

    fn take_message(&self, batch: &mut Batch) -> Parts {
        let (parts, completed) = batch.take();
        let parts = Parts(parts.collect());
        self.counts.wrote(parts.len());
        self.counts.frames_sent.add(completed.frames);
        self.counts.transport_frames_sent.add(completed.transport_frames);
        parts
    }

    /// The stream is gone, in order or not. Whoever waits is woken, and the reader ends.
    fn on_gone(&self) {
        let mut out = self.out.lock();
        out.is_gone = true;
        let woken = out.outbound.as_mut().map(|outbound| match outbound.queue.is_finished() {
            true => outbound.finish(),
            false => outbound.abandon(CloseReason::Network("the HTTP/2 stream was reset".into())),
        });
        drop(out);
        woken.into_iter().for_each(Wakers::wake);
        self.signal.notify_one();
    }
}

impl GrpcConnection {
    /// A connection whose frames go out from now on, behind the hello.
    pub(crate) fn new(link: Link, pipe: Arc<Pipe>, limits: &QueueLimits, share: SendShare) -> Self {
        pipe.out.lock().outbound = Some(Outbound::new(SendQueue::new(limits, share)));
        Self { link, pipe }
    }

    /// Resolves when the reader has to look at [`Carrier::closing`].
    pub(crate) async fn signalled(&self) {
        self.pipe.signal.notified().await;
    }

    /// Does something with what is to be sent, which is there as long as the connection is.
    fn with<T>(&self, act: impl FnOnce(&mut Outbound) -> T) -> T {
        let mut out = self.pipe.out.lock();
        act(out.outbound.as_mut().expect("a connection is made with it"))
    }

    /// Wakes those who waited for something that has ended, and the stream, which may end, too.
    fn wake(&self, woken: Wakers) {
        woken.wake();
        self.pipe.wake_outgoing();
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
        self.with(|outbound| outbound.queue.append(lane, len, write))
    }

    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
        self.with(|outbound| outbound.queue.append_bytes(lane, head, body))
    }

    fn flush(&self) {
        self.pipe.wake_outgoing();
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        self.with(|outbound| outbound.poll_flush(true, cx))
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        self.with(|outbound| outbound.poll_writable(lane, cx))
    }

    fn close(&self, reason: CloseReason) {
        if let Some(woken) = self.with(|outbound| outbound.close(reason)) {
            self.wake(woken);
            self.pipe.signal.notify_one();
        }
    }

    fn counters(&self) -> Counters {
        self.pipe.counts.snapshot()
    }
}

impl Ends for GrpcConnection {
    /// The goodbye goes out if the peer takes it.
    fn end(&self, reason: CloseReason) {
        self.wake(self.with(|outbound| outbound.say_goodbye(reason)));
    }

    fn counts(&self) -> &LiveCounters {
        &self.pipe.counts
    }
}

impl Carrier for GrpcConnection {
    fn closing(&self) -> Option<Closing> {
        self.with(|outbound| outbound.closing())
    }

    /// The stream ends in order.
    fn peer_has_left(&self) {
        self.wake(self.with(Outbound::finish));
    }

    /// The window of the HTTP/2 stream is the credit.
    fn grant(&self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.with(|outbound| outbound.queue.grant(lane, bytes))
    }

    fn return_credit(&self, lane: Lane, bytes: u32) {
        self.with(|outbound| outbound.queue.return_credit(lane, bytes));
    }

    fn keep_alive(&self) {
        self.with(|outbound| outbound.queue.keep_alive());
        self.flush();
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
