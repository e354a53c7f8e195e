//! State of a node as others are told.

use std::time::Duration;

use convoke::NodeId;

use super::{Actor, leader};
use crate::core::Standing;
use crate::proto::Inspection;

impl Actor {
    /// State of the node, for who asks.
    pub(super) fn inspect(&self) -> Inspection {
        let stats = self.ledger.stats();
        let standing = self.replica.standing();
        let leading = match standing {
            Standing::Leading(_) => Some(self.options.core.node),
            other => leader(other),
        };
        Inspection {
            node: self.options.core.node.get(),
            cluster: self.options.cluster,
            life: self.replica.life(),
            standing: name(standing).to_owned(),
            leader: leading.map_or(0, NodeId::get),
            promised: Some(self.replica.promised().into()),
            applied: self.machine.applied().0,
            trimmed: self.replica.trimmed().0,
            keys: self.machine.keys(),
            bytes: self.machine.bytes(),
            sessions: self.machine.sessions() as u64,
            waiting: self.requests.len() as u64,
            batches: self.batches,
            requests: self.batched,
            polled: self.polled,
            records: stats.records,
            syncs: stats.batches,
            sync_us: micros(stats.syncing),
            cpu_us: cpu_us(),
            membership: self.replica.membership().map(Into::into),
            is_settled: self.replica.is_settled(),
            snapshots: self.snapshots,
            frozen_us_max: micros(self.frozen_max),
            replayed: self.cost.replayed,
            restored_us: micros(self.cost.restoring),
            replayed_us: micros(self.cost.replaying),
            held: self.held.len() as u64,
        }
    }
}

fn name(standing: Standing) -> &'static str {
    match standing {
        Standing::Leaderless => "leaderless",
        Standing::Following(_) => "following",
        Standing::Leading(_) => "leading",
        Standing::Outside => "outside",
    }
}

fn cpu_us() -> u64 {
    micros(cpu_time::ProcessTime::now().as_duration())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
