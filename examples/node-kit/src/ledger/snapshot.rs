//! Snapshots: written by parts beside the records, read by parts, from any part on.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use convoke::disk::{DiskError, DiskFailure, Open};
use tokio::runtime::Handle;
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

/// The right to change names of files; none is needed of a ledger in memory.
pub(super) type Names = Option<OwnedSemaphorePermit>;

/// The right to write a snapshot, until the last clone is dropped: one is written at a time.
pub(super) type Turn = Arc<OwnedSemaphorePermit>;

/// A snapshot that is being written. Dropped before [`finish`](Self::finish), it never was, and
/// gives its room back soon after.
#[derive(Debug)]
pub struct SnapshotWriter {
    ledger: Ledger,
    position: Position,
    target: Target,
    _turn: Turn,
}

#[derive(Debug)]
enum Target {
    Memory(Vec<Bytes>),
    File(Unfinished),
}

impl SnapshotWriter {
    pub(super) fn in_memory(ledger: Ledger, position: Position, turn: Turn) -> Self {
        Self { ledger, position, target: Target::Memory(Vec::new()), _turn: turn }
    }

    pub(super) fn of_file(
        ledger: Ledger,
        position: Position,
        file: Unfinished,
        turn: Turn,
    ) -> Self {
        Self { ledger, position, target: Target::File(file), _turn: turn }
    }

    /// Writes a part. Some hundred kilobytes are a good size: each is read whole.
    ///
    /// # Errors
    /// Those of the disk, after which the snapshot cannot be finished, and has given its room back;
    /// [`LedgerError::TooLarge`].
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
    /// Those of the disk: the snapshot has given its room back. After a sync that failed the ledger
    /// has failed, too. Of a ledger that has ended the reason: the snapshot never was.
    pub async fn finish(self) -> Result<Snapshot, LedgerError> {
        let Self { ledger, position, target, _turn } = self;
        let mut names = ledger.names().await?;
        let snapshot = match target {
            Target::Memory(parts) => Snapshot::in_memory(position, parts),
            Target::File(file) => match file.finish(position, &mut names).await {
                Ok(frames) => Snapshot::of_file(frames).await?,
                Err(error) => return Err(ledger.failed(error)),
            },
        };
        ledger.has_snapshot(snapshot.clone()).await;
        Ok(snapshot)
    }
}

/// File of a snapshot before it has its name. On a disk that is full, what it has would leave no
/// room for records: so it is made empty as soon as it cannot be finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    volume: Arc<dyn Volume>,
    file: Arc<dyn File>,
    salt: u64,
    at: u64,
    synced_at: u64,
    parts: u64,
    state: State,
    turn: Turn,
}

#[derive(Debug)]
enum State {
    Written,
    /// Something of it could not be written.
    Failed(DiskError),
    /// It may have its name, so that it must stay what it is.
    Named,
    /// It has given its room back.
    Empty(DiskError),
}

impl Unfinished {
    pub(super) async fn begin(
        volume: Arc<dyn Volume>,
        header: Header,
        turn: Turn,
    ) -> Result<Self, DiskError> {
        let file = open(&*volume).await?;
        let (salt, state) = (header.salt, State::Written);
        let mut unfinished =
            Self { volume, file, salt, at: 0, synced_at: 0, parts: 0, state, turn };
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes);
        let begun = unfinished.write(bytes).await;
        unfinished.unless_failed(begun).await?;
        Ok(unfinished)
    }

    async fn part(&mut self, part: &[u8]) -> Result<(), DiskError> {
        self.is_whole()?;
        let mut bytes = BytesMut::new();
        format::encode(self.salt, self.parts, self.parts, part, &mut bytes);
        self.parts += 1;
        let written = self.write_and_sync(bytes).await;
        self.unless_failed(written).await
    }

    async fn write_and_sync(&mut self, bytes: BytesMut) -> Result<(), DiskError> {
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

    async fn finish(
        mut self,
        position: Position,
        names: &mut Names,
    ) -> Result<Frames, LedgerError> {
        self.is_whole()?;
        let sealed = self.seal().await;
        self.unless_failed(sealed).await?;
        let name = name(position.records());
        self.state = State::Named;
        if let Err(error) = self.rename(&name, names).await {
            // By its old name, since it may have the new one all the same.
            let _ = self.volume.remove(NEW_FILE).await;
            return Err(error.into());
        }
        self.volume.sync_names().await?;
        Frames::open(&*self.volume, &name, Sort::Snapshot).await
    }

    /// Gives the file its name. Whoever waits for that may be dropped, and the disk do it all the
    /// same: until it has, no other snapshot is begun, which would be the one that it names.
    /// Nor does the ledger end.
    async fn rename(&self, name: &str, names: &mut Names) -> Result<(), DiskError> {
        let (volume, turn) = (Arc::clone(&self.volume), Arc::clone(&self.turn));
        let (to, held) = (name.to_owned(), names.take());
        let renamed = tokio::spawn(async move {
            let renamed = volume.rename(NEW_FILE, &to).await;
            drop(turn);
            (renamed, held)
        });
        let gone = DiskError::new("rename", NEW_FILE, DiskFailure::Gone);
        let (renamed, held) = renamed.await.map_err(|_| gone)?;
        *names = held;
        renamed
    }

    async fn seal(&mut self) -> Result<(), DiskError> {
        let mut seal = BytesMut::new();
        format::encode_seal(self.salt, self.parts, &mut seal);
        self.write(seal).await?;
        self.file.sync().await
    }

    /// Gives the room of the file back where something of it could not be written, before anybody
    /// hears of it.
    async fn unless_failed(&mut self, written: Result<(), DiskError>) -> Result<(), DiskError> {
        let Err(error) = written else { return Ok(()) };
        self.state = State::Failed(error.clone());
        // The file was ours alone. What does not work now the next start does.
        let _ = self.file.set_len(0).await;
        self.state = State::Empty(error.clone());
        Err(error)
    }

    fn is_whole(&self) -> Result<(), DiskError> {
        match &self.state {
            State::Failed(error) | State::Empty(error) => Err(error.clone()),
            State::Written | State::Named => Ok(()),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if matches!(self.state, State::Named | State::Empty(_)) {
            return;
        }
        let (file, turn) = (Arc::clone(&self.file), Arc::clone(&self.turn));
        // By the open file and not by its name: this may be another's by then.
        let emptied = async move {
            let _ = file.set_len(0).await;
            drop(turn);
        };
        // Without a runtime the process ends, and the next start removes the file.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(emptied);
        }
    }
}

/// Opens a file of its own: a write to the one before, which was cancelled, may still come.
async fn open(volume: &dyn Volume) -> Result<Arc<dyn File>, DiskError> {
    match volume.open(NEW_FILE, Open::New).await {
        Err(error) if error.failure == DiskFailure::Exists => {
            volume.remove(NEW_FILE).await?;
            volume.open(NEW_FILE, Open::New).await
        }
        opened => opened,
    }
}
