//! The promise of the [`Flusher`](super::flush::Flusher) to flush a connection, on which callers
//! rely.
//!
//! Of several callers that append to a connection the first has it flushed for all, and what the
//! others append meanwhile leaves with the same write. The flusher settles the promise before it
//! flushes: who appends after that asks it again.
//!
//! ```text
//!           first to append                 the flusher's turn
//!   nobody ─────────────────▶ promised ───────────────────────▶ nobody
//!                              │    ▲ another append: it relies on it
//!                              └────┘
//! ```

/// Promise to flush a connection. Shares a lock with the appending to it.
#[derive(Debug, Default)]
pub(super) struct Promise {
    is_made: bool,
}

impl Promise {
    /// Relies on the promise for a frame that was just appended. True when it is made by this: the
    /// flusher is to be told.
    pub(super) fn rely(&mut self) -> bool {
        !std::mem::replace(&mut self.is_made, true)
    }

    /// Nobody may rely on it from here on.
    pub(super) fn settle(&mut self) {
        self.is_made = false;
    }
}

#[cfg(test)]
mod model;
