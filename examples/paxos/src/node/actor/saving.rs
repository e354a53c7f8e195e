//! Snapshots: the actor freezes its own, and installs those of others.

use std::time::Duration;

use convoke::NodeId;
use node_kit::ledger::LedgerError;
use tokio::time::Instant;

use super::super::snapshots;
use super::{Actor, Input};
use crate::core::{Kept, Slot};
use crate::kv::Machine;

/// Pause after a snapshot for which there was no room: to try writes as much as there is.
const SAVE_AGAIN: Duration = Duration::from_secs(60);

impl Actor {
    /// Begins a snapshot when enough has come since the last, or one was installed. Called when the
    /// core wants nothing more done, so that the ledger and the machine are of one time.
    pub(super) fn save(&mut self) {
        let is_due = self.unsaved_bytes >= self.options.snapshot_bytes || self.must_save;
        let is_kept = self.is_saving || self.next_save.is_some_and(|at| Instant::now() < at);
        if !is_due || is_kept || self.machine.applied() < Slot::FIRST {
            return;
        }
        (self.is_saving, self.must_save, self.unsaved_bytes) = (true, false, 0);
        let begun = Instant::now();
        let (frozen, own) = (self.machine.freeze(), self.replica.checkpoint());
        self.frozen_max = self.frozen_max.max(begun.elapsed());
        let (ledger, inputs, position) =
            (self.ledger.clone(), self.inputs.clone(), self.ledger.end());
        tokio::spawn(async move {
            let written = snapshots::write(ledger, position, frozen, own).await;
            let _ = inputs.send(Input::Written(written)).await; // the actor may have ended
        });
    }

    /// Notes what has become of a snapshot. One for which the disk has no room is tried again after
    /// a while: the ledger goes on without it, and has the records that it was to replace.
    ///
    /// # Errors
    /// Others of the ledger.
    pub(super) fn written(
        &mut self,
        written: Result<Slot, LedgerError>,
    ) -> Result<(), LedgerError> {
        self.is_saving = false;
        let upto = match written {
            Ok(upto) => upto,
            Err(error) if error.is_full() => {
                tracing::error!(
                    "no room for a snapshot, which takes as much again as the last: the log grows \
                     until there is ({error}); it is tried again in {SAVE_AGAIN:?}"
                );
                (self.must_save, self.next_save) = (true, Some(Instant::now() + SAVE_AGAIN));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.next_save = None;
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
            self.must_save = true;
            self.replica.handle_installed(now, upto, membership);
        } else {
            self.replica.handle_not_installed(now);
        }
    }
}
