//! Damage to the files: a typed error or the truth, never a panic.

use bytes::Bytes;
use convoke::disk::{Disk, DiskFile, Open};
use convoke::sim::disk::{Mount, SimDisk};
use node_kit::durable::Position;
use node_kit::ledger::{Content, LedgerError, read};
use proptest::prelude::*;

use crate::support::{append, numbers, open, record, records, written};

const FIRST: &str = "segment-00000000000000000001";
/// A record's head is as long, and a file's header so.
const HEAD: u64 = 24;
const HEADER: u64 = 60;

async fn change(mount: &Mount, file: &str, offset: u64) {
    let file = mount.open(file, Open::Write).await.unwrap();
    let old = file.read_at(offset, 1).await.unwrap()[0];
    file.write_all_at(offset, Bytes::from(vec![!old])).await.unwrap();
}

/// Byte at which a record of the first segment begins.
fn record_at(number: u64) -> u64 {
    HEADER + (0..number).map(|before| HEAD + record(before).len() as u64).sum::<u64>()
}

#[tokio::test]
async fn a_corrupt_record_before_another_batch_is_named_and_nothing_is_cut() {
    for within in [0, 5, HEAD] {
        let disk = written(5).await;
        let offset = record_at(3);
        change(&disk.mount(), FIRST, offset + within).await;
        let error = open(disk.mount()).await.unwrap_err();
        let (file, position) = (FIRST.to_owned(), Position::new(3));
        assert_eq!(error, LedgerError::Corrupt { file, offset, position });
        let text = error.to_string();
        assert!(text.contains(FIRST) && text.contains("record 3"), "{text}");
    }
}

#[tokio::test]
async fn the_last_batch_is_cut_where_it_is_torn() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..2).await.unwrap();
    append(&ledger, 2..5).await.unwrap();
    disk.crash();
    change(&disk.mount(), FIRST, record_at(3)).await;
    let (ledger, mut recovered) = open(disk.mount()).await.unwrap();
    let cut = recovered.cut.clone().expect("a tail was torn");
    assert_eq!((cut.file.as_str(), cut.offset), (FIRST, record_at(3)));
    assert_eq!((cut.bytes, cut.position), (record_at(5) - record_at(3), Position::new(3)));
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..3));
    append(&ledger, 3..7).await.unwrap();
    disk.crash();
    let (_, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..7));
}

#[tokio::test]
async fn of_a_closed_ledger_the_last_record_is_not_taken_for_torn() {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    append(&ledger, 0..3).await.unwrap();
    ledger.close().await.unwrap();
    change(&disk.mount(), FIRST, record_at(2) + HEAD).await;
    let error = open(disk.mount()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Corrupt { offset, .. } if offset == record_at(2)));
}

#[tokio::test]
async fn a_missing_segment_is_a_gap() {
    let disk = written(40).await;
    let mount = disk.mount();
    mount.remove("segment-00000000000000000002").await.unwrap();
    let (_, mut recovered) = open(mount.clone()).await.unwrap();
    let error = records(&mut recovered).await.unwrap_err();
    assert!(matches!(error, LedgerError::Missing { .. }), "{error}");
    mount.remove(FIRST).await.unwrap();
    drop(recovered);
    tokio::task::yield_now().await;
    let error = open(mount).await.unwrap_err();
    assert!(matches!(error, LedgerError::Missing { .. }), "{error}");
}

/// Ledgers that a node would refuse as it starts, though each file that is there reads well.
#[tokio::test]
async fn a_dump_shows_what_is_missing() {
    let disk = ledger_of_everything().await;
    let mount = disk.mount();
    let wrong = async |mount: &Mount| {
        let (mut reading, mut wrong) = (read(mount.clone()).await.unwrap(), Vec::new());
        while let Some(entry) = reading.next().await {
            if let Content::Wrong(error) = entry.content {
                wrong.push(error);
            }
        }
        wrong
    };
    assert_eq!(wrong(&mount).await, []);
    let names: Vec<String> =
        mount.list("").await.unwrap().into_iter().map(|entry| entry.name).collect();
    let snapshot = names.iter().find(|name| name.starts_with("snapshot")).unwrap();
    let file = mount.open(snapshot, Open::Write).await.unwrap();
    let len = file.len().await.unwrap();
    file.write_all_at(len, vec![7; 300].into()).await.unwrap();
    let [LedgerError::CorruptSnapshot { offset, .. }] = &wrong(&mount).await[..] else {
        panic!("it has more than its end");
    };
    assert_eq!(*offset, len);
    file.set_len(len).await.unwrap();
    for name in names.iter().filter(|name| name.starts_with("segment")) {
        mount.remove(name).await.unwrap();
    }
    let [LedgerError::Missing { to, .. }] = &wrong(&mount).await[..] else {
        panic!("the segments are gone");
    };
    assert_eq!(to.records(), 20);
}

#[tokio::test]
async fn a_dump_shows_what_is_there_and_what_is_wrong() {
    let disk = written(6).await;
    change(&disk.mount(), FIRST, record_at(2)).await;
    let mut reading = read(disk.mount()).await.unwrap();
    let (mut shown, mut wrong) = (Vec::new(), Vec::new());
    while let Some(entry) = reading.next().await {
        match entry.content {
            Content::Record { bytes, .. } => shown.push(bytes),
            Content::Wrong(error) => wrong.push((entry.offset, error)),
            Content::Segment { .. } | Content::Seal => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shown, [numbers(0..2), numbers(3..6)].concat());
    let [(offset, LedgerError::Corrupt { position, .. })] = &wrong[..] else {
        panic!("{wrong:?}");
    };
    assert_eq!((*offset, *position), (record_at(2), Position::new(2)));
}

/// A change of any file's bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip { file: usize, at: u64, to: u8 },
    Cut { file: usize, at: u64 },
    Grow { file: usize, by: Vec<u8> },
    Remove { file: usize },
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let damage = prop_oneof![
        5 => (any::<usize>(), any::<u64>(), any::<u8>())
            .prop_map(|(file, at, to)| Damage::Flip { file, at, to }),
        2 => (any::<usize>(), any::<u64>()).prop_map(|(file, at)| Damage::Cut { file, at }),
        1 => (any::<usize>(), prop::collection::vec(any::<u8>(), 1..100))
            .prop_map(|(file, by)| Damage::Grow { file, by }),
        1 => any::<usize>().prop_map(|file| Damage::Remove { file }),
    ];
    prop::collection::vec(damage, 1..4)
}

async fn harm(mount: &Mount, damage: &Damage) {
    let names = mount.list("").await.unwrap();
    let name = |file: &usize| names[*file % names.len()].name.as_str();
    let (Damage::Flip { file, .. }
    | Damage::Cut { file, .. }
    | Damage::Grow { file, .. }
    | Damage::Remove { file }) = damage;
    let file = mount.open(name(file), Open::Write).await.unwrap();
    let len = file.len().await.unwrap();
    match damage {
        Damage::Flip { at, to, .. } if len > 0 => {
            file.write_all_at(at % len, Bytes::from(vec![*to])).await.unwrap();
        }
        Damage::Cut { at, .. } if len > 0 => file.set_len(at % len).await.unwrap(),
        Damage::Grow { by, .. } => file.write_all_at(len, by.clone().into()).await.unwrap(),
        Damage::Remove { file } => mount.remove(name(file)).await.unwrap(),
        Damage::Flip { .. } | Damage::Cut { .. } => {}
    }
}

/// A ledger with a snapshot, several segments, and batches of several records.
async fn ledger_of_everything() -> SimDisk {
    let disk = SimDisk::new(1);
    let (ledger, _) = open(disk.mount()).await.unwrap();
    for start in (0..60).step_by(4) {
        append(&ledger, start..start + 4).await.unwrap();
    }
    let mut snapshot = ledger.snapshot(Position::new(20)).await.unwrap();
    snapshot.part("state".into()).await.unwrap();
    snapshot.finish().await.unwrap();
    disk.crash();
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_damage_is_an_error_or_leaves_a_first_part(damages in damages()) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let disk = ledger_of_everything().await;
            let mount = disk.mount();
            for damage in &damages {
                harm(&mount, damage).await;
            }
            let mut reading = read(mount.clone()).await.unwrap();
            let mut wrong = Vec::new();
            while let Some(entry) = reading.next().await {
                if let Content::Wrong(error) = entry.content {
                    wrong.push(error);
                }
            }
            let (_, mut recovered) = match open(mount).await {
                Ok(opened) => opened,
                Err(error) => return assert!(!wrong.is_empty(), "a dump shows it: {error}"),
            };
            if let Some(snapshot) = &recovered.snapshot
                && let Err(error) = snapshot.parts().next().await
            {
                assert!(!wrong.is_empty(), "a dump shows it: {error}");
            }
            let from = recovered.snapshot.as_ref().map_or(0, |one| one.position().records());
            let found = match records(&mut recovered).await {
                Ok(found) => found,
                Err(error) => return assert!(!wrong.is_empty(), "a dump shows it: {error}"),
            };
            let end = recovered.end.records();
            assert_eq!(found, numbers(from..end), "no record is another than was written");
            let is_a_file_gone = damages.iter().any(|one| matches!(one, Damage::Remove { .. }));
            // A cut at a record is a file that ends there.
            let is_cut = damages.iter().any(|one| matches!(one, Damage::Cut { .. }));
            assert!(is_a_file_gone || is_cut || end >= 56, "all but the last batch: {end}");
        });
    }
}
