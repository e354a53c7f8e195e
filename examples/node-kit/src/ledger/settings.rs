//! Settings of a ledger, and whose it is.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The node that a ledger belongs to. It stands in each of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the cluster.
    pub cluster: u64,
    /// Number of the node in it.
    pub node: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {}", self.node, self.cluster)
    }
}

/// Settings of a ledger.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) segment_bytes: u64,
    pub(super) buffered_bytes_max: usize,
    pub(super) must_exist: bool,
    pub(super) salt: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            buffered_bytes_max: 16 << 20,
            must_exist: false,
            salt: None,
        }
    }
}

impl Settings {
    /// Bytes of a segment from which on the next batch begins a new one. Default 64 MiB: a trim
    /// removes whole segments, and a restart reads the last one to its end.
    #[must_use]
    pub fn segment_bytes(self, segment_bytes: u64) -> Self {
        Self { segment_bytes, ..self }
    }

    /// Bytes that may wait to be written before [`Ledger::room`](super::Ledger::room) waits, and
    /// [`Ledger::has_room`](super::Ledger::has_room) is false.
    /// Default 16 MiB. What is being written takes up to as many again.
    #[must_use]
    pub fn buffered_bytes_max(self, buffered_bytes_max: usize) -> Self {
        Self { buffered_bytes_max, ..self }
    }

    /// Refuses to begin a new ledger where there is none: see
    /// [`LedgerError::Absent`](super::LedgerError::Absent). For every start but the first.
    #[must_use]
    pub fn must_exist(self) -> Self {
        Self { must_exist: true, ..self }
    }

    /// Takes the salt of checksums from a seed, so that a simulation writes the same bytes each
    /// time. By default it is random: then no client can make up a value that looks like a record.
    #[must_use]
    pub fn salt(self, seed: u64) -> Self {
        Self { salt: Some(seed), ..self }
    }

    pub(super) fn draw_salt(&self) -> u64 {
        self.salt.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}
