//! Requests that connections prove: those of clients, and those that others vouch for.
//!
//! ```text
//!   client ──▶ believed ──▶ vouched for ──▶ 2f + 1 vouch: proposed, and its clock runs
//!                 ▲
//!   f + 1 vouch ──┘          a batch of which f + 1 vote to prepare is believed as a whole
//! ```
//! While all goes well a replica vouches to the primary alone, by the digest. What has waited for
//! long goes to all, whole.

use std::time::Duration;

use convoke::NodeId;

use super::{Effect, Replica};
use crate::core::group::{ClientId, Digest, Sequence};
use crate::core::keys::Signed;
use crate::core::message::{Batch, Message, Outcome, SignedRequest, Vouch};
use crate::core::signature::Signature;
use crate::core::state::Machine;
use crate::core::trust::Trust;
use crate::mutant::{self, Mutant};

/// Requests of one turn of passing on, at most.
const PASSED_MAX: usize = Batch::REQUESTS_MAX;

/// Bytes of their operations, if it is more than one.
const PASSED_BYTES_MAX: usize = 256 << 10;

impl<M: Machine> Replica<M> {
    pub(super) fn is_by_channels(&self) -> bool {
        self.settings.trust == Trust::Channels
    }

    /// Takes a request that is believed from now on, and vouches for it.
    pub(super) fn believe(&mut self, now: Duration, signed: &SignedRequest) {
        let vouch = Vouch::of(&signed.request);
        let is_shared = self.vouches.count(vouch) >= self.group.witnesses();
        let members = self.group.members().len();
        if self.requests.insert_vouched(now, signed.clone(), (vouch, is_shared), members) {
            self.vouched.push(vouch);
        }
        self.back(now, vouch);
        self.accept_doubted(now, vouch);
    }

    /// Counts who vouches for a request that is believed here.
    fn back(&mut self, now: Duration, vouch: Vouch) {
        let backers = match mutant::is(Mutant::UnbackedProposed) {
            true => 1,
            false => self.group.backers(),
        };
        if self.requests.vouches_for(vouch) && self.vouches.count(vouch) + 1 >= backers {
            self.requests.back(now, vouch);
        }
    }

    /// Members of whom one does not lie.
    fn witnesses(&self) -> usize {
        let is_one_enough = mutant::is(Mutant::OneVouches);
        if is_one_enough { 1 } else { self.group.witnesses() }
    }

    pub(super) fn on_vouch(&mut self, now: Duration, by: NodeId, vouches: &[Vouch]) {
        for vouch in vouches {
            self.take_vouch(now, by, *vouch);
        }
    }

    fn take_vouch(&mut self, now: Duration, by: NodeId, vouch: Vouch) {
        let is_own = by == self.settings.node;
        let is_open = self.state.outcome(vouch.client, vouch.number).is_none();
        if self.is_by_channels() && is_open && !is_own {
            self.vouches.add(by, vouch);
            self.back(now, vouch);
            self.accept_doubted(now, vouch);
        }
    }

    /// Takes requests that a member passes on: it vouches for them, and perhaps others have.
    ///
    /// Of those that were executed here it is told so, by a vouch: its clock may need that word to
    /// run, where the primary is away that alone would repeat the proposals. By their numbers
    /// nothing runs again, so the word makes nobody execute anything. What is too old to tell is
    /// not vouched for: nothing would ever stop the clock.
    pub(super) fn on_pass(&mut self, now: Duration, by: NodeId, requests: &[SignedRequest]) {
        if !self.is_by_channels() {
            return;
        }
        let mut executed = Vec::new();
        for signed in requests {
            let vouch = Vouch::of(&signed.request);
            match self.state.outcome(vouch.client, vouch.number) {
                Some(Outcome::Done(_)) => executed.push(vouch),
                Some(Outcome::Forgotten) => {}
                None => {
                    self.take_vouch(now, by, vouch);
                    if self.vouches.count(vouch) >= self.witnesses() {
                        self.believe(now, signed);
                    }
                }
            }
        }
        if !executed.is_empty() && by != self.settings.node {
            let effect = self.unsigned(by, Message::Vouch(executed));
            self.effects.push_back(effect);
        }
    }

    /// True when a backup may vote for a batch: each of its requests was made by its client, as far
    /// as this node or one of f + 1 others knows that does not lie.
    pub(super) fn is_vouched(&mut self, sequence: Sequence, digest: Digest, batch: &Batch) -> bool {
        let is_bound = self.plan.bound.get(&sequence) == Some(&digest);
        let votes = self.slots.get(&sequence).map_or(0, |slot| slot.prepares.count(digest));
        if !self.is_by_channels()
            || self.is_primary()
            || is_bound // others have voted for it, as its proof says
            || votes >= self.group.witnesses()
            || mutant::is(Mutant::ProposalsBelieved)
        {
            return true;
        }
        let doubted = |signed: &&SignedRequest| !self.is_believed(signed);
        let doubted = batch.requests().iter().filter(doubted).map(|signed| &signed.request);
        let doubted: Vec<_> = doubted.map(|request| (request.client, request.number)).collect();
        let is_vouched = doubted.is_empty();
        self.doubted.extend(doubted);
        is_vouched
    }

    fn is_believed(&self, signed: &SignedRequest) -> bool {
        let vouch = Vouch::of(&signed.request);
        let (client, number) = (vouch.client, vouch.number);
        // What is decided does not run again, whatever stands there.
        self.state.outcome(client, number).is_some()
            || self.requests.vouches_for(vouch)
            || self.vouches.count(vouch) >= self.witnesses()
    }

    /// Looks again at proposals that were doubted for this request.
    fn accept_doubted(&mut self, now: Duration, Vouch { client, number, .. }: Vouch) {
        if !self.doubted.contains(&(client, number)) {
            return;
        }
        self.doubted.clear(); // whoever is doubted still is put in again
        let open = self.slots.iter().filter(|(_, slot)| !slot.is_accepted);
        let open: Vec<Sequence> = open.map(|(sequence, _)| *sequence).collect();
        for sequence in open {
            self.accept(now, sequence);
        }
    }

    /// Vouches to the primary for what has come in this turn.
    pub(super) fn vouch(&mut self) -> Option<Effect> {
        if self.vouched.is_empty() {
            return None;
        }
        let vouches = std::mem::take(&mut self.vouched);
        let to = self.primary();
        let is_wanted = !self.is_changing && to != self.settings.node;
        is_wanted.then(|| self.unsigned(to, Message::Vouch(vouches)))
    }

    /// Vouches to a new primary for all that waits.
    pub(super) fn vouch_for_all(&mut self) {
        self.vouched = self.requests.vouches().collect();
    }

    /// Passes on to all what has waited for long.
    pub(super) fn pass_on(&mut self, now: Duration) {
        let before = now.saturating_sub(self.settings.repeat);
        let passed = self.requests.next_passed(before, PASSED_MAX, PASSED_BYTES_MAX);
        if passed.is_empty() {
            return;
        }
        for to in self.others() {
            let effect = self.unsigned(to, Message::Pass(passed.clone()));
            self.effects.push_back(effect);
        }
    }

    /// Forgets all that is said about a request that is decided.
    pub(super) fn forget_vouches(&mut self, client: ClientId, number: u64) {
        if self.is_by_channels() {
            self.vouches.forget(client, number);
        }
    }

    /// Forgets what is decided, of whomever.
    pub(super) fn forget_decided(&mut self) {
        let state = &self.state;
        let is_open = |client, number| state.outcome(client, number).is_none();
        self.requests.retain(is_open);
        self.vouches.retain(is_open);
    }

    /// Words that rest on no record, and that the connection proves.
    fn unsigned(&self, to: NodeId, body: Message) -> Effect {
        let (epoch, by, signature) = (self.epoch, self.settings.node, Signature::NONE);
        Effect::Relay { to, message: Signed { epoch, by, body, signature } }
    }
}
