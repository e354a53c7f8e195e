//! Connection over messages that whoever carries them asks for: the stream of a library, or the
//! other end itself.
//!
//! Nobody writes here. The carrier takes the next message whenever it has room; a flush only wakes
//! it when it had to wait.
//!
//! ```text
//!   append ──▶ Outbound of a Pipe ◀──next message── carrier ──▶ read_messages at the other end
//!                     ▲
//!   flush ──wakes─────┘
//! ```

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::parts::Mutex;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::chunk::{Words, put_goodbye};
use super::{
    Batch, Carrier, Closing, Ended, Ends, Fault, Inbound, Life, LiveCounters, Outbound,
    QueueLimits, SendQueue, SendShare, Verdict,
};
use crate::{Buffer, CloseReason, Connection, Counters, Lane, Link};

/// A message in parts, in order. Most have one or two.
pub type Parts = SmallVec<[Bytes; 3]>;

/// Messages of one end; there before its connection is.
#[derive(Debug, Default)]
pub struct Pipe {
    out: Mutex<Out>,
    counts: LiveCounters,
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
    /// Messages that the carrier is given next.
    batch: Batch,
    /// The carrier is gone: nothing is sent any more.
    is_gone: bool,
    carrier: Option<Waker>,
}

impl Pipe {
    /// One whose first message is this hello, if there is one.
    pub fn new(hello: Option<Bytes>) -> Arc<Self> {
        let pipe = Self::default();
        pipe.out.lock().hello = hello;
        Arc::new(pipe)
    }

    /// Says goodbye, be there a connection or not.
    pub fn refuse(&self, text: &str) {
        let mut out = self.out.lock();
        let ended = match &mut out.outbound {
            Some(outbound) => Some(outbound.say_goodbye(CloseReason::Fault(text.into()))),
            None => {
                let mut goodbye = BytesMut::new();
                put_goodbye(&mut goodbye, Words::WITHOUT_CREDIT, text);
                out.refusal = Some(goodbye.freeze());
                None
            }
        };
        drop(out);
        let _unsent = ended.map(Ended::wake);
        self.wake_carrier();
    }

    /// The next message, for the carrier, of which there is one; `None` after the last.
    pub fn poll_message(&self, cx: &Context<'_>) -> Poll<Option<Parts>> {
        let mut out = self.out.lock();
        if out.is_gone {
            return Poll::Ready(None);
        }
        if let Some(hello) = out.hello.take() {
            return Poll::Ready(Some(smallvec::smallvec![hello]));
        }
        if let Some(goodbye) = out.refusal.take() {
            out.is_gone = true;
            return Poll::Ready(Some(smallvec::smallvec![goodbye]));
        }
        let Out { outbound: Some(outbound), batch, .. } = &mut *out else {
            out.carrier = Some(cx.waker().clone());
            return Poll::Pending;
        };
        outbound.queue.fill(batch);
        let is_finished = outbound.queue.is_finished();
        let mut woken = outbound.take_writable();
        woken.append(&mut outbound.take_flushed());
        // Counted before anybody can see that the queue is empty.
        let message = (!batch.is_empty()).then(|| self.take_message(batch));
        let is_pending = message.is_none() && !is_finished;
        if is_finished {
            self.signal.notify_one();
        }
        if is_pending {
            out.carrier = Some(cx.waker().clone());
        }
        drop(out);
        woken.wake();
        if is_pending { Poll::Pending } else { Poll::Ready(message) }
    }

    /// The carrier is gone, in order or not: whoever waits is woken, and the reader ends, early for
    /// this reason.
    pub fn on_gone(&self, early: &str) {
        let mut out = self.out.lock();
        out.is_gone = true;
        let ended = out.outbound.as_mut().map(|outbound| match outbound.queue.is_finished() {
            true => outbound.finish(),
            false => outbound.abandon(CloseReason::Network(early.into())),
        });
        drop(out);
        let _unsent = ended.map(Ended::wake);
        self.signal.notify_one();
    }

    fn take_message(&self, batch: &mut Batch) -> Parts {
        let (parts, completed) = batch.take();
        let parts: Parts = parts.collect();
        self.counts.wrote(parts.iter().map(Bytes::len).sum());
        self.counts.frames_sent.add(completed.frames);
        self.counts.transport_frames_sent.add(completed.transport_frames);
        parts
    }

    fn wake_carrier(&self) {
        let carrier = self.out.lock().carrier.take();
        carrier.into_iter().for_each(Waker::wake);
    }
}

/// A connection whose frames go into a [`Pipe`].
pub struct PipeConnection {
    link: Link,
    pipe: Arc<Pipe>,
}

impl PipeConnection {
    /// A connection whose frames go out from now on, behind the hello.
    pub fn new(link: Link, pipe: Arc<Pipe>, limits: &QueueLimits, share: SendShare) -> Self {
        pipe.out.lock().outbound = Some(Outbound::new(SendQueue::new(limits, share)));
        Self { link, pipe }
    }

    /// Does something with what is to be sent, which is there as long as the connection is.
    fn with<T>(&self, act: impl FnOnce(&mut Outbound) -> T) -> T {
        let mut out = self.pipe.out.lock();
        act(out.outbound.as_mut().expect("a connection is made with it"))
    }
}

impl Connection for PipeConnection {
    fn link(&self) -> &Link {
        &self.link
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        self.with(|outbound| act(&mut outbound.queue));
    }

    fn flush(&self) {
        self.pipe.wake_carrier();
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        self.with(|outbound| outbound.poll_flush(true, cx))
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        self.with(|outbound| outbound.poll_writable(lane, cx))
    }

    fn close(&self, reason: CloseReason) {
        if let Some(ended) = self.with(|outbound| outbound.close(reason)) {
            let _unsent = ended.wake();
            self.pipe.wake_carrier();
            self.pipe.signal.notify_one();
        }
    }

    fn counters(&self) -> Counters {
        self.pipe.counts.snapshot()
    }
}

impl Ends for PipeConnection {
    /// The goodbye goes out if the carrier takes it.
    fn end(&self, reason: CloseReason) {
        let _unsent = self.with(|outbound| outbound.say_goodbye(reason)).wake();
        self.pipe.wake_carrier();
    }
}

impl Carrier for PipeConnection {
    fn counts(&self) -> &LiveCounters {
        &self.pipe.counts
    }

    fn closing(&self) -> Option<Closing> {
        self.with(|outbound| outbound.closing())
    }

    /// The messages end in order.
    fn peer_has_left(&self) {
        let _unsent = self.with(Outbound::finish).wake();
        self.pipe.wake_carrier();
    }

    fn is_all_sent(&self) -> bool {
        self.with(|outbound| outbound.queue.is_finished())
    }

    /// The carrier has credit of its own.
    fn grant(&self, lane: Lane, bytes: u32) -> Result<(), Fault> {
        self.with(|outbound| outbound.queue.grant(lane, bytes))
    }

    fn return_credit(&self, lane: Lane, bytes: u32) -> u32 {
        self.with(|outbound| outbound.queue.return_credit(lane, bytes))
    }

    fn keep_alive(&self) {
        self.with(|outbound| outbound.queue.keep_alive());
        self.flush();
    }
}

impl fmt::Debug for PipeConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeConnection")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .finish_non_exhaustive()
    }
}

/// Reason why no more messages come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The network, or the end of the carrier, failed.
    Network(String),
    /// The other end broke the rules of the carrier.
    Fault(String),
}

/// Messages of the other end, as a carrier brings them.
pub trait Messages: Send {
    /// The next message; `None` when it ended without an error.
    ///
    /// # Errors
    /// [`Lost`] when it ended with one.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped before it is ready.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Lost>> + Send;
}

enum Event {
    Signal,
    Message(Result<Option<Bytes>, Lost>),
    Timer,
}

/// The reader task of a connection: owns its life from the first frame to `on_closed`. It asks for
/// a message when the sink has taken the last, so a sink that is slow stops the sender.
pub async fn read_messages(
    mut life: Life<PipeConnection>,
    mut inbound: Inbound,
    messages: &mut impl Messages,
) {
    let connection = Arc::clone(life.lifetime().connection());
    let mut timer = pin!(sleep_until(life.deadline()));
    let reason = loop {
        let event = tokio::select! {
            biased;
            () = connection.pipe.signal.notified() => Event::Signal,
            message = messages.next(), if life.is_reading() => Event::Message(message),
            () = timer.as_mut() => Event::Timer,
        };
        let now = Instant::now();
        let end = match event {
            Event::Message(Ok(Some(message))) => on_message(&mut life, &mut inbound, message),
            Event::Message(Ok(None)) => life.on_end_of_peer(now),
            Event::Message(Err(Lost::Network(text))) => Some(life.end_by_network(text, now)),
            Event::Message(Err(Lost::Fault(text))) => {
                Some(life.end_at_once(CloseReason::Fault(text)))
            }
            Event::Signal => life.on_signal(now),
            Event::Timer => life.on_timer(now),
        };
        if let Some(reason) = end {
            break reason;
        }
        if timer.is_elapsed() || life.deadline() < timer.deadline() {
            timer.as_mut().reset(life.deadline());
        }
        tokio::task::coop::consume_budget().await;
    };
    life.end(reason);
}

fn on_message(
    life: &mut Life<PipeConnection>,
    inbound: &mut Inbound,
    mut message: Bytes,
) -> Option<CloseReason> {
    life.lifetime().connection().counts().read(message.len());
    let stop = match life.on_bytes(Instant::now()) {
        Verdict::End(reason) => return Some(reason),
        Verdict::Drop => None,
        Verdict::Deliver => inbound.deliver(&mut message, usize::MAX, life.lifetime()).stop,
    };
    life.delivered(stop, Instant::now())
}
