//! The state of a node, from its ledger.

use std::time::Duration;

use node_kit::ledger::{Ledger, Records, Recovered};
use prost::Message as _;
use tokio::time::Instant;

use super::{NodeError, Options};
use crate::core::{Effect, Record, Replica};
use crate::kv::{Machine, Restored, Restoring};
use crate::proto;

/// State of a node that is about to run.
pub(super) struct State {
    pub(super) replica: Replica,
    pub(super) machine: Machine,
    pub(super) cost: Cost,
    /// Bytes of values that no snapshot has.
    pub(super) unsaved_bytes: u64,
}

/// Work of reading a ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Records behind the snapshot.
    pub(super) replayed: u64,
    /// Time for the snapshot.
    pub(super) restoring: Duration,
    /// Time for the records.
    pub(super) replaying: Duration,
}

/// Reads the snapshot and the records behind it. A ledger that is new is given its number, which is
/// durable before anybody hears it.
pub(super) async fn recover(
    options: &Options,
    ledger: &Ledger,
    recovered: Option<Recovered>,
) -> Result<State, NodeError> {
    let mut replica = Replica::new(options.core.clone(), 0);
    let mut machine = Machine::default();
    let (begun, mut cost, mut unsaved_bytes) = (Instant::now(), Cost::default(), 0);
    if let Some(snapshot) = recovered.as_ref().and_then(|recovered| recovered.snapshot.as_ref()) {
        let restored = restore(snapshot).await?;
        machine = restored.machine;
        restored.own.into_iter().for_each(|record| replica.replay(record));
        apply(&mut replica, &mut machine);
        cost.restoring = begun.elapsed();
    }
    if let Some(recovered) = recovered {
        let replayed = replay(recovered.records, &mut replica, &mut machine).await?;
        (cost.replayed, unsaved_bytes) = replayed;
        cost.replaying = begun.elapsed() - cost.restoring;
        tracing::info!(?cost, keys = machine.keys(), "the ledger was read");
    }
    if ledger.end().records() == 0 {
        let life = Record::Life(options.seed);
        ledger.durable(append(ledger, &life)).await?;
        replica.replay(life);
        unsaved_bytes = head_start(options);
    }
    Ok(State { replica, machine, cost, unsaved_bytes })
}

/// Bytes by which the first snapshot of a node comes early, so that nodes write theirs one after
/// the other, and a majority is not busy with it.
fn head_start(options: &Options) -> u64 {
    let nodes = options.members.len().max(1) as u64;
    let before = options.members.nodes().filter(|node| *node < options.core.node).count() as u64;
    options.snapshot_bytes / nodes * before.min(nodes - 1)
}

/// Replays records, and counts them and the bytes of values that they bring.
async fn replay(
    mut records: Records,
    replica: &mut Replica,
    machine: &mut Machine,
) -> Result<(u64, u64), NodeError> {
    let (mut count, mut bytes) = (0, 0);
    while let Some((position, record)) = records.next().await? {
        let number = position.records();
        let message = proto::Record::decode(record).unwrap_or_default();
        let record = Record::try_from(message);
        replica.replay(record.map_err(|source| NodeError::Record { number, source })?);
        bytes += apply(replica, machine);
        count += 1;
    }
    Ok((count, bytes))
}

/// Appends a record of the core.
pub(super) fn append(ledger: &Ledger, record: &Record) -> node_kit::durable::Position {
    ledger.append(proto::Record::from(record).encode_to_vec().into())
}

async fn restore(snapshot: &node_kit::ledger::Snapshot) -> Result<Restored, NodeError> {
    let mut restoring = Restoring::default();
    let mut parts = snapshot.parts();
    while let Some(part) = parts.next().await? {
        restoring.part(part)?;
    }
    Ok(restoring.finish()?)
}

/// Applies what is chosen, and gives the bytes of it.
fn apply(replica: &mut Replica, machine: &mut Machine) -> u64 {
    let mut bytes = 0;
    while let Some(effect) = replica.poll_effect() {
        if let Effect::Apply { slot, value } = effect
            && slot > machine.applied()
        {
            machine.apply(slot, &value);
            bytes += value.size() as u64;
        }
    }
    bytes
}
