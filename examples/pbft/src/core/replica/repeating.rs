//! Repetition: each replica reports how far it is, and is told what it lacks.

use std::time::Duration;

use convoke::NodeId;

use super::{Effect, Replica};
use crate::core::group::{Digest, Sequence};
use crate::core::message::{Batch, Checkpoint, Message, Phase, Status, Vote};
use crate::core::state::Machine;
use crate::mutant::{self, Mutant};

/// Places whose votes are repeated in answer to one report.
const REPEATED_MAX: usize = 16;

/// Bytes of the batches among them. Those beyond go without their requests: who lacks a batch
/// fetches it, and who only says so has it once, not each time.
const REPEATED_BYTES_MAX: usize = Batch::BYTES_MAX;

impl<M: Machine> Replica<M> {
    /// Reports how far this node is, and asks for what it lacks.
    pub(super) fn report(&mut self, now: Duration) {
        let takes_part = self.takes_part();
        let status = Status {
            view: self.view,
            is_changing: self.is_changing,
            stable: self.low(),
            done: self.done(),
        };
        for other in self.others() {
            self.tell(other, Message::Status(status));
            if takes_part {
                self.repeat_change(other);
            }
        }
        if !takes_part {
            return; // it waits to be told of an epoch in which it does
        }
        if self.is_by_channels() {
            self.pass_on(now);
        } else if !self.is_changing && !self.is_primary() {
            self.forward_again();
        }
        self.fetch(now);
    }

    /// All up to here is stable, or committed in this view.
    fn done(&self) -> Sequence {
        let mut done = self.low();
        while self.slots.get(&done.next()).is_some_and(|slot| slot.is_committed_in(self.view)) {
            done = done.next();
        }
        done
    }

    /// Passes what no proposal has on to the primary, or vouches for it.
    pub(super) fn forward(&mut self) {
        if self.is_by_channels() {
            return self.vouch_for_all();
        }
        let to = self.primary();
        for request in self.requests.unproposed() {
            self.effects.push_back(Effect::Forward { to, request: request.clone() });
        }
    }

    /// Passes some of that on again, each time others: a primary that proposes nothing is told of
    /// no more in a pause than it could propose at once.
    fn forward_again(&mut self) {
        let to = self.primary();
        for request in self.requests.next_unproposed(Batch::REQUESTS_MAX, Batch::BYTES_MAX) {
            self.effects.push_back(Effect::Forward { to, request });
        }
    }

    /// Says again that this node wants its view.
    fn repeat_change(&mut self, to: NodeId) {
        let own = self.changes.get(&self.settings.node);
        if let Some(own) = own.filter(|own| self.is_changing && own.body.view == self.view) {
            let (body, by, signature) = (own.body.clone(), own.by, own.signature);
            self.relay(to, Message::ViewChange(body), by, signature);
        }
    }

    pub(super) fn on_status(&mut self, now: Duration, by: NodeId, status: Status) {
        if by == self.settings.node || !self.is_due_to_answer(now, by) {
            return;
        }
        self.repeat_checkpoint(by, status.stable);
        self.repeat_change(by);
        if self.is_changing {
            return;
        }
        let is_behind = status.view < self.view || status.is_changing && status.view == self.view;
        if is_behind {
            self.repeat_new_view(by);
        } else if status.view == self.view && !mutant::is(Mutant::VotesNotRepeated) {
            self.repeat_votes(by, status.done);
        }
    }

    /// True when the last answer to a node was a while ago; then it is answered now.
    pub(super) fn is_due_to_answer(&mut self, now: Duration, node: NodeId) -> bool {
        let last = self.answered.get(&node);
        let is_due = last.is_none_or(|last| now >= *last + self.settings.repeat / 2);
        if is_due {
            self.answered.insert(node, now);
        }
        is_due
    }

    fn repeat_checkpoint(&mut self, to: NodeId, stable: Sequence) {
        if stable < self.low() {
            return self.tell(to, Message::Stable(self.stable.clone()));
        }
        let me = self.settings.node;
        let own = self.claims.iter().filter(|(sequence, _)| **sequence > stable);
        let own = own.filter_map(|(sequence, claims)| Some((*sequence, *claims.get(&me)?)));
        for (sequence, (digest, signature)) in own.collect::<Vec<_>>() {
            self.relay(to, Message::Checkpoint(Checkpoint { sequence, digest }), me, signature);
        }
    }

    fn repeat_new_view(&mut self, to: NodeId) {
        if let Some(signed) = self.entered.clone() {
            self.relay(to, Message::NewView(signed.body), signed.by, signed.signature);
        }
    }

    /// Says this node's own votes again for the first places that are not done there.
    fn repeat_votes(&mut self, to: NodeId, done: Sequence) {
        let (me, view) = (self.settings.node, self.view);
        let phase = if self.is_primary() { Phase::Propose } else { Phase::Prepare };
        let (mut said, mut room) = (Vec::new(), REPEATED_BYTES_MAX);
        for (at, slot) in self.slots.range(done.next()..).take(REPEATED_MAX) {
            let votes = [(phase, slot.prepares.of(me)), (Phase::Commit, slot.commits.of(me))];
            for (phase, vote) in votes {
                let Some((digest, signature)) = vote else { continue };
                let vote = Vote { phase, view, sequence: *at, digest };
                let message = match phase {
                    Phase::Propose => Message::Propose(vote, self.batch_within(&mut room, &digest)),
                    Phase::Prepare | Phase::Commit => Message::Vote(vote),
                };
                said.push((message, signature));
            }
        }
        for (message, signature) in said {
            self.relay(to, message, me, signature);
        }
    }

    /// A batch that is here, as far as there is room for it.
    fn batch_within(&self, room: &mut usize, digest: &Digest) -> Option<Batch> {
        let batch = self.batches.get(digest)?;
        *room = room.checked_sub(batch.bytes())?;
        Some(batch.clone())
    }
}
