//! All calls of a node as their initiator: hands frames to the right call, keeps their timers and the
//! number below which all are settled. Calls of one branch begin in a [slot](super::slot).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Extension, Frame, Header, Message, Reply, ReplyRoute, Request};

use super::call::{Call, CallEvent, CallMisuse, CallOptions, LinkView};
use super::limits::Limits;
use super::slot::{Answer, Errand, Slots};
use super::timers::Timers;
use super::tree::Holder;
use super::{Arrival, Outbound, key};

/// The calls of one node.
#[derive(Debug)]
pub struct Initiator {
    incarnation: Incarnation,
    limits: Limits,
    next_seq: u64,
    slots: Slots,
    calls: BTreeMap<u64, Armed>,
    /// Ended calls of which something may still be in flight, and until when.
    unsettled: BTreeMap<u64, Timestamp>,
    timers: Timers<u64>,
    ready: BTreeSet<u64>,
    out: VecDeque<Outbound>,
    dead: Vec<Call>,
    /// Flat calls that have been answered, as who waits for them.
    woken: Vec<Waker>,
    /// Calls that are flat no longer, with who waits for them.
    grown: Vec<(CallId, Waker)>,
}

/// What a flat call has for the one who asks.
#[derive(Debug, PartialEq, Eq)]
pub enum SlotPoll {
    /// Nothing yet.
    Pending,
    /// The reply; the call is over.
    Answered {
        /// Who sent it.
        from: NodeId,
        /// The message.
        payload: Bytes,
    },
    /// It has become a full call, to be asked as such.
    Grown,
}

#[derive(Debug)]
struct Armed {
    call: Box<Call>,
    /// The earliest timer that is set for it.
    at: Option<Timestamp>,
}

/// A new call would be one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} calls are open, as many as calls_max allows")]
pub struct TooManyCalls {
    /// The bound.
    pub limit: usize,
}

impl Initiator {
    pub(crate) fn new(incarnation: Incarnation, limits: &Limits) -> Self {
        Self {
            incarnation,
            limits: limits.clone(),
            next_seq: 1,
            slots: Slots::new(limits.worry_min),
            calls: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            timers: Timers::new(),
            ready: BTreeSet::new(),
            out: VecDeque::new(),
            dead: Vec::new(),
            woken: Vec::new(),
            grown: Vec::new(),
        }
    }

    /// Calls that are over and forgotten, with what their callers gave them.
    pub(crate) fn take_dead(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.dead)
    }

    /// Calls that have not ended.
    pub fn open_count(&self) -> usize {
        let full = self.calls.values().filter(|armed| !armed.call.has_ended()).count();
        full + self.slots.unanswered()
    }

    /// Opens a call that ends by `deadline`.
    ///
    /// # Errors
    /// [`TooManyCalls`] at the bound.
    pub(crate) fn open(
        &mut self,
        now: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
    ) -> Result<CallId, TooManyCalls> {
        let id = self.next_id()?;
        let seq = id.seq;
        let deadline = deadline.min(now + self.limits.deadline_max);
        let call = Box::new(Call::new(id, now, deadline, options, &self.limits));
        self.calls.insert(seq, Armed { call, at: None });
        self.arm(seq);
        Ok(id)
    }

    fn next_id(&mut self) -> Result<CallId, TooManyCalls> {
        if self.call_count() >= self.limits.calls_max {
            return Err(TooManyCalls { limit: self.limits.calls_max });
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        Ok(CallId { origin: self.incarnation, seq })
    }

    /// Whether a call with this much time can begin flat.
    pub(crate) fn slot_suits(&self, budget: Duration) -> bool {
        self.slots.suits(budget)
    }

    /// Opens a flat call. Its request is the one given back, and leaves now.
    ///
    /// # Errors
    /// [`TooManyCalls`] at the bound.
    pub(crate) fn open_slot(
        &mut self,
        errand: Errand,
        method: MethodId,
        extensions: Vec<Extension>,
        payload: Bytes,
    ) -> Result<Frame, TooManyCalls> {
        let call = self.next_id()?;
        let budget = errand.deadline.since(errand.opened_at);
        self.slots.open(call.seq, errand);
        let request = Request {
            budget_us: u64::try_from(budget.as_micros()).unwrap_or(u64::MAX),
            outlasted_us: 0,
            floor: call.seq - self.floor(),
            method,
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions,
            payload,
        };
        let path = Path::root().child(0).expect("one level fits");
        Ok(Frame::new(Header { call, task: key(path, 0) }, Message::Request(request)))
    }

    /// What a flat call has; keeps the waker when there is nothing.
    pub(crate) fn poll_slot(&mut self, call: CallId, waker: &Waker) -> SlotPoll {
        let Some(errand) = self.slots.get(call.seq) else { return SlotPoll::Grown };
        if errand.answer.is_none() {
            match &mut errand.waker {
                Some(kept) if kept.will_wake(waker) => {}
                // The old one is woken rather than dropped: that may call back, and this is locked.
                Some(kept) => self.woken.push(std::mem::replace(kept, waker.clone())),
                none => *none = Some(waker.clone()),
            }
            return SlotPoll::Pending;
        }
        let errand = self.slots.remove(call.seq).expect("it was found above");
        let Answer { by, payload, .. } = errand.answer.expect("it was seen above");
        SlotPoll::Answered { from: by.from, payload }
    }

    /// Makes a full call of a flat one, which then hears what the slot could not take.
    fn grow(&mut self, seq: u64) {
        let Some(mut errand) = self.slots.remove(seq) else { return };
        let id = CallId { origin: self.incarnation, seq };
        let call = Box::new(Call::from_errand(id, &errand, &self.limits));
        self.calls.insert(seq, Armed { call, at: None });
        self.arm(seq);
        self.grown.extend(errand.waker.take().map(|waker| (id, waker)));
        if let Some(Answer { by, hop, payload }) = errand.answer {
            let path = Path::root().child(0).expect("one level fits");
            let reply = Reply::sole(payload);
            self.with(seq, |call| call.handle_reply(errand.opened_at, by, &key(path, hop), reply));
        }
    }

    /// Who waits for flat calls that have been answered.
    pub(crate) fn take_woken(&mut self) -> std::vec::Drain<'_, Waker> {
        self.woken.drain(..)
    }

    /// Calls that are flat no longer, with who waits for them.
    pub(crate) fn take_grown(&mut self) -> std::vec::Drain<'_, (CallId, Waker)> {
        self.grown.drain(..)
    }

    /// Opens a root branch of a call.
    ///
    /// # Errors
    /// [`CallMisuse`].
    pub(crate) fn branch(
        &mut self,
        now: Timestamp,
        call: CallId,
        to: NodeId,
        method: MethodId,
        extensions: Vec<Extension>,
        payload: Bytes,
    ) -> Result<Path, CallMisuse> {
        let floor = self.floor();
        let mut result = Err(CallMisuse::Sealed);
        self.with(call.seq, |call| {
            result = call.branch(now, to, floor, method, extensions, payload);
        });
        result
    }

    /// The oldest call that is not settled; every older one is.
    pub fn floor(&self) -> u64 {
        let open = self.calls.first_key_value().map(|(seq, _)| *seq);
        let unsettled = self.unsettled.first_key_value().map(|(seq, _)| *seq);
        let flat = self.slots.oldest();
        open.into_iter().chain(unsettled).chain(flat).min().unwrap_or(self.next_seq)
    }

    pub(crate) fn seal(&mut self, now: Timestamp, call: CallId) {
        self.with(call.seq, |call| call.seal(now));
    }

    pub(crate) fn cancel(&mut self, now: Timestamp, call: CallId) {
        self.with(call.seq, |call| call.cancel(now));
    }

    pub(crate) fn detach(&mut self, now: Timestamp, call: CallId) {
        self.with(call.seq, |call| call.detach(now));
        self.ready.remove(&call.seq);
    }

    pub(crate) fn handle_sent(
        &mut self,
        call: CallId,
        path: &Path,
        link: LinkNonce,
        life: Option<Incarnation>,
    ) {
        self.with(call.seq, |call| call.handle_sent(path, link, life));
    }

    pub(crate) fn handle_unsent(&mut self, now: Timestamp, call: CallId, path: &Path, text: &str) {
        self.with(call.seq, |call| call.handle_unsent(now, path, text));
    }

    /// A frame for one of the calls. Frames of forgotten calls are dropped: late replies are normal.
    pub(crate) fn handle_frame(
        &mut self,
        now: Timestamp,
        by: Arrival,
        mut frame: Frame,
        links: &dyn LinkView,
    ) {
        let (seq, task) = (frame.header.call.seq, frame.header.task);
        if let (Message::Reply(reply), Some(errand)) = (&mut frame.message, self.slots.get(seq))
            && errand.answer(by, &task, reply, self.limits.unscheduled_bytes)
        {
            self.woken.extend(errand.waker.take());
            return;
        }
        self.with(seq, |call| match frame.message {
            Message::Reply(reply) => call.handle_reply(now, by, &task, reply),
            Message::Manifest(manifest) => call.handle_manifest(now, by, &task, &manifest.entries),
            Message::Fail(fail) => call.handle_fail(now, by, &task, fail),
            Message::LinkDown(report) => call.handle_link_down_report(now, by, &task, &report),
            Message::Status(status) => call.handle_status(now, by, &status, links),
            _ => debug_assert!(false, "the node routes only frames for initiators here"),
        });
    }

    /// A PROBE for these tasks of a call found no way to their holder.
    pub(crate) fn handle_unasked(
        &mut self,
        now: Timestamp,
        call: CallId,
        asked: Holder,
        tasks: &[TaskKey],
    ) {
        if call.origin == self.incarnation {
            self.with(call.seq, |call| call.handle_unasked(now, asked, tasks));
        }
    }

    /// A connection to `node` ended.
    pub(crate) fn handle_peer_down(&mut self, now: Timestamp, node: NodeId, links: &dyn LinkView) {
        self.slots.sent_to(node).into_iter().for_each(|seq| self.grow(seq));
        let seqs: Vec<u64> = self.calls.keys().copied().collect();
        for seq in seqs {
            self.with(seq, |call| call.handle_peer_down(now, node, links));
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &dyn LinkView) {
        // In order of number: an entry behind a longer-lived one waits with it, for the floor cannot pass.
        while self.unsettled.first_key_value().is_some_and(|(_, until)| *until <= now) {
            self.unsettled.pop_first();
        }
        while let Some(seq) = self.slots.next_due(now) {
            self.grow(seq);
        }
        while let Some((at, seq)) = self.timers.pop_due(now) {
            let Some(armed) = self.calls.get_mut(&seq).filter(|armed| armed.at == Some(at)) else {
                continue;
            };
            armed.at = None;
            // The timer may be older than the call's present timeout.
            if armed.call.poll_timeout().is_some_and(|at| at <= now) {
                self.with(seq, |call| call.handle_timeout(now, links));
            }
            self.arm(seq);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let timer = self.timers.next();
        let unsettled = self.unsettled.first_key_value().map(|(_, until)| *until);
        timer.into_iter().chain(unsettled).chain(self.slots.next_timeout()).min()
    }

    /// What the application learns next of one call.
    pub(crate) fn poll_event(&mut self, call: CallId) -> Option<CallEvent> {
        let event = self.calls.get_mut(&call.seq)?.call.poll_event();
        if event.is_some() {
            self.drain(call.seq);
        }
        event
    }

    /// A call that has something for the application since it was last asked.
    pub(crate) fn poll_ready(&mut self) -> Option<CallId> {
        let seq = self.ready.pop_first()?;
        Some(CallId { origin: self.incarnation, seq })
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    /// A call, for inspection.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.calls.get(&call.seq).map(|armed| &*armed.call)
    }

    /// Calls that are open, or ended and not read to their end.
    pub fn call_count(&self) -> usize {
        self.calls.len() + self.slots.len()
    }

    /// Ended calls of which something may still be in flight.
    pub fn unsettled_count(&self) -> usize {
        self.unsettled.len()
    }

    /// Timers that are set, void ones too: at most twice the calls and a few.
    pub fn timer_count(&self) -> usize {
        self.timers.len()
    }

    fn with(&mut self, seq: u64, act: impl FnOnce(&mut Call)) {
        self.grow(seq);
        if let Some(armed) = self.calls.get_mut(&seq) {
            act(&mut armed.call);
            self.arm(seq);
            self.drain(seq);
        }
    }

    /// Collects what a call wants after any input, and drops it when it is done.
    fn drain(&mut self, seq: u64) {
        let Some(Armed { call, .. }) = self.calls.get_mut(&seq) else { return };
        while let Some(outbound) = call.poll_outbound() {
            self.out.push_back(outbound);
        }
        if call.has_event() {
            self.ready.insert(seq);
        }
        if call.is_done() {
            if !call.is_settled() {
                self.unsettled.insert(seq, call.deadline() + self.limits.keep_alive_timeout);
            }
            self.dead.extend(self.calls.remove(&seq).map(|armed| *armed.call));
        }
    }

    fn arm(&mut self, seq: u64) {
        let Some(armed) = self.calls.get_mut(&seq) else { return };
        let Some(at) = armed.call.poll_timeout() else { return };
        if armed.at.is_some_and(|armed_at| armed_at <= at) {
            return;
        }
        armed.at = Some(at);
        self.timers.push(at, seq);
        if self.timers.is_crowded(self.calls.len()) {
            let armed = self.calls.iter().filter_map(|(seq, armed)| Some((armed.at?, *seq)));
            self.timers.sweep(armed);
        }
    }
}
