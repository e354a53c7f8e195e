//! One connection over a queue pair, without I/O and without a clock.
//!
//! A [`Link`] puts the parts together: it takes frames, cuts them into messages, sends them as far
//! as the peer's credit and its own send queue go, gives out the frames that come, and keeps the
//! account of the receive slots. Whoever owns the queue pair drives it. After any input it asks, in
//! this order:
//!
//! ```text
//!  inputs                                        outputs
//!  append_copy, append_bytes,
//!  introduce, close                       ─┐  ┌─▶ poll_event     until None
//!  handle_message   a receive completed    ├──┼─▶ take_received  hand the frames to the sink
//!  handle_sent      sends completed        │  ├─▶ poll_post      post these receives
//!  handle_slot_returned                   ─┘  └─▶ poll_send      writes messages; post them
//!                                                   (or poll_send_in_place, where it applies)
//! ```
//!
//! The order is part of the protocol: a slot counts as free when its frames were taken, it is
//! announced when its receive was posted, and nothing is sent while the slot of a control message
//! waits to be posted. All slots are posted before the connection is made or accepted. When the
//! device refuses a receive or a send, the link is of no more use and must be
//! [abandoned](Link::abandon).
//!
//! **Opening.** Both ends introduce themselves: with [`Link::introduce`] they say where they can be
//! dialled. Frames that were appended before wait for it, and the peer's introduction comes as
//! [`Event::Introduced`] before any frame. The accepting end introduces itself when its sink has
//! taken the connection; to refuse, it closes instead, and the other end gets [`Event::Goodbye`]
//! alone.
//!
//! **Ending.** [`Link::close`] sends what was appended, if the reason is gentle, and then a
//! goodbye. An end that hears one answers with its own, unless its has been sent. When both are
//! through, [`Link::is_finished`] holds and the driver disconnects. It does so too when the grace
//! of a close is over. A peer that breaks the rules gets the goodbye if there is credit for it, and
//! is not listened to any more.

mod copies;
mod receive;
mod send;
pub(crate) mod send_queue;
pub(crate) mod spent;
mod work_account;

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_transport::parts::{LANES, SendAccount, SendLimits, SendShare, index};
use convoke_transport::{
    Address, Appended, Buffer, CloseReason, Counters, Lane, NotWritable, Received,
};

use crate::credit::{CreditEngine, Limits};
use crate::defect::Defects;
use crate::framing::HEADER_BYTES;
use crate::framing::reassembly::Reassembly;
use crate::hello::Terms;
use crate::introduction::{self, Introduction};
use crate::slot_ring::{Slot, SlotRing};
use copies::Copies;
use send_queue::SendQueue;
use spent::Spent;
use work_account::WorkAccount;

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkConfig {
    /// Terms of this end, as it gave them in its hello.
    pub(crate) own: Terms,
    /// Terms of the peer in its hello, as [`Greeting::decode`](crate::hello::Greeting::decode) took
    /// it.
    pub(crate) peer: Terms,
    /// Number of work requests that the send queue holds; at least 1.
    pub(crate) send_queue_depth: u32,
    /// Bounds of a frame to the peer, and of what waits in the lanes.
    pub(crate) send: SendLimits,
    /// Deliberate defects of this end.
    pub(crate) defects: Defects,
}

impl LinkConfig {
    /// Number of completions that a link can have outstanding: its share of a completion queue.
    #[cfg(test)]
    pub(crate) fn completion_count_max(&self) -> u32 {
        self.own.receive_count() + self.send_queue_depth.max(1)
    }
}

/// Place for the messages that a link writes: registered slots, or buffers that are sent inline.
///
/// Messages that one [`Link::poll_send`] wrote may be posted as one chain afterwards, in the order
/// they were written in.
pub(crate) trait Outbox {
    /// Number of data messages that it still takes now. Credit-only messages, of [`HEADER_BYTES`]
    /// bytes, are always taken: without them other links might not get their buffers back.
    fn room(&self) -> usize;

    /// The place for the next message, of exactly `len` bytes, which the link overwrites. For a
    /// data message it comes out of [`room`](Self::room).
    fn buffer(&mut self, len: usize) -> &mut [u8];

    /// The message is written; `is_last` of those that are now. The driver chooses which sends
    /// report their completion: often enough that neither the send queue nor the room for data is
    /// full of sends that say nothing.
    fn post(&mut self, is_last: bool);
}

/// Event that a link has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// The peer can be dialled at these addresses. Comes once, before any frame.
    Introduced(Vec<Address>),
    /// The lane has room again, after an append said [`Appended::Full`] or [`NotWritable::Full`].
    Writable(Lane),
    /// The peer closes, with this text, and sends no more frames.
    Goodbye(String),
}

/// Counts of what went over a link so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkCounters {
    /// As the connection reports them; reads and writes are the driver's to count.
    pub(crate) transport: Counters,
    /// Messages that took a data credit.
    pub(crate) data_messages_sent: u64,
    /// Messages that gave credit and nothing else.
    pub(crate) credit_messages_sent: u64,
    /// Frames large enough to be lent that were copied, because the application held too many
    /// slots.
    pub(crate) copies_under_pressure: u64,
}

/// One connection; see the [module](self).
#[derive(Debug)]
pub(crate) struct Link {
    /// The most bytes of a message behind its header.
    payload_max: usize,
    credit: CreditEngine,
    defects: Defects,
    ring: SlotRing,
    work: WorkAccount,
    account: SendAccount,
    lanes: [SendQueue; 2],
    /// Bodies that are sent, or are not going to be.
    spent: Spent,
    /// Messages in a row in which control frames left no room for data that waits.
    control_run: u32,
    speaking: Speaking,
    is_keep_alive_due: bool,
    listening: Listening,
    /// Set once; no frames are taken from then on.
    closing: Option<CloseReason>,
    reassembly: Reassembly,
    copies: Copies,
    events: VecDeque<Event>,
    /// Frames to hand to the sink, and the slots that are free once it has them.
    received: Vec<Received>,
    read: Vec<Slot>,
    counters: LinkCounters,
}

/// Progress of this end in what it says.
#[derive(Debug)]
enum Speaking {
    /// The introduction is not given yet.
    Silent,
    /// These messages of the introduction are left, the next one last.
    Introducing(Vec<Vec<u8>>),
    /// Frames go out.
    Frames,
    /// The goodbye is sent, or cannot be.
    Finished,
}

/// Progress of the peer in what it says.
#[derive(Debug)]
enum Listening {
    Introduction(Introduction),
    Frames,
    /// It said goodbye.
    Goodbye,
    /// It broke the rules, or the queue pair failed; nothing it sends counts.
    Fault,
}

impl Link {
    /// A connection both of whose ends have said hello, with its share of the room to send. No
    /// receive is posted yet.
    pub(crate) fn new(config: &LinkConfig, share: SendShare) -> Self {
        debug_assert!(config.own.fault().is_none() && config.peer.fault().is_none());
        let (own, peer) = (Limits::of(&config.own), Limits::of(&config.peer));
        let payload_max = config.peer.slot_bytes as usize - HEADER_BYTES;
        Self {
            payload_max,
            credit: CreditEngine::new(own, peer).with(config.defects),
            defects: config.defects,
            ring: SlotRing::new(own),
            work: WorkAccount::new(config.send_queue_depth),
            account: SendAccount::new(config.send, share),
            lanes: LANES.map(|lane| SendQueue::new(lane, payload_max)),
            spent: Spent::default(),
            control_run: 0,
            speaking: Speaking::Silent,
            is_keep_alive_due: false,
            listening: Listening::Introduction(Introduction::default()),
            closing: None,
            reassembly: Reassembly::new(config.own.frame_bytes_max),
            copies: Copies::default(),
            events: VecDeque::new(),
            received: Vec::new(),
            read: Vec::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Tells the peer where this end can be dialled, and lets frames go. To be called once.
    pub(crate) fn introduce(&mut self, addresses: &[Address]) {
        if matches!(self.speaking, Speaking::Silent) && self.closing.is_none() {
            let mut payloads = introduction::encode(addresses, self.payload_max);
            payloads.reverse();
            self.speaking = Speaking::Introducing(payloads);
        }
    }

    /// Tells the peer that this process is alive, with the next message, once there is credit for
    /// it. It takes a data slot, as everything but credit does, and what is kept for urgent ones.
    pub(crate) fn keep_alive(&mut self) {
        self.is_keep_alive_due = true;
    }

    /// True when the peer could say something, if it wanted.
    pub(crate) fn may_peer_speak(&self) -> bool {
        self.credit.may_peer_speak()
    }

    /// Closes: what was appended goes out if the reason is gentle, then a goodbye. Frames that were
    /// not polled or still come are given out only if the reason is gentle. The first reason
    /// stands.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        if self.closing.is_none() && !reason.is_gentle() {
            self.received.clear();
        }
        self.begin_close(reason);
    }

    /// As [`close`](Self::close), but what has come is given out.
    fn begin_close(&mut self, reason: CloseReason) {
        if self.closing.is_some() {
            return;
        }
        if !reason.is_gentle() || matches!(self.speaking, Speaking::Silent) {
            self.drop_unsent();
        }
        if !reason.is_gentle() {
            self.reassembly.clear();
        }
        self.closing = Some(reason);
        self.account.close();
    }

    /// The grace of a close is over: what is queued is dropped, and the goodbye goes out if there
    /// is credit for it.
    pub(crate) fn handle_grace_over(&mut self) {
        self.drop_unsent();
    }

    /// The queue pair is of no more use, such as after an error or a disconnect: nothing goes out,
    /// and nothing that comes counts. What was received is still given out.
    pub(crate) fn abandon(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        self.account.close();
        self.drop_unsent();
        self.reassembly.clear();
        self.speaking = Speaking::Finished;
        self.listening = Listening::Fault;
    }

    /// So many sends are done: those that a signalled completion stands for, in the order of
    /// posting.
    #[inline]
    pub(crate) fn handle_sent(&mut self, count: u32) {
        self.work.on_completed(count);
    }

    /// The application gave a lent slot back.
    #[inline]
    pub(crate) fn handle_slot_returned(&mut self, slot: Slot) {
        self.ring.take_back(slot);
    }

    /// Takes a place in the send queue for a work request of the driver's own, which must be
    /// signalled, such as a probe of an idle peer. It counts in [`handle_sent`](Self::handle_sent).
    /// `false` when the queue is full.
    pub(crate) fn take_send_slot(&mut self) -> bool {
        if self.work.free() == 0 {
            return false;
        }
        self.work.post();
        true
    }

    /// True when [`poll_post`](Self::poll_post) has receives to add.
    #[inline]
    pub(crate) fn is_time_to_post(&self) -> bool {
        self.ring.is_time_to_post()
    }

    /// Adds the receives to post now to `slots`; from here on they count as posted.
    #[inline]
    pub(crate) fn poll_post(&mut self, slots: &mut Vec<u32>) {
        if self.ring.is_time_to_post() {
            let reposted = self.ring.post(slots);
            self.credit.on_posted(reposted.data, reposted.control);
        }
    }

    /// True when the lane has room, or is closed: when nobody needs to wait for it. Else whoever
    /// asks is told once it has.
    pub(crate) fn poll_writable(&mut self, lane: Lane) -> bool {
        self.closing.is_some() || self.lanes[index(lane)].poll_writable(&self.account)
    }

    /// True when every frame appended is in a message that was written.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.account.is_empty()
    }

    /// Reason why it closes, once it does: [`close`](Self::close), the peer's goodbye or its fault.
    #[inline]
    pub(crate) fn closing(&self) -> Option<&CloseReason> {
        self.closing.as_ref()
    }

    /// True when both ends have said goodbye, or cannot, and everything sent has completed: time to
    /// disconnect.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        let is_peer_through = matches!(self.listening, Listening::Goodbye | Listening::Fault);
        let is_through = matches!(self.speaking, Speaking::Finished);
        is_peer_through && is_through && self.work.outstanding() == 0
    }

    /// True when the peer is down to the slots that are never lent, while the application holds
    /// others. Then whoever gives one back should wake the driver; else the next message is soon
    /// enough.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.ring.lent_count() > 0 && self.credit.peer_left() <= self.ring.kept_count()
    }

    /// True when [`poll_event`](Self::poll_event) has something to tell.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// True when there is something to tell, or frames have come, or slots are free once that was
    /// asked for.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.read.is_empty() || !self.received.is_empty() || self.has_events()
    }

    /// Bodies of frames that were sent or given up since it was asked last, which are the caller's
    /// to drop.
    #[inline]
    pub(crate) fn take_spent(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// True when [`take_spent`](Self::take_spent) has something to give.
    #[inline]
    pub(crate) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// Counts of what went over it so far.
    pub(crate) fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    fn drop_unsent(&mut self) {
        self.lanes.iter_mut().for_each(|queue| queue.clear(&mut self.spent));
        self.account.clear();
        if matches!(self.speaking, Speaking::Introducing(_)) {
            self.speaking = Speaking::Frames;
        }
    }
}

impl Buffer for Link {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        self.lanes[index(lane)].append_copy(&mut self.account, head, body)
    }

    /// A body larger than a message is copied only into the messages.
    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        self.lanes[index(lane)].append_bytes(&mut self.account, head, body)
    }
}

#[cfg(test)]
mod tests;
