//! Failures of disks.

use std::io;

/// An operation that a disk could not do: which, on what, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {path:?}: {failure}")]
pub struct DiskError {
    /// The operation, as a verb: `open`, `write`, `sync`.
    pub operation: &'static str,
    /// Path of the file or directory; for the files of a host from where the disk has its root.
    pub path: String,
    /// The reason.
    pub failure: DiskFailure,
}

/// Reason of a [`DiskError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskFailure {
    /// There is no such file or directory, or not the directory around it.
    #[error("it does not exist")]
    NotFound,
    /// The name is taken.
    #[error("it exists already")]
    Exists,
    /// A directory where a file is meant, or a file where a directory is.
    #[error("a file was expected and a directory found, or the other way round")]
    WrongKind,
    /// A directory that is to go still has names in it.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The caller's doing: see [paths](crate#paths).
    #[error("the path is not made of plain names relative to the disk's root")]
    InvalidPath,
    /// No space is left. Of a write, nothing was written: remove or trim something, then try again.
    /// Of a sync it is as [`Device`](Self::Device): do not.
    #[error("the disk is full")]
    Full,
    /// The disk takes no changes, or the file was opened for reading.
    #[error("it is read-only")]
    ReadOnly,
    /// The system does not let this process do it.
    #[error("permission denied")]
    Denied,
    /// Somebody else holds the lock: perhaps another process on the same files.
    #[error("somebody else holds its lock")]
    Locked,
    /// The process or the host that this handle belonged to is gone. Simulated disks alone.
    #[error("the process of this handle is gone")]
    Gone,
    /// The device, or the system, with its words. Of a sync or a write: do not try again, but
    /// recover from what a restart reads.
    #[error("{0}")]
    Device(String),
}

impl DiskError {
    /// An operation on `path` that failed.
    pub fn new(operation: &'static str, path: impl Into<String>, failure: DiskFailure) -> Self {
        Self { operation, path: path.into(), failure }
    }
}

impl From<io::Error> for DiskFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::Exists,
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => Self::WrongKind,
            io::ErrorKind::DirectoryNotEmpty => Self::NotEmpty,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Device(error.to_string()),
        }
    }
}
