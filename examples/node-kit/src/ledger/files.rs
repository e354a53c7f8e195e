//! Any disk behind one type, so that a ledger needs no parameter.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use convoke::disk::{Disk, DiskError, DiskFile, Entry, Open};
use tokio::sync::Mutex;

pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DiskError>> + Send + 'a>>;

/// A disk.
pub(super) trait Volume: Debug + Send + Sync {
    fn open<'a>(&'a self, path: &'a str, open: Open) -> Pending<'a, Arc<dyn File>>;
    fn list(&self) -> Pending<'_, Vec<Entry>>;
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Pending<'a, ()>;
    fn remove<'a>(&'a self, path: &'a str) -> Pending<'a, ()>;
    fn sync_names(&self) -> Pending<'_, ()>;
    fn lock<'a>(&'a self, path: &'a str) -> Pending<'a, Lock>;
}

/// An open file.
pub(super) trait File: Debug + Send + Sync {
    fn len(&self) -> Pending<'_, u64>;
    fn read_at(&self, offset: u64, len: usize) -> Pending<'_, Bytes>;
    fn write_all_at(&self, offset: u64, bytes: Bytes) -> Pending<'_, ()>;
    fn write_all_and_sync(&self, offset: u64, bytes: Bytes) -> Pending<'_, ()>;
    fn set_len(&self, len: u64) -> Pending<'_, ()>;
    fn sync(&self) -> Pending<'_, ()>;
}

/// The lock of a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _held: Box<dyn Held>,
}

/// Any disk's lock.
trait Held: Debug + Send + Sync {}

impl<L: Debug + Send + Sync> Held for L {}

/// A disk as the folder of one ledger.
#[derive(Debug)]
pub(super) struct Folder<D> {
    disk: D,
    /// The first failure of a sync of names. What it has forgotten may be another's, whose own sync
    /// then works and makes nothing durable: so they take turns, and none works after it.
    failed: Mutex<Option<DiskError>>,
}

impl<D: Disk> Folder<D> {
    pub(super) fn new(disk: D) -> Self {
        Self { disk, failed: Mutex::new(None) }
    }
}

impl<D: Disk> Volume for Folder<D> {
    fn open<'a>(&'a self, path: &'a str, open: Open) -> Pending<'a, Arc<dyn File>> {
        Box::pin(async move {
            let file: Arc<dyn File> = Arc::new(self.disk.open(path, open).await?);
            Ok(file)
        })
    }

    fn list(&self) -> Pending<'_, Vec<Entry>> {
        Box::pin(self.disk.list(""))
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> Pending<'a, ()> {
        Box::pin(self.disk.rename(from, to))
    }

    fn remove<'a>(&'a self, path: &'a str) -> Pending<'a, ()> {
        Box::pin(self.disk.remove(path))
    }

    fn sync_names(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut failed = self.failed.lock().await;
            if let Some(error) = &*failed {
                return Err(error.clone());
            }
            let synced = self.disk.sync_dir("").await;
            *failed = synced.as_ref().err().cloned();
            synced
        })
    }

    fn lock<'a>(&'a self, path: &'a str) -> Pending<'a, Lock> {
        Box::pin(async move { Ok(Lock { _held: Box::new(self.disk.lock(path).await?) }) })
    }
}

impl<F: DiskFile> File for F {
    fn len(&self) -> Pending<'_, u64> {
        Box::pin(DiskFile::len(self))
    }

    fn read_at(&self, offset: u64, len: usize) -> Pending<'_, Bytes> {
        Box::pin(DiskFile::read_at(self, offset, len))
    }

    fn write_all_at(&self, offset: u64, bytes: Bytes) -> Pending<'_, ()> {
        Box::pin(DiskFile::write_all_at(self, offset, bytes))
    }

    fn write_all_and_sync(&self, offset: u64, bytes: Bytes) -> Pending<'_, ()> {
        Box::pin(DiskFile::write_all_and_sync(self, offset, bytes))
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(DiskFile::set_len(self, len))
    }

    fn sync(&self) -> Pending<'_, ()> {
        Box::pin(DiskFile::sync(self))
    }
}
