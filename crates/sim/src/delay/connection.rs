//! A connection whose frames take longer.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use convoke_transport::{
    Appended, Buffer, CloseReason, Connection, Counters, Lane, Link, NotWritable,
};
use parking_lot::Mutex;

use super::queue::DelayQueue;
use super::timer::{Timer, Turn};
use crate::clock::after;
use crate::transport::waiters::Waiters;

/// Longest wait of a gentle close for an inner connection whose peer does not read.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// When to look again at an inner lane that has room, but not for this frame.
const RETRY: Duration = Duration::from_millis(1);
/// Both lanes, the urgent one first.
const LANES: [Lane; 2] = [Lane::Control, Lane::Data];

pub(crate) struct DelayedConnection {
    inner: Arc<dyn Connection>,
    one_way: Duration,
    timer: Arc<Timer>,
    /// For the timer.
    me: Weak<Self>,
    /// Gives it a turn. Always the same, so that the inner connection keeps it once.
    waker: Waker,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lanes: [DelayQueue; 2],
    frames_flushed: u64,
    closing: Option<Closing>,
    /// The inner connection has ended.
    is_over: bool,
    flush_waiters: Waiters,
    writable_waiters: [Waiters; 2],
}

#[derive(Clone, Debug)]
struct Closing {
    reason: CloseReason,
    /// When it is the inner connection's turn.
    due: Instant,
    /// Until when frames that the inner connection does not take are waited for.
    frames_until: Instant,
}

/// Steps to take with the inner connection once the lock is released.
#[derive(Debug, Default)]
struct Handover {
    is_flush_due: bool,
    close: Option<CloseReason>,
    retry_at: Option<Instant>,
    woken: Waiters,
}

impl DelayedConnection {
    pub(crate) fn new(
        inner: Arc<dyn Connection>,
        one_way: Duration,
        timer: Arc<Timer>,
    ) -> Arc<Self> {
        let frame_bytes_max = inner.link().peer.frame_bytes_max;
        let frame_bytes_max = usize::try_from(frame_bytes_max).unwrap_or(usize::MAX);
        let state = State {
            lanes: LANES.map(|lane| DelayQueue::new(lane, frame_bytes_max)),
            frames_flushed: 0,
            closing: None,
            is_over: false,
            flush_waiters: Waiters::default(),
            writable_waiters: Default::default(),
        };
        Arc::new_cyclic(|me| Self {
            inner,
            one_way,
            timer,
            me: Weak::clone(me),
            waker: Waker::from(Arc::new(Again(Weak::clone(me)))),
            state: Mutex::new(state),
        })
    }

    /// The inner connection has ended: nothing follows.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.lanes.iter_mut().for_each(DelayQueue::clear);
        let woken = state.all_waiters();
        drop(state);
        woken.wake();
    }

    fn frame_bytes_max(&self) -> usize {
        usize::try_from(self.link().peer.frame_bytes_max).unwrap_or(usize::MAX)
    }

    /// Does everything due at `now`: one flush of the inner connection at most.
    fn hand_over(&self, now: Instant) {
        let mut state = self.state.lock();
        let mut handover = Handover::default();
        for lane in LANES {
            self.hand_over_lane(&mut state, lane, now, &mut handover);
        }
        handover.close = state.take_due_close(now);
        handover.woken = state.relieved();
        drop(state);
        handover.woken.wake();
        if handover.is_flush_due {
            self.inner.flush();
        }
        if let Some(reason) = handover.close {
            self.inner.close(reason);
        }
        if let Some(at) = handover.retry_at {
            self.schedule(at);
        }
    }

    fn hand_over_lane(&self, state: &mut State, lane: Lane, now: Instant, handover: &mut Handover) {
        while let Some(frame) = state.lanes[index(lane)].due(now) {
            match self.inner.append_bytes(lane, &[], frame.clone()) {
                Ok(_) => {
                    state.lanes[index(lane)].advance();
                    handover.is_flush_due = true;
                }
                Err(NotWritable::Full) => {
                    handover.is_flush_due = true;
                    let mut cx = Context::from_waker(&self.waker);
                    if self.inner.poll_writable(lane, &mut cx).is_ready() {
                        handover.retry_at = Some(now + RETRY);
                    }
                    return;
                }
                Err(NotWritable::Closed) => {
                    return state.lanes.iter_mut().for_each(DelayQueue::clear);
                }
                // Its hello allowed the frame. It must not be lost alone.
                Err(error @ NotWritable::TooLarge { .. }) => {
                    state.lanes.iter_mut().for_each(DelayQueue::clear);
                    let reason = CloseReason::Fault(error.to_string());
                    state.closing = Some(Closing { reason, due: now, frames_until: now });
                    return;
                }
            }
        }
    }

    fn schedule(&self, at: Instant) {
        if let Some(me) = self.me.upgrade() {
            self.timer.schedule(at, me);
        }
    }

    /// For what becomes due at `due`: without a delay there is nothing to wait for.
    fn at(&self, due: Instant) {
        if self.one_way.is_zero() { self.hand_over(due) } else { self.schedule(due) }
    }
}

/// What the connection has not let flow.
struct Sending<'a> {
    state: &'a mut State,
    frame_bytes_max: usize,
}

impl Sending<'_> {
    fn admit(&self, lane: Lane, len: usize) -> Result<(), NotWritable> {
        if self.state.is_closed() {
            return Err(NotWritable::Closed);
        }
        let limit = self.frame_bytes_max;
        if len > limit {
            return Err(NotWritable::TooLarge { size: len, limit });
        }
        let has_room = self.state.lanes[index(lane)].has_room_for(len);
        if has_room { Ok(()) } else { Err(NotWritable::Full) }
    }
}

impl Buffer for Sending<'_> {
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        self.admit(lane, head.len().saturating_add(body.len()))?;
        Ok(self.state.append(lane, [head, body].concat().into()))
    }

    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        self.admit(lane, head.len().saturating_add(body.len()))?;
        let frame = if head.is_empty() { body } else { [head, &body].concat().into() };
        Ok(self.state.append(lane, frame))
    }
}

impl Connection for DelayedConnection {
    fn link(&self) -> &Link {
        self.inner.link()
    }

    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut Sending {
            state: &mut self.state.lock(),
            frame_bytes_max: self.frame_bytes_max(),
        });
    }

    fn flush(&self) {
        let mut state = self.state.lock();
        let due = after(Instant::now(), self.one_way);
        let is_something_new = state.flush(due);
        drop(state);
        if is_something_new {
            self.at(due);
        }
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flush();
        let mut state = self.state.lock();
        if state.is_closed() {
            return Poll::Ready(());
        }
        if state.lanes.iter().all(DelayQueue::is_empty) {
            drop(state);
            return self.inner.poll_flush(cx);
        }
        state.flush_waiters.register(cx);
        Poll::Pending
    }

    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_closed() || state.lanes[index(lane)].is_writable() {
            return Poll::Ready(());
        }
        state.writable_waiters[index(lane)].register(cx);
        Poll::Pending
    }

    fn close(&self, reason: CloseReason) {
        let mut state = self.state.lock();
        if state.is_closed() {
            return;
        }
        let due = after(Instant::now(), self.one_way);
        let is_gentle = reason.is_gentle();
        if is_gentle {
            state.flush(due);
        } else {
            state.lanes.iter_mut().for_each(DelayQueue::drop_unflushed);
        }
        let frames_until = if is_gentle { due + CLOSE_GRACE } else { due };
        state.closing = Some(Closing { reason, due, frames_until });
        let woken = state.all_waiters();
        drop(state);
        woken.wake();
        self.at(due);
        if is_gentle && !self.is_handed_over() {
            self.schedule(frames_until);
        }
    }

    /// Frames that were flushed count as sent: the delay is part of the network.
    fn counters(&self) -> Counters {
        let frames_sent = self.state.lock().frames_flushed;
        Counters { frames_sent, ..self.inner.counters() }
    }
}

impl DelayedConnection {
    fn is_handed_over(&self) -> bool {
        self.state.lock().lanes.iter().all(DelayQueue::is_empty)
    }
}

impl Turn for DelayedConnection {
    fn turn(self: Arc<Self>, now: Instant) {
        self.hand_over(now);
    }
}

/// Gives the connection a turn when the inner one has room again.
struct Again(Weak<DelayedConnection>);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        if let Some(connection) = self.0.upgrade() {
            connection.schedule(Instant::now());
        }
    }
}

impl fmt::Debug for DelayedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedConnection")
            .field("one_way", &self.one_way)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl State {
    fn is_closed(&self) -> bool {
        self.closing.is_some() || self.is_over
    }

    fn append(&mut self, lane: Lane, frame: Bytes) -> Appended {
        let queue = &mut self.lanes[index(lane)];
        queue.append(frame);
        if queue.is_writable() { Appended::Writable } else { Appended::Full }
    }

    /// Lets what was appended flow. Whether there was something.
    fn flush(&mut self, due: Instant) -> bool {
        let count: usize = self.lanes.iter_mut().map(|queue| queue.flush(due)).sum();
        self.frames_flushed += count as u64;
        count > 0
    }

    /// The reason, when the close has its turn; only once.
    fn take_due_close(&mut self, now: Instant) -> Option<CloseReason> {
        let closing = self.closing.as_ref().filter(|closing| closing.due <= now)?;
        let is_empty = self.lanes.iter().all(DelayQueue::is_empty);
        if self.is_over || !(is_empty || closing.frames_until <= now) {
            return None;
        }
        self.is_over = true;
        self.lanes.iter_mut().for_each(DelayQueue::clear);
        Some(closing.reason.clone())
    }

    /// Those who wait for something that is so now.
    fn relieved(&mut self) -> Waiters {
        let mut woken = Waiters::default();
        for (queue, waiters) in self.lanes.iter().zip(&mut self.writable_waiters) {
            if queue.is_writable() {
                woken.append(waiters);
            }
        }
        if self.lanes.iter().all(DelayQueue::is_empty) {
            woken.append(&mut self.flush_waiters);
        }
        woken
    }

    fn all_waiters(&mut self) -> Waiters {
        let mut woken = std::mem::take(&mut self.flush_waiters);
        self.writable_waiters.iter_mut().for_each(|waiters| woken.append(waiters));
        woken
    }
}

const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Data => 1,
    }
}
