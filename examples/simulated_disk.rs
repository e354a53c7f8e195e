//! A store of one's own on a simulated disk: a crash at every point of it, in virtual time. The
//! same store runs on the files of the host.
//!
//! ```sh
//! cargo run --example simulated_disk --features sim
//! ```

use std::error::Error;

use convoke::Bytes;
use convoke::sim::disk::{Disk, DiskError, DiskFile, DiskSettings, HostDisk, Open, SimDisk};

/// Keeps what a voter has promised. Generic over the disk, so that a test can take its own.
struct Promises<D> {
    disk: D,
}

impl<D: Disk> Promises<D> {
    /// Returns once the promise survives a crash: only then may others be told of it.
    async fn promise(&self, ballot: u64) -> Result<(), DiskError> {
        let file = self.disk.open("promise.new", Open::Create).await?;
        file.write_all_at(0, Bytes::from(ballot.to_le_bytes().to_vec())).await?;
        file.sync().await?; // the contents
        self.disk.rename("promise.new", "promise").await?;
        self.disk.sync_dir("").await // the name
    }

    /// The last promise, 0 without one.
    async fn promised(&self) -> Result<u64, DiskError> {
        let file = self.disk.open("promise", Open::Create).await?;
        let found = file.read_at(0, 8).await?;
        Ok(found[..].try_into().map_or(0, u64::from_le_bytes))
    }
}

/// Promises 1, 2, 3, ... until the disk fails. The last one that others were told of.
async fn promise_all<D: Disk>(promises: &Promises<D>) -> u64 {
    let mut told = 0;
    while promises.promise(told + 1).await.is_ok() {
        told += 1;
        if told == 10 {
            break;
        }
    }
    told
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let mut ahead = 0;
    for seed in 0..1_000 {
        let disk = SimDisk::new(seed);
        disk.settings(DiskSettings { sync_fails: 0.05, ..DiskSettings::default() });
        disk.crash_after(seed % 50);
        let told = promise_all(&Promises { disk: disk.mount() }).await;
        disk.crash(); // if it has not crashed yet

        disk.settings(DiskSettings::default());
        let found = Promises { disk: disk.mount() }.promised().await?;
        assert!(found >= told, "seed {seed}: others were told of {told}, and {found} is left");
        ahead += u64::from(found > told);
    }
    println!("1000 crashes; {ahead} times more was left than others were told of");
    assert!(ahead > 0, "what was not synced may survive, too");

    let folder = std::env::temp_dir().join(format!("convoke-promises-{}", std::process::id()));
    let promises = Promises { disk: HostDisk::create(&folder)? };
    promises.promise(7).await?;
    println!("on this host: {}", promises.promised().await?);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
