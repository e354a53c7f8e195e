//! Write-ahead ledger: records in order, durable in groups, on a disk or in memory.
//!
//! A node [appends](Ledger::append) what it must not forget, which does not wait, and lets leave
//! what rests on it once the record is [durable](Ledger::durable): see [`durable`](crate::durable).
//! All who wait at a time wait for one write and one sync; who comes meanwhile, for the next. Now
//! and then the node writes a [snapshot](Ledger::snapshot) of its state, and lets go of the records
//! before it ([`trim`](Ledger::trim)).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let folder = tempfile::tempdir()?;
//! use convoke::disk::HostDisk;
//! use node_kit::ledger::{Identity, Ledger, Settings};
//!
//! let identity = Identity { cluster: 7, node: 3 };
//! let disk = HostDisk::new(folder.path());
//! let (ledger, _) = Ledger::open(disk.clone(), identity, Settings::default()).await?;
//! let promised = ledger.append("promised 7".into());
//! ledger.durable(promised).await?;
//! ledger.close().await?;
//!
//! let (_, mut recovered) = Ledger::open(disk, identity, Settings::default()).await?;
//! let record = recovered.records.next().await?;
//! assert_eq!(record, Some((promised, "promised 7".into())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//! They are in the root of the disk that is given, a folder of their own:
//!
//! ```text
//! lock                             held while the ledger is open
//! segment-00000000000000000003     records, the file with the highest number being written
//! snapshot-00000000000000004096    state of the node after so many records
//! *.new                            what is not whole yet; removed at the next start
//! *.moved                          given its name anew; the next start goes on with that
//!
//! file:    header | record | record | ... | seal
//!          header  "node-kit"  format u32  sort u32  cluster u64  node u64
//!                  number u64  position u64  salt u64  crc32c u32
//!          record  crc32c u32  length u32  position u64  batch u32  crc32c of the body u32 | body
//!          seal    a record without a body, batch = 2^32 - 1
//! ```
//!
//! Numbers are little-endian. The first checksum of a record is over the salt and the rest of its
//! head. `batch` says how many records of the same write are before it: whatever was before these
//! was durable when it was written. That tells a torn tail from a corrupt middle. Bytes that are no
//! record are torn where no later record says that they had been durable: they are cut, and
//! [reported](Recovered::cut). Else the file is [corrupt](LedgerError::Corrupt), and nothing is
//! cut. A segment that was closed ends with a seal, so that of a ledger which was
//! [closed](Ledger::close) not even the last record can be taken for torn.
//!
//! # What it does not do
//! - It notices that the *last* batch of a ledger has rotted only if it was closed: else this looks
//!   like a batch that was never durable. Nor does it notice that its last segment, or all of it,
//!   is gone; see [`Settings::must_exist`].
//! - It repairs nothing. A node whose ledger is corrupt asks its peers, or comes back as another.
//! - It does not create or sync the folder that it is in.

mod commit;
mod dump;
mod error;
mod files;
mod format;
mod frames;
mod pace;
mod records;
mod recovery;
mod segment;
mod settings;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke::disk::{Disk, DiskFailure};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::commit::{Shared, Writer};
use self::files::{Folder, Volume};
use self::format::{Header, Sort};
use self::snapshot::{Names, Unfinished};
use crate::durable::{Durable, Position};

pub use self::dump::{Content, Entry, Reading, read};
pub use self::error::LedgerError;
pub use self::pace::{NoRoom, SnapshotPace};
pub use self::records::Records;
pub use self::settings::{Identity, Settings};
pub use self::snapshot::{Part, Parts, Snapshot, SnapshotWriter};

/// Most bytes of a record, and of a part of a snapshot.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// A ledger. Cheap to clone; clones are the same ledger. When the last one is dropped without
/// [`close`](Self::close), what nobody waited for is lost, as in a crash.
#[derive(Clone, Debug)]
pub struct Ledger {
    form: Form,
    snapshots: Arc<Snapshots>,
}

#[derive(Clone, Debug)]
enum Form {
    Memory(Arc<Mutex<Memory>>),
    Disk(Arc<OnDisk>),
}

#[derive(Debug)]
struct Memory {
    end: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct OnDisk {
    shared: Arc<Shared>,
    volume: Arc<dyn Volume>,
    identity: Identity,
    salt: u64,
}

#[derive(Debug)]
struct Snapshots {
    latest: Mutex<Option<Snapshot>>,
    /// One is written at a time.
    turn: Arc<Semaphore>,
}

/// Contents of a ledger when it was opened: the snapshot, then the records.
#[derive(Debug)]
pub struct Recovered {
    /// The latest snapshot.
    pub snapshot: Option<Snapshot>,
    /// The records behind the snapshot, or all.
    pub records: Records,
    /// The end of the ledger.
    pub end: Position,
    /// A tail that was torn, and cut. Nobody was told that it was durable.
    pub cut: Option<Cut>,
    /// True when there was no ledger, and a new one has been begun.
    pub is_new: bool,
}

/// Torn tail of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: String,
    /// Byte from which on it is ignored.
    pub offset: u64,
    /// Count of bytes that are.
    pub bytes: u64,
    /// End of the records before them.
    pub position: Position,
}

/// Counts of what a ledger has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// Records that became durable.
    pub records: u64,
    /// Bytes that were written for them.
    pub bytes: u64,
    /// Batches in which they were written: one write and one sync each.
    pub batches: u64,
    /// Duration of all these writes and syncs.
    pub syncing: Duration,
    /// Segments that were begun because one was full.
    pub segments: u64,
}

impl Ledger {
    /// Opens the ledger of a node, or begins one, and holds it until it is closed or dropped.
    /// Within a tokio runtime, on which its writer goes on.
    ///
    /// # Errors
    /// [`LedgerError::Locked`], [`Foreign`](LedgerError::Foreign),
    /// [`Version`](LedgerError::Version), [`Absent`](LedgerError::Absent),
    /// [`Header`](LedgerError::Header), [`Corrupt`](LedgerError::Corrupt),
    /// [`CorruptSnapshot`](LedgerError::CorruptSnapshot), [`Missing`](LedgerError::Missing), or
    /// what the disk says. Records before the last segment are checked when they are
    /// [read](Records::next).
    pub async fn open<D: Disk>(
        disk: D,
        identity: Identity,
        settings: Settings,
    ) -> Result<(Self, Recovered), LedgerError> {
        let volume: Arc<dyn Volume> = Arc::new(Folder::new(disk));
        let ready = recovery::recover(&volume, identity, &settings).await?;
        let shared = Arc::new(Shared::new(ready.end, ready.salt, ready.segments, &settings));
        let writer = Writer {
            shared: Arc::clone(&shared),
            volume: Arc::clone(&volume),
            active: ready.active,
            identity,
            end: ready.end,
            segment_bytes: settings.segment_bytes,
            _lock: ready.lock,
        };
        tokio::spawn(writer.run());
        let snapshots = Snapshots::new(ready.recovered.snapshot.clone());
        let on_disk = OnDisk { shared, volume, identity, salt: ready.salt };
        Ok((Self { form: Form::Disk(Arc::new(on_disk)), snapshots }, ready.recovered))
    }

    /// A ledger that keeps nothing but its latest snapshot, and loses that with its process: what
    /// was appended is as durable as it ever gets. A node that has such a ledger must not return as
    /// the same voter.
    pub fn in_memory() -> Self {
        let memory = Memory { end: 0, is_closed: false };
        Self { form: Form::Memory(Arc::new(Mutex::new(memory))), snapshots: Snapshots::new(None) }
    }

    /// Appends a record, and answers the position behind it. It does not wait and does not fail:
    /// whether the record could be written, [`durable`](Self::durable) says. It is written when
    /// somebody waits for it or a later one, when much is to be written, and on
    /// [`close`](Self::close).
    ///
    /// A record above [`RECORD_BYTES_MAX`] fails the ledger. Who appends faster than the disk
    /// writes waits for [`room`](Self::room), or does without where it [has
    /// none](Self::has_room).
    pub fn append(&self, record: Bytes) -> Position {
        match &self.form {
            Form::Memory(memory) => {
                let mut memory = memory.lock();
                memory.end += 1;
                Position::new(memory.end)
            }
            Form::Disk(disk) => disk.shared.append(&record),
        }
    }

    /// The position behind the last record.
    pub fn end(&self) -> Position {
        match &self.form {
            Form::Memory(memory) => Position::new(memory.lock().end),
            Form::Disk(disk) => disk.shared.end(),
        }
    }

    /// Waits until all before a position is durable. The proof may reach further.
    ///
    /// # Errors
    /// [`LedgerError::Failed`] once anything could not be made durable, and from then on for ever:
    /// of what was appended nobody knows what is, so the process has to be restarted.
    /// [`LedgerError::Closed`]; [`LedgerError::NotAppended`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, what was appended is written all the same; wait again.
    pub async fn durable(&self, position: Position) -> Result<Durable, LedgerError> {
        match &self.form {
            Form::Memory(memory) => memory.lock().durable(position),
            Form::Disk(disk) => disk.shared.durable(position).await.map(Durable::up_to_there),
        }
    }

    /// Proof of what is durable by now.
    pub fn durable_now(&self) -> Durable {
        match &self.form {
            Form::Memory(memory) => Durable::in_memory(Position::new(memory.lock().end)),
            Form::Disk(disk) => Durable::up_to_there(disk.shared.durable_now()),
        }
    }

    /// Waits until less is to be written than
    /// [`buffered_bytes_max`](Settings::buffered_bytes_max).
    ///
    /// # Errors
    /// Those of [`durable`](Self::durable).
    ///
    /// # Cancel safety
    /// It is cancel safe.
    pub async fn room(&self) -> Result<(), LedgerError> {
        match &self.form {
            Form::Memory(_) => Ok(()),
            Form::Disk(disk) => disk.shared.room().await,
        }
    }

    /// True when less is to be written than
    /// [`buffered_bytes_max`](Settings::buffered_bytes_max): for an actor, which must not wait for
    /// [`room`](Self::room). What it has none for it takes for lost.
    pub fn has_room(&self) -> bool {
        match &self.form {
            Form::Memory(_) => true,
            Form::Disk(disk) => disk.shared.has_room(),
        }
    }

    /// Begins a snapshot of the state after the records before `position`, once these are durable.
    /// Records can be appended meanwhile. Another snapshot waits until this one is finished or
    /// dropped.
    ///
    /// # Errors
    /// [`LedgerError::SnapshotExists`] where there is one of a later position; those of
    /// [`durable`](Self::durable); what the disk says.
    pub async fn snapshot(&self, position: Position) -> Result<SnapshotWriter, LedgerError> {
        self.durable(position).await?;
        let turn = Arc::clone(&self.snapshots.turn).acquire_owned().await;
        let turn = Arc::new(turn.map_err(|_| LedgerError::Closed)?);
        if let Some(latest) = self.latest_snapshot().map(|latest| latest.position())
            && latest > position
        {
            return Err(LedgerError::SnapshotExists { latest });
        }
        let Form::Disk(disk) = &self.form else {
            return Ok(SnapshotWriter::in_memory(self.clone(), position, turn));
        };
        let header = Header {
            sort: Sort::Snapshot,
            identity: disk.identity,
            number: 0,
            position: position.records(),
            salt: disk.salt,
        };
        let volume = Arc::clone(&disk.volume);
        let _names = self.names().await?;
        let file = Unfinished::begin(volume, header, Arc::clone(&turn)).await;
        let file = file.map_err(|error| self.failed(error.into()))?;
        Ok(SnapshotWriter::of_file(self.clone(), position, file, turn))
    }

    /// The latest snapshot that is finished: for a peer that is far behind.
    pub fn latest_snapshot(&self) -> Option<Snapshot> {
        self.snapshots.latest.lock().clone()
    }

    /// Removes the segments of which all records are before `position` and in the latest snapshot.
    /// One that cannot be removed goes with the next trim.
    ///
    /// # Errors
    /// Those of the disk. After a sync that failed the ledger has failed, too.
    pub async fn trim(&self, position: Position) -> Result<(), LedgerError> {
        let (Form::Disk(disk), Some(snapshot)) = (&self.form, self.latest_snapshot()) else {
            return Ok(());
        };
        let before = position.min(snapshot.position()).records();
        let _names = self.names().await?;
        let mut has_removed = false;
        while let Some(segment) = disk.shared.segment_before(before) {
            match disk.volume.remove(&segment.name()).await {
                // Where it is not there, a trim that was cancelled has removed it all the same.
                Err(error) if error.failure != DiskFailure::NotFound => return Err(error.into()),
                _ => disk.shared.forget_segment(),
            }
            has_removed = true;
        }
        if has_removed {
            disk.volume.sync_names().await.map_err(|error| self.failed(error.into()))?;
        }
        Ok(())
    }

    /// Makes all durable that was appended, seals the ledger, and gives up its lock. The ledger
    /// then takes nothing more.
    ///
    /// # Errors
    /// Those of [`durable`](Self::durable): [`LedgerError::Closed`] where the runtime that it was
    /// opened on has ended before all was durable.
    pub async fn close(&self) -> Result<Durable, LedgerError> {
        match &self.form {
            Form::Memory(memory) => {
                let mut memory = memory.lock();
                memory.is_closed = true;
                Ok(Durable::in_memory(Position::new(memory.end)))
            }
            Form::Disk(disk) => disk.shared.close().await.map(Durable::up_to_there),
        }
    }

    /// [Closes](Self::close) the ledger, unless that takes its disk longer than until then: what is
    /// not durable yet may be lost, as in a crash.
    ///
    /// # Errors
    /// [`LedgerError::NotInTime`]; those of [`durable`](Self::durable).
    pub async fn close_by(&self, deadline: Instant) -> Result<Durable, LedgerError> {
        let closed = timeout_at(deadline, self.close()).await;
        closed.unwrap_or(Err(LedgerError::NotInTime))
    }

    /// Counts of the ledger's work; zeros of one in memory.
    pub fn stats(&self) -> LedgerStats {
        match &self.form {
            Form::Memory(_) => LedgerStats::default(),
            Form::Disk(disk) => disk.shared.stats(),
        }
    }

    /// The right to change names of files, which ends with the ledger: then others may have them.
    async fn names(&self) -> Result<Names, LedgerError> {
        match &self.form {
            Form::Memory(_) => Ok(None),
            Form::Disk(disk) => disk.shared.names().await.map(Some),
        }
    }

    /// Fails the ledger where a sync failed: nobody knows what else the device forgets. Of a file
    /// that has no room left for what it took before, and that nobody else has, it is known.
    fn failed(&self, error: LedgerError) -> LedgerError {
        if let (Form::Disk(disk), LedgerError::Disk(of_disk)) = (&self.form, &error)
            && of_disk.operation.starts_with("sync")
            && !(of_disk.operation == "sync" && of_disk.failure == DiskFailure::Full)
        {
            disk.shared.fail(error.clone());
        }
        error
    }

    /// A snapshot is durable: those before it can go. One that cannot be removed goes with the next
    /// start.
    async fn has_snapshot(&self, snapshot: Snapshot) {
        let position = snapshot.position();
        let before = self.snapshots.latest.lock().replace(snapshot);
        let old = before.map(|before| before.position()).filter(|before| *before != position);
        if let (Form::Disk(disk), Some(old)) = (&self.form, old) {
            let _ = disk.volume.remove(&snapshot::name(old.records())).await;
        }
    }
}

impl Memory {
    fn durable(&self, position: Position) -> Result<Durable, LedgerError> {
        let end = Position::new(self.end);
        match position > end {
            _ if self.is_closed => Err(LedgerError::Closed),
            true => Err(LedgerError::NotAppended { position, end }),
            false => Ok(Durable::in_memory(end)),
        }
    }
}

impl Snapshots {
    fn new(latest: Option<Snapshot>) -> Arc<Self> {
        Arc::new(Self { latest: Mutex::new(latest), turn: Arc::new(Semaphore::new(1)) })
    }
}

impl LedgerStats {
    fn add_batch(&mut self, records: u64, bytes: u64, syncing: Duration) {
        self.records += records;
        self.bytes += bytes;
        self.batches += 1;
        self.syncing += syncing;
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
