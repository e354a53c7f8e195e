//! File of a listening socket: made, taken over from a dead process, and removed by whoever made
//! it.
//!
//! A listener holds a [`Lock`] for as long as its file is there, so of two that start at once the
//! second finds the path in use, and neither takes the file of a process that has bound it and does
//! not listen yet. The lock falls with its process, however that ends. The file stays then. Who
//! gets the lock and finds a socket asks it by connecting: one that refuses is of nobody any more,
//! and is removed when it is this user's. One that answers is of somebody who knows no lock.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use socket2::{SockAddr, Socket};

use super::lock::Lock;
use super::{Unusable, bind, new_socket};

/// The file of a socket of this process; removed with this, if it is still the same.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
    _lock: Lock,
}

/// A file, whatever its path leads to later. It is not given to another file while this one is
/// open or, of a socket, bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Binds `socket` to `path`, where there is nothing, or the socket of a dead process.
    pub(super) fn bind(path: &Path, socket: &Socket) -> Result<Self, Unusable> {
        // Before the lock, so that nothing is made beside what is not ours, and another user's
        // lock, which cannot be opened, does not hide whose the socket is.
        own_socket_at(path)?;
        let lock = Lock::take(path)?;
        remove_stale(path)?;
        bind(socket, path)?;
        let identity = Identity::at(path).map_err(|error| system(path, error))?;
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.identity.remove_or_warn(&self.path);
    }
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Identity of the file at a path, be it a link.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|metadata| Self::of(&metadata))
    }

    /// Removes this file from `path`. Who has removed or replaced it before knew better.
    fn remove(self, path: &Path) -> io::Result<()> {
        match Self::at(path) {
            Ok(there) if there == self => fs::remove_file(path),
            _ => Ok(()),
        }
    }

    /// The same at the end of a listener, which waits for nobody to make room.
    pub(super) fn remove_or_warn(self, path: &Path) {
        if let Err(error) = self.remove(path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove a file of a listener");
        }
    }
}

/// The socket at a path, if anything is there.
fn socket_at(path: &Path) -> Result<Option<Metadata>, Unusable> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => Ok(Some(there)),
        Ok(_) => Err(Unusable::NoSocket),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(system(path, error)),
    }
}

/// The same, when it is of this user.
fn own_socket_at(path: &Path) -> Result<Option<Metadata>, Unusable> {
    let there = socket_at(path)?;
    let own = geteuid().as_raw();
    match there.as_ref().map(Metadata::uid) {
        Some(owner) if owner != own => Err(Unusable::Foreign { owner, own }),
        _ => Ok(there),
    }
}

/// Removes the socket of a dead process of this user. Others stay, and are an error.
fn remove_stale(path: &Path) -> Result<(), Unusable> {
    let Some(there) = own_socket_at(path)? else { return Ok(()) };
    if is_listening(path)? {
        return Err(Unusable::InUse);
    }
    tracing::debug!(path = %path.display(), "taking over the socket of a dead process");
    Identity::of(&there).remove(path).map_err(|error| system(path, error))
}

/// True when somebody answers at a socket, without waiting for it.
fn is_listening(path: &Path) -> Result<bool, Unusable> {
    let asked = new_socket()?.connect(&SockAddr::unix(path)?);
    match asked.map_err(|error| (error.kind(), error)) {
        Ok(()) => Ok(true),
        Err((io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _)) => Ok(false),
        Err((io::ErrorKind::PermissionDenied, error)) => Err(system(path, error)),
        // Its queue is full, or it is not for streams: somebody is there.
        Err(_) => Ok(true),
    }
}

pub(super) fn system(path: &Path, error: io::Error) -> Unusable {
    Unusable::System { path: path.to_owned(), error }
}
