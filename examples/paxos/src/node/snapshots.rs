//! Snapshots: written beside the actor, given to peers, fetched from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke::{CallError, Cause, Code, NodeId, Status};
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError, Snapshot};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::time::Instant;

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

/// The part at a place, or the one behind it where that is the node's own. A part that is not what
/// was written is told in the log of this node, too: it is its disk that has changed it.
pub(super) async fn part(snapshot: &Snapshot, place: u64) -> Result<FetchedPart, Status> {
    let wrong = |text: String| {
        tracing::error!("this node's snapshot cannot be given to others: {text}");
        Status::new(Code::DataLoss, text)
    };
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

/// Snapshots that members have begun to fetch: one of each, so that it can go on with that though
/// later ones have replaced it.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(Arc<Mutex<BTreeMap<NodeId, Serving>>>);

#[derive(Clone, Debug)]
struct Serving {
    snapshot: Snapshot,
    /// All up to here is in it.
    upto: Slot,
    /// Of the latest part.
    asked: Instant,
}

impl Served {
    /// The snapshot of this position, if this member has had parts of it, or else the latest; and
    /// the last slot in it.
    pub(super) async fn to(
        &self,
        member: NodeId,
        position: u64,
        ledger: &Ledger,
    ) -> Result<(Snapshot, Slot), Status> {
        let asked = Instant::now();
        if let Some(serving) = self.0.lock().get_mut(&member)
            && serving.snapshot.position().records() == position
        {
            serving.asked = asked;
            return Ok((serving.snapshot.clone(), serving.upto));
        }
        let latest = ledger.latest_snapshot();
        let snapshot = latest.ok_or_else(|| Status::new(Code::NotFound, "there is no snapshot"))?;
        let first = part(&snapshot, 0).await?.part.and_then(|first| first.part);
        let Some(part::Part::Head(head)) = first else {
            return Err(Status::new(Code::DataLoss, "a snapshot without a head"));
        };
        let upto = Slot(head.applied);
        self.0.lock().insert(member, Serving { snapshot: snapshot.clone(), upto, asked });
        Ok((snapshot, upto))
    }

    /// Lets go of those of which nobody has taken a part for long. Called when another snapshot is
    /// the latest, since the disk keeps those that were replaced only for who reads them.
    pub(super) fn forget_idle(&self) {
        self.0.lock().retain(|_, serving| serving.asked.elapsed() < IDLE_MAX);
    }
}

/// Time without a question after which a member is taken to fetch no more: longer than its attempts
/// at one part last.
const IDLE_MAX: Duration = Duration::from_secs(40);

/// Time for one part.
const PART_DEADLINE: Duration = Duration::from_secs(5);

/// Failed questions in a row, and snapshots that were replaced meanwhile, after which another node
/// is asked.
const ATTEMPTS: u32 = 5;

/// The state of another node, from its latest snapshot. What was interrupted goes on at the part
/// where it was.
///
/// # Errors
/// The node does not answer in time, its answers cannot be read, or it has no whole snapshot: in
/// words. One that takes all the time for a part hangs, and is not asked again.
pub(super) async fn fetch(
    client: PaxosClient,
    cluster: u64,
    from: NodeId,
) -> Result<Machine, String> {
    let mut restoring = Restoring::default();
    let (mut position, mut place) = (0, 0);
    let (mut failed, mut begun) = (0, 0);
    loop {
        let request = FetchRequest { cluster, position, place };
        let fetched = match client.fetch(request).to(from).deadline(PART_DEADLINE).await {
            Ok(fetched) => fetched,
            Err(error) if failed < ATTEMPTS && !is_in_vain(&error) => {
                failed += 1;
                tokio::time::sleep(Duration::from_millis(20 << failed)).await;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        failed = 0;
        if fetched.position != position {
            begun += 1;
            if begun > ATTEMPTS {
                return Err(format!("it was replaced {ATTEMPTS} times meanwhile"));
            }
            (restoring, position) = (Restoring::default(), fetched.position);
        }
        let part = fetched.part.ok_or("an answer without a part")?;
        restoring.take(part).map_err(|error| error.to_string())?;
        match fetched.next {
            Some(next) => place = next,
            None => return Ok(restoring.finish().map_err(|error| error.to_string())?.machine),
        }
    }
}

/// True for failures that the next attempt meets, too.
fn is_in_vain(error: &CallError) -> bool {
    error.failure().is_some_and(|failure| failure.cause == Cause::Deadline)
        || error.status().is_some_and(|status| status.code() == Code::DataLoss)
}
