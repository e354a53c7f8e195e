//! Snapshots: written by parts beside the records, read by parts, from any part on.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use convoke::disk::{DiskError, Open};
use tokio::sync::OwnedSemaphorePermit;

use super::error::LedgerError;
use super::files::{File, Volume};
use super::format::{self, HEAD_BYTES, Header, Sort};
use super::frames::{FIRST_AT, Found, Frames};
use super::segment;
use super::{Ledger, RECORD_BYTES_MAX};
use crate::durable::Position;

const PREFIX: &str = "snapshot-";

/// The file of the snapshot that is being written: one at a time.
const NEW_FILE: &str = "snapshot.new";

/// Bytes after which what was written so far is synced: a sync of a record may have to wait for
/// what other files were given since their last.
const SYNC_BYTES: u64 = 1 << 20;

/// State of a node up to some position, in parts. Cheap to clone, and read by any number at once.
#[derive(Clone, Debug)]
pub struct Snapshot {
    position: Position,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Memory(Arc<[Bytes]>),
    File(Frames),
}

/// A part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes that were written as one part.
    pub bytes: Bytes,
    /// The place of the next part.
    pub next: u64,
}

pub(super) fn name(position: u64) -> String {
    segment::name(PREFIX, position)
}

pub(super) fn position_of(file: &str) -> Option<u64> {
    segment::number(PREFIX, file)
}

impl Snapshot {
    pub(super) fn in_memory(position: Position, parts: Vec<Bytes>) -> Self {
        Self { position, form: Form::Memory(parts.into()) }
    }

    pub(super) async fn of_file(mut frames: Frames) -> Result<Self, LedgerError> {
        let seal_at = frames.len.saturating_sub(HEAD_BYTES as u64).max(FIRST_AT);
        match frames.at(seal_at).await? {
            Found::Seal(_) => {
                let position = Position::new(frames.header.position);
                Ok(Self { position, form: Form::File(frames) })
            }
            _ => Err(LedgerError::CorruptSnapshot { file: frames.name, offset: seal_at }),
        }
    }

    /// The place up to which records are in it.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Bytes of all its parts, and in a file of what is around them.
    pub fn len_bytes(&self) -> u64 {
        match &self.form {
            Form::Memory(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Form::File(frames) => frames.len,
        }
    }

    /// The part at a place: the first at 0, others where the one before says. `None` behind the
    /// last. So who was interrupted goes on where it was, with the same snapshot of the same node.
    ///
    /// # Errors
    /// [`LedgerError::CorruptSnapshot`] for a part that is not what was written, and for a place
    /// where none begins; what the disk says.
    pub async fn part(&self, place: u64) -> Result<Option<Part>, LedgerError> {
        match &self.form {
            Form::Memory(parts) => {
                let at = usize::try_from(place).ok();
                let bytes = at.and_then(|at| parts.get(at)).cloned();
                Ok(bytes.map(|bytes| Part { bytes, next: place + 1 }))
            }
            Form::File(frames) => part_of(frames.clone(), place.max(FIRST_AT)).await,
        }
    }

    /// All parts, from the first on.
    pub fn parts(&self) -> Parts {
        Parts { snapshot: self.clone(), next: 0 }
    }
}

async fn part_of(mut frames: Frames, at: u64) -> Result<Option<Part>, LedgerError> {
    match frames.at(at).await? {
        Found::Record { body, next, .. } => Ok(Some(Part { bytes: body, next })),
        Found::Seal(_) => Ok(None),
        Found::WrongBody { .. } | Found::Nothing => {
            Err(LedgerError::CorruptSnapshot { file: frames.name, offset: at })
        }
    }
}

/// Parts of a snapshot in order.
#[derive(Debug)]
pub struct Parts {
    snapshot: Snapshot,
    next: u64,
}

impl Parts {
    /// The next part, `None` behind the last.
    ///
    /// # Errors
    /// Those of [`Snapshot::part`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, LedgerError> {
        let part = self.snapshot.part(self.next).await?;
        Ok(part.map(|part| {
            self.next = part.next;
            part.bytes
        }))
    }
}

/// A snapshot that is being written. Dropped before [`finish`](Self::finish), it never was.
#[derive(Debug)]
pub struct SnapshotWriter {
    ledger: Ledger,
    position: Position,
    target: Target,
    _one_at_a_time: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Target {
    Memory(Vec<Bytes>),
    File(Unfinished),
}

impl SnapshotWriter {
    pub(super) fn in_memory(
        ledger: Ledger,
        position: Position,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { ledger, position, target: Target::Memory(Vec::new()), _one_at_a_time: permit }
    }

    pub(super) fn of_file(
        ledger: Ledger,
        position: Position,
        file: Unfinished,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { ledger, position, target: Target::File(file), _one_at_a_time: permit }
    }

    /// Writes a part. Some hundred kilobytes are a good size: each is read whole.
    ///
    /// # Errors
    /// Those of the disk; [`LedgerError::TooLarge`].
    pub async fn part(&mut self, part: Bytes) -> Result<(), LedgerError> {
        if part.len() > RECORD_BYTES_MAX {
            return Err(LedgerError::TooLarge { bytes: part.len() });
        }
        let written = match &mut self.target {
            Target::Memory(parts) => {
                parts.push(part);
                Ok(())
            }
            Target::File(file) => file.part(&part).await,
        };
        written.map_err(|error| self.ledger.failed(error.into()))
    }

    /// Makes the snapshot durable, and the latest. Older ones are removed; who reads one goes on.
    ///
    /// # Errors
    /// Those of the disk. After a sync that failed the ledger has failed, too.
    pub async fn finish(self) -> Result<Snapshot, LedgerError> {
        let Self { ledger, position, target, _one_at_a_time } = self;
        let snapshot = match target {
            Target::Memory(parts) => Snapshot::in_memory(position, parts),
            Target::File(file) => match file.finish(position).await {
                Ok(frames) => Snapshot::of_file(frames).await?,
                Err(error) => return Err(ledger.failed(error)),
            },
        };
        ledger.has_snapshot(snapshot.clone()).await?;
        Ok(snapshot)
    }
}

/// File of a snapshot before it has its name.
#[derive(Debug)]
pub(super) struct Unfinished {
    volume: Arc<dyn Volume>,
    file: Arc<dyn File>,
    salt: u64,
    at: u64,
    synced_at: u64,
    parts: u64,
}

impl Unfinished {
    pub(super) async fn begin(volume: Arc<dyn Volume>, header: Header) -> Result<Self, DiskError> {
        let file = volume.open(NEW_FILE, Open::Create).await?;
        file.set_len(0).await?;
        let salt = header.salt;
        let mut unfinished = Self { volume, file, salt, at: 0, synced_at: 0, parts: 0 };
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes);
        unfinished.write(bytes).await?;
        Ok(unfinished)
    }

    async fn part(&mut self, part: &[u8]) -> Result<(), DiskError> {
        let mut bytes = BytesMut::new();
        format::encode(self.salt, self.parts, self.parts, part, &mut bytes);
        self.parts += 1;
        self.write(bytes).await?;
        if self.at - self.synced_at >= SYNC_BYTES {
            self.file.sync().await?;
            self.synced_at = self.at;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: BytesMut) -> Result<(), DiskError> {
        let len = bytes.len() as u64;
        self.file.write_all_at(self.at, bytes.freeze()).await?;
        self.at += len;
        Ok(())
    }

    async fn finish(mut self, position: Position) -> Result<Frames, LedgerError> {
        let mut seal = BytesMut::new();
        format::encode_seal(self.salt, self.parts, &mut seal);
        self.write(seal).await?;
        self.file.sync().await?;
        let name = name(position.records());
        self.volume.rename(NEW_FILE, &name).await?;
        self.volume.sync_names().await?;
        Frames::open(&*self.volume, &name, Sort::Snapshot).await
    }
}
