//! Sending side of a connection, under the connection's lock: its queue, who waits for it, and why
//! it closes.

use std::task::{Context, Poll};

use super::lanes::index;
use super::life::Closing;
use super::{SendQueue, Unsent, Waiters, Wakers};
use crate::{CloseReason, Lane};

/// A queue with those who wait for it. Tasks that it answers are to be woken without the lock.
#[derive(Debug)]
pub struct Outbound {
    /// Frames to be sent.
    pub queue: SendQueue,
    waiters: Waiters,
    /// Set once; the connection is closed from then on, or about to be.
    closing: Option<CloseReason>,
}

/// Tasks to be woken at an end, and frames to be dropped, both without the lock.
#[must_use = "those who wait are to be woken"]
#[derive(Debug)]
pub struct Ended {
    woken: Wakers,
    unsent: Unsent,
}

impl Ended {
    /// Wakes those who waited. To be called without any lock: what it runs may call back. What is
    /// not sent is to be dropped when nothing else is left to be done: its owner may wait for them,
    /// or panic.
    pub fn wake(self) -> Unsent {
        self.woken.wake();
        self.unsent
    }
}

impl Outbound {
    /// One that nobody waits for.
    pub fn new(queue: SendQueue) -> Self {
        Self { queue, waiters: Waiters::default(), closing: None }
    }

    /// Closes: what was appended is still sent when the reason is gentle, then a goodbye. Answers
    /// who is to be woken; `None` when it was closed before, and then nothing has changed.
    pub fn close(&mut self, reason: CloseReason) -> Option<Ended> {
        if self.closing.is_some() {
            return None;
        }
        let unsent = self.queue.close(reason.goodbye_text(), reason.is_gentle());
        self.closing = Some(reason);
        Some(Ended { woken: self.waiters.take_all(), unsent })
    }

    /// Begins the end by the peer, whose goodbye is expected. What is queued still goes out; nobody
    /// waits for it. An earlier reason stands.
    pub fn expect_goodbye(&mut self, reason: CloseReason) -> Wakers {
        self.closing.get_or_insert(reason);
        self.waiters.take_all()
    }

    /// Ends it: everything is dropped, and nothing goes out any more. An earlier reason stands.
    pub fn abandon(&mut self, reason: CloseReason) -> Ended {
        self.closing.get_or_insert(reason);
        self.finish()
    }

    /// Sends nothing more, for the peer reads nothing more.
    pub fn finish(&mut self) -> Ended {
        let unsent = self.queue.abandon();
        Ended { woken: self.waiters.take_all(), unsent }
    }

    /// Ends it with a goodbye, before which everything is dropped. An earlier reason stands.
    pub fn say_goodbye(&mut self, reason: CloseReason) -> Ended {
        let reason = self.closing.get_or_insert(reason);
        let unsent = self.queue.close(reason.goodbye_text(), false);
        Ended { woken: self.waiters.take_all(), unsent }
    }

    /// End of the connection, once it has begun.
    pub fn closing(&self) -> Option<Closing> {
        self.closing.clone().map(Closing::new)
    }

    /// Those for whom it may matter that a batch was filled.
    pub fn take_writable(&mut self) -> Wakers {
        let queue = &self.queue;
        self.waiters.take_writable(|lane| queue.is_worth_waking(lane))
    }

    /// Those who wait for everything to be sent, when nothing is left in the queue.
    pub fn take_flushed(&mut self) -> Wakers {
        if self.queue.is_empty() {
            return std::mem::take(&mut self.waiters.flush);
        }
        Wakers::default()
    }

    /// Ready when everything is sent; `is_idle` when nothing is being written.
    pub fn poll_flush(&mut self, is_idle: bool, cx: &Context<'_>) -> Poll<()> {
        if (is_idle && self.queue.is_empty()) || self.closing.is_some() {
            return Poll::Ready(());
        }
        self.waiters.flush.register(cx);
        Poll::Pending
    }

    /// Ready while the lane has room.
    pub fn poll_writable(&mut self, lane: Lane, cx: &Context<'_>) -> Poll<()> {
        if self.queue.is_writable(lane) || self.closing.is_some() {
            return Poll::Ready(());
        }
        self.waiters.writable[index(lane)].register(cx);
        Poll::Pending
    }
}
