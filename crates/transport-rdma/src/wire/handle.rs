//! Handle of a connection for its users, on any thread.

use std::task::{Context, Poll};

use convoke_transport::parts::index;
use convoke_transport::{Buffer, CloseReason, Counters, Lane, NoBuffer};
use tokio::time::Instant;

use super::{Phase, State, Wire};
use crate::provider::Provider;

impl<P: Provider> Wire<P> {
    pub(crate) fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        match &mut self.lock().link {
            Some(link) => act(link),
            None => act(&mut NoBuffer),
        }
    }

    /// Posts on the caller's thread what credit and queues allow; completions move the rest.
    pub(crate) fn flush(&self) {
        self.flush_locked(&mut self.lock());
    }

    /// Sending may have made room for those who wait; no completion need come that has the engine
    /// tell them.
    #[inline]
    fn flush_locked(&self, state: &mut State<P>) {
        self.pump(state);
        if state.link.as_ref().is_some_and(|link| link.has_events()) {
            self.engine.request(self.tag);
        }
    }

    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        self.flush_locked(&mut state);
        let is_flushed = state.link.as_ref().is_none_or(|link| link.is_flushed());
        if is_flushed || state.is_closing() {
            return Poll::Ready(());
        }
        state.waiters.flush.register(cx);
        Poll::Pending
    }

    pub(crate) fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        let is_writable = state.link.as_mut().is_none_or(|link| link.poll_writable(lane));
        if is_writable || state.is_closing() {
            return Poll::Ready(());
        }
        state.waiters.writable[index(lane)].register(cx);
        Poll::Pending
    }

    pub(crate) fn close(&self, reason: CloseReason) {
        let mut state = self.lock();
        let Some(link) = &mut state.link else { return };
        if link.closing().is_some() {
            return;
        }
        link.close(reason);
        state.is_ending = true;
        let woken = state.waiters.take_all();
        if state.phase != Phase::Draining {
            state.deadline = Some(Instant::now() + self.engine.config().common.close_grace);
            self.plan_look(&mut state);
        }
        self.flush_locked(&mut state);
        let _spent = state.take_spent();
        drop(state);
        woken.wake();
    }

    pub(crate) fn counters(&self) -> Counters {
        let state = self.lock();
        let counters = state.link.as_ref().map(|link| link.counters().transport);
        Counters { writes: state.posts, ..counters.unwrap_or_default() }
    }
}
