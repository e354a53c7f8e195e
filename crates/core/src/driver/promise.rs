//! The promise to flush a connection, on which others rely: who makes it, and how it is kept.
//!
//! Of several callers that append to a connection the first flushes for all. Alone it does so at
//! once; otherwise it yields first, and what the others append meanwhile leaves with the same
//! write. In between it holds a [`Guard`], whose drop keeps the promise, however that comes about:
//! the caller went on, was cancelled where it waited, or panicked.
//!
//! ```text
//!           first to append                 the guard was dropped
//!   nobody ─────────────────▶ promised ────────────────────────────▶ nobody
//!                              │    ▲ another append: it relies on it
//!                              └────┘
//! ```

use std::time::Duration;

use convoke_proto::time::Timestamp;

/// Time after which one who relies on a flush flushes itself: the one who promised it was not
/// polled.
const TRUST: Duration = Duration::from_micros(500);

/// Promise of somebody to flush a connection. Shares a lock with the appending to it.
#[derive(Debug, Default)]
pub(super) struct Promise {
    since: Option<Timestamp>,
}

/// Flush that a frame leaves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Its appender's, at once.
    Now,
    /// Its appender's, who has promised it to others too: a [`Guard`] is due.
    Soon,
    /// That of whoever has promised it.
    Others,
}

impl Promise {
    /// Chooses the flush that a frame which was just appended leaves with.
    pub(super) fn on_append(&mut self, now: Timestamp, is_alone: bool) -> Turn {
        if is_alone {
            return Turn::Now;
        }
        match self.since {
            Some(since) if now.since(since) <= TRUST => Turn::Others,
            _ => {
                self.since = Some(now);
                Turn::Soon
            }
        }
    }

    /// Nobody may rely on it from here on.
    pub(super) fn settle(&mut self) {
        self.since = None;
    }

    /// Settles one that was not kept in time; then the flush falls to who asks.
    pub(super) fn take_overdue(&mut self, now: Timestamp) -> bool {
        let is_overdue = self.since.is_some_and(|since| now.since(since) > TRUST);
        if is_overdue {
            self.settle();
        }
        is_overdue
    }
}

/// Means of one who has promised to keep it.
pub(crate) trait Promiser {
    /// [`Promise::settle`], under its lock.
    fn settle(&self);
    /// Flushes, without the lock.
    fn flush(&self);
}

/// A promise made; kept by dropping it. One that is never dropped delays who relies on it until the
/// endpoint's timer goes off for one of their calls, no longer than `worry_min`.
pub(crate) struct Guard<P: Promiser>(P);

impl<P: Promiser> Guard<P> {
    pub(super) fn new(promiser: P) -> Self {
        Self(promiser)
    }
}

impl<P: Promiser> Drop for Guard<P> {
    fn drop(&mut self) {
        // In this order: who appends after the first may come too late for the second.
        self.0.settle();
        self.0.flush();
    }
}

#[cfg(test)]
mod model;
