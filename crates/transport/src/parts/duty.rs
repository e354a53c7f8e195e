//! The right to write, and its holder: a state machine without locks.
//!
//! The right to write is a value, the *duty*, so that nobody writes who does not hold it. Whoever
//! flushes takes it along, writes without a lock, and puts it back once nothing is queued; whoever
//! comes meanwhile only appends. When the socket takes no more, or one has written enough for
//! others, the duty is handed over to the writer task.
//!
//! ```text
//!           flush                    nothing left
//!   Home ───────────▶ Away ─────────────────────────▶ Home
//!                      │  ▲                 goodbye written, failed, ended
//!        would block   ▼  │ writer task   ────────────────────────────────▶ Gone
//!                    Handed
//! ```
//!
//! It shares a lock with the queue. So the holder finds what was appended before it puts the duty
//! back, and whoever appends after that finds the duty at home.

/// Place of a duty.
#[derive(Debug)]
pub enum Duty<D> {
    /// With whoever flushes, or not there yet.
    Away,
    /// Nobody writes; whoever flushes takes it.
    Home(D),
    /// Waits for the writer task.
    Handed(D),
    /// Nothing is written any more.
    Gone,
}

impl<D> Duty<D> {
    /// Takes it along, if it is at home.
    pub fn take_home(&mut self) -> Option<D> {
        match std::mem::replace(self, Self::Away) {
            Self::Home(duty) => Some(duty),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes what was handed over, as the writer task does.
    pub fn take_handed(&mut self) -> Option<D> {
        match std::mem::replace(self, Self::Away) {
            Self::Handed(duty) => Some(duty),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Hands it over; then the writer task must be told.
    ///
    /// # Errors
    /// The duty, when nothing is written any more.
    pub fn hand_over(&mut self, duty: D) -> Result<(), D> {
        if self.is_gone() {
            return Err(duty);
        }
        *self = Self::Handed(duty);
        Ok(())
    }

    /// True when nobody writes.
    pub fn is_home(&self) -> bool {
        matches!(self, Self::Home(_))
    }

    /// True when nothing is written any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}
