//! The files as a process on the host has them: operations that take time, and end with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_disk::{Disk, DiskError, DiskFailure, DiskFile, Entry, Open};
use tokio::time::{Instant, sleep_until};

use super::device::Device;
use super::names::Inode;
use super::{Life, Shared};
use crate::clock::after;

/// The files of a simulated host, for one process on it. Cheap to clone; clones are the same
/// process. To be used within a tokio runtime with a clock.
#[derive(Clone)]
pub struct Mount {
    shared: Arc<Shared>,
    life: Life,
}

/// An open file on a simulated disk.
pub struct SimFile {
    mount: Mount,
    path: String,
    inode: Inode,
    is_writable: bool,
}

/// The lock of a file on a simulated disk.
pub struct SimLock {
    mount: Mount,
    inode: Inode,
}

impl Mount {
    pub(super) fn new(shared: Arc<Shared>, life: Life) -> Self {
        Self { shared, life }
    }

    /// Ends this process alone, as `kill -9` does: its handles are [gone](DiskFailure::Gone) and
    /// its locks are free, while what it wrote is seen as before, synced or not.
    pub fn kill(&self) {
        self.shared.device.lock().kill(self.life);
        self.shared.changed.notify_waiters();
    }

    /// Does something at once.
    fn act<T>(
        &self,
        act: impl FnOnce(&mut Device) -> Result<T, DiskFailure>,
    ) -> Result<T, DiskFailure> {
        let mut device = self.shared.device.lock();
        let done = device.check(self.life).and_then(|()| act(&mut device));
        drop(device);
        if matches!(done, Err(DiskFailure::Gone)) {
            // It may have crashed the host, and others wait for it.
            self.shared.changed.notify_waiters();
        }
        done
    }

    /// Does something that is seen at once and takes as long as a read.
    async fn read<T>(
        &self,
        act: impl FnOnce(&mut Device) -> Result<T, DiskFailure>,
    ) -> Result<T, DiskFailure> {
        let (done, delay) = self.act(|device| Ok((act(device)?, device.read_delay())))?;
        self.pass(delay).await?;
        Ok(done)
    }

    /// Does something that is seen at once and takes as long as a write.
    async fn change<T>(
        &self,
        act: impl FnOnce(&mut Device) -> Result<T, DiskFailure>,
    ) -> Result<T, DiskFailure> {
        let (done, delay) = self.act(|device| Ok((act(device)?, device.write_delay())))?;
        self.pass(delay).await?;
        Ok(done)
    }

    /// Lets time pass, longer while the disk is stalled. Ends with the process.
    async fn pass(&self, delay: Duration) -> Result<(), DiskFailure> {
        let until = (!delay.is_zero()).then(|| after(Instant::now(), delay));
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_stalled = self.act(|device| Ok(device.is_stalled))?;
            match until.filter(|until| Instant::now() < *until) {
                None if !is_stalled => return Ok(()),
                Some(until) if !is_stalled => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(until) => {}
                },
                Some(_) | None => changed.await,
            }
        }
    }
}

impl Disk for Mount {
    type File = SimFile;
    type Lock = SimLock;

    async fn open(&self, path: &str, open: Open) -> Result<SimFile, DiskError> {
        let opened = self.act(|device| {
            let (inode, is_new) = device.open(self.life, path, open)?;
            let delay = if is_new { device.write_delay() } else { device.read_delay() };
            Ok((inode, delay))
        });
        let (inode, delay) = opened.map_err(error("open", path))?;
        // Made before the wait, so that dropping the future closes it.
        let (mount, path) = (self.clone(), path.to_owned());
        let file = SimFile { mount, path, inode, is_writable: open != Open::Read };
        self.pass(delay).await.map_err(error("open", &file.path))?;
        Ok(file)
    }

    async fn create_dir(&self, path: &str) -> Result<(), DiskError> {
        let created = self.change(|device| device.create_dir(path)).await;
        created.map_err(error("create the directory", path))
    }

    async fn list(&self, dir: &str) -> Result<Vec<Entry>, DiskError> {
        self.read(|device| device.list(dir)).await.map_err(error("list", dir))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.change(|device| device.rename(from, to)).await.map_err(error("rename", from))
    }

    async fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.change(|device| device.remove(path)).await.map_err(error("remove", path))
    }

    async fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        let synced = async {
            let (dir, syncing) = self.act(|device| device.begin_sync_dir(path))?;
            self.pass(syncing.delay).await?;
            self.act(|device| device.end_sync_dir(dir, syncing))
        };
        synced.await.map_err(error("sync the directory", path))
    }

    async fn lock(&self, path: &str) -> Result<SimLock, DiskError> {
        let locked = self.act(|device| Ok((device.lock(self.life, path)?, device.read_delay())));
        let (inode, delay) = locked.map_err(error("lock", path))?;
        let lock = SimLock { mount: self.clone(), inode };
        self.pass(delay).await.map_err(error("lock", path))?;
        Ok(lock)
    }
}

impl SimFile {
    fn check_writable(&self) -> Result<(), DiskFailure> {
        if self.is_writable { Ok(()) } else { Err(DiskFailure::ReadOnly) }
    }
}

impl DiskFile for SimFile {
    async fn len(&self) -> Result<u64, DiskError> {
        let len = self.mount.read(|device| device.len(self.inode)).await;
        len.map_err(error("ask for the length of", &self.path))
    }

    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes, DiskError> {
        let read = self.mount.read(|device| device.read(self.inode, offset, len)).await;
        read.map_err(error("read", &self.path))
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<usize, DiskError> {
        let write = |device: &mut Device| {
            self.check_writable()?;
            device.write(self.inode, offset, bytes)
        };
        self.mount.change(write).await.map_err(error("write", &self.path))
    }

    async fn set_len(&self, len: u64) -> Result<(), DiskError> {
        let set = |device: &mut Device| {
            self.check_writable()?;
            device.set_len(self.inode, len)
        };
        self.mount.change(set).await.map_err(error("set the length of", &self.path))
    }

    async fn sync(&self) -> Result<(), DiskError> {
        let synced = async {
            let syncing = self.mount.act(|device| device.begin_sync(self.inode))?;
            self.mount.pass(syncing.delay).await?;
            self.mount.act(|device| device.end_sync(self.inode, syncing))
        };
        synced.await.map_err(error("sync", &self.path))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.mount.shared.device.lock().close(self.mount.life, self.inode);
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.mount.shared.device.lock().unlock(self.mount.life, self.inode);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("life", &self.life).finish_non_exhaustive()
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock").field("inode", &self.inode).finish_non_exhaustive()
    }
}

fn error(operation: &'static str, path: &str) -> impl FnOnce(DiskFailure) -> DiskError {
    move |failure| DiskError::new(operation, path, failure)
}
