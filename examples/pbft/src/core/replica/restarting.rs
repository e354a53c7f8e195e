//! Restart from the ledger: whatever was said is said alike again, or not at all.

use std::time::Duration;

use super::Replica;
use crate::core::group::{ClientId, Sequence};
use crate::core::message::{Batch, Message, Phase, Record, Vote};
use crate::core::state::{Machine, Snapshot, State};
use crate::wire::Malformed;

impl<M: Machine> Replica<M> {
    /// Takes a record of its ledger, in the order in which they were appended.
    ///
    /// # Errors
    /// [`Malformed::State`] for a state of another program. Without it this node would not know
    /// what it has said: it must not start.
    pub fn replay(&mut self, record: Record) -> Result<(), Malformed> {
        match record {
            Record::Clients(clients) => {
                if self.executed == Sequence(0) {
                    let window = self.settings.each_client_max;
                    self.state.begin_with(clients.iter().copied(), window);
                }
                self.first_clients = Some(clients);
            }
            Record::Snapshot(sequence, membership, bytes) => {
                let state = State::decode(membership.clone(), &bytes);
                self.state = state.ok_or(Malformed::State)?;
                self.executed = sequence;
                self.written = sequence;
                let snapshot = Snapshot::new(membership, bytes, self.settings.part_bytes);
                self.snapshots.clear();
                self.snapshots.insert(sequence, snapshot);
            }
            Record::Stable(stable) => self.stable = stable,
            Record::Left(view) => {
                self.view = view;
                self.is_changing = true;
            }
            Record::Entered(signed) => self.enter(signed),
            Record::Batch(batch) => {
                self.batches.insert(batch.digest(), batch);
            }
            Record::Accepted(vote, signature) => {
                let primary = self.group.primary(vote.view);
                self.proposed = self.proposed.max(vote.sequence);
                let slot = self.slots.entry(vote.sequence).or_default();
                slot.proposal = Some(vote.digest);
                if let Some(signature) = signature {
                    slot.is_accepted = true;
                    // The first proposal was kept, and no second one.
                    let _ = slot.prepares.add(primary, vote.digest, signature);
                }
            }
            Record::Prepared(prepared) => {
                let slot = self.slots.entry(prepared.sequence).or_default();
                slot.prepared = Some(prepared);
            }
            Record::Committed(vote) => {
                let slot = self.slots.entry(vote.sequence).or_default();
                slot.committed = Some((vote.view, vote.digest));
            }
            Record::HandedOver(handover) => self.begin_epoch(Duration::ZERO, handover),
            Record::Lost(_) => {} // who runs it does not start it
        }
        self.effects.clear();
        Ok(())
    }

    /// A client of the settings that the replayed state does not know, and never will: sessions are
    /// part of the state from the first batch on.
    pub fn unknown_client(&self) -> Option<ClientId> {
        self.settings.clients.iter().copied().find(|client| !self.state.knows(*client))
    }

    /// Begins, once all records are replayed.
    pub fn start(&mut self, now: Duration) {
        if self.first_clients.is_none() {
            let clients: Vec<ClientId> = self.settings.clients.iter().copied().collect();
            self.append(Record::Clients(clients.clone()));
            self.first_clients = Some(clients);
        }
        self.clock.tick = now;
        self.clock.enter(now);
        self.batches.insert(Batch::null().digest(), Batch::null());
        self.moved = now;
        self.forget();
        self.execute(now);
        self.need_state();
        self.hand_over(now);
        if !self.takes_part() {
            return;
        }
        if self.is_changing {
            self.say(Message::ViewChange(std::sync::Arc::new(self.change())));
        } else {
            self.say_again();
        }
    }

    /// Says its votes of this view again: they are signed anew, and the same.
    fn say_again(&mut self) {
        let (view, is_primary) = (self.view, self.is_primary());
        let mut votes = Vec::new();
        for (sequence, slot) in &self.slots {
            let Some(digest) = slot.proposal else { continue };
            let vote = |phase| Vote { phase, view, sequence: *sequence, digest };
            if is_primary {
                let batch = self.batches.get(&digest).cloned();
                votes.push(Message::Propose(vote(Phase::Propose), batch));
            } else if slot.is_accepted {
                votes.push(Message::Vote(vote(Phase::Prepare)));
            }
            if slot.is_prepared_in(view) {
                votes.push(Message::Vote(vote(Phase::Commit)));
            }
        }
        votes.into_iter().for_each(|vote| self.say(vote));
    }

    /// Records that bring back all that must not be forgotten: they may replace the ledger so far.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::from_iter(self.first_clients.clone().map(Record::Clients));
        if let Some(snapshot) = self.snapshots.get(&self.written) {
            let Snapshot { membership, bytes, .. } = snapshot.clone();
            records.push(Record::Snapshot(self.written, membership, bytes));
        }
        records.extend(self.handovers.iter().cloned().map(Record::HandedOver));
        if self.low() > Sequence(0) {
            records.push(Record::Stable(self.stable.clone()));
        }
        match &self.entered {
            _ if self.is_changing => records.push(Record::Left(self.view)),
            Some(signed) => records.push(Record::Entered(signed.clone())),
            None => {}
        }
        records.extend(self.batches.values().cloned().map(Record::Batch));
        self.slots.keys().for_each(|sequence| self.record_slot(*sequence, &mut records));
        records
    }

    fn record_slot(&self, sequence: Sequence, records: &mut Vec<Record>) {
        let slot = &self.slots[&sequence];
        let (view, phase) = (self.view, Phase::Propose);
        if let Some(digest) = slot.proposal.filter(|_| !self.is_changing)
            && (slot.is_accepted || self.is_primary())
        {
            let signature = slot.prepares.of(self.primary()).map(|(_, signature)| signature);
            let signature = signature.filter(|_| slot.is_accepted);
            let vote = Vote { phase, view, sequence, digest };
            records.push(Record::Accepted(vote, signature));
        }
        records.extend(slot.prepared.clone().map(Record::Prepared));
        if let Some((view, digest)) = slot.committed {
            let vote = Vote { phase: Phase::Commit, view, sequence, digest };
            records.push(Record::Committed(vote));
        }
    }
}
