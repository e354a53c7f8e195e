//! Waits for something of the overlay. Dropped, each leaves nothing of it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::event::BroadcastError;
use crate::waiting::Waiting;
use crate::wire::OpId;

use super::{Driver, State};

/// One who waits at a place of the state.
pub(super) struct Wait<'a, P: Fn(&mut State) -> Option<&mut Waiting>> {
    driver: &'a Driver,
    place: P,
    number: Option<u64>,
}

impl<'a, P: Fn(&mut State) -> Option<&mut Waiting>> Wait<'a, P> {
    pub(super) fn new(driver: &'a Driver, place: P) -> Self {
        Self { driver, place, number: None }
    }

    /// Polls under the lock, and keeps the waker where there is nothing yet.
    pub(super) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut State) -> Poll<T>,
    ) -> Poll<T> {
        let (polled, _dropped_unlocked) = self.driver.with_quietly(|state| {
            let polled = poll(state);
            let old = if polled.is_pending() {
                (self.place)(state).and_then(|waiting| waiting.keep(&mut self.number, cx))
            } else {
                None
            };
            (polled, old)
        });
        polled
    }
}

impl<P: Fn(&mut State) -> Option<&mut Waiting>> Drop for Wait<'_, P> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let _dropped_unlocked =
            self.driver.with_quietly(|state| (self.place)(state)?.forget(number));
    }
}

/// An operation that is to be broadcast. Dropped, it ceases to wait until that may be.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    driver: &'a Arc<Driver>,
    payload: Bytes,
    number: Option<u64>,
}

impl<'a> Offer<'a> {
    pub(crate) fn new(driver: &'a Arc<Driver>, payload: Bytes) -> Self {
        Self { driver, payload, number: None }
    }

    /// Broadcasts it, or keeps the waker until that may be tried again.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<OpId, BroadcastError>> {
        let (polled, _dropped_unlocked) = self.driver.with(|state, now| {
            let result = state.broadcast(now, self.payload.clone());
            if result == Err(BroadcastError::NotReady) {
                return (Poll::Pending, state.offers.keep(&mut self.number, cx));
            }
            if let Ok(op) = result {
                state.watched.begin(op);
            }
            (Poll::Ready(result), None)
        });
        polled
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let _dropped_unlocked = self.driver.with(|state, now| {
            let waker = state.offers.forget(number);
            if state.offers.is_empty() {
                state.node.withdraw(now);
            }
            waker
        });
    }
}

/// Dropped, it ceases to wait for an operation: the receiver that it waited by is gone by then.
pub(crate) struct Forget<'a> {
    pub(crate) driver: &'a Arc<Driver>,
    pub(crate) op: OpId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let _dropped_unlocked =
            self.driver.with_quietly(|state| state.bodies.forget_waiting(self.op));
    }
}
