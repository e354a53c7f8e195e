//! All calls of a node as their initiator: hands frames to the right call, keeps their timers and the
//! number below which all are settled. Calls of one branch begin in a [slot](super::slot).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Extension, Frame, Header, Message, Reply};

use super::call::{
    Call, CallEvent, CallMisuse, CallOptions, Delivered, End, LinkView, root_path, root_request,
};
use super::limits::Limits;
use super::slot::{Answer, Errand, Fan, Read, Reading, Slot, Slots};
use super::timers::Timers;
use super::tree::Holder;
use super::{Arrival, Outbound, key};

/// The most branches of a flat call.
const FAN_BRANCHES_MAX: u32 = 64;

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
    /// Who waits for calls that have something for them.
    woken: Vec<Waker>,
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

/// What the requests of a flat call of several branches say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanOpened {
    pub(crate) call: CallId,
    pub(crate) budget_us: u64,
    /// As in [`crate::wire::Request::floor`].
    pub(crate) floor: u64,
}

#[derive(Debug)]
struct Armed {
    call: Box<Call>,
    /// The earliest timer that is set for it.
    at: Option<Timestamp>,
    /// Who waits for it.
    waker: Option<Waker>,
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
        self.calls.insert(seq, Armed { call, at: None, waker: None });
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
        let budget_us = u64::try_from(budget.as_micros()).unwrap_or(u64::MAX);
        let floor = call.seq - self.floor();
        let request = root_request(budget_us, floor, (method, extensions, payload));
        let header = Header { call, task: key(root_path(0), 0) };
        Ok(Frame::new(header, Message::Request(request)))
    }

    /// Whether a call of branches with this much time can begin flat, given which of their nodes are at hand.
    pub(crate) fn fan_suits(
        &self,
        budget: Duration,
        mut are_near: impl Iterator<Item = bool>,
    ) -> bool {
        let mut count = 0;
        let all = are_near.all(|is_near| {
            count += 1;
            is_near
        });
        // What a fan holds is bounded by what its branches may send without being asked.
        let may_be = 1..=FAN_BRANCHES_MAX.min(self.limits.branches_max);
        all && may_be.contains(&count) && self.slots.suits(budget)
    }

    /// Opens a flat call of several branches. Their requests are to leave now, with what is given back.
    ///
    /// # Errors
    /// [`TooManyCalls`] at the bound.
    pub(crate) fn open_fan(&mut self, fan: Fan) -> Result<FanOpened, TooManyCalls> {
        let call = self.next_id()?;
        let budget = fan.deadline.since(fan.opened_at);
        let budget_us = u64::try_from(budget.as_micros()).unwrap_or(u64::MAX);
        self.slots.open_fan(call.seq, fan);
        Ok(FanOpened { call, budget_us, floor: call.seq - self.floor() })
    }

    /// What a flat call of one branch has.
    pub(crate) fn poll_slot(&mut self, call: CallId) -> SlotPoll {
        let Some(errand) = self.slots.errand(call.seq) else { return SlotPoll::Grown };
        let Some(answer) = errand.answer.take() else { return SlotPoll::Pending };
        let Answer { by, payload, .. } = answer;
        self.slots.remove(call.seq);
        SlotPoll::Answered { from: by.from, payload }
    }

    /// Makes a full call of a flat one, which then hears what the slot could not take.
    fn grow(&mut self, seq: u64) {
        let id = CallId { origin: self.incarnation, seq };
        let (call, waker) = match self.slots.remove(seq) {
            None | Some(Slot::Vacant) => return,
            Some(Slot::One(mut errand)) => {
                let waker = errand.waker.take();
                (Call::from_errand(id, errand, &self.limits), waker)
            }
            Some(Slot::Several(mut fan)) => {
                let waker = fan.waker.take();
                (Call::from_fan(id, *fan, &self.limits), waker)
            }
        };
        self.calls.insert(seq, Armed { call: Box::new(call), at: None, waker });
        self.arm(seq);
        self.drain(seq);
    }

    /// Keeps who waits for a call until it has something.
    pub(crate) fn park(&mut self, call: CallId, waker: &Waker) {
        let kept = match self.slots.get(call.seq) {
            Some(Slot::One(errand)) => &mut errand.waker,
            Some(Slot::Several(fan)) => &mut fan.waker,
            None | Some(Slot::Vacant) => match self.calls.get_mut(&call.seq) {
                Some(armed) => &mut armed.waker,
                None => return,
            },
        };
        self.woken.extend(keep(kept, waker));
    }

    /// Who waits for calls that have something for them.
    pub(crate) fn take_woken(&mut self) -> std::vec::Drain<'_, Waker> {
        self.woken.drain(..)
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
        match self.slots.fan(call.seq) {
            Some(fan) if fan.is_complete() => self.remove_fan(call.seq),
            Some(fan) if fan.reading == Reading::Decided => {}
            _ => self.with(call.seq, |call| call.detach(now)),
        }
        self.ready.remove(&call.seq);
    }

    /// The caller has enough: what is still to come only settles the call.
    pub(crate) fn decide(&mut self, now: Timestamp, call: CallId, cancels_late: bool) {
        match self.slots.fan(call.seq) {
            Some(fan) if fan.is_complete() => self.remove_fan(call.seq),
            Some(fan) if !cancels_late => {
                fan.decide();
                self.woken.extend(fan.waker.take());
            }
            _ => self.with(call.seq, |call| call.decide(now, cancels_late)),
        }
        self.ready.remove(&call.seq);
    }

    fn remove_fan(&mut self, seq: u64) {
        if let Some(Slot::Several(fan)) = self.slots.remove(seq) {
            self.woken.extend(fan.waker);
        }
    }

    /// A call's reader is to be woken when this many replies wait.
    pub(crate) fn wake_after(&mut self, call: CallId, count: usize) {
        if let Some(fan) = self.slots.fan(call.seq) {
            fan.wake_after = count.max(1);
        } else if let Some(armed) = self.calls.get_mut(&call.seq) {
            armed.call.wake_after(count);
        }
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
        if let Message::Reply(reply) = &mut frame.message
            && self.answer_flat(now, by, (seq, &task), reply)
        {
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

    /// A reply for one of the flat calls. False when it is for a full one, or has to make it one.
    fn answer_flat(
        &mut self,
        now: Timestamp,
        by: Arrival,
        (seq, task): (u64, &TaskKey),
        reply: &mut Reply,
    ) -> bool {
        let unscheduled_bytes = self.limits.unscheduled_bytes;
        match self.slots.get(seq) {
            None | Some(Slot::Vacant) => false,
            Some(Slot::One(errand)) => {
                let is_answered = errand.answer(by, task, reply, unscheduled_bytes);
                self.woken.extend(errand.waker.take_if(|_| is_answered));
                is_answered
            }
            Some(Slot::Several(fan)) => {
                let is_answered = fan.answer(now, by, task, reply, unscheduled_bytes);
                if fan.is_complete() && fan.reading == Reading::Decided {
                    self.slots.remove(seq);
                } else if is_answered && fan.is_worth_waking() {
                    announce(seq, &mut fan.waker, &mut self.woken, &mut self.ready);
                }
                is_answered
            }
        }
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
        if let Some(fan) = self.slots.fan(call.seq) {
            return match fan.read() {
                Read::Nothing => None,
                Read::Reply { index, by, payload } => {
                    Some(CallEvent::Reply(Delivered::sole(root_path(index), by, payload)))
                }
                Read::End => Some(CallEvent::Ended(End::Complete)),
            };
        }
        let event = self.calls.get_mut(&call.seq)?.call.poll_event();
        if event.is_some() {
            self.drain(call.seq);
        }
        event
    }

    /// A call that has something for the application since it was last asked, and for which nobody is
    /// parked.
    pub(crate) fn poll_ready(&mut self) -> Option<CallId> {
        let seq = self.ready.pop_first()?;
        Some(CallId { origin: self.incarnation, seq })
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    /// How far a flat call of several branches is, as its end if it has one; `None` where there is none such.
    pub fn flat_end(&self, call: CallId) -> Option<Option<End>> {
        let fan = self.slots.peek_fan(call.seq)?;
        let end = fan.is_complete().then_some(End::Complete);
        Some(if fan.reading == Reading::Decided { Some(End::Decided) } else { end })
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
        let Some(Armed { call, waker, .. }) = self.calls.get_mut(&seq) else { return };
        while let Some(outbound) = call.poll_outbound() {
            self.out.push_back(outbound);
        }
        if call.is_worth_waking() {
            announce(seq, waker, &mut self.woken, &mut self.ready);
        }
        if call.is_done() {
            if !call.is_settled() {
                self.unsettled.insert(seq, call.deadline() + self.limits.keep_alive_timeout);
            }
            let Armed { call, waker, .. } = self.calls.remove(&seq).expect("it was found above");
            self.woken.extend(waker);
            self.dead.push(*call);
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

/// Keeps a waker. The one that was kept is to be woken rather than dropped: dropping it may call back, and
/// whoever calls holds a lock.
fn keep(kept: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match kept {
        Some(kept) if kept.will_wake(waker) => None,
        kept => kept.replace(waker.clone()),
    }
}

/// Tells who waits for a call that it has something.
fn announce(
    seq: u64,
    waker: &mut Option<Waker>,
    woken: &mut Vec<Waker>,
    ready: &mut BTreeSet<u64>,
) {
    match waker.take() {
        Some(waker) => woken.push(waker),
        None => drop(ready.insert(seq)),
    }
}
