//! Checkpoints: claims, their proof, and what can be forgotten then.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;

use super::Replica;
use crate::core::group::Digest;
use crate::core::message::{Checkpoint, Record, Signatures, Stable};
use crate::core::signature::Signature;
use crate::core::slot::Slot;
use crate::core::state::Machine;

impl<M: Machine> Replica<M> {
    pub(super) fn on_checkpoint(
        &mut self,
        now: Duration,
        by: NodeId,
        checkpoint: Checkpoint,
        signature: Signature,
    ) {
        let Checkpoint { sequence, digest } = checkpoint;
        if !self.is_open(sequence) || !sequence.0.is_multiple_of(self.settings.checkpoint_every) {
            return;
        }
        let claims = self.claims.entry(sequence).or_default();
        claims.entry(by).or_insert((digest, signature));
        let alike = claims.iter().filter(|(_, (of, _))| *of == digest);
        let signatures: Signatures = alike.map(|(by, (_, signature))| (*by, *signature)).collect();
        if signatures.len() >= self.quorum() {
            self.on_stable(now, Stable { checkpoint, signatures });
        }
    }

    /// Takes a checkpoint as stable, of which the proof was checked.
    pub(super) fn on_stable(&mut self, now: Duration, stable: Stable) {
        let sequence = stable.checkpoint.sequence;
        if sequence <= self.low() {
            return;
        }
        self.append(Record::Stable(stable.clone()));
        self.stable = stable;
        self.claims.retain(|claimed, _| *claimed > sequence);
        self.clock.settle(now, self.requests.oldest());
        self.keep_snapshot();
        self.need_state();
        self.forget();
    }

    /// Writes the state at the stable checkpoint into the ledger, once this node has it.
    pub(super) fn keep_snapshot(&mut self) {
        let Checkpoint { sequence, digest } = self.stable.checkpoint;
        let Some(snapshot) = self.snapshots.get(&sequence) else { return };
        if sequence <= self.written || snapshot.digest() != digest {
            return;
        }
        self.written = sequence;
        let (membership, bytes) = (snapshot.membership.clone(), snapshot.bytes.clone());
        let record = Record::Snapshot(sequence, membership, bytes);
        self.append(record);
        self.snapshots.retain(|of, _| *of >= sequence);
    }

    /// Forgets places that are stable and executed, and batches that no place needs.
    pub(super) fn forget(&mut self) {
        let low = self.low().min(self.executed);
        self.slots.retain(|sequence, _| *sequence > low);
        self.outlines.retain(|sequence, _| *sequence > low);
        let bound = self.plan.bound.range(low.next()..).map(|(_, digest)| *digest);
        let of_slots = self.slots.values().flat_map(Slot::needed);
        let to_begin = self.words_to_begin().flat_map(|word| self.bound_by(&word.body));
        let needed: BTreeSet<Digest> = of_slots.chain(bound).chain(to_begin).collect();
        self.batches.retain(|digest, _| needed.contains(digest));
    }
}
