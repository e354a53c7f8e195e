//! The state of a node, in numbers.

use std::time::Duration;

use tokio::time::Instant;

use super::Actor;
use crate::node::Standing;
use crate::proto::Inspection;

impl Actor {
    pub(super) fn inspect(&mut self, with_state: bool) -> Inspection {
        let mut inspection = self.look();
        if !with_state {
            return inspection;
        }
        // All of the state is read for it, so it is worked out once a second at most.
        match &self.digested {
            Some((at, known)) if at.elapsed() < DIGEST_EVERY => known.clone(),
            _ => {
                inspection.state = self.replica.state_digest().0.to_vec().into();
                self.digested = Some((Instant::now(), inspection.clone()));
                inspection
            }
        }
    }

    fn look(&self) -> Inspection {
        let stats = self.ledger.stats();
        let Standing { view, has_begun, primary, .. } = *self.stand.borrow();
        let machine = self.replica.machine();
        Inspection {
            node: self.options.core.node.get(),
            cluster: self.epoch.keys.scope().cluster,
            epoch: self.replica.epoch(),
            members: self.epoch.keys.group().members().len() as u64,
            takes_part: self.replica.takes_part(),
            view: view.0,
            has_begun,
            primary: primary.get(),
            executed: self.replica.executed().0,
            stable: self.replica.stable().checkpoint.sequence.0,
            is_fetching: self.replica.is_fetching(),
            is_hearing: !self.hearing.is_enough(),
            operations: machine.executed(),
            keys: machine.keys(),
            bytes: machine.bytes(),
            requests: self.replica.waiting() as u64,
            waiters: self.waiters.len() as u64,
            batches: self.batches,
            batched: self.batched,
            lies: self.lies,
            held: self.held.len() as u64,
            refused: self.counts.by_name(),
            records: stats.records,
            syncs: stats.batches,
            sync_us: u64::try_from(stats.syncing.as_micros()).unwrap_or(u64::MAX),
            cpu_us: cpu_us(),
            state: bytes::Bytes::new(),
        }
    }
}

/// Least time between two digests of the state for those who ask for it.
const DIGEST_EVERY: Duration = Duration::from_secs(1);

fn cpu_us() -> u64 {
    let used = cpu_time::ProcessTime::now().as_duration();
    u64::try_from(used.as_micros()).unwrap_or(u64::MAX)
}
