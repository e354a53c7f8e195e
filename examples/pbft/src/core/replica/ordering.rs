//! The normal case: proposals, votes to prepare, votes to commit.

use std::time::Duration;

use convoke::NodeId;

use super::{Effect, Replica, message};
use crate::core::group::{Digest, Sequence};
use crate::core::keys::Signed;
use crate::core::message::{Batch, Message, Phase, Prepared, Record, Vote};
use crate::core::signature::Signature;
use crate::core::slot::Contradiction;
use crate::core::state::Machine;
use crate::mutant::{self, Mutant};

impl<M: Machine> Replica<M> {
    /// Proposes what waits, as the primary of a view that has begun, while there is room and enough
    /// waits for a batch.
    pub(super) fn propose_more(&mut self) {
        while self.takes_part() && self.is_primary() && !self.is_changing {
            let sequence = self.proposed.max(self.low()).next();
            let limit = self.executed.plus(self.settings.in_flight);
            if !self.is_open(sequence) || sequence > limit {
                return;
            }
            // A batch costs votes and syncs whatever is in it. Beside others it begins once it is
            // as large as all of them, so that under load there are few and equal ones.
            let is_alone = sequence <= self.executed.next();
            let enough = if is_alone { 1 } else { self.requests.proposed().max(1) };
            let has_enough = self.requests.unproposed().take(enough).count() == enough;
            // Null requests bring an epoch to its end.
            if !has_enough && self.end().is_none() {
                return;
            }
            let count = self.settings.batch_max.min(Batch::REQUESTS_MAX);
            let bytes = self.settings.batch_bytes_max.min(Batch::BYTES_MAX);
            let batch = Batch::new(self.requests.next_batch(count, bytes));
            self.mark_proposed(&batch);
            let digest = batch.digest();
            self.keep_batch(batch.clone());
            self.propose(sequence, digest, Some(batch));
        }
    }

    /// Proposes a batch for a place. It is in the ledger before anybody hears of it.
    pub(super) fn propose(&mut self, sequence: Sequence, digest: Digest, batch: Option<Batch>) {
        self.proposed = self.proposed.max(sequence);
        self.slots.entry(sequence).or_default().proposal = Some(digest);
        let vote = Vote { phase: Phase::Propose, view: self.view, sequence, digest };
        let proposal = match batch {
            Some(batch) if self.settings.is_outlined => {
                Message::Outline(vote, batch.outline().clone())
            }
            batch => Message::Propose(vote, batch),
        };
        self.say_after(Record::Accepted(vote, None), proposal);
    }

    pub(super) fn mark_proposed(&mut self, batch: &Batch) {
        for signed in batch.requests() {
            self.requests.propose(signed.request.client, signed.request.number);
        }
    }

    /// Keeps a batch, in the ledger, too.
    pub(super) fn keep_batch(&mut self, batch: Batch) {
        if !self.batches.contains_key(&batch.digest()) {
            self.append(Record::Batch(batch.clone()));
            self.batches.insert(batch.digest(), batch);
        }
    }

    pub(super) fn on_propose(
        &mut self,
        now: Duration,
        by: NodeId,
        vote: Vote,
        signature: Signature,
        batch: Option<Batch>,
    ) {
        let is_its = batch.as_ref().is_none_or(|batch| batch.digest() == vote.digest);
        let is_primary = by == self.primary() && vote.phase == Phase::Propose;
        if self.is_changing || vote.view != self.view || !is_primary || !is_its {
            return;
        }
        if !self.is_open(vote.sequence) || !self.plan.allows(vote.sequence, vote.digest) {
            return;
        }
        let slot = self.slots.entry(vote.sequence).or_default();
        if let Err(contradiction) = slot.prepares.add(by, vote.digest, signature) {
            return self.lied(by, vote, contradiction, signature);
        }
        slot.proposal = Some(vote.digest);
        if let Some(batch) = batch {
            self.keep_batch(batch);
        }
        self.accept(now, vote.sequence);
    }

    /// Votes to prepare what is proposed for a place, once its batch is here.
    pub(super) fn accept(&mut self, now: Duration, sequence: Sequence) {
        let primary = self.primary();
        // A batch may come when the view of its proposal is left, and votes of that view are still
        // here: they say nothing about the next one.
        let slot = self.slots.get_mut(&sequence).filter(|_| !self.is_changing);
        let Some(slot) = slot.filter(|slot| !slot.is_accepted) else { return };
        let Some((digest, signature)) = slot.proposal.and_then(|_| slot.prepares.of(primary))
        else {
            return;
        };
        let null = Batch::null();
        let is_null = digest == null.digest();
        if is_null {
            self.batches.entry(digest).or_insert(null);
        }
        let Some(batch) = self.batches.get(&digest).cloned() else { return };
        if !self.is_vouched(sequence, digest, &batch) {
            return;
        }
        self.slots.entry(sequence).or_default().is_accepted = true;
        self.forget_outline(sequence);
        self.know_requests(now, &batch);
        let proposal = Vote { phase: Phase::Propose, view: self.view, sequence, digest };
        let record = Record::Accepted(proposal, Some(signature));
        if primary == self.settings.node {
            self.append(record);
        } else {
            self.say_after(record, Message::Vote(Vote { phase: Phase::Prepare, ..proposal }));
        }
        self.check(now, sequence);
    }

    /// Requests of a batch have clocks, too: their clients signed them, or are vouched for.
    fn know_requests(&mut self, now: Duration, batch: &Batch) {
        for signed in batch.requests() {
            let (client, number) = (signed.request.client, signed.request.number);
            if self.state.outcome(client, number).is_some() {
                continue;
            }
            match self.is_by_channels() {
                true => self.believe(now, signed),
                false => drop(self.requests.insert(now, signed.clone())),
            }
        }
        self.mark_proposed(batch);
    }

    pub(super) fn on_vote(&mut self, now: Duration, by: NodeId, vote: Vote, signature: Signature) {
        // What is stable and not executed here may still get its last votes, within a window: all
        // else of it comes with the state.
        let is_late = vote.sequence > self.executed
            && vote.sequence <= self.low()
            && vote.sequence.plus(self.settings.window) > self.low();
        let is_open = is_late || self.is_open(vote.sequence);
        if self.is_changing || vote.view != self.view || !is_open {
            return;
        }
        let primary = self.primary();
        let slot = self.slots.entry(vote.sequence).or_default();
        let tally = match vote.phase {
            // The primary's vote to prepare is its proposal, and no other.
            Phase::Prepare if by != primary => &mut slot.prepares,
            Phase::Commit if mutant::is(Mutant::EarlyCommitsDropped) && slot.prepared.is_none() => {
                return;
            }
            Phase::Commit => &mut slot.commits,
            Phase::Prepare | Phase::Propose => return,
        };
        if let Err(contradiction) = tally.add(by, vote.digest, signature) {
            return self.lied(by, vote, contradiction, signature);
        }
        if vote.phase == Phase::Prepare {
            self.accept(now, vote.sequence); // others vouch for the batch
        }
        self.check(now, vote.sequence);
    }

    /// Does what the votes for a place allow.
    fn check(&mut self, now: Duration, sequence: Sequence) {
        let (view, quorum, primary) = (self.view, self.quorum(), self.primary());
        let Some(slot) = self.slots.get_mut(&sequence) else { return };
        if !slot.is_prepared_in(view)
            && let Some(digest) = slot.agreed(quorum)
        {
            let signatures = slot.prepares.signatures(digest, quorum, primary);
            let prepared = Prepared { view, sequence, digest, signatures };
            slot.prepared = Some(prepared.clone());
            let commit = Vote { phase: Phase::Commit, view, sequence, digest };
            self.say_after(Record::Prepared(prepared), Message::Vote(commit));
        }
        self.check_committed(now, sequence);
    }

    /// Commits what is prepared here and has a quorum of votes to commit.
    fn check_committed(&mut self, now: Duration, sequence: Sequence) {
        let (view, quorum) = (self.view, self.quorum());
        let Some(slot) = self.slots.get_mut(&sequence) else { return };
        if !slot.is_prepared_in(view) || slot.is_committed_in(view) {
            return;
        }
        let Some(digest) = slot.proposal.filter(|of| slot.commits.count(*of) >= quorum) else {
            return;
        };
        slot.committed = Some((view, digest));
        self.append(Record::Committed(Vote { phase: Phase::Commit, view, sequence, digest }));
        self.execute(now);
    }

    /// A member has voted twice in one phase. The first vote counts; both together are evidence,
    /// of which one is enough.
    fn lied(&mut self, by: NodeId, vote: Vote, lie: Contradiction, signature: Signature) {
        let Contradiction { first, is_new: true } = lie else { return };
        let epoch = self.epoch;
        let first = Signed {
            epoch,
            by,
            body: message(Vote { digest: first.0, ..vote }),
            signature: first.1,
        };
        let second = Signed { epoch, by, body: message(vote), signature };
        self.effects.push_back(Effect::Lied { first, second });
    }
}
