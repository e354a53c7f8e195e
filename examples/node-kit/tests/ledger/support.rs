//! Ledgers of one node on a simulated disk.

use bytes::Bytes;
use convoke::disk::Disk;
use convoke::sim::disk::SimDisk;
use node_kit::durable::Position;
use node_kit::ledger::{Identity, Ledger, LedgerError, Recovered, Settings};

pub(crate) const NODE: Identity = Identity { cluster: 7, node: 3 };

/// Small segments, so that new ones are begun often, and the same bytes each time.
pub(crate) fn settings() -> Settings {
    Settings::default().segment_bytes(300).salt(1)
}

pub(crate) async fn open<D: Disk>(disk: D) -> Result<(Ledger, Recovered), LedgerError> {
    Ledger::open(disk, NODE, settings()).await
}

/// All records, and where they end.
pub(crate) async fn records(recovered: &mut Recovered) -> Result<Vec<Bytes>, LedgerError> {
    let mut position = recovered.snapshot.as_ref().map_or(0, |one| one.position().records());
    let mut records = Vec::new();
    while let Some((behind, record)) = recovered.records.next().await? {
        position += 1;
        assert_eq!(behind, Position::new(position), "positions are dense");
        records.push(record);
    }
    assert_eq!(recovered.end, Position::new(position));
    Ok(records)
}

/// A record that says which it is.
pub(crate) fn record(number: u64) -> Bytes {
    let zeros = "0".repeat(usize::try_from(number * 7 % 50).expect("it is below 50"));
    Bytes::from(format!("{zeros}{number}"))
}

pub(crate) fn numbers(range: std::ops::Range<u64>) -> Vec<Bytes> {
    range.map(record).collect()
}

/// Appends the records of these numbers, and waits for them.
pub(crate) async fn append(
    ledger: &Ledger,
    range: std::ops::Range<u64>,
) -> Result<(), LedgerError> {
    for number in range {
        ledger.append(record(number));
    }
    ledger.durable(ledger.end()).await.map(drop)
}

/// A ledger of so many records, one batch each, that was not closed.
pub(crate) async fn written(records: u64) -> SimDisk {
    let disk = SimDisk::new(records);
    let (ledger, _) = open(disk.mount()).await.expect("the disk is empty");
    for number in 0..records {
        append(&ledger, number..number + 1).await.expect("nothing fails");
    }
    disk.crash();
    disk
}

/// Ends the process that has a ledger: when its writer is gone, the next can begin.
pub(crate) async fn killed(ledger: Ledger) {
    drop(ledger);
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
