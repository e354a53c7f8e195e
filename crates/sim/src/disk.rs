//! A disk inside the process: the files of one host, with what crashes, failures, lies and a full
//! disk do to them.
//!
//! A program that is generic over [`Disk`] runs on a [`Mount`] as it does on the files of its host,
//! [`HostDisk`]. The test holds the [`SimDisk`]: it sets conditions, crashes the host and mounts
//! again. Time is tokio's, so that under a paused clock (`start_paused = true`) a slow sync takes no
//! time and how long it took is exact.
//!
//! ```
//! # use convoke_sim::disk::*;
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! let disk = SimDisk::new(42);
//! let mount = disk.mount();
//! let file = mount.open("ledger", Open::New).await?;
//! file.write_all_at(0, "promised 7;".into()).await?;
//! file.sync().await?;
//! mount.sync_dir("").await?;
//! file.write_all_at(11, "accepted 7;".into()).await?;
//!
//! disk.crash();
//! assert_eq!(file.len().await.unwrap_err().failure, DiskFailure::Gone);
//! let ledger = disk.mount().open("ledger", Open::Read).await?;
//! let found = ledger.read_at(0, 100).await?;
//! assert!(found.starts_with(b"promised 7;"), "what was synced is there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it is like
//! - **Durable** is what [`convoke_disk`] says, and no more. What was not synced has a [`Fate`] in
//!   a crash: for each file one of its own, and one for all names. Bytes that were synced survive
//!   every fate; bytes that nobody wrote appear under [`Fate::Garbled`] and after
//!   [`SimDisk::rot`] alone.
//! - **A failed sync** forgets blocks, and the next one says `Ok` of them, as on Linux: see
//!   [`DiskSettings::sync_fails`].
//! - **Processes** are mounts. [`SimDisk::crash`] ends them all. [`Mount::kill`] ends one, as
//!   `kill -9` does: its locks are free, and what it wrote is still seen, synced or not.
//! - **Memory** is bounded by the [capacity](DiskSettings::capacity), some three times over:
//!   what is seen, what of it is durable, and what is unsynced. Of unsynced changes a file
//!   keeps up to 16 MiB, and the directories together 16,384; the oldest beyond that become
//!   durable, as if written back. When they all, and what was removed or cut and a crash may
//!   bring back, are more than the capacity, or than 64 MiB if that is more, everything does.
//!
//! # Determinism
//! Everything is drawn from the seed, in the order of the operations. On a current-thread runtime
//! with a paused clock the same seed and program give the same run. Give each host a seed of its
//! own, derived from that of the run.
//!
//! # Cancel safety
//! As of every [`Disk`]: none. Here a write or a change of names whose future was polled is seen, and
//! a sync whose future was dropped before it was ready has made nothing durable.

mod contents;
mod device;
mod mount;
mod names;
mod settings;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::device::Device;

pub use self::mount::{Mount, SimFile, SimLock};
pub use self::settings::{Delay, DiskSettings, Fate};
pub use convoke_disk::{Disk, DiskError, DiskFailure, DiskFile, Entry, HostDisk, Open};

/// Number of a process. Never used again on its disk.
type Life = u64;

/// The disk of one simulated host, as the test holds it. Cheap to clone; clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    device: Mutex<Device>,
    /// A process ended, or the disk goes on.
    changed: Notify,
}

/// Counts of what a disk has done, over all crashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Changes that were begun: writes, new lengths, syncs, and names created, renamed or removed.
    pub changes: u64,
    /// Writes of at least one byte.
    pub writes: u64,
    /// Bytes that they wrote.
    pub bytes_written: u64,
    /// Syncs of files that were begun.
    pub syncs: u64,
    /// Syncs of directories that were begun.
    pub dir_syncs: u64,
    /// Crashes of the host.
    pub crashes: u64,
}

impl SimDisk {
    /// An empty disk under the default [`DiskSettings`]. `seed` decides everything that is drawn.
    pub fn new(seed: u64) -> Self {
        let device = Mutex::new(Device::new(seed));
        Self { shared: Arc::new(Shared { device, changed: Notify::new() }) }
    }

    /// The files for a new process on the host.
    pub fn mount(&self) -> Mount {
        let life = self.shared.device.lock().begin_life();
        Mount::new(Arc::clone(&self.shared), life)
    }

    /// Sets the conditions, from the next operation on.
    pub fn settings(&self, settings: DiskSettings) {
        self.shared.device.lock().settings = settings;
    }

    /// Changes some of the conditions, from the next operation on. `change` may ask the disk, as
    /// for its [`stats`](Self::stats). What others set meanwhile is overwritten.
    pub fn configure(&self, change: impl FnOnce(&mut DiskSettings)) {
        let mut settings = self.shared.device.lock().settings.clone();
        change(&mut settings);
        self.settings(settings);
    }

    /// Crashes the host, as a power failure does: every mount, file and lock is
    /// [gone](DiskFailure::Gone), also in operations that are on their way, and of what was not
    /// synced there remains what the [fates](DiskSettings::fates) leave. [Mount](Self::mount) again
    /// to restart.
    pub fn crash(&self) {
        self.crash_as(None);
    }

    /// Crashes the host with this fate for all its files and names.
    pub fn crash_with(&self, fate: Fate) {
        self.crash_as(Some(fate));
    }

    fn crash_as(&self, fate: Option<Fate>) {
        self.shared.device.lock().crash(fate);
        self.shared.changed.notify_waiters();
    }

    /// Lets `count` more [changes](DiskStats::changes) happen, and then the host crash in place of
    /// the next one. With a count that is drawn, or with each in turn, a test tries every point at
    /// which a program can crash. A crash before that, by any way, takes the order back.
    pub fn crash_after(&self, count: u64) {
        self.shared.device.lock().changes_left = Some(count);
    }

    /// Lets the next reads of bytes fail: so many.
    pub fn fail_reads(&self, count: u64) {
        self.shared.device.lock().failing_reads = count;
    }

    /// Lets the next writes and changes of lengths fail, as [`DiskSettings::write_fails`] does: so
    /// many.
    pub fn fail_writes(&self, count: u64) {
        self.shared.device.lock().failing_writes = count;
    }

    /// Lets the next syncs fail, of files or directories: so many.
    pub fn fail_syncs(&self, count: u64) {
        self.shared.device.lock().failing_syncs = count;
    }

    /// Lets the next syncs answer `Ok` and make nothing durable: so many, behind those that fail.
    pub fn lie_about_syncs(&self, count: u64) {
        self.shared.device.lock().lying_syncs = count;
    }

    /// Lets nothing end until [`SimDisk::resume`]: a disk that hangs.
    pub fn stall(&self) {
        self.shared.device.lock().is_stalled = true;
    }

    /// Lets operations end again.
    pub fn resume(&self) {
        self.shared.device.lock().is_stalled = false;
        self.shared.changed.notify_waiters();
    }

    /// Corrupts the sector of 512 bytes that holds the byte at `offset` of a file, on the device
    /// and as it is seen: the bytes are drawn, the one at `offset` is another than before. What was
    /// corrupted. Unsynced changes of the sector are still written when they are synced.
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`] where there is no such file or byte.
    pub fn rot(&self, path: &str, offset: u64) -> Result<Range<u64>, DiskError> {
        let rotten = self.shared.device.lock().rot(path, offset);
        let (start, end) = rotten.map_err(|failure| DiskError::new("corrupt", path, failure))?;
        Ok(start..end)
    }

    /// Contents of a file after a crash that leaves nothing unsynced: what is durable, under its
    /// durable name. `None` where there would be no such file.
    pub fn durable(&self, path: &str) -> Option<Bytes> {
        self.shared.device.lock().durable(path)
    }

    /// Counts of what the disk has done so far.
    pub fn stats(&self) -> DiskStats {
        self.shared.device.lock().stats
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
