//! The seam to a disk: what the ledger of a node asks of files and directories, as traits.
//!
//! A program that is generic over [`Disk`] runs on [`HostDisk`], the files of the host, and in its
//! tests on the simulated disk of `convoke-sim`, which loses what was not synced when it crashes,
//! fails, lies, fills up and rots by a seed. The traits stand in a crate of their own, since what
//! ships depends on no simulator.
//!
//! ```text
//!        your ledger<D: Disk>
//!          │             │
//!     HostDisk       convoke_sim::disk::Mount ── SimDisk, the test's handle on faults
//!      std files       virtual time, seeded
//! ```
//!
//! # What is durable when
//! These rules are those of POSIX file systems; no disk promises more:
//! - A **write** is seen at once by everybody on the host. It is durable once a [`DiskFile::sync`]
//!   that began after it has returned `Ok`.
//! - A **name** (created, renamed or removed) is durable once a [`Disk::sync_dir`] of its directory
//!   that began after the change has returned `Ok`. A file that was synced and whose name was not
//!   may be gone after a crash. A rename is one change: after a crash a name is the old file or
//!   the new one.
//! - What is **not synced** may survive a crash whole, in part, in any order, or not at all.
//! - After a **failed sync** nothing is known of what it was to make durable, and a second one that
//!   says `Ok` proves nothing: Linux forgets pages that it could not write, and goes on showing
//!   them. Stop, and recover from what a restart reads. Where the process alone restarts, and not
//!   its host, that may be such a page: write what is to last once more, into another file, before
//!   that is synced.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use bytes::Bytes;
//! use convoke_disk::{Disk, DiskFile, HostDisk, Open};
//!
//! /// Replaces a file: who reads it after a crash finds the old or the new, never half of one.
//! async fn replace<D: Disk>(disk: &D, contents: Bytes) -> Result<(), convoke_disk::DiskError> {
//!     let file = disk.open("state.new", Open::Create).await?;
//!     file.set_len(0).await?;
//!     file.write_all_at(0, contents).await?;
//!     file.sync().await?;
//!     disk.rename("state.new", "state").await?;
//!     disk.sync_dir("").await
//! }
//!
//! # let folder = std::env::temp_dir().join(format!("convoke-disk-{}", std::process::id()));
//! let disk = HostDisk::create(&folder)?;
//! replace(&disk, Bytes::from_static(b"promised 7")).await?;
//! let state = disk.open("state", Open::Read).await?;
//! assert_eq!(state.read_at(0, 100).await?, "promised 7");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Paths
//! A path is text, relative to the root of the disk, with `/` between its parts; the root is `""`.
//! Parts are neither empty, `.` nor `..`, and have no `\`, `:` or NUL, so that a path means the
//! same on every system and never leads out of the root, but by a link that somebody has put there.
//! Other paths are [`DiskFailure::InvalidPath`]; [`Disk::list`] leaves out files that they name.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod host;
mod path;

use std::fmt::Debug;
use std::future::Future;

use bytes::Bytes;

pub use self::error::{DiskError, DiskFailure};
pub use self::host::{HostDisk, HostFile, HostLock};
pub use self::path::parts;

/// Treatment by [`Disk::open`] of what is there, and of what is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// A file that exists, for reading alone.
    Read,
    /// A file that exists, for reading and writing.
    Write,
    /// A new file; one that exists is [`DiskFailure::Exists`].
    New,
    /// A file that exists, or else a new one.
    Create,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The last part of the path.
    pub name: String,
    /// True for a directory, false for a file.
    pub is_dir: bool,
}

/// The files of one process on one host. Cheap to clone; clones are the same process.
///
/// # Cancel safety
/// No operation is cancel safe. One whose future was dropped may have been done, may not have been,
/// and on [`HostDisk`] may be done later, even after an operation that was begun after it; the
/// locks that were held when it began are held until then. Who drops the future of a write or a
/// sync goes on as after a failed one: it lets go of its lock, takes it again, and reads.
pub trait Disk: Clone + Debug + Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// A lock that is held until it is dropped, its process ends, or its host crashes.
    type Lock: Debug + Send + Sync + 'static;

    /// Opens a file. Its directory must exist.
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`], [`DiskFailure::Exists`], [`DiskFailure::WrongKind`] for a
    /// directory, [`DiskFailure::ReadOnly`], [`DiskFailure::Denied`], or what the device says.
    fn open(
        &self,
        path: &str,
        open: Open,
    ) -> impl Future<Output = Result<Self::File, DiskError>> + Send;

    /// Makes a directory within one that exists.
    ///
    /// # Errors
    /// [`DiskFailure::Exists`], [`DiskFailure::NotFound`] without the directory around it,
    /// [`DiskFailure::ReadOnly`], [`DiskFailure::Denied`], or what the device says.
    fn create_dir(&self, path: &str) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`], [`DiskFailure::WrongKind`] for a file, or what the device says.
    fn list(&self, dir: &str) -> impl Future<Output = Result<Vec<Entry>, DiskError>> + Send;

    /// Gives a file or a directory another name, in one step. A file that has that name already is
    /// replaced by a file. A directory needs a name that is free: an empty one may be replaced or
    /// not, as the system does.
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`], [`DiskFailure::WrongKind`] for a file onto a directory and the
    /// other way round, [`DiskFailure::NotEmpty`] for a directory onto another,
    /// [`DiskFailure::ReadOnly`], [`DiskFailure::Denied`], or what the device says, such as of a
    /// directory into itself.
    fn rename(&self, from: &str, to: &str) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Removes the name of a file, or an empty directory. Who has the file open keeps it until then
    /// (on Windows the removal may be refused instead).
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`], [`DiskFailure::NotEmpty`], [`DiskFailure::ReadOnly`],
    /// [`DiskFailure::Denied`], or what the device says.
    fn remove(&self, path: &str) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Makes the names of a directory durable: what was created, renamed to or from, and removed in
    /// it before the call. Not the contents of its files, nor the name of the directory itself.
    ///
    /// # Errors
    /// [`DiskFailure::NotFound`], or what the device says; after that the names that were changed
    /// may or may not survive a crash.
    fn sync_dir(&self, dir: &str) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Takes the exclusive lock of a file, which is created if need be. It does not wait. Only who
    /// asks for the lock heeds it: reads and writes do not.
    ///
    /// # Errors
    /// [`DiskFailure::Locked`] while somebody holds it, in this process or another; else as
    /// [`Disk::open`] with [`Open::Create`].
    fn lock(&self, path: &str) -> impl Future<Output = Result<Self::Lock, DiskError>> + Send;
}

/// An open file. Several handles of one file see the same bytes.
///
/// Cancel safety is that of [`Disk`].
#[expect(
    clippy::len_without_is_empty,
    reason = "its length is a question to the system, and may fail"
)]
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Length in bytes.
    ///
    /// # Errors
    /// If the device fails.
    fn len(&self) -> impl Future<Output = Result<u64, DiskError>> + Send;

    /// Reads up to `len` bytes from `offset` on. Fewer only where the file ends; none behind its
    /// end.
    ///
    /// # Errors
    /// If the device fails.
    fn read_at(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = Result<Bytes, DiskError>> + Send;

    /// Writes at `offset`, and answers how many bytes it has written: it may be fewer than there
    /// are, and is zero only for no bytes. A gap behind the old end reads as zeros.
    ///
    /// # Errors
    /// [`DiskFailure::Full`], [`DiskFailure::ReadOnly`] and [`DiskFailure::Denied`], with nothing
    /// written; or what the device says.
    fn write_at(
        &self,
        offset: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<usize, DiskError>> + Send;

    /// Writes all of `bytes`, by as many writes as it takes.
    ///
    /// # Errors
    /// Those of [`DiskFile::write_at`]; the first part may have been written.
    fn write_all_at(
        &self,
        offset: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), DiskError>> + Send {
        async move {
            let (mut offset, mut rest) = (offset, bytes);
            while !rest.is_empty() {
                let count = self.write_at(offset, rest.clone()).await?.min(rest.len());
                offset = offset.saturating_add(count as u64);
                rest = rest.split_off(count);
            }
            Ok(())
        }
    }

    /// Cuts the file, or makes it longer with zeros.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn set_len(&self, len: u64) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Makes durable what was written to the file before the call, through any handle, and its
    /// length. Not its name: see [`Disk::sync_dir`]. Windows wants a handle that can write.
    ///
    /// # Errors
    /// If the device fails. Then nothing is known of what was to be made durable, and trying again
    /// does not help; see [what is durable when](crate#what-is-durable-when).
    fn sync(&self) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Writes all of `bytes`, and then syncs: what a log does for every batch of its records.
    /// [`HostDisk`] does both by one visit of one thread.
    ///
    /// # Errors
    /// Those of [`DiskFile::write_at`] and [`DiskFile::sync`]; the first part may have been written.
    fn write_all_and_sync(
        &self,
        offset: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), DiskError>> + Send {
        async move {
            self.write_all_at(offset, bytes).await?;
            self.sync().await
        }
    }
}
