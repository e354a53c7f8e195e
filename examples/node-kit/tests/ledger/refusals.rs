//! Refusals: each says what is wrong, and where.

use bytes::Bytes;
use convoke::disk::{Disk, DiskFile, Open};
use convoke::sim::disk::SimDisk;
use node_kit::durable::Position;
use node_kit::ledger::{Content, Identity, Ledger, LedgerError, RECORD_BYTES_MAX, Settings, read};

use crate::support::{NODE, append, killed, numbers, open, record, records, written};

async fn refusal(disk: &SimDisk) -> LedgerError {
    open(disk.mount()).await.expect_err("it has to be refused")
}

#[tokio::test]
async fn a_ledger_of_another_cluster_or_node_is_refused() {
    let disk = written(1).await;
    for other in [Identity { cluster: 8, ..NODE }, Identity { node: 4, ..NODE }] {
        let opened = Ledger::open(disk.mount(), other, Settings::default()).await;
        let text = opened.expect_err("it is another's").to_string();
        assert!(text.contains("segment-") && text.contains("node 3 of cluster 7"), "{text}");
    }
}

#[tokio::test]
async fn a_format_of_another_release_is_refused() {
    let disk = written(1).await;
    let file = disk.mount().open("segment-00000000000000000001", Open::Write).await.unwrap();
    file.write_all_at(8, Bytes::from_static(&[9])).await.unwrap();
    let error = refusal(&disk).await;
    assert!(matches!(error, LedgerError::Version { found: 9, known: 1, .. }), "{error}");
}

#[tokio::test]
async fn two_processes_do_not_have_one_ledger() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    let error = refusal(&disk).await;
    assert!(matches!(error, LedgerError::Locked(_)), "{error}");
    ledger.close().await.unwrap();
    open(disk.mount()).await.expect("it was closed");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_named() {
    let disk = written(1).await;
    disk.configure(|settings| settings.read_only = true);
    let text = refusal(&disk).await.to_string();
    assert!(text.contains("lock") && text.contains("read-only"), "{text}");
}

#[tokio::test]
async fn a_full_disk_fails_the_ledger_and_loses_nothing() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..5).await.unwrap();
    disk.configure(|settings| settings.capacity = 1);
    let error = append(&ledger, 5..6).await.unwrap_err();
    assert!(matches!(error, LedgerError::Failed(_)), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(append(&ledger, 6..7).await.unwrap_err(), error, "for ever");
    disk.configure(|settings| settings.capacity = 1 << 30);
    assert_eq!(append(&ledger, 7..8).await.unwrap_err(), error, "though there is room again");
    drop(ledger);
    let (_, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..5));
}

/// The start needs a segment of its own, so it is refused, and leaves what there is as it was.
#[tokio::test]
async fn a_start_on_a_full_disk_is_refused_until_there_is_room() {
    let (mut refused, mut opened) = (0, 0);
    for room in (0..200).step_by(2) {
        let disk = written(8).await;
        let used = disk.stats().bytes_written;
        disk.configure(|settings| settings.capacity = used + room);
        match open(disk.mount()).await {
            Ok((ledger, mut recovered)) => {
                opened += 1;
                assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..8));
                killed(ledger).await;
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("the disk is full"), "{error}");
                let mut read = read(disk.mount()).await.unwrap();
                while let Some(entry) = read.next().await {
                    assert!(!matches!(entry.content, Content::Wrong(_)), "{entry:?}");
                }
            }
        }
        disk.configure(|settings| settings.capacity = used + 10_000);
        let (ledger, mut recovered) = open(disk.mount()).await.unwrap();
        assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..8), "{room} bytes of room");
        append(&ledger, 8..9).await.unwrap();
    }
    assert!(refused > 10 && opened > 10, "{refused} refused, {opened} opened");
}

#[tokio::test]
async fn a_failed_sync_fails_all_for_ever() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..1).await.unwrap();
    disk.fail_syncs(1);
    let (one, two) = (ledger.append(record(1)), ledger.append(record(2)));
    let (first, second) = tokio::join!(ledger.durable(one), ledger.durable(two));
    assert_eq!(first, second);
    let error = first.unwrap_err();
    assert!(error.to_string().contains("restart the process"), "{error}");
    assert_eq!(ledger.durable(Position::new(1)).await.unwrap_err(), error);
    assert_eq!(ledger.durable_now().up_to(), Position::new(1), "that is durable all the same");
    assert_eq!(ledger.close().await.unwrap_err(), error);
}

#[tokio::test]
async fn an_empty_disk_is_no_ledger_where_one_has_to_be() {
    let disk = SimDisk::new(1);
    let settings = Settings::default().must_exist();
    let opened = Ledger::open(disk.mount(), NODE, settings.clone()).await;
    assert_eq!(opened.expect_err("there is none"), LedgerError::Absent(NODE));
    let (ledger, _) = open(disk.mount()).await.unwrap();
    ledger.close().await.unwrap();
    Ledger::open(disk.mount(), NODE, settings).await.expect("there is one");
}

#[tokio::test]
async fn a_record_that_is_too_large_fails_the_ledger() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    let large = ledger.append(Bytes::from(vec![0; RECORD_BYTES_MAX + 1]));
    let error = ledger.durable(large).await.unwrap_err();
    assert!(error.to_string().contains("67108865 bytes"), "{error}");
}

#[tokio::test]
async fn a_closed_or_dropped_ledger_takes_nothing() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    ledger.append(record(0));
    assert_eq!(ledger.close().await.unwrap().up_to(), Position::new(1), "nobody waited for it");
    let position = ledger.append(record(1));
    assert_eq!(ledger.durable(position).await, Err(LedgerError::Closed));
    let (ledger, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..1));
    assert_eq!(recovered.cut, None);
    drop(ledger);
    tokio::task::yield_now().await;
    open(disk.mount()).await.expect("the lock went with it");
}

#[tokio::test]
async fn records_that_could_not_be_read_are_read_when_asked_for_again() {
    let disk = written(40).await;
    let (_ledger, mut recovered) = open(disk.mount()).await.unwrap();
    let mut read = Vec::new();
    let mut failures = 0;
    loop {
        // As each segment begins, too.
        disk.fail_reads(read.len() as u64 % 2);
        match recovered.records.next().await {
            Ok(Some((_, record))) => read.push(record),
            Ok(None) => break,
            Err(error) => {
                assert!(matches!(error, LedgerError::Disk(_)), "{error}");
                failures += 1;
                disk.fail_reads(0);
                read.push(recovered.records.next().await.unwrap().expect("it is there").1);
            }
        }
    }
    assert_eq!(read, numbers(0..40));
    assert!(failures > 0);
}

#[test]
fn what_was_lost_with_its_runtime_is_not_said_to_be_durable() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("it starts");
    let (disk, first) = (SimDisk::new(1), runtime());
    let (ledger, _) = first.block_on(open(disk.mount())).unwrap();
    first.block_on(append(&ledger, 0..3)).unwrap();
    ledger.append(record(3));
    drop(first);
    let error = runtime().block_on(ledger.close()).unwrap_err();
    assert!(matches!(error, LedgerError::Closed), "{error}");
}
