//! Lock beside the file of a socket: an empty file with `.lock` after the name, locked as a whole.
//!
//! It is removed by whoever holds it, and only then. So somebody may get the lock of a file that
//! its last holder has just removed; who gets one therefore looks whether it is still at its path,
//! and begins again when it is not.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;

use super::file::{Identity, system};
use super::{Unusable, beside};

/// Attempts to get a lock whose file is removed each time; each takes another holder that ends just
/// then.
const ATTEMPTS_MAX: usize = 16;

/// The right to make and remove a socket at a path, until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    identity: Identity,
    _file: File,
}

impl Lock {
    /// The lock for the socket at a path; an error when another has it, in this process or another.
    pub(super) fn take(socket: &Path) -> Result<Self, Unusable> {
        let path = beside(socket, ".lock");
        for _ in 0..ATTEMPTS_MAX {
            if let Some(lock) = Self::of(open_lock(&path)?, &path)? {
                return Ok(lock);
            }
        }
        Err(Unusable::Locked(path))
    }

    /// Locks an open file. `None` when it is no longer at its path: its last holder removed it.
    fn of(file: File, path: &Path) -> Result<Option<Self>, Unusable> {
        let identity = own_identity(&file, path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Unusable::Locked(path.to_owned())),
            Err(error) => return Err(system(path, error.into())),
        }
        let is_there = Identity::at(path).is_ok_and(|there| there == identity);
        Ok(is_there.then(|| Self { path: path.to_owned(), identity, _file: file }))
    }
}

impl Drop for Lock {
    /// While it is still held: who waits for it finds that its file is gone.
    fn drop(&mut self) {
        self.identity.remove_or_warn(&self.path);
    }
}

/// Opens or makes the file. No link is followed, and no end of a pipe is waited for.
fn open_lock(path: &Path) -> Result<File, Unusable> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
    opened.map(File::from).map_err(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(directory)) => Unusable::NoDirectory(directory.to_owned()),
        (io::ErrorKind::PermissionDenied, _) => match path.symlink_metadata() {
            Ok(there) if there.uid() != geteuid().as_raw() => of_another(path, there.uid()),
            _ => system(path, error),
        },
        _ => system(path, error),
    })
}

/// Identity of the file, when it is one that this user has made as a lock.
fn own_identity(file: &File, path: &Path) -> Result<Identity, Unusable> {
    let metadata = file.metadata().map_err(|error| system(path, error))?;
    let own = geteuid().as_raw();
    if metadata.uid() != own {
        Err(of_another(path, metadata.uid()))
    } else if metadata.is_file() && metadata.len() == 0 {
        Ok(Identity::of(&metadata))
    } else {
        Err(Unusable::NoLock { path: path.to_owned(), own })
    }
}

fn of_another(path: &Path, owner: u32) -> Unusable {
    Unusable::ForeignLock { path: path.to_owned(), owner, own: geteuid().as_raw() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_last_holder_is_no_lock_any_more() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let socket = folder.path().join("a.sock");
        let path = beside(&socket, ".lock");
        let first = Lock::take(&socket).expect("nobody has it");
        let late = open_lock(&path).expect("it is there");
        assert!(matches!(Lock::take(&socket), Err(Unusable::Locked(_))));
        drop(first);
        let second = Lock::take(&socket).expect("nobody has it");
        let of_late = Lock::of(late, &path).expect("nobody has the file that is gone");
        assert!(of_late.is_none(), "the second one has the lock");
        assert!(matches!(Lock::take(&socket), Err(Unusable::Locked(_))));
        drop(second);
        assert!(!path.exists());
    }
}
