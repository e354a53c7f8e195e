//! MANIFEST: entries that found no other frame to ride on.

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, read_entries, write_entries};

/// Entries for the initiator. The header names the task that sends them, whose own entry may be
/// among them. Typically 28 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What they say.
    pub entries: Vec<Entry>,
}

impl Manifest {
    pub(super) fn write(&self, out: &mut impl Out) {
        write_entries(&self.entries, out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { entries: read_entries(input)? })
    }
}
