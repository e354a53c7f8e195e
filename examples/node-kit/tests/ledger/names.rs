//! Names whose sync failed: seen by the next process on the host, and gone after a power failure.

use std::time::Duration;

use bytes::Bytes;
use convoke::sim::disk::{Delay, Fate, SimDisk};
use node_kit::durable::Position;
use node_kit::ledger::Ledger;

use crate::support::{append, killed, numbers, open, records};

/// Seeds of disks, each of which forgets other names.
const SEEDS: u64 = 100;

/// A disk on which a sync lasts, so that another can be told to fail meanwhile.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.configure(|settings| settings.sync_delay = Delay::fixed(Duration::from_millis(1)));
    disk
}

/// Resolves once so many more syncs of files have begun.
fn syncs_begun(disk: &SimDisk, count: u64) -> impl Future<Output = ()> {
    let end = disk.stats().syncs + count;
    async move {
        // They begin before any time passes.
        for _ in 0..1_000 {
            if disk.stats().syncs >= end {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("no sync begins");
    }
}

/// Lets the sync of a directory fail that follows the next sync of a file.
fn fail_the_directory(disk: &SimDisk) -> impl Future<Output = ()> {
    let begun = syncs_begun(disk, 1);
    async move {
        begun.await;
        disk.fail_syncs(1);
    }
}

/// A ledger of so many records, one batch each.
async fn written(disk: &SimDisk, count: u64) -> Ledger {
    let (ledger, _) = open(disk.mount()).await.unwrap();
    for number in 0..count {
        append(&ledger, number..number + 1).await.unwrap();
    }
    ledger
}

/// Starts the process alone again, then the host without what was not synced, and reads the
/// records of these numbers behind the snapshot, if there is one.
async fn survives(seed: u64, disk: &SimDisk, ledger: Ledger, from: u64, end: u64) {
    killed(ledger).await;
    let (ledger, mut recovered) = open(disk.mount()).await.unwrap();
    let told = records(&mut recovered).await.unwrap();
    assert_eq!(told, numbers(from..end), "seed {seed}, the process alone");
    disk.crash_with(Fate::Lost);
    drop(ledger);
    let (_ledger, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), told, "seed {seed}, its host");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_trusted_is_there_after_a_power_failure() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let ledger = written(&disk, 40).await;
        let mut snapshot = ledger.snapshot(Position::new(30)).await.unwrap();
        snapshot.part(Bytes::from_static(b"the state")).await.unwrap();
        let (finished, ()) = tokio::join!(snapshot.finish(), fail_the_directory(&disk));
        finished.unwrap_err();
        survives(seed, &disk, ledger, 30, 40).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_was_trusted_is_there_after_a_power_failure() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        // The next record is in a segment of its own.
        let ledger = written(&disk, 6).await;
        let begun = ledger.stats().segments;
        let (written, ()) = tokio::join!(append(&ledger, 6..7), fail_the_directory(&disk));
        written.unwrap_err();
        assert_eq!(ledger.stats().segments, begun, "it was not begun");
        survives(seed, &disk, ledger, 0, 6).await;
    }
}

/// What a failed sync forgets may be another's, whose own sync of the directory works.
#[tokio::test(start_paused = true)]
async fn a_record_is_durable_when_told_so_though_its_segment_began_beside_a_snapshot_that_failed() {
    for seed in 0..10 * SEEDS {
        let disk = SimDisk::new(seed);
        disk.configure(|settings| settings.sync_delay.jitter = Duration::from_millis(5));
        let ledger = written(&disk, 6).await;
        let mut snapshot = ledger.snapshot(Position::new(5)).await.unwrap();
        snapshot.part(Bytes::from_static(b"the state")).await.unwrap();
        let begun = syncs_begun(&disk, 2);
        let failing = async {
            begun.await;
            disk.configure(|settings| settings.sync_fails = 0.5);
        };
        // Each may fail, or both.
        let _ = tokio::join!(snapshot.finish(), append(&ledger, 6..7), failing);
        let durable = ledger.durable_now().up_to().records();
        disk.configure(|settings| settings.sync_fails = 0.0);
        disk.crash_with(Fate::Lost);
        killed(ledger).await;
        let (_ledger, mut recovered) = open(disk.mount()).await.unwrap();
        let from = recovered.snapshot.as_ref().map_or(0, |one| one.position().records());
        let found = records(&mut recovered).await.unwrap();
        assert!(found.starts_with(&numbers(from..durable)), "seed {seed}: {found:?}");
    }
}
