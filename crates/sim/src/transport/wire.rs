//! One connection: both its ends and both its directions, under one lock.
//!
//! An end lives until its delivery task has heard why it is over ([`Step::End`]):
//!
//! ```text
//!         close, gently              the other end is over, or the grace is
//!  Open ─────────────────▶ Closing ──────────────────────────────┐
//!   │                                                            ▼
//!   └── close at once, goodbye heard, cut, lost, crashed ──▶ reason for the sink
//! ```

mod hooked;

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_proto::id::NodeId;
use convoke_transport::{Appended, Buffer, CloseReason, Counters, Hello, Lane, Link, NotWritable};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::SCHEME;
use super::carrier::Token;
use super::network::Network;
use super::pipe::{Arrived, Departure, LANES, Pipe, PipeEnd, index};
use super::topology::{Nodes, Pair, Timing};
use super::waiters::Waiters;
use crate::clock::after;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialler,
    Listener,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Dialler, Self::Listener];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Listener,
            Self::Listener => Self::Dialler,
        }
    }

    const fn at(self) -> usize {
        match self {
            Self::Dialler => 0,
            Self::Listener => 1,
        }
    }
}

/// Next step of the delivery task of an end.
#[derive(Debug)]
pub(crate) enum Step {
    Deliver(Vec<Arrived>),
    End(CloseReason),
    /// Until something changes, or until then.
    Wait(Option<Instant>),
}

#[derive(Debug)]
pub(crate) struct Wire {
    /// Itself, for the tokens of its frames.
    me: Weak<Self>,
    network: Arc<Network>,
    links: [Link; 2],
    state: Mutex<State>,
    signals: [Notify; 2],
}

#[derive(Debug)]
struct State {
    /// By the side they come from.
    pipes: [Pipe; 2],
    ends: [End; 2],
}

#[derive(Debug, Default)]
struct End {
    /// Reason why it is closed, once it is.
    closing: Option<CloseReason>,
    /// A gentle close waits for the other end until then.
    grace_until: Option<Instant>,
    counters: Counters,
    flush_waiters: Waiters,
    writable_waiters: [Waiters; 2],
}

/// What one end has to send.
struct Sending<'a> {
    state: &'a mut State,
    side: Side,
}

impl Buffer for Sending<'_> {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        self.state.admit(self.side, lane, head.len().saturating_add(body.len()))?;
        Ok(self.state.pipes[self.side.at()].append(lane, [head, body].concat().into()))
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        self.state.admit(self.side, lane, head.len().saturating_add(body.len()))?;
        let frame = if head.is_empty() { body } else { [head, &body].concat().into() };
        Ok(self.state.pipes[self.side.at()].append(lane, frame))
    }
}

impl Wire {
    /// A connection whose ends said these hellos, registered with the network.
    pub(crate) fn open(network: &Arc<Network>, dialler: Hello, listener: Hello) -> Arc<Self> {
        let mut topology = network.topology.lock();
        let nonce = topology.next_nonce();
        let pairs = [(dialler.node, listener.node), (listener.node, dialler.node)];
        let limits = [listener.frame_bytes_max, dialler.frame_bytes_max];
        let pipe = |side: Side| {
            let limit = usize::try_from(limits[side.at()]).unwrap_or(usize::MAX);
            Pipe::new(limit, topology.held_since(pairs[side.at()]))
        };
        let pipes = Side::BOTH.map(pipe);
        let link = |peer, is_dialler| Link {
            peer,
            nonce,
            is_dialler,
            scheme: SCHEME,
            principal: None,
            remote: None,
        };
        let wire = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            network: Arc::clone(network),
            links: [link(listener, true), link(dialler, false)],
            state: Mutex::new(State { pipes, ends: Default::default() }),
            signals: Default::default(),
        });
        topology.register(nonce, &wire);
        wire
    }

    pub(crate) fn link(&self, side: Side) -> &Link {
        &self.links[side.at()]
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes(Side::BOTH.map(|side| self.node(side)))
    }

    fn node(&self, side: Side) -> NodeId {
        self.link(side.other()).peer.node
    }

    fn pair_from(&self, side: Side) -> Pair {
        (self.node(side), self.node(side.other()))
    }

    pub(crate) fn with_buffer(&self, side: Side, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut Sending { state: &mut self.state.lock(), side });
    }

    /// Sends what has credit.
    pub(crate) fn flush(&self, side: Side) {
        let mut state = self.state.lock();
        let woken = self.pump(&mut state, side);
        drop(state);
        woken.wake();
    }

    pub(crate) fn poll_flush(&self, side: Side, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let woken = self.pump(&mut state, side);
        let is_ready =
            state.ends[side.at()].closing.is_some() || state.pipes[side.at()].is_flushed();
        if !is_ready {
            state.ends[side.at()].flush_waiters.register(cx);
        }
        drop(state);
        woken.wake();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn poll_writable(&self, side: Side, lane: Lane, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.ends[side.at()].closing.is_some() || state.pipes[side.at()].is_writable(lane) {
            return Poll::Ready(());
        }
        state.ends[side.at()].writable_waiters[index(lane)].register(cx);
        Poll::Pending
    }

    pub(crate) fn counters(&self, side: Side) -> Counters {
        self.state.lock().ends[side.at()].counters
    }

    pub(crate) fn is_closed(&self, side: Side) -> bool {
        self.state.lock().ends[side.at()].closing.is_some()
    }

    /// True when nothing more is delivered at this end: closed, and not gently.
    pub(crate) fn is_over(&self, side: Side) -> bool {
        let state = self.state.lock();
        let end = &state.ends[side.at()];
        end.closing.is_some() && end.grace_until.is_none()
    }

    pub(crate) fn close(&self, side: Side, reason: CloseReason) {
        let mut state = self.state.lock();
        if state.ends[side.at()].closing.is_some() {
            return;
        }
        let is_gentle = reason.is_gentle();
        state.pipes[side.at()].close(reason.goodbye_text(), is_gentle);
        let grace = self.network.topology.lock().timing.close_grace;
        let end = &mut state.ends[side.at()];
        end.grace_until = is_gentle.then(|| after(Instant::now(), grace));
        end.closing = Some(reason);
        let mut woken = state.waiters_of(side);
        woken.append(&mut self.pump(&mut state, side));
        drop(state);
        woken.wake();
        self.signals[side.at()].notify_one();
    }

    /// The sink of `side` found a fault of the peer: nothing more is delivered.
    pub(crate) fn refuse(&self, side: Side, text: String) {
        let mut state = self.state.lock();
        state.pipes[side.at()].close(text.clone(), false);
        let woken = state.end_now(side, CloseReason::Fault(text));
        drop(state);
        woken.wake();
    }

    /// Ends both ends now; what is on its way is lost. Whether it was open at either end.
    pub(crate) fn sever(&self, why: &str) -> bool {
        let mut state = self.state.lock();
        let was_open = state.ends.iter().any(|end| end.closing.is_none());
        let woken = self.sever_locked(&mut state, why);
        drop(state);
        woken.wake();
        was_open
    }

    /// The node dies: what it has sent arrives, then its peer hears that the connection is gone, or
    /// nothing more.
    pub(crate) fn crash(&self, node: NodeId, is_silent: bool) {
        for side in Side::BOTH.into_iter().filter(|side| self.node(*side) == node) {
            let due = after(Instant::now(), self.latency_from(side));
            let mut state = self.state.lock();
            let pipe = &mut state.pipes[side.at()];
            if is_silent {
                pipe.vanish(due);
            } else {
                pipe.end_at(due, PipeEnd::Reset(format!("{node} crashed")));
            }
            let woken = state.end_now(side, CloseReason::Network(format!("{node} crashed")));
            drop(state);
            woken.wake();
            self.notify_both();
        }
    }

    /// Lets nothing go from the first node of `pair` to the second.
    pub(crate) fn hold(&self, pair: Pair, now: Instant) {
        for side in Side::BOTH.into_iter().filter(|side| self.pair_from(*side) == pair) {
            self.state.lock().pipes[side.at()].hold(now);
        }
        self.notify_both();
    }

    /// Lets it go again.
    pub(crate) fn release(&self, pair: Pair, now: Instant) {
        for side in Side::BOTH.into_iter().filter(|side| self.pair_from(*side) == pair) {
            let due = after(now, self.latency_from(side));
            self.state.lock().pipes[side.at()].release(due);
        }
        self.notify_both();
    }

    /// Sees to it that frames of shared uplinks arrive. To be called within a runtime.
    pub(crate) fn ensure_carrier(&self) {
        self.network.ensure_carrier();
    }

    /// Waits until [`Wire::next_step`] may answer something else.
    pub(crate) async fn changed(&self, side: Side) {
        self.signals[side.at()].notified().await;
    }

    /// Decides what the delivery task of `side` does now.
    pub(crate) fn next_step(&self, side: Side, now: Instant) -> Step {
        let timing = self.network.topology.lock().timing;
        let mut state = self.state.lock();
        let step = state.next_step(side, now, timing);
        let woken = match step {
            Step::End(_) => {
                let woken = state.waiters_of(side);
                state.pipes[side.other().at()].clear();
                self.send_goodbye(&mut state, side, now);
                woken
            }
            Step::Deliver(_) | Step::Wait(_) => Waiters::default(),
        };
        drop(state);
        woken.wake();
        step
    }

    /// The oldest frame of `side` that went through the hose arrives.
    pub(crate) fn carried(&self, side: Side, at: Instant) {
        self.state.lock().pipes[side.at()].arrive(Lane::Data, at);
        self.signals[side.other().at()].notify_one();
    }

    /// The sink of `side` has returned from a batch.
    pub(crate) fn taken(&self, side: Side, frame_count: usize, bytes: [usize; 2]) {
        let mut state = self.state.lock();
        let counters = &mut state.ends[side.at()].counters;
        counters.frames_received += frame_count as u64;
        counters.bytes_received += bytes.iter().sum::<usize>() as u64;
        state.pipes[side.other().at()].give_back(bytes);
        // In the same step, so that who sees all frames sent received finds nothing queued.
        let woken = self.pump(&mut state, side.other());
        drop(state);
        woken.wake();
    }

    /// The delivery task of `side` is gone before its time.
    pub(crate) fn abandon(&self, side: Side) {
        let mut state = self.state.lock();
        let woken = state.end_now(side, CloseReason::Local);
        state.pipes[side.other().at()].clear();
        let text = CloseReason::Local.goodbye_text();
        state.pipes[side.at()].close(text, false);
        self.send_goodbye(&mut state, side, Instant::now());
        drop(state);
        woken.wake();
    }

    /// Sends what `side` appended, as far as it has credit.
    fn pump(&self, state: &mut State, side: Side) -> Waiters {
        let now = Instant::now();
        let pair = self.pair_from(side);
        let State { pipes, ends } = state;
        let (pipe, end) = (&mut pipes[side.at()], &mut ends[side.at()]);
        let mut is_carrying = false;
        let (before, mut topology) = (end.counters.frames_sent, self.network.topology.lock());
        let is_whole = pipe.pump(|lane, bytes| {
            end.counters.frames_sent += 1;
            end.counters.bytes_sent += bytes as u64;
            let departure = topology.depart(now, pair, lane, bytes, || Token::of(&self.me, side));
            is_carrying |= departure == Departure::Carried;
            departure
        });
        drop(topology);
        if is_carrying {
            self.network.carried.notify_one();
        }
        if !is_whole {
            return self.sever_locked(state, "a frame was lost");
        }
        self.send_goodbye(state, side, now);
        if state.ends[side.at()].counters.frames_sent != before {
            self.signals[side.other().at()].notify_one();
        }
        state.relieved(side)
    }

    fn send_goodbye(&self, state: &mut State, side: Side, now: Instant) {
        let due = after(now, self.latency_from(side));
        if state.pipes[side.at()].pump_goodbye(due) {
            self.signals[side.other().at()].notify_one();
        }
    }

    fn sever_locked(&self, state: &mut State, why: &str) -> Waiters {
        let mut woken = Waiters::default();
        for side in Side::BOTH {
            state.pipes[side.at()].clear();
            woken.append(&mut state.end_now(side, CloseReason::Network(why.to_owned())));
        }
        self.notify_both();
        woken
    }

    fn latency_from(&self, side: Side) -> std::time::Duration {
        self.network.topology.lock().conditions(self.pair_from(side)).latency
    }

    fn notify_both(&self) {
        self.signals.iter().for_each(Notify::notify_one);
    }
}

impl State {
    fn admit(&self, side: Side, lane: Lane, len: usize) -> Result<(), NotWritable> {
        match self.ends[side.at()].closing {
            Some(_) => Err(NotWritable::Closed),
            None => self.pipes[side.at()].admit(lane, len),
        }
    }

    fn next_step(&mut self, side: Side, now: Instant, timing: Timing) -> Step {
        let end = &self.ends[side.at()];
        let (closing, grace_until) = (end.closing.clone(), end.grace_until);
        if let (Some(reason), None) = (&closing, grace_until) {
            return Step::End(reason.clone());
        }
        let coming = &mut self.pipes[side.other().at()];
        let arrived = coming.take_due(now);
        if !arrived.is_empty() {
            return Step::Deliver(arrived);
        }
        let silent_since = coming.silent_since(now);
        let silent_until = silent_since.map(|since| after(since, timing.keep_alive_timeout));
        let over = match coming.reached_end(now) {
            Some(PipeEnd::Goodbye(text)) => Some(CloseReason::Peer(text)),
            Some(PipeEnd::Reset(text)) => Some(CloseReason::Network(text)),
            None if silent_until.is_some_and(|until| until <= now) => Some(CloseReason::KeepAlive),
            None if grace_until.is_some_and(|until| until <= now) => closing.clone(),
            None => None,
        };
        let Some(over) = over else {
            return Step::Wait(
                [coming.next_due(), silent_until, grace_until].into_iter().flatten().min(),
            );
        };
        self.pipes[side.at()].close(over.goodbye_text(), false);
        let reason = closing.unwrap_or(over);
        self.ends[side.at()].closing = Some(reason.clone());
        self.ends[side.at()].grace_until = None;
        Step::End(reason)
    }

    /// Ends one end without waiting for anything. A reason from before stays.
    fn end_now(&mut self, side: Side, reason: CloseReason) -> Waiters {
        let end = &mut self.ends[side.at()];
        end.closing.get_or_insert(reason);
        end.grace_until = None;
        self.waiters_of(side)
    }

    /// Those who wait for something that is so now.
    fn relieved(&mut self, side: Side) -> Waiters {
        let (pipe, end) = (&self.pipes[side.at()], &mut self.ends[side.at()]);
        let mut woken = Waiters::default();
        for lane in LANES {
            if pipe.is_writable(lane) {
                woken.append(&mut end.writable_waiters[index(lane)]);
            }
        }
        if pipe.is_flushed() {
            woken.append(&mut end.flush_waiters);
        }
        woken
    }

    fn waiters_of(&mut self, side: Side) -> Waiters {
        let end = &mut self.ends[side.at()];
        let mut woken = std::mem::take(&mut end.flush_waiters);
        end.writable_waiters.iter_mut().for_each(|waiters| woken.append(waiters));
        woken
    }
}
