//! The state of a node, from its ledger, and its snapshots.

use bytes::Bytes;
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError, Recovered};

use super::{NodeError, Options};
use crate::core::{Record, Replica};
use crate::kv::Machine;
use crate::wire;

/// Reads the snapshot, which is made of records, and the records behind it. True beside the replica
/// when it has said nothing that binds it, by these.
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
            is_blank &= replay(&mut replica, 0, part)?;
        }
    }
    let mut records = recovered.records;
    while let Some((position, bytes)) = records.next().await? {
        is_blank &= replay(&mut replica, position.records(), bytes)?;
    }
    match replica.unknown_client() {
        Some(client) => Err(NodeError::NewClient(client)),
        None => Ok((replica, is_blank)),
    }
}

/// Replays a record. True for one that a node may have written before it said anything.
fn replay(replica: &mut Replica<Machine>, number: u64, bytes: Bytes) -> Result<bool, NodeError> {
    let malformed = |source| NodeError::Record { number, source };
    let record = wire::decode(bytes).map_err(malformed)?;
    let is_heard = match record {
        Record::Lost(what) => return Err(NodeError::LostLedger(what)),
        Record::Clients(_) | Record::Stable(_) | Record::HandedOver(_) => true,
        _ => false,
    };
    replica.replay(record).map_err(malformed)?;
    Ok(is_heard)
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
