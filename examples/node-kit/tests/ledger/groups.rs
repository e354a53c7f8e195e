//! Group commit: one write and one sync for all who wait.

use std::time::Duration;

use bytes::Bytes;
use convoke::disk::HostDisk;
use convoke::sim::disk::{Delay, SimDisk};
use node_kit::durable::{Held, Position};
use node_kit::ledger::{Ledger, LedgerError, Settings};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{NODE, open, record, records};

#[tokio::test(start_paused = true)]
async fn all_who_wait_share_one_sync_and_who_comes_meanwhile_the_next() {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.sync_delay = Delay::fixed(Duration::from_millis(5)));
    let (ledger, _) = Ledger::open(disk.mount(), NODE, Settings::default()).await.unwrap();
    let before = disk.stats();
    let mut waiting = JoinSet::new();
    let add = |waiting: &mut JoinSet<_>| {
        let (ledger, position) = (ledger.clone(), ledger.append(record(1)));
        waiting.spawn(async move { ledger.durable(position).await.map(drop) });
    };
    (0..100).for_each(|_| add(&mut waiting));
    // The first batch is being synced when the others are appended.
    tokio::time::sleep(Duration::from_millis(1)).await;
    (0..1000).for_each(|_| add(&mut waiting));
    assert!(waiting.join_all().await.into_iter().all(|done| done.is_ok()));
    let after = disk.stats();
    assert_eq!((after.syncs - before.syncs, after.writes - before.writes), (2, 2));
    let stats = ledger.stats();
    assert_eq!((stats.records, stats.batches, stats.syncing.as_millis()), (1100, 2, 10));
}

#[tokio::test]
async fn nothing_is_written_before_somebody_waits_or_much_is_there() {
    let disk = SimDisk::new(1);
    let (ledger, _) = Ledger::open(disk.mount(), NODE, Settings::default()).await.unwrap();
    let before = disk.stats().writes;
    let first = ledger.append(record(1));
    tokio::task::yield_now().await;
    assert_eq!((disk.stats().writes, ledger.durable_now().up_to()), (before, Position::default()));
    let proof = ledger.durable(first).await.unwrap();
    assert_eq!(Held::new("promised").after(first).release(&proof), Ok("promised"));
    for _ in 0..40 {
        ledger.append(Bytes::from(vec![0; 1 << 20]));
        ledger.room().await.unwrap();
    }
    assert!(ledger.durable_now().up_to() > Position::new(20), "the rest waits for room");
}

#[tokio::test]
async fn a_ledger_in_memory_answers_alike() {
    let ledger = Ledger::in_memory();
    let first = ledger.append(record(1));
    assert_eq!(ledger.durable(first).await.unwrap().up_to(), first);
    let ahead = ledger.durable(Position::new(2)).await;
    assert!(matches!(ahead, Err(LedgerError::NotAppended { .. })));
    ledger.room().await.unwrap();
    let mut snapshot = ledger.snapshot(first).await.unwrap();
    snapshot.part("state".into()).await.unwrap();
    snapshot.finish().await.unwrap();
    ledger.trim(first).await.unwrap();
    let part = ledger.latest_snapshot().unwrap().part(0).await.unwrap().unwrap();
    assert_eq!((part.bytes, part.next), (Bytes::from("state"), 1));
    assert_eq!(ledger.close().await.unwrap().up_to(), first);
    assert_eq!(ledger.durable(first).await, Err(LedgerError::Closed));
}

#[tokio::test]
async fn the_same_program_runs_on_the_files_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let disk = HostDisk::new(folder.path());
    for round in 0..3 {
        let (ledger, mut recovered) = open(disk.clone()).await.unwrap();
        assert_eq!(recovered.is_new, round == 0);
        assert_eq!(records(&mut recovered).await.unwrap().len(), round * 100);
        let waiting: JoinSet<_> = (0..100)
            .map(|number| {
                let (ledger, position) = (ledger.clone(), ledger.append(record(number)));
                async move { ledger.durable(position).await.map(drop) }
            })
            .collect();
        assert!(waiting.join_all().await.into_iter().all(|done| done.is_ok()));
        let other = open(HostDisk::new(folder.path())).await;
        assert!(matches!(other, Err(LedgerError::Locked(_))), "{other:?}");
        ledger.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_keeps_nobody_who_closes_the_ledger() {
    let disk = SimDisk::new(1);
    let (ledger, _) = Ledger::open(disk.mount(), NODE, Settings::default()).await.unwrap();
    ledger.append(record(1));
    disk.stall();
    let deadline = Instant::now() + Duration::from_secs(5);
    assert_eq!(ledger.close_by(deadline).await, Err(LedgerError::NotInTime));
    assert_eq!(Instant::now(), deadline);
}
