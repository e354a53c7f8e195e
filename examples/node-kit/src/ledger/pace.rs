//! Pace of a node's snapshots: when the next is due, given what became of the last.

use std::time::Duration;

use tokio::time::Instant;

use super::LedgerError;

/// Pause after a snapshot for which there was no room: to try writes as much as there is.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Pace of the snapshots of a node, which writes one at a time: the next is due when enough has
/// come since the last was begun. One for which the disk has no room is tried again after a minute:
/// the ledger goes on without it, and has the records that it was to replace.
#[derive(Debug)]
pub struct SnapshotPace {
    bytes_between: u64,
    unsaved_bytes: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Writing,
    /// There was no room for the last.
    Paused {
        until: Instant,
    },
}

/// A snapshot for which the disk has no room. It displays as what an operator has to know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for a snapshot, which takes as much again as the last: the log grows until there is \
     ({0}); it is tried again in {AGAIN_AFTER:?}"
)]
pub struct NoRoom(LedgerError);

impl SnapshotPace {
    /// Snapshots with about so many bytes between two, of which the next comes early by
    /// `unsaved_bytes`.
    pub fn new(bytes_between: u64, unsaved_bytes: u64) -> Self {
        Self { bytes_between, unsaved_bytes, state: State::Idle }
    }

    /// Counts bytes that the latest snapshot does not have.
    pub fn add(&mut self, bytes: u64) {
        self.unsaved_bytes = self.unsaved_bytes.saturating_add(bytes);
    }

    /// Makes the next snapshot due as soon as one can be written.
    pub fn hasten(&mut self) {
        self.unsaved_bytes = self.unsaved_bytes.max(self.bytes_between);
    }

    /// Begins a snapshot that is due. Whoever is told `true` writes it, and says what
    /// [became](Self::ended) of it.
    pub fn begin(&mut self, now: Instant) -> bool {
        let is_free = match self.state {
            State::Idle => true,
            State::Writing => false,
            State::Paused { until } => until <= now,
        };
        let begins = is_free && self.unsaved_bytes >= self.bytes_between;
        if begins {
            (self.state, self.unsaved_bytes) = (State::Writing, 0);
        }
        begins
    }

    /// True while a snapshot is being written.
    pub fn is_writing(&self) -> bool {
        self.state == State::Writing
    }

    /// Takes what has become of the snapshot that was begun.
    ///
    /// # Errors
    /// Others of the ledger than that the disk has no room for it.
    pub fn ended<T>(
        &mut self,
        now: Instant,
        written: Result<T, LedgerError>,
    ) -> Result<Result<T, NoRoom>, LedgerError> {
        self.state = State::Idle;
        match written {
            Err(error) if error.is_full() => {
                self.state = State::Paused { until: now + AGAIN_AFTER };
                self.hasten();
                Ok(Err(NoRoom(error)))
            }
            written => written.map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use convoke::disk::{DiskError, DiskFailure};

    use super::*;

    fn full() -> LedgerError {
        DiskError::new("write", "snapshot.new", DiskFailure::Full).into()
    }

    #[test]
    fn a_snapshot_is_due_when_enough_has_come_since_the_last_was_begun() {
        let now = Instant::now();
        let mut pace = SnapshotPace::new(100, 40);
        assert!(!pace.begin(now));
        pace.add(60);
        assert!(pace.begin(now) && pace.is_writing());
        pace.add(100);
        assert!(!pace.begin(now), "one is written at a time");
        assert_eq!(pace.ended(now, Ok(7)), Ok(Ok(7)));
        assert!(!pace.is_writing() && pace.begin(now), "what came meanwhile counts");
    }

    #[test]
    fn a_snapshot_that_is_hastened_is_due_once_one_can_be_written() {
        let now = Instant::now();
        let mut pace = SnapshotPace::new(100, 0);
        pace.hasten();
        assert!(pace.begin(now));
        pace.hasten();
        assert!(!pace.begin(now));
        assert_eq!(pace.ended(now, Ok(())), Ok(Ok(())));
        assert!(pace.begin(now));
    }

    #[test]
    fn a_snapshot_without_room_is_tried_again_after_a_minute() {
        let now = Instant::now();
        let mut pace = SnapshotPace::new(100, 100);
        for attempt in 0..3 {
            let now = now + attempt * AGAIN_AFTER;
            assert!(pace.begin(now), "attempt {attempt}");
            let Ok(Err(no_room)) = pace.ended::<()>(now, Err(full())) else { panic!("it is told") };
            assert!(no_room.to_string().ends_with("it is tried again in 60s"), "{no_room}");
            pace.add(1_000);
            assert!(!pace.begin(now + AGAIN_AFTER - Duration::from_nanos(1)));
            assert!(!pace.is_writing());
        }
        let now = now + 3 * AGAIN_AFTER;
        assert!(pace.begin(now));
        assert_eq!(pace.ended(now, Ok(())), Ok(Ok(())));
        assert!(!pace.begin(now), "it has all that came before it was begun");
    }

    #[test]
    fn a_failure_of_the_ledger_is_the_callers() {
        let now = Instant::now();
        let mut pace = SnapshotPace::new(1, 1);
        assert!(pace.begin(now));
        assert_eq!(pace.ended::<()>(now, Err(LedgerError::Closed)), Err(LedgerError::Closed));
    }
}
