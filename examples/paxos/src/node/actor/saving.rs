//! Snapshots: the actor freezes its own, and installs those of others.

use convoke::NodeId;
use node_kit::ledger::LedgerError;
use tokio::time::Instant;

use super::super::snapshots;
use super::{Actor, Input};
use crate::core::{Kept, Slot};
use crate::kv::Machine;

impl Actor {
    /// Begins a snapshot when enough has come since the last, or one was installed. Called when the
    /// core wants nothing more done, so that the ledger and the machine are of one time.
    pub(super) fn save(&mut self) {
        let begun = Instant::now();
        if self.machine.applied() < Slot::FIRST || !self.pace.begin(begun) {
            return;
        }
        let (frozen, own) = (self.machine.freeze(), self.replica.checkpoint());
        self.frozen_max = self.frozen_max.max(begun.elapsed());
        let (ledger, inputs, position) =
            (self.ledger.clone(), self.inputs.clone(), self.ledger.end());
        tokio::spawn(async move {
            let written = snapshots::write(ledger, position, frozen, own).await;
            let _ = inputs.send(Input::Written(written)).await; // the actor may have ended
        });
    }

    /// Notes what has become of a snapshot.
    ///
    /// # Errors
    /// Those of [`SnapshotPace::ended`](node_kit::ledger::SnapshotPace::ended).
    pub(super) fn written(
        &mut self,
        written: Result<Slot, LedgerError>,
    ) -> Result<(), LedgerError> {
        let upto = match self.pace.ended(Instant::now(), written)? {
            Ok(upto) => upto,
            Err(no_room) => {
                tracing::error!("{no_room}");
                return Ok(());
            }
        };
        self.snapshots += 1;
        self.replica.handle_saved(upto);
        let bytes = usize::try_from(self.options.snapshot_bytes).unwrap_or(usize::MAX);
        self.replica.trim(self.now(), upto, Kept { slots: self.options.kept_slots, bytes });
        self.served.forget_idle();
        Ok(())
    }

    /// A member takes a part of a snapshot of all up to `upto`, which has so many bytes. When
    /// it began, twice what lies between two snapshots may have been written behind that: the next
    /// was due, and was about to be the latest.
    pub(super) fn fetching(&mut self, from: NodeId, upto: Slot, bytes: u64) {
        let bytes = bytes.saturating_add(2 * self.options.snapshot_bytes);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.replica.handle_fetching(self.now(), from, upto, bytes);
    }

    pub(super) fn fetch(&self, from: NodeId) {
        let (client, cluster) = (self.client.clone(), self.options.cluster);
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let machine = snapshots::fetch(client, cluster, from).await;
            let machine = machine.inspect_err(|reason| {
                tracing::warn!(node = %from, "no snapshot of it, others are asked: {reason}");
            });
            let _ = inputs.send(Input::Fetched(machine.ok().map(Box::new))).await; // as above
        });
    }

    pub(super) fn fetched(&mut self, machine: Option<Box<Machine>>) {
        self.perform();
        let now = self.now();
        if let Some(machine) = machine
            && machine.applied() > self.replica.chosen()
            && let Some(membership) = machine.membership().cloned()
        {
            let upto = machine.applied();
            self.machine = *machine;
            self.requests.skip(upto);
            self.pace.hasten();
            self.replica.handle_installed(now, upto, membership);
        } else {
            self.replica.handle_not_installed(now);
        }
    }
}
