//! Segments: how one begins, and where the last one ends.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use convoke::disk::{DiskError, Open};

use super::error::LedgerError;
use super::files::{File, Volume};
use super::format::{HEADER_BYTES, Header};
use super::frames::{FIRST_AT, Found, Frames};
use crate::durable::Position;
use crate::mutant::{self, Mutant};

/// Ends the name of a file that is being written.
pub(super) const NEW: &str = ".new";

/// Ends the name of a file that is about to be given its name anew.
pub(super) const MOVED: &str = ".moved";

const PREFIX: &str = "segment-";

/// Digits of a number in a name, so that names are in the order of their numbers.
const DIGITS: usize = 20;

/// Name of the file with this number.
pub(super) fn name(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:0width$}", width = DIGITS)
}

/// Number in the name of a file.
pub(super) fn number(prefix: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// A segment that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Count of records before its first.
    pub(super) first: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        name(PREFIX, self.number)
    }

    pub(super) fn number_of(file: &str) -> Option<u64> {
        number(PREFIX, file)
    }
}

/// The segment to which records are written.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Arc<dyn File>,
    pub(super) number: u64,
    pub(super) end_at: u64,
}

impl Active {
    /// Begins a segment that has some bytes of records already. Its name appears once they are
    /// durable, so a file that has the name of a segment is whole up to there.
    pub(super) async fn begin(
        volume: &dyn Volume,
        header: Header,
        records: &[u8],
    ) -> Result<Self, DiskError> {
        let name = name(PREFIX, header.number);
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + records.len());
        header.encode(&mut bytes);
        bytes.extend_from_slice(records);
        let end_at = bytes.len() as u64;
        write_file(volume, &name, bytes.freeze()).await?;
        // Under its name, by which it is called when it fails.
        let file = volume.open(&name, Open::Write).await?;
        Ok(Self { file, number: header.number, end_at })
    }

    /// Appends bytes, and makes them durable.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), DiskError> {
        let len = bytes.len() as u64;
        self.file.write_all_and_sync(self.end_at, bytes).await?;
        self.end_at += len;
        Ok(())
    }
}

async fn write_file(volume: &dyn Volume, name: &str, bytes: Bytes) -> Result<(), DiskError> {
    let new = format!("{name}{NEW}");
    let file = volume.open(&new, Open::Create).await?;
    file.set_len(0).await?;
    file.write_all_and_sync(0, bytes).await?;
    volume.rename(&new, name).await?;
    if mutant::is(Mutant::DirectoryNotSynced) { Ok(()) } else { volume.sync_names().await }
}

/// End of the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Count of records before it.
    pub(super) position: u64,
    /// Byte behind the last whole record, and its seal.
    pub(super) at: u64,
    /// Count of records before the last batch, of which nobody can say whether it is durable.
    pub(super) doubtful: u64,
    /// Byte at which that batch begins.
    pub(super) doubtful_at: u64,
}

impl End {
    /// Searches the end of a segment behind which there is no other.
    ///
    /// # Errors
    /// [`LedgerError::Corrupt`] for a record that is not whole before one which says that it was
    /// durable. One before none of these is where the last batch was torn.
    pub(super) async fn of(frames: &mut Frames) -> Result<Self, LedgerError> {
        let mut end = Self {
            position: frames.header.position,
            at: FIRST_AT,
            doubtful: frames.header.position,
            doubtful_at: FIRST_AT,
        };
        loop {
            match frames.at(end.at).await? {
                Found::Record { head, next, .. } if head.position == end.position => {
                    if head.durable == end.position {
                        (end.doubtful, end.doubtful_at) = (end.position, end.at);
                    }
                    (end.position, end.at) = (end.position.saturating_add(1), next);
                }
                Found::Seal(head) if head.position == end.position => return Ok(end.sealed()),
                _ => break,
            }
        }
        let mut from = end.at;
        while let Some((at, head)) = frames.head_from(from, end.position).await? {
            if head.durable > end.position {
                return Err(LedgerError::Corrupt {
                    file: frames.name.clone(),
                    offset: end.at,
                    position: Position::new(end.position),
                });
            }
            from = at + 1;
        }
        Ok(end)
    }

    fn sealed(self) -> Self {
        let at = self.at + super::format::HEAD_BYTES as u64;
        Self { at, doubtful: self.position, doubtful_at: self.at, ..self }
    }
}
