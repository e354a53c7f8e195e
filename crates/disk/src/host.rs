//! The files of the host, by std, on tokio's threads for what blocks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use fs4::{FileExt, TryLockError};

use crate::path::parts;
use crate::{Disk, DiskError, DiskFailure, DiskFile, Entry, Open};

/// The files below one folder of the host.
///
/// Each operation runs on a thread of tokio for what blocks (`spawn_blocking`), so it is to be
/// called within a tokio runtime, and under a paused clock no time passes meanwhile.
///
/// A directory is synced by `fsync` on Unix. Windows has no such call: there
/// [`Disk::sync_dir`] checks that the directory exists and relies on the journal of NTFS.
///
/// # Cancel safety
/// An operation that is dropped goes on: a write that nobody awaits any more may still happen. It
/// keeps the locks that this disk and its clones held when it began, so that nobody who takes one
/// of them meets it.
#[derive(Clone, Debug)]
pub struct HostDisk {
    root: Arc<Path>,
    locks: Locks,
}

/// The locks of a disk, each held until its guard is dropped and what began under it has ended.
#[derive(Clone, Debug, Default)]
struct Locks(Arc<Mutex<Vec<Weak<Held>>>>);

/// A lock whose guard is there. What began under it keeps the file alone, which locks.
#[derive(Debug)]
struct Held(Arc<File>);

impl Locks {
    fn add(&self, lock: &Arc<Held>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(lock));
    }

    /// The files of the locks whose guards are there.
    fn held(&self) -> Vec<Arc<File>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|lock| lock.strong_count() > 0);
        locks.iter().filter_map(|lock| Some(lock.upgrade()?.0.clone())).collect()
    }

    /// Runs `act` where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        place: Arc<Path>,
        act: impl FnOnce(&Path) -> Result<T, DiskFailure> + Send + 'static,
    ) -> Result<T, DiskError> {
        let (of, held) = (Arc::clone(&place), self.held());
        let act = move || {
            let done = act(&of);
            drop(held);
            done
        };
        let done = match tokio::task::spawn_blocking(act).await {
            Ok(done) => done,
            Err(error) => Err(DiskFailure::Device(format!("the runtime did not run it: {error}"))),
        };
        done.map_err(|failure| failed(operation, &place, failure))
    }
}

impl HostDisk {
    /// The files below `root`, a directory that exists and whose own name is durable, as that of
    /// one which [`HostDisk::create`] has made.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into().into(), locks: Locks::default() }
    }

    /// The files below `root`, which is made where it is not there, with the directories above it.
    /// Once this returns the names of all of them are durable, which no operation of the disk can
    /// see to: its paths begin below. That includes those that were there, which may have been made
    /// just before, by a life that was killed or by somebody else: each directory above is synced,
    /// up to the first that may not be read or whose file system syncs none. Blocks as long as the
    /// disk takes.
    ///
    /// # Errors
    /// The system's.
    pub fn create(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        make_durable(&root, &mut sync_dir)?;
        Ok(Self::new(root))
    }

    /// Runs `act` on the place of `path`.
    async fn at<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &str,
        act: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, DiskError> {
        let place = self.place(operation, path)?;
        let act = move |place: &Path| act(place).map_err(DiskFailure::from);
        self.locks.blocking(operation, place, act).await
    }

    /// The place of anything but the root itself.
    fn place_within(&self, operation: &'static str, path: &str) -> Result<Arc<Path>, DiskError> {
        match path {
            "" => Err(DiskError::new(operation, path, DiskFailure::Denied)),
            path => self.place(operation, path),
        }
    }

    fn place(&self, operation: &'static str, path: &str) -> Result<Arc<Path>, DiskError> {
        match parts(path) {
            Ok(parts) => {
                let place = parts.iter().fold(self.root.to_path_buf(), |at, part| at.join(part));
                Ok(place.into())
            }
            Err(failure) => Err(DiskError::new(operation, path, failure)),
        }
    }
}

impl Disk for HostDisk {
    type File = HostFile;
    type Lock = HostLock;

    async fn open(&self, path: &str, open: Open) -> Result<HostFile, DiskError> {
        let place = self.place("open", path)?;
        let act = move |place: &Path| open_file(place, open);
        let file = Arc::new(self.locks.blocking("open", Arc::clone(&place), act).await?);
        Ok(HostFile { file, place, open, locks: self.locks.clone() })
    }

    async fn create_dir(&self, path: &str) -> Result<(), DiskError> {
        self.at("create the directory", path, |place| fs::create_dir(place)).await
    }

    async fn list(&self, dir: &str) -> Result<Vec<Entry>, DiskError> {
        self.at("list", dir, |place| {
            let mut entries = Vec::new();
            for entry in fs::read_dir(place)? {
                let entry = entry?;
                // Others are of somebody else: no path of a disk names them.
                let name = entry.file_name().into_string().ok();
                if let Some(name) = name.filter(|name| parts(name).is_ok()) {
                    entries.push(Entry { name, is_dir: entry.file_type()?.is_dir() });
                }
            }
            entries.sort();
            Ok(entries)
        })
        .await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.place_within("rename", from)?;
        let to = self.place_within("rename to", to)?;
        self.at("rename", from, move |from| fs::rename(from, to)).await
    }

    async fn remove(&self, path: &str) -> Result<(), DiskError> {
        let remove = |place: &Path| match fs::symlink_metadata(place)?.is_dir() {
            true => fs::remove_dir(place),
            false => fs::remove_file(place),
        };
        self.place_within("remove", path)?;
        self.at("remove", path, remove).await
    }

    async fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.at("sync the directory", dir, sync_dir).await
    }

    async fn lock(&self, path: &str) -> Result<HostLock, DiskError> {
        let act = |place: &Path| {
            let file = open_file(place, Open::Create)?;
            match FileExt::try_lock(&file) {
                Ok(()) => Ok(Arc::new(file)),
                Err(TryLockError::WouldBlock) => Err(DiskFailure::Locked),
                Err(TryLockError::Error(error)) => Err(error.into()),
            }
        };
        let file = self.locks.blocking("lock", self.place_within("lock", path)?, act).await?;
        let held = Arc::new(Held(file));
        self.locks.add(&held);
        Ok(HostLock { _held: held })
    }
}

/// An open file of the host.
#[derive(Clone, Debug)]
pub struct HostFile {
    file: Arc<File>,
    place: Arc<Path>,
    open: Open,
    locks: Locks,
}

/// The lock of a file of the host: the system's, which ends with the process at the latest. It goes
/// by the file itself, so a file that locks is never removed or renamed.
#[derive(Debug)]
pub struct HostLock {
    _held: Arc<Held>,
}

impl HostFile {
    async fn act<T: Send + 'static>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> Result<T, DiskError> {
        let file = Arc::clone(&self.file);
        let act = move |_: &Path| act(&file).map_err(DiskFailure::from);
        self.locks.blocking(operation, Arc::clone(&self.place), act).await
    }

    /// The system calls a write to a file that was opened for reading a bad descriptor.
    fn check_writable(&self, operation: &'static str) -> Result<(), DiskError> {
        match self.open {
            Open::Read => Err(failed(operation, &self.place, DiskFailure::ReadOnly)),
            Open::Write | Open::New | Open::Create => Ok(()),
        }
    }
}

impl DiskFile for HostFile {
    async fn len(&self) -> Result<u64, DiskError> {
        self.act("ask for the length of", |file| Ok(file.metadata()?.len())).await
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        self.act("read", move |file| read_at(file, offset, len)).await
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<usize, DiskError> {
        self.check_writable("write")?;
        self.act("write", move |file| write_at(file, offset, &bytes)).await
    }

    async fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.check_writable("set the length of")?;
        self.act("set the length of", move |file| file.set_len(len)).await
    }

    async fn sync(&self) -> Result<(), DiskError> {
        // Length included: `fdatasync` leaves out only what reading the data does not need.
        self.act("sync", |file| file.sync_data()).await
    }

    async fn write_all_and_sync(&self, offset: u64, bytes: Bytes) -> Result<(), DiskError> {
        self.check_writable("write")?;
        self.act("write and sync", move |file| {
            let mut written = 0;
            while written < bytes.len() {
                let at = offset.saturating_add(written as u64);
                written += write_at(file, at, &bytes[written..])?;
            }
            file.sync_data()
        })
        .await
    }
}

fn failed(operation: &'static str, place: &Path, failure: DiskFailure) -> DiskError {
    DiskError::new(operation, place.display().to_string(), failure)
}

fn open_file(place: &Path, open: Open) -> Result<File, DiskFailure> {
    let mut options = OpenOptions::new();
    match open {
        Open::Read => options.read(true),
        Open::Write => options.read(true).write(true),
        Open::New => options.read(true).write(true).create_new(true),
        Open::Create => options.read(true).write(true).create(true).truncate(false),
    };
    let file = options.open(place)?;
    // Unix opens a directory for reading as if it were a file.
    if file.metadata()?.is_dir() { Err(DiskFailure::WrongKind) } else { Ok(file) }
}

/// Makes a directory and those above it that are not there, and their names durable by `sync`.
fn make_durable(root: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing: Vec<_> = root.ancestors().take_while(|place| !place.exists()).collect();
    for (nth, there) in root.ancestors().skip(missing.len()).enumerate() {
        match there.parent().map_or(Ok(()), &mut *sync) {
            // Who made it saw to it; far above it may be read only.
            Err(error) if nth > 0 || is_out_of_reach(&error) => break,
            synced => synced?,
        }
    }
    // No name is made before that of the directory that it is in is durable.
    for place in missing.into_iter().rev() {
        let is_new = match fs::create_dir(place) {
            Ok(()) => true,
            Err(_) if place.is_dir() => false,
            Err(error) => return Err(error),
        };
        match place.parent().map_or(Ok(()), &mut *sync) {
            Err(error) if !is_new && is_out_of_reach(&error) => {}
            synced => synced?,
        }
    }
    // A file may be there: the system says so.
    if root.is_dir() { Ok(()) } else { fs::create_dir(root) }
}

/// True when a directory is not this process's to sync, or of a file system that syncs none.
fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

#[cfg(unix)]
fn sync_dir(place: &Path) -> io::Result<()> {
    fs::read_dir(place)?;
    File::open(place)?.sync_all()
}

#[cfg(not(unix))]
fn sync_dir(place: &Path) -> io::Result<()> {
    fs::read_dir(place).map(drop)
}

/// Most bytes that a read asks for before it knows that they are there.
const READ_BYTES_MAX: usize = 1 << 20;

fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + READ_BYTES_MAX), 0);
        let count = read_some_at(file, offset.saturating_add(start as u64), &mut bytes[start..]);
        bytes.truncate(start + *count.as_ref().unwrap_or(&0));
        match count {
            // The system has no offset that large, so no file has bytes there.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(0) => break,
            Ok(_) => {}
        }
    }
    Ok(bytes.into())
}

fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match write_some_at(file, offset, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) if !bytes.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
            written => return written,
        }
    }
}

#[cfg(unix)]
use std::os::unix::fs::FileExt as PlatformFile;
#[cfg(windows)]
use std::os::windows::fs::FileExt as PlatformFile;

#[cfg(unix)]
fn read_some_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    PlatformFile::read_at(file, bytes, offset)
}

#[cfg(unix)]
fn write_some_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    PlatformFile::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_some_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    PlatformFile::seek_read(file, bytes, offset)
}

#[cfg(windows)]
fn write_some_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    PlatformFile::seek_write(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories below `top` that are synced as `root` is made, in order; `fails` says how.
    fn synced(
        top: &Path,
        root: &str,
        fails: impl Fn(&Path) -> Option<io::ErrorKind>,
    ) -> io::Result<Vec<String>> {
        let mut synced = Vec::new();
        make_durable(&top.join(root), &mut |place| {
            if let Some(kind) = fails(place) {
                return Err(kind.into());
            }
            if let Ok(below) = place.strip_prefix(top) {
                synced.push(below.to_string_lossy().into_owned());
            }
            Ok(())
        })?;
        Ok(synced)
    }

    #[test]
    fn directories_that_others_have_just_made_are_durable_too() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let top = folder.path();
        fs::create_dir_all(top.join("a/b"))?;
        let never = |_: &Path| None;
        assert_eq!(synced(top, "a/b/c/d", never)?, ["a", "", "a/b", "a/b/c"]);
        assert_eq!(synced(top, "a/b/c/d", never)?, ["a/b/c", "a/b", "a", ""]);
        // Above what may not be read, somebody else sees to it.
        let denied = |place: &Path| place.ends_with("a").then_some(io::ErrorKind::PermissionDenied);
        assert_eq!(synced(top, "a/b/c/d/e", denied)?, ["a/b/c", "a/b", "a/b/c/d"]);
        // What it has made itself it must see to, and so to what the disk refuses.
        let below = |place: &Path| place.ends_with("e").then_some(io::ErrorKind::PermissionDenied);
        assert!(synced(top, "a/b/c/d/e/f", below).is_err());
        let broken = |place: &Path| place.ends_with("a").then_some(io::ErrorKind::Other);
        assert!(synced(top, "a/b", broken).is_err());
        Ok(())
    }
}
