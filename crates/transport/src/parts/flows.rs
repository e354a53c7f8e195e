//! A connection of several flows: connections of their own to the same peer, of which the endpoint
//! sees one. A network may cap each flow, and a loss holds up only the flow it falls in.
//!
//! ```text
//!                                       ┌▶ flow 0, and the control lane ┄▶ inlet ─┐
//!  append ─▶ group ─▶ prefix: counts ───┼▶ flow 1 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ inlet ─┼─▶ Sink
//!                                       └▶ flow 2 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ inlet ─┘
//! ```
//!
//! - Data frames of one [group](Sink::group), such as those of a call, take one flow, so that they
//!   keep their order. The others spread.
//! - Before each data frame go the numbers of frames that were appended to each other flow before
//!   it, as differences to what the flow was told last: one byte for each other flow, mostly.
//! - A frame whose [order](Sink::order) is that of the lane, such as a request to an ordered
//!   method, waits at the other end until so many have arrived. Frames behind it in its flow wait
//!   with it, and give no credit back. The sender need not know which frames are such.
//! - The control lane is that of the first flow.
//! - The end of one flow is the end of all: the frames in it are lost, as those of a connection. A
//!   goodbye comes over each, behind what was sent there; those of the others have the grace of a
//!   close to come after the first.
//!
//! No two flows wait for each other: of all frames that wait, the one that was appended first has
//! everything before it at the sink, in its own flow and in the others.

mod ending;
mod inlet;
mod sent;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::parts::Mutex;
use bytes::Bytes;

use self::ending::Ending;
use self::inlet::Waiting;
use self::sent::Sent;
use super::{Carrier, Ends, Lifetime};
use crate::{
    Appended, Buffer, CloseReason, Connection, Counters, Lane, Link, NotWritable, ORDER_HEAD_BYTES,
    Sink,
};

pub use inlet::Inlet;

/// Most flows of a connection. (ShallowForest, section 6.4: 20 to 30 between each two sites of a
/// public cloud)
pub const FLOWS_MAX: u8 = 32;

/// Most bytes that go before a frame: what the flows of a connection must take beyond it.
pub const PREFIX_BYTES_MAX: u32 = (FLOWS_MAX as u32 - 1) * sent::COUNT_BYTES_MAX;

/// A connection that can be a flow of another.
pub trait Flow: Carrier {
    /// Has the reader look at its valve.
    fn wake_reader(&self);

    /// The peer has said goodbye over another flow. Its goodbye over this one, behind what it sent
    /// here, may come for the grace of a close; then the flow ends for this reason.
    fn expect_goodbye(&self, reason: CloseReason);
}

/// A connection of several flows.
pub struct Flows<C: Flow> {
    link: Link,
    frame_bytes_max: usize,
    flows: Vec<Arc<C>>,
    sending: Mutex<Sending>,
    /// A bit for each flow to which something was appended since the last flush.
    unflushed: AtomicU32,
    /// Number of data frames of each flow that the sink has taken.
    arrived: Vec<AtomicU64>,
    waiting: Vec<Waiting>,
    ending: Mutex<Ending<C>>,
}

struct Sending {
    sent: Sent,
    /// Names the groups. `None` after the end, since a sink may hold the connection in turn.
    sink: Option<Arc<dyn Sink>>,
}

impl<C: Flow> Flows<C> {
    /// A connection over these, at most [`FLOWS_MAX`], to a peer that takes frames of so many
    /// bytes. Nothing has been sent over any of them.
    ///
    /// # Panics
    /// For more flows.
    pub fn new(link: Link, sink: Arc<dyn Sink>, frame_bytes_max: usize, flows: Vec<C>) -> Self {
        let count = flows.len();
        assert!(count <= usize::from(FLOWS_MAX), "{count} flows");
        Self {
            link,
            frame_bytes_max,
            flows: flows.into_iter().map(Arc::new).collect(),
            sending: Mutex::new(Sending { sent: Sent::new(count), sink: Some(sink) }),
            unflushed: AtomicU32::new(0),
            arrived: (0..count).map(|_| AtomicU64::new(0)).collect(),
            waiting: (0..count).map(|_| Waiting::new(count)).collect(),
            ending: Mutex::new(Ending::new(count)),
        }
    }

    /// The lives of the flows, each of which must be driven, and what each delivers through. The
    /// life of the connection ends with the last of them.
    pub fn into_flows(lifetime: Lifetime<Self>) -> Vec<(Lifetime<C>, Arc<Inlet<C>>)> {
        let (flows, handle) = (Arc::clone(lifetime.connection()), Arc::clone(lifetime.handle()));
        let sink = lifetime.shared_sink();
        flows.ending.lock().begin(lifetime);
        let live = |index: usize| {
            let (handle, of_connection) = (Arc::clone(&handle), Arc::clone(&sink));
            let inlet = Arc::new(Inlet::new(Arc::clone(&flows), handle, of_connection, index));
            let sink: Arc<dyn Sink> = Arc::clone(&inlet) as _;
            (Lifetime::new(Arc::clone(&flows.flows[index]), sink, None), inlet)
        };
        (0..flows.flows.len()).map(live).collect()
    }

    /// The flow of a group. Mixed, since groups may be numbers of calls, every second of which is
    /// large.
    fn flow_of(&self, group: u64) -> usize {
        let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).expect("it is of 32 bits") % self.flows.len()
    }

    fn append_control(
        &self,
        append: impl FnOnce(&C) -> Result<Appended, NotWritable>,
    ) -> Result<Appended, NotWritable> {
        let appended = append(&self.flows[0])?;
        self.unflushed.fetch_or(1, Ordering::Relaxed);
        Ok(appended)
    }

    fn check_size(&self, size: usize) -> Result<(), NotWritable> {
        let limit = self.frame_bytes_max;
        if size > limit { Err(NotWritable::TooLarge { size, limit }) } else { Ok(()) }
    }

    fn check_open(&self) -> Result<(), NotWritable> {
        if self.ending.lock().has_begun() { Err(NotWritable::Closed) } else { Ok(()) }
    }

    /// True when the sink has taken so many frames of each flow.
    fn have_arrived(&self, counts: &[u64]) -> bool {
        let mut pairs = self.arrived.iter().zip(counts);
        pairs.all(|(arrived, count)| arrived.load(Ordering::SeqCst) >= *count)
    }

    fn close_all(&self, reason: &CloseReason) {
        self.flows.iter().for_each(|flow| flow.close(reason.clone()));
    }

    /// One flow has ended, as the first.
    fn end_others(&self, reason: &CloseReason) {
        match reason {
            // Each has a goodbye of its own. A word of this end could have the peer drop what it
            // still sends there.
            CloseReason::Peer(_) => {
                self.flows.iter().for_each(|flow| flow.expect_goodbye(reason.clone()));
            }
            _ => self.close_all(reason),
        }
    }
}

/// The first bytes of a frame, as many as show its order.
fn first_bytes<'a>(first: &'a mut [u8; ORDER_HEAD_BYTES], head: &'a [u8], body: &[u8]) -> &'a [u8] {
    if head.len() >= first.len() || body.is_empty() {
        return &head[..head.len().min(first.len())];
    }
    let rest = body.len().min(first.len() - head.len());
    first[..head.len()].copy_from_slice(head);
    first[head.len()..][..rest].copy_from_slice(&body[..rest]);
    &first[..head.len() + rest]
}

/// The flows of a connection, while one thread alone appends to them.
struct Spread<'a, C: Flow> {
    flows: &'a Flows<C>,
    sending: &'a mut Sending,
}

impl<C: Flow> Spread<'_, C> {
    /// Appends a frame of `size` bytes, of which these are the first, to its flow: by `append`,
    /// which gets the head with what goes before it there.
    fn append(
        &mut self,
        lane: Lane,
        size: usize,
        (head, first): (&[u8], &[u8]),
        append: impl FnOnce(&C, &[u8]) -> Result<Appended, NotWritable>,
    ) -> Result<Appended, NotWritable> {
        self.flows.check_size(size)?;
        if lane == Lane::Control {
            return self.flows.append_control(|flow| append(flow, head));
        }
        self.flows.check_open()?;
        let Sending { sent, sink } = &mut *self.sending;
        let sink = sink.as_ref().ok_or(NotWritable::Closed)?;
        let flow = self.flows.flow_of(sink.group(first));
        let appended = append(&self.flows.flows[flow], sent.prefixed(flow, head))?;
        sent.count(flow);
        self.flows.unflushed.fetch_or(1 << flow, Ordering::Relaxed);
        Ok(appended)
    }
}

impl<C: Flow> Buffer for Spread<'_, C> {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        let (size, mut first) = (head.len().saturating_add(body.len()), [0; ORDER_HEAD_BYTES]);
        let front = (head, first_bytes(&mut first, head, body));
        self.append(lane, size, front, |flow, head| flow.append_copy(lane, head, body))
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let (size, mut first) = (head.len().saturating_add(body.len()), [0; ORDER_HEAD_BYTES]);
        let front = (head, first_bytes(&mut first, head, &body));
        self.append(lane, size, front, |flow, head| flow.append_bytes(lane, head, body))
    }
}

impl<C: Flow> Connection for Flows<C> {
    fn link(&self) -> &Link {
        &self.link
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut Spread { flows: self, sending: &mut self.sending.lock() });
    }

    fn flush(&self) {
        let mut left = self.unflushed.swap(0, Ordering::Relaxed);
        while left != 0 {
            self.flows[left.trailing_zeros() as usize].flush();
            left &= left - 1;
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        all_ready(self.flows.iter().map(|flow| flow.poll_flush(cx)))
    }

    /// Ready while each flow has room, for nobody knows which the next frame takes.
    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        match lane {
            Lane::Control => self.flows[0].poll_writable(lane, cx),
            Lane::Data => all_ready(self.flows.iter().map(|flow| flow.poll_writable(lane, cx))),
        }
    }

    fn close(&self, reason: CloseReason) {
        let first = self.ending.lock().reason_or(&reason);
        self.close_all(&first);
    }

    fn counters(&self) -> Counters {
        let counters = self.flows.iter().map(|flow| flow.counters());
        counters.fold(Counters::default(), |sum, of_flow| sum + of_flow)
    }
}

/// Ready when all are; all are polled, so that each knows whom to wake.
fn all_ready(polls: impl Iterator<Item = Poll<()>>) -> Poll<()> {
    if polls.filter(Poll::is_pending).count() == 0 { Poll::Ready(()) } else { Poll::Pending }
}

impl<C: Flow> Ends for Flows<C> {
    fn end(&self, reason: CloseReason) {
        self.flows.iter().for_each(|flow| flow.end(reason.clone()));
    }
}

impl<C: Flow> fmt::Debug for Flows<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows")
            .field("peer", &self.link.peer.node)
            .field("nonce", &self.link.nonce)
            .field("count", &self.flows.len())
            .finish_non_exhaustive()
    }
}
