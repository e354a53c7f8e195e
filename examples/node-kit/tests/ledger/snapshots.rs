//! Snapshots and trims.

use bytes::Bytes;
use convoke::disk::{Disk, DiskFailure, DiskFile as _, Open};
use convoke::sim::disk::SimDisk;
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError, SnapshotWriter};

use crate::support::{append, numbers, open, record, records};

async fn snapshot(ledger: &Ledger, position: u64) -> Result<(), LedgerError> {
    let mut snapshot = ledger.snapshot(Position::new(position)).await?;
    for part in 0..3 {
        snapshot.part(Bytes::from(format!("state at {position}, part {part}"))).await?;
    }
    snapshot.finish().await.map(drop)
}

async fn names(disk: &SimDisk, prefix: &str) -> usize {
    let entries = disk.mount().list("").await.unwrap();
    entries.into_iter().filter(|entry| entry.name.starts_with(prefix)).count()
}

#[tokio::test]
async fn a_restart_reads_the_latest_snapshot_and_what_follows() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..40).await.unwrap();
    for number in 40..60 {
        append(&ledger, number..number + 1).await.unwrap();
    }
    snapshot(&ledger, 10).await.unwrap();
    snapshot(&ledger, 50).await.unwrap();
    let before = names(&disk, "segment-").await;
    ledger.trim(Position::new(60)).await.unwrap();
    let (segments, snapshots) = (names(&disk, "segment-").await, names(&disk, "snapshot-").await);
    assert!(segments < before && segments > 1, "{segments} of {before}");
    assert_eq!(snapshots, 1);
    append(&ledger, 60..61).await.unwrap();
    disk.crash();
    let (_, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(50..61));
    let mut parts = recovered.snapshot.unwrap().parts();
    for part in 0..3 {
        assert_eq!(parts.next().await.unwrap().unwrap(), format!("state at 50, part {part}"));
    }
    assert_eq!(parts.next().await.unwrap(), None);
}

#[tokio::test]
async fn reading_a_snapshot_goes_on_from_any_part() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..2).await.unwrap();
    snapshot(&ledger, 2).await.unwrap();
    let latest = ledger.latest_snapshot().unwrap();
    let first = latest.part(0).await.unwrap().unwrap();
    let second = latest.part(first.next).await.unwrap().unwrap();
    assert_eq!(second.bytes, "state at 2, part 1");
    for place in [1, first.next + 1, u64::MAX] {
        let error = latest.part(place).await;
        let is_refused = matches!(error, Err(LedgerError::CorruptSnapshot { .. }));
        // Places before the first part are the first.
        assert!(is_refused || place == 1, "{place}: {error:?}");
    }
    append(&ledger, 2..4).await.unwrap();
    snapshot(&ledger, 4).await.unwrap();
    let third = latest.part(second.next).await.unwrap().unwrap();
    assert_eq!(third.bytes, "state at 2, part 2", "who reads an older one goes on");
}

#[tokio::test]
async fn a_snapshot_is_of_what_is_durable_and_never_older_than_the_latest() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    ledger.append(record(0));
    snapshot(&ledger, 1).await.unwrap();
    assert_eq!(ledger.durable_now().up_to(), Position::new(1));
    let error = snapshot(&ledger, 0).await.unwrap_err();
    assert_eq!(error, LedgerError::SnapshotExists { latest: Position::new(1) });
    let error = snapshot(&ledger, 2).await.unwrap_err();
    assert!(matches!(error, LedgerError::NotAppended { .. }), "{error}");
}

#[tokio::test]
async fn a_snapshot_that_was_dropped_never_was() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    drop(ledger.snapshot(Position::new(1)).await.unwrap());
    ledger.close().await.unwrap();
    let (_, recovered) = open(disk.mount()).await.unwrap();
    assert!(recovered.snapshot.is_none());
    assert_eq!(names(&disk, "snapshot").await, 0);
}

/// A writer that outlives its ledger leaves the files to the one that was opened next.
#[tokio::test]
async fn a_snapshot_that_was_not_finished_when_its_ledger_closed_never_was() {
    let process = SimDisk::new(1).mount();
    let (ledger, _) = open(process.clone()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    let mut late = ledger.snapshot(Position::new(1)).await.unwrap();
    late.part("of the closed one".into()).await.unwrap();
    ledger.close().await.unwrap();

    let (ledger, _) = open(process.clone()).await.unwrap();
    append(&ledger, 1..2).await.unwrap();
    let mut snapshot = ledger.snapshot(Position::new(2)).await.unwrap();
    snapshot.part("first".into()).await.unwrap();
    assert_eq!(late.finish().await.unwrap_err(), LedgerError::Closed);
    snapshot.part("second".into()).await.unwrap();
    snapshot.finish().await.unwrap();
    ledger.close().await.unwrap();

    let (_, recovered) = open(process).await.unwrap();
    let snapshot = recovered.snapshot.unwrap();
    assert_eq!(snapshot.position(), Position::new(2));
    assert_eq!(snapshot.part(0).await.unwrap().unwrap().bytes, "first");
}

#[tokio::test]
async fn a_segment_that_could_not_be_removed_goes_with_the_next_trim() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    for number in 0..40 {
        append(&ledger, number..number + 1).await.unwrap();
    }
    snapshot(&ledger, 40).await.unwrap();
    disk.configure(|settings| settings.read_only = true);
    ledger.trim(Position::new(40)).await.unwrap_err();
    assert!(names(&disk, "segment-").await > 1);
    disk.configure(|settings| settings.read_only = false);
    ledger.trim(Position::new(40)).await.unwrap();
    assert_eq!(names(&disk, "segment-").await, 1);
}

/// A ledger on a disk that holds little more than what it has.
async fn on_a_small_disk() -> (SimDisk, Ledger) {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    disk.configure(|settings| settings.capacity = 4 << 10);
    (disk, ledger)
}

/// Writes parts until the disk is full.
async fn fill(snapshot: &mut SnapshotWriter) -> LedgerError {
    loop {
        if let Err(error) = snapshot.part(Bytes::from(vec![7; 100])).await {
            return error;
        }
    }
}

#[tokio::test]
async fn a_snapshot_without_room_leaves_room_for_records() {
    let (disk, ledger) = on_a_small_disk().await;
    let mut large = ledger.snapshot(Position::new(1)).await.unwrap();
    let full = fill(&mut large).await;
    assert!(full.to_string().contains("snapshot.new"), "{full}");
    append(&ledger, 1..5).await.unwrap();
    assert_eq!(large.part(Bytes::new()).await.unwrap_err(), full);
    assert_eq!(large.finish().await.unwrap_err(), full);
    snapshot(&ledger, 5).await.unwrap();
    append(&ledger, 5..6).await.unwrap();
    disk.crash();
    let (_, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(5..6));
    assert_eq!(names(&disk, "snapshot").await, 1);
}

#[tokio::test]
async fn a_seal_without_room_leaves_room_for_records() {
    let (disk, ledger) = on_a_small_disk().await;
    let mut large = ledger.snapshot(Position::new(1)).await.unwrap();
    large.part(Bytes::from(vec![7; 100])).await.unwrap();
    disk.configure(|settings| settings.capacity = 0);
    large.finish().await.unwrap_err();
    disk.configure(|settings| settings.capacity = 4 << 10);
    assert_eq!(len_of_new(&disk).await, 0);
    append(&ledger, 1..2).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_that_was_dropped_gives_its_room_back() {
    let (disk, ledger) = on_a_small_disk().await;
    for _ in 0..2 {
        let mut dropped = ledger.snapshot(Position::new(1)).await.unwrap();
        for _ in 0..10 {
            dropped.part(Bytes::from(vec![7; 100])).await.unwrap();
        }
        assert!(len_of_new(&disk).await > 1000);
        // Its task is cancelled while it waits for the disk.
        disk.stall();
        let task = tokio::spawn(async move { dropped.part(Bytes::from(vec![7; 100])).await });
        tokio::task::yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        disk.resume();
    }
    // Its turn ends with the clean-up.
    snapshot(&ledger, 1).await.unwrap();
    assert_eq!(names(&disk, "snapshot").await, 1);
    append(&ledger, 1..20).await.unwrap();
}

async fn len_of_new(disk: &SimDisk) -> u64 {
    disk.mount().open("snapshot.new", Open::Read).await.unwrap().len().await.unwrap()
}

#[tokio::test]
async fn a_sync_of_a_snapshot_that_fails_fails_the_ledger() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    disk.fail_syncs(1);
    snapshot(&ledger, 1).await.unwrap_err();
    let error = append(&ledger, 1..2).await.unwrap_err();
    assert!(matches!(error, LedgerError::Failed(_)), "{error}");
}

/// A file system may find out only now that there is no place for what it took before.
#[tokio::test]
async fn a_sync_of_a_snapshot_that_finds_no_room_leaves_the_ledger_alone() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    disk.configure(|settings| settings.sync_failure = DiskFailure::Full);
    disk.fail_syncs(1);
    let error = snapshot(&ledger, 1).await.unwrap_err();
    assert!(error.is_full(), "{error}");
    append(&ledger, 1..2).await.unwrap();
    snapshot(&ledger, 2).await.unwrap();
    disk.crash();
    let (_, recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(recovered.end, Position::new(2));
}

#[tokio::test]
async fn a_snapshot_that_is_dropped_while_it_gets_its_name_is_in_the_way_of_none() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..2).await.unwrap();
    for turns in 0..9 {
        let writer = ledger.snapshot(Position::new(1)).await.unwrap();
        let turns = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            finished = writer.finish() => {
                finished.unwrap();
                break;
            },
            () = turns => {}
        }
    }
    snapshot(&ledger, 2).await.unwrap();
    append(&ledger, 2..3).await.unwrap();
    disk.crash();
    let (_, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(2..3));
    assert_eq!(names(&disk, "snapshot").await, 1);
}
