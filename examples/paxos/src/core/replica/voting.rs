//! The acceptor's side of a replica: what others ask, and what they are answered.

use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use super::super::ballot::{Ballot, Slot, Value};
use super::super::leader::Role;
use super::super::message::{Answer, Ask, Record};
use super::{Effect, Replica, Standing, Token};
use crate::mutant::{self, Mutant};

impl Replica {
    /// Takes a question of another node, as one of this configuration. It is answered by an effect
    /// with this token.
    pub fn handle_ask(
        &mut self,
        now: Duration,
        node: NodeId,
        token: Token,
        (epoch, ask): (u64, Ask),
    ) {
        if let Some(refusal) = self.other_epoch(node, epoch, &ask) {
            return self.answer(token, refusal);
        }
        match ask {
            Ask::Canvass { ballot } => {
                let answer = self.canvassed(now, ballot);
                self.answer(token, answer);
            }
            Ask::Prepare { ballot, .. } | Ask::Accept { ballot, .. }
                if ballot < self.acceptor.promised() =>
            {
                let promised = self.acceptor.promised();
                self.answer(token, Answer::Refused { ballot, promised });
            }
            Ask::Prepare { ballot, from: slot } => {
                let answer = self.prepare(now, ballot, slot);
                let is_early = mutant::is(Mutant::PromiseNotDurable);
                self.answer_durable(token, answer, is_early);
            }
            Ask::Accept { ballot, first, values, chosen, beat } => {
                let answer = self.accept(now, ballot, first, values, beat);
                self.follow(now, ballot, node, chosen);
                let is_early = mutant::is(Mutant::VoteNotDurable);
                self.answer_durable(token, answer, is_early);
            }
            Ask::CatchUp { from } => {
                let answer = self.tell(now, node, from);
                self.answer(token, answer);
            }
            Ask::TakeOver { ballot } => {
                self.answer(token, Answer::TakingOver);
                let is_of_leader = self.followed == Some(node);
                if is_of_leader && ballot == self.acceptor.promised() && self.votes() {
                    self.prepare_own(now);
                }
            }
        }
    }

    fn canvassed(&self, now: Duration, ballot: Ballot) -> Answer {
        let promised = self.acceptor.promised();
        let misses = !self.hears_leader(now) || mutant::is(Mutant::SupportsEverybody);
        let chosen = self.log.chosen();
        Answer::Canvassed { ballot, supports: misses && ballot > promised, promised, chosen }
    }

    /// Promises a ballot that is not earlier than the last one, and says what was accepted before.
    pub(super) fn prepare(&mut self, now: Duration, ballot: Ballot, from: Slot) -> Answer {
        if self.acceptor.promise(ballot) {
            self.append(Record::Promised(ballot));
            self.yield_to(now, ballot);
        }
        let chosen = self.log.chosen();
        let from = from.max(chosen.next());
        let (accepted, more) = self.acceptor.report(from, self.settings.message_bytes_max);
        Answer::Promise { ballot, life: self.life, chosen, accepted, more }
    }

    /// Accepts values in a ballot that is not earlier than the last one.
    pub(super) fn accept(
        &mut self,
        now: Duration,
        ballot: Ballot,
        first: Slot,
        values: Vec<Value>,
        beat: u64,
    ) -> Answer {
        if ballot > self.acceptor.promised() {
            self.yield_to(now, ballot);
        }
        let count = if self.is_near(first) { values.len() as u64 } else { 0 };
        if count > 0 && self.take(ballot, first, &values) {
            self.append(Record::Accepted { ballot, first, values });
        } else if self.acceptor.promise(ballot) {
            self.append(Record::Promised(ballot));
        }
        let accepted = self.acceptor.run_in(ballot, self.log.chosen());
        let chosen = self.durable_chosen();
        Answer::Accepted { ballot, life: self.life, first, count, accepted, chosen, beat }
    }

    /// Accepts what is not known to be chosen, nor accepted in this ballot already. True when there
    /// was any.
    fn take(&mut self, ballot: Ballot, first: Slot, values: &[Value]) -> bool {
        let mut is_new = false;
        for (slot, value) in (first.0..).map(Slot).zip(values) {
            let is_known = slot <= self.log.chosen();
            if !is_known && self.acceptor.accepted_in(ballot, slot).is_none() {
                self.acceptor.accept(ballot, slot, value.clone());
                is_new = true;
            }
        }
        is_new
    }

    /// A node that is far behind catches up first: what it accepts is kept until it is known to be
    /// chosen, and would otherwise have no bound.
    pub(super) fn is_near(&self, first: Slot) -> bool {
        let window = self.membership.as_ref().map_or(0, |membership| membership.window);
        first.since(self.log.chosen()) <= 4 * window.max(self.settings.window as u64)
    }

    /// Hears of its leader.
    fn follow(&mut self, now: Duration, ballot: Ballot, leader: NodeId, chosen: Slot) {
        self.heard = Some(now);
        self.attempts = 0;
        self.defer_election(now);
        if matches!(self.role, Role::Canvassing { .. }) {
            self.role = Role::Following;
        }
        if leader != self.settings.node {
            self.stand(Standing::Following(leader));
        }
        self.learn_accepted(ballot, chosen);
        if chosen > self.log.chosen() {
            self.is_behind(now, leader, chosen);
        }
    }

    /// Somebody else's ballot is later than this node's own.
    fn yield_to(&mut self, now: Duration, ballot: Ballot) {
        self.seen = self.seen.max(ballot);
        if ballot.leader() != Some(self.settings.node) {
            self.step_down();
            self.heard = None;
            self.defer_election(now);
        }
    }

    fn tell(&mut self, now: Duration, node: NodeId, from: Slot) -> Answer {
        let chosen = self.log.chosen();
        let Some(values) = self.log.read(from, self.settings.message_bytes_max) else {
            return Answer::Trimmed { trimmed: self.log.trimmed() };
        };
        self.holds.asks(now, node, Slot(from.0.saturating_sub(1)));
        Answer::Chosen { first: from, values, chosen }
    }

    /// True while a leader was heard of within the election timeout.
    pub(super) fn hears_leader(&self, now: Duration) -> bool {
        let is_recent = |heard: Duration| now < heard + self.settings.election_timeout;
        matches!(self.role, Role::Leading(_)) || self.heard.is_some_and(is_recent)
    }

    fn answer(&mut self, token: Token, answer: Answer) {
        self.effects.push_back(Effect::Answer { token, answer });
    }

    fn answer_durable(&mut self, token: Token, answer: Answer, is_early: bool) {
        if is_early {
            return self.answer(token, answer);
        }
        self.effects.push_back(Effect::AnswerDurable { token, answer: Held::new(answer) });
    }
}
