//! A promise that leaves once it is durable, and what a restart reads.
//!
//! `cargo run -p node-kit --example ledger`

use convoke::disk::HostDisk;
use node_kit::durable::Held;
use node_kit::ledger::{Identity, Ledger, LedgerError, Settings};

async fn run(disk: HostDisk, identity: Identity) -> Result<(), LedgerError> {
    let (ledger, mut recovered) = Ledger::open(disk, identity, Settings::default()).await?;
    if let Some(snapshot) = &recovered.snapshot {
        println!("the state after {} records", snapshot.position().records());
    }
    while let Some((position, record)) = recovered.records.next().await? {
        println!("record {}: {}", position.records(), String::from_utf8_lossy(&record));
    }
    let promise = format!("promised {}", recovered.end.records() + 1);
    let position = ledger.append(promise.clone().into()); // does not wait
    let promise = Held::new(promise).after(position); // nobody can read it yet
    let proof = ledger.durable(position).await?; // one sync for all who wait
    println!("{}", promise.release(&proof).expect("the proof reaches so far"));
    ledger.close().await.map(drop)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // It does not wait for a disk that hangs, as a runtime that is dropped does.
    node_kit::program::run(three_times())?
}

async fn three_times() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    for _ in 0..3 {
        run(HostDisk::new(folder.path()), Identity { cluster: 7, node: 3 }).await?;
    }
    Ok(())
}
