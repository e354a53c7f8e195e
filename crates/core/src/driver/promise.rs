//! The promise of the [`Flusher`](super::flush::Flusher) to flush a connection, on which callers
//! rely.
//!
//! Of several callers that append to a connection the first has it flushed for all, and what the
//! others append meanwhile leaves with the same write. The flusher settles the promise before it
//! flushes: who appends after that asks it again. It may be held up, by a task that does not let go
//! of the thread that it is to run on, so nobody trusts it for long.
//!
//! ```text
//!           first to append                 the flusher's turn
//!   nobody ─────────────────▶ promised ───────────────────────▶ nobody
//!                              │    ▲ another append: it relies on it
//!                              └────┘
//! ```

use std::time::Duration;

use convoke_proto::time::Timestamp;

/// Time after which one who would rely on the flusher flushes itself: it is held up. A batch of
/// calls takes less, also where they are slow, so that it leaves in one write.
pub(super) const TRUST: Duration = Duration::from_millis(5);

/// Promise to flush a connection. Shares a lock with the appending to it.
#[derive(Debug, Default)]
pub(super) struct Promise {
    since: Option<Timestamp>,
}

/// Flush that a frame leaves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// That of the flusher, which is to be told.
    First,
    /// That of the flusher, which knows.
    Promised,
    /// Its appender's: the promise was not kept in time.
    Own,
}

impl Promise {
    /// Chooses the flush that a frame which was just appended leaves with.
    pub(super) fn rely(&mut self, now: Timestamp) -> Turn {
        match self.since.replace(now) {
            None => Turn::First,
            Some(since) if now.since(since) <= TRUST => {
                self.since = Some(since);
                Turn::Promised
            }
            // Others may trust it anew: all that is there leaves with this one.
            Some(_) => Turn::Own,
        }
    }

    /// Nobody may rely on it from here on.
    pub(super) fn settle(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod model;
