//! Failures of ledgers.

use std::sync::Arc;

use convoke::disk::{DiskError, DiskFailure};

use super::Identity;
use crate::durable::Position;

/// A failure of a ledger: what, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The environment's: the disk could not do it.
    #[error("the disk of the ledger failed: {0}")]
    Disk(DiskError),
    /// Another process has the ledger: stop it, or give this one another folder.
    #[error("another process uses the ledger: {0}")]
    Locked(DiskError),
    /// There is no ledger, and one was to be there: this may be the wrong folder, or an empty disk.
    /// A node that has lost its ledger must not come back as the same voter.
    #[error(
        "there is no ledger of {0} here; a node that has lost its ledger must not return as the \
         same voter"
    )]
    Absent(Identity),
    /// The ledger is that of another node.
    #[error("{file:?} belongs to {found}, and this is {expected}")]
    Foreign {
        /// The file.
        file: String,
        /// The one it names.
        found: Identity,
        /// The one that opened it.
        expected: Identity,
    },
    /// Another release of this program has written the file: use that one.
    #[error("{file:?} has the format {found}, and this program knows {known}")]
    Version {
        /// The file.
        file: String,
        /// The format it names.
        found: u32,
        /// The format this program writes.
        known: u32,
    },
    /// The file has the name of a part of a ledger, and does not begin like one.
    #[error("{file:?} has no whole header of a ledger: {reason}")]
    Header {
        /// The file.
        file: String,
        /// The part of the header that is wrong.
        reason: &'static str,
    },
    /// A record that was durable is not what was written. Nothing is cut: restore the file, or let
    /// the node come back as a new one.
    #[error(
        "{file:?} is corrupt at byte {offset}: record {} was durable and is not what was written",
        .position.records()
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Byte at which the record began.
        offset: u64,
        /// The place before the record.
        position: Position,
    },
    /// A part of a snapshot is not what was written, or the place that was asked for is none.
    #[error("{file:?} has no whole part of a snapshot at byte {offset}")]
    CorruptSnapshot {
        /// The file.
        file: String,
        /// Byte at which the part was to begin.
        offset: u64,
    },
    /// No file has some records that were durable: a file of the ledger is missing.
    #[error(
        "the records from {} to {} are in no file of the ledger, and in no snapshot",
        .from.records(), .to.records()
    )]
    Missing {
        /// The place before the first of them.
        from: Position,
        /// The place behind the last of them.
        to: Position,
    },
    /// The ledger has failed before, and nothing more becomes durable: restart the process, which
    /// then recovers what is.
    #[error("the ledger has failed and takes nothing more, restart the process: {0}")]
    Failed(Arc<Self>),
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
    /// The environment's: the disk hangs. What was not durable before may be lost, as in a crash.
    #[error("the disk did not close the ledger in time")]
    NotInTime,
    /// The caller's: nothing has been appended up to there.
    #[error(
        "nothing was appended up to {}: the ledger ends at {}",
        .position.records(), .end.records()
    )]
    NotAppended {
        /// The place that was asked for.
        position: Position,
        /// The end of the ledger.
        end: Position,
    },
    /// The caller's: there is a snapshot of a later place.
    #[error("there is a snapshot of {} already", .latest.records())]
    SnapshotExists {
        /// The place of the latest snapshot.
        latest: Position,
    },
    /// The caller's: a record, or a part of a snapshot, is larger than
    /// [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX).
    #[error("a record of {bytes} bytes is larger than a ledger takes")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
}

impl LedgerError {
    /// True where the disk had no room. Of a snapshot this does the ledger no harm; of what
    /// [`durable`](super::Ledger::durable) says, [`Failed`](Self::Failed) has it.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Disk(DiskError { failure: DiskFailure::Full, .. }))
    }

    /// The failure for everybody who comes later.
    pub(super) fn for_later(self) -> Self {
        match self {
            Self::Failed(_) | Self::Closed => self,
            first => Self::Failed(Arc::new(first)),
        }
    }
}

impl From<DiskError> for LedgerError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}
