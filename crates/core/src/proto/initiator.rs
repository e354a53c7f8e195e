//! All calls of a node as their initiator: hands frames to the right call, keeps their timers and the
//! number below which all are settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::id::{CallId, Incarnation, LinkNonce, MethodId, NodeId, Path, TaskKey};
use crate::time::Timestamp;
use crate::wire::{Extension, Frame, Message};

use super::call::{Call, CallEvent, CallMisuse, CallOptions, LinkView};
use super::limits::Limits;
use super::timers::Timers;
use super::tree::Holder;
use super::{Arrival, Outbound};

/// The calls of one node.
#[derive(Debug)]
pub struct Initiator {
    incarnation: Incarnation,
    limits: Limits,
    next_seq: u64,
    calls: BTreeMap<u64, Armed>,
    /// Ended calls of which something may still be in flight, and until when.
    unsettled: BTreeMap<u64, Timestamp>,
    timers: Timers<u64>,
    ready: BTreeSet<u64>,
    out: VecDeque<Outbound>,
    dead: Vec<Call>,
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
            calls: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            timers: Timers::new(),
            ready: BTreeSet::new(),
            out: VecDeque::new(),
            dead: Vec::new(),
        }
    }

    /// Calls that are over and forgotten, with what their callers gave them.
    pub(crate) fn take_dead(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.dead)
    }

    /// Calls that have not ended.
    pub fn open_count(&self) -> usize {
        self.calls.values().filter(|armed| !armed.call.has_ended()).count()
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
        if self.calls.len() >= self.limits.calls_max {
            return Err(TooManyCalls { limit: self.limits.calls_max });
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let id = CallId { origin: self.incarnation, seq };
        let deadline = deadline.min(now + self.limits.deadline_max);
        let call = Box::new(Call::new(id, now, deadline, options, &self.limits));
        self.calls.insert(seq, Armed { call, at: None });
        self.arm(seq);
        Ok(id)
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
        open.into_iter().chain(unsettled).min().unwrap_or(self.next_seq)
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
        frame: Frame,
        links: &dyn LinkView,
    ) {
        let (seq, task) = (frame.header.call.seq, frame.header.task);
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
        timer.into_iter().chain(unsettled).min()
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
        self.calls.len()
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
