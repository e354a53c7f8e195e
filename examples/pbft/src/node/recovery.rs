//! The state of a node, from its ledger, and its snapshots.

use bytes::Bytes;
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError, Recovered};

use super::{NodeError, Options};
use crate::core::{Record, Replica};
use crate::kv::Machine;
use crate::wire;

/// Reads the snapshot, which is made of records, and the records behind it. True beside the replica
/// when there are none.
pub(super) async fn recover(
    options: &Options,
    recovered: Option<Recovered>,
) -> Result<(Replica<Machine>, bool), NodeError> {
    let mut replica = Replica::new(options.core.clone(), Machine::default());
    let Some(recovered) = recovered else { return Ok((replica, true)) };
    let mut is_blank = true;
    if let Some(snapshot) = &recovered.snapshot {
        let mut parts = snapshot.parts();
        while let Some(part) = parts.next().await? {
            replica.replay(record(0, part)?);
            is_blank = false;
        }
    }
    let mut records = recovered.records;
    while let Some((position, bytes)) = records.next().await? {
        replica.replay(record(position.records(), bytes)?);
        is_blank = false;
    }
    match replica.unknown_client() {
        Some(client) => Err(NodeError::NewClient(client)),
        None => Ok((replica, is_blank)),
    }
}

fn record(number: u64, bytes: Bytes) -> Result<Record, NodeError> {
    wire::decode(bytes).map_err(|source| NodeError::Record { number, source })
}

/// Writes what must not be forgotten of all before a position, and lets go of the records that it
/// replaces.
pub(super) async fn save(
    ledger: Ledger,
    position: Position,
    records: Vec<Record>,
) -> Result<(), LedgerError> {
    let mut writer = ledger.snapshot(position).await?;
    for record in &records {
        writer.part(wire::encode(record)).await?;
    }
    writer.finish().await?;
    ledger.trim(position).await
}
