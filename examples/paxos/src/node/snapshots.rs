//! Snapshots: written beside the actor, given to peers, fetched from them.

use std::time::Duration;

use convoke::{Code, NodeId, Status};
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError, Snapshot};
use prost::Message as _;

use crate::core::{Record, Slot};
use crate::kv::{Frozen, Machine, Restoring};
use crate::proto::{FetchRequest, FetchedPart, Part, PaxosClient, part};

/// Writes a snapshot of all before a position, and lets go of the records that it replaces.
pub(super) async fn write(
    ledger: Ledger,
    position: Position,
    frozen: Frozen,
    own: Vec<Record>,
) -> Result<Slot, LedgerError> {
    let mut writer = ledger.snapshot(position).await?;
    let applied = frozen.applied();
    for part in frozen.parts(own) {
        writer.part(part).await?;
        // In memory a part is written at once, and all of them would keep others from their work.
        tokio::task::yield_now().await;
    }
    writer.finish().await?;
    ledger.trim(position).await?;
    Ok(applied)
}

/// The part at a place, or the one behind it where that is the node's own.
pub(super) async fn part(snapshot: &Snapshot, place: u64) -> Result<FetchedPart, Status> {
    let wrong = |text: String| Status::new(Code::DataLoss, text);
    let mut place = place;
    loop {
        let read = snapshot.part(place).await.map_err(|error| wrong(error.to_string()))?;
        let read = read.ok_or_else(|| Status::new(Code::OutOfRange, "no part begins there"))?;
        let part = Part::decode(read.bytes).map_err(|error| wrong(error.to_string()))?;
        place = read.next;
        if matches!(part.part, Some(part::Part::Own(_))) {
            continue;
        }
        let is_last = matches!(part.part, Some(part::Part::Tail(_)));
        let (position, next) = (snapshot.position().records(), (!is_last).then_some(place));
        return Ok(FetchedPart { position, part: Some(part), next });
    }
}

/// Time for one part.
const PART_DEADLINE: Duration = Duration::from_secs(5);

/// Failed questions in a row, and snapshots that were replaced meanwhile, after which another node
/// is asked.
const ATTEMPTS: u32 = 5;

/// The state of another node, from its latest snapshot. What was interrupted goes on at the part
/// where it was. `None` when the node does not answer, or its answer cannot be read.
pub(super) async fn fetch(client: PaxosClient, cluster: u64, from: NodeId) -> Option<Machine> {
    let mut restoring = Restoring::default();
    let (mut position, mut place) = (0, 0);
    let (mut failed, mut begun) = (0, 0);
    loop {
        let request = FetchRequest { cluster, position, place };
        let fetched = match client.fetch(request).to(from).deadline(PART_DEADLINE).await {
            Ok(fetched) => fetched,
            Err(_) if failed < ATTEMPTS => {
                failed += 1;
                tokio::time::sleep(Duration::from_millis(20 << failed)).await;
                continue;
            }
            Err(_) => return None,
        };
        failed = 0;
        if fetched.position != position {
            begun += 1;
            if begun > ATTEMPTS {
                return None;
            }
            (restoring, position) = (Restoring::default(), fetched.position);
        }
        restoring.take(fetched.part?).ok()?;
        match fetched.next {
            Some(next) => place = next,
            None => return Some(restoring.finish().ok()?.machine),
        }
    }
}
