//! Execution in order, each request once.

use std::time::Duration;

use super::{Effect, Replica};
use crate::core::group::Sequence;
use crate::core::message::{Checkpoint, Message};
use crate::core::state::Machine;

impl<M: Machine> Replica<M> {
    /// Executes what is committed, as far as there is no gap.
    pub(super) fn execute(&mut self, now: Duration) {
        while self.execute_next(now).is_some() {}
    }

    fn execute_next(&mut self, now: Duration) -> Option<()> {
        let sequence = self.executed.next();
        if self.end().is_some_and(|end| sequence > end) {
            return None;
        }
        let (_, digest) = self.slots.get(&sequence)?.committed?;
        let batch = self.batches.get(&digest)?.clone();
        (self.executed, self.moved) = (sequence, now);
        let outcomes = self.state.execute(sequence, &batch, self.changing());
        for executed in &outcomes {
            if let Some(since) = self.requests.remove(executed.client, executed.number) {
                self.clock.took(now, since);
            }
            self.forget_vouches(executed.client, executed.number);
            self.reply(executed.client, executed.number, executed.outcome.clone());
        }
        self.effects.push_back(Effect::Executed { sequence, digest, outcomes });
        if sequence.0.is_multiple_of(self.settings.checkpoint_every) {
            self.take_checkpoint(sequence);
        }
        Some(())
    }

    /// Claims what the state is behind a place. Nothing has to be durable for that: whoever
    /// executes the same again comes to the same state.
    fn take_checkpoint(&mut self, sequence: Sequence) {
        let snapshot = self.state.snapshot(self.settings.part_bytes);
        let digest = snapshot.digest();
        self.snapshots.insert(sequence, snapshot);
        self.forget_decided(); // what was never proposed, and is too old by now
        self.say(Message::Checkpoint(Checkpoint { sequence, digest }));
        self.keep_snapshot();
    }
}
