//! Short ways to files on a simulated disk.

use std::time::Duration;

use bytes::Bytes;
use convoke_sim::disk::{Disk, DiskError, DiskFailure, DiskFile, Mount, Open, SimDisk, SimFile};

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Runs `test` under a paused clock.
pub(crate) fn in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(test)
}

/// A new file whose name is durable.
pub(crate) async fn create(mount: &Mount, path: &str) -> SimFile {
    let file = mount.open(path, Open::New).await.expect("there is no such file");
    mount.sync_dir("").await.expect("the disk works");
    file
}

/// What a restart reads.
pub(crate) async fn read(disk: &SimDisk, path: &str) -> Result<Bytes, DiskError> {
    disk.mount().open(path, Open::Read).await?.read_at(0, usize::MAX).await
}

pub(crate) fn failure<T>(result: Result<T, DiskError>) -> Option<DiskFailure> {
    result.err().map(|error| error.failure)
}
