//! Handing over: the end of an epoch, and the beginning of the next one with other members.
//!
//! ```text
//!   change executed ──▶ places up to its end alone are open ──▶ that checkpoint is stable
//!                                                                  │ proof: Handover
//!   words of an epoch that is over ──▶ told the handover           ▼
//!   behind, joins, was removed ──▶ takes it, fetches the state ──▶ view 0 of the next epoch
//! ```
//! Nothing of an epoch that is over counts any more, and each begins as the first one did: in view
//! 0, with a state that needs no proof. Replicas that are behind go on by the same proof, one epoch
//! after the other.

use std::time::Duration;

use convoke::NodeId;

use super::{Effect, Replica};
use crate::core::group::{Sequence, View};
use crate::core::handover::Handover;
use crate::core::keys::Verified;
use crate::core::members::{FIRST_EPOCH, Members, Membership};
use crate::core::message::{Batch, Record, Signatures, Stable};
use crate::core::plan::Plan;
use crate::core::state::{Machine, parts_digest};
use crate::core::vouches::Vouches;

/// Handovers that are kept, and told to those that are behind. Those that have missed more need
/// a newer cluster file.
const KEPT_MAX: usize = 256;

impl<M: Machine> Replica<M> {
    /// The epoch of its members.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True when it takes part: it is a member of its epoch, and was one of the first or has been
    /// handed the state over. One that is new to a later epoch cannot know what it would
    /// contradict.
    pub fn takes_part(&self) -> bool {
        let is_known = self.epoch == FIRST_EPOCH || !self.handovers.is_empty();
        is_known && self.group.contains(self.settings.node)
    }

    /// Members as its state has them: those of its epoch, or of the next one where that has not
    /// begun, and those that come.
    pub fn membership(&self) -> &Membership {
        self.state.membership()
    }

    /// The members of its epoch.
    pub fn members(&self) -> &Members {
        self.handovers.last().map_or(&self.settings.members, |handover| &handover.members)
    }

    /// Proofs of the ends of epochs, the latest last.
    pub fn handovers(&self) -> &[Handover] {
        &self.handovers
    }

    /// The last place of its epoch, where that is known here.
    pub(super) fn end(&self) -> Option<Sequence> {
        let Membership { now, next } = self.state.membership();
        match next {
            _ if now.epoch > self.epoch => Some(self.executed),
            Some((end, _)) if now.epoch == self.epoch => Some(*end),
            _ => None,
        }
    }

    /// Since when the epoch should have gone on to its end, if it has to.
    pub(super) fn lingers_since(&self) -> Option<Duration> {
        self.end().filter(|end| self.executed < *end).map(|_| self.moved)
    }

    /// Hears that a node says words of another epoch. One of an epoch that is over is told how it
    /// ended; of a later one this node is told in answer to its own reports.
    pub fn handle_other_epoch(&mut self, now: Duration, from: NodeId, epoch: u64) {
        let handover = self.handovers.iter().find(|handover| handover.epoch() == epoch + 1);
        let Some(handover) = handover.filter(|_| epoch < self.epoch).cloned() else { return };
        if self.is_due_to_answer(now, from) {
            self.effects.push_back(Effect::HandOver { to: from, handover });
        }
    }

    /// Takes the proof that its epoch has ended.
    pub fn handle_handover(&mut self, now: Duration, handover: Verified<Handover>) {
        let handover = handover.into_inner();
        if handover.epoch() == self.epoch + 1 {
            self.on_stable(now, handover.stable.clone());
            self.begin_epoch(now, handover);
            self.propose_more();
        }
    }

    /// Ends the epoch, once the state at its end is stable and here.
    pub(super) fn hand_over(&mut self, now: Duration) {
        let members = &self.state.membership().now;
        let stable = &self.stable;
        let sequence = stable.checkpoint.sequence;
        if members.epoch <= self.epoch || sequence != self.executed {
            return;
        }
        let Some(snapshot) = self.snapshots.get(&sequence) else { return };
        let parts = parts_digest(&snapshot.parts);
        let handover = Handover { stable: stable.clone(), parts, members: members.clone() };
        self.begin_epoch(now, handover);
    }

    /// Is in the next epoch from now on.
    pub(super) fn begin_epoch(&mut self, now: Duration, handover: Handover) {
        let Ok(group) = handover.members.group() else { return };
        (self.group, self.epoch) = (group, handover.epoch());
        let checkpoint = handover.stable.checkpoint;
        self.stable = Stable { checkpoint, signatures: Signatures::new() };
        (self.view, self.is_changing, self.entered) = (View(0), false, None);
        (self.plan, self.proposed) = (Plan::default(), checkpoint.sequence);
        self.slots.clear();
        self.claims.clear();
        self.changes.clear();
        self.answered.clear();
        self.asked.clear();
        self.batches.retain(|digest, _| *digest == Batch::null().digest());
        self.requests.begin_view();
        self.doubted.clear();
        self.vouched.clear();
        self.drop_outlines();
        let places = self.settings.each_client_max * (self.group.members().len() + 1);
        self.vouches = Vouches::new(places);
        self.clock.begin_epoch(now);
        self.append(Record::HandedOver(handover.clone()));
        self.handovers.push(handover.clone());
        if self.handovers.len() > KEPT_MAX {
            self.handovers.remove(0);
        }
        self.effects.push_back(Effect::Epoch(handover));
        if self.takes_part() && !self.is_primary() {
            self.forward();
        }
    }
}
