//! A replica that leads: phase 2, rounds, reads.

use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use super::super::ballot::{Ballot, Life, Lives, Slot, Value};
use super::super::leader::{Leading, Preparing, Read, Role, counts};
use super::super::message::{Answer, Ask, Record};
use super::{Effect, NotLeading, NotProposed, Replica, Standing, Token};
use crate::mutant::{self, Mutant};

/// Votes, as their answer has them.
pub(super) struct Votes {
    pub(super) ballot: Ballot,
    pub(super) life: Life,
    pub(super) first: Slot,
    pub(super) count: u64,
    pub(super) accepted: Slot,
    pub(super) chosen: Slot,
    pub(super) beat: u64,
}

impl Votes {
    fn last(&self) -> Slot {
        Slot(self.first.0.saturating_sub(1).saturating_add(self.count))
    }
}

impl Replica {
    /// Slots that can be proposed now without waiting for others; 0 when this node does not lead,
    /// or has not yet applied all that may have been chosen before it did.
    pub fn room(&self) -> usize {
        match &self.role {
            Role::Leading(leading) => leading.room(self.log.chosen(), self.settings.window),
            _ => 0,
        }
    }

    /// Slots that are proposed and not applied yet.
    pub fn in_flight(&self) -> usize {
        match &self.role {
            Role::Leading(leading) => leading.pending.len(),
            _ => 0,
        }
    }

    /// Proposes a value for the next slot. It is applied there, if this node leads long enough.
    ///
    /// # Errors
    /// [`NotProposed`]: nothing was done.
    pub fn propose(&mut self, now: Duration, value: Value) -> Result<(Ballot, Slot), NotProposed> {
        let (leader, room) = (self.leader(), self.room());
        let Role::Leading(leading) = &mut self.role else {
            return Err(NotProposed::NotLeading(NotLeading { leader }));
        };
        if room == 0 {
            return Err(NotProposed::NoRoom);
        }
        let ballot = leading.ballot;
        let slot = leading.propose(value);
        self.ask_accepts(now, Duration::ZERO);
        Ok((ballot, slot))
    }

    /// Waits until all that was proposed before is applied, and this node is known to have led
    /// then: "read index" of the Raft thesis, section 6.4. [`Effect::Ready`] has the token.
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn read(&mut self, now: Duration, token: Token) -> Result<(), NotLeading> {
        let leader = self.leader();
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return Err(NotLeading { leader }) };
        let below = mutant::is(Mutant::ReadsBelowProposed);
        // Not the last slot known to be chosen: a client that counts votes itself knows one to be
        // chosen before its leader does.
        let index = if below { chosen } else { leading.last() };
        leading.reads.push(Read { token, beat: leading.beat + 1, index });
        if leading.round.is_none() {
            self.ask_round(now);
        }
        self.answer_reads(now);
        Ok(())
    }

    /// Asks a follower that is up to date to lead in place of this node. Does nothing while values
    /// wait to be chosen, or when nobody follows.
    pub fn hand_over(&mut self) {
        let Role::Leading(leading) = &self.role else { return };
        let ballot = leading.ballot;
        let best =
            leading.followers.iter().max_by_key(|(_, follower)| (follower.chosen, follower.heard));
        if let (Some((&node, _)), true) = (best, leading.pending.is_empty()) {
            self.ask(node, Ask::TakeOver { ballot });
        }
    }

    /// Phase 1 is done: first all slots that are open are proposed again.
    pub(super) fn lead(&mut self, now: Duration, done: Preparing, lives: Lives) {
        let (ballot, (known, source)) = (done.ballot, done.known);
        let mut leading = Leading::new(done, lives.clone(), self.log.chosen(), now);
        leading.propose_found(self.log.chosen(), self.settings.window);
        if leading.last() == Slot::FIRST && leading.proposed() < Slot::FIRST {
            leading.propose(Value::Formation(lives));
        }
        self.attempts = 0;
        self.role = Role::Leading(Box::new(leading));
        self.stand(Standing::Leading(ballot));
        if known > self.log.chosen() {
            self.is_behind(now, source, known);
        }
        self.beat(now);
    }

    /// More is chosen: goes on with what phase 1 has found, and with the reads.
    pub(super) fn go_on(&mut self, now: Duration) {
        let chosen = self.log.chosen();
        if let Role::Leading(leading) = &mut self.role {
            leading.propose_found(chosen, self.settings.window);
            self.ask_accepts(now, Duration::ZERO);
        }
        self.answer_reads(now);
    }

    /// A round: heartbeat, votes that are missing, and what a leader has to give up for.
    pub(super) fn beat(&mut self, now: Duration) {
        let timeout = self.settings.election_timeout;
        let needed = self.others_needed();
        let Role::Leading(leading) = &mut self.role else { return };
        let is_new = now < leading.since + timeout;
        let is_heard = is_new || leading.is_heard_by(needed, now.saturating_sub(timeout));
        if !is_heard && !mutant::is(Mutant::LeadsUnheard) {
            self.step_down();
            return self.defer_election(now);
        }
        leading.next_beat = now + self.settings.heartbeat;
        self.ask_accepts(now, now.saturating_sub(2 * self.settings.heartbeat));
        self.ask_round(now);
        self.answer_reads(now);
    }

    /// Asks about all open slots that nobody was asked about since then.
    fn ask_accepts(&mut self, now: Duration, since: Duration) {
        let bytes = self.settings.message_bytes_max;
        while let Role::Leading(leading) = &mut self.role
            && let Some((first, values)) = leading.take_unasked(since, now, bytes)
        {
            self.ask_accept(now, first, values);
        }
    }

    fn ask_round(&mut self, now: Duration) {
        let Role::Leading(leading) = &mut self.role else { return };
        let first = leading.proposed().next();
        leading.round = Some(leading.beat + 1);
        self.ask_accept(now, first, Vec::new());
    }

    /// Asks all voters to accept, this one with them.
    fn ask_accept(&mut self, now: Duration, first: Slot, values: Vec<Value>) {
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return };
        leading.beat += 1;
        let (ballot, beat) = (leading.ballot, leading.beat);
        let ask = Ask::Accept { ballot, first, values: values.clone(), chosen, beat };
        self.ask_others(ask);
        if !values.is_empty() {
            let own = self.accept(now, ballot, first, values, beat);
            self.effects.push_back(Effect::Own(Held::new(own)));
        }
    }

    pub(super) fn handle_votes(&mut self, now: Duration, from: NodeId, votes: &Votes) {
        let needed = self.needed();
        let Role::Leading(leading) = &mut self.role else { return };
        let is_meant = votes.ballot == leading.ballot || mutant::is(Mutant::VotesOfAllBallots);
        if !is_meant || !counts(&leading.lives, from, votes.life) {
            return;
        }
        leading.vote(from, votes.first, votes.last(), needed);
        leading.vote(from, Slot::FIRST, votes.accepted, needed);
        if from != self.settings.node {
            let follower = leading.followers.entry(from).or_default();
            follower.beat = follower.beat.max(votes.beat);
            follower.chosen = follower.chosen.max(votes.chosen);
            follower.heard = now;
        }
        self.learn_chosen();
        self.go_on(now);
    }

    /// Takes what is chosen over into the log.
    pub(super) fn learn_chosen(&mut self) {
        let before = self.log.chosen();
        while let Role::Leading(leading) = &mut self.role
            && let Some(value) = leading.take_chosen(self.log.chosen())
        {
            self.learn(value);
        }
        if let Role::Leading(leading) = &self.role
            && self.log.chosen() > before
        {
            let record = Record::Chosen { ballot: leading.ballot, upto: self.log.chosen() };
            self.append(record);
        }
    }

    /// Gives out reads whose round is over, and begins the round of those that came meanwhile.
    pub(super) fn answer_reads(&mut self, now: Duration) {
        let (needed, chosen) = (self.others_needed(), self.log.chosen());
        let Role::Leading(leading) = &mut self.role else { return };
        let had_round = leading.round.is_some();
        let ready = leading.take_ready(needed, chosen);
        let is_over = had_round && leading.round.is_none();
        let wants_round = leading.reads.iter().any(|read| read.beat > leading.beat);
        self.effects.extend(ready.into_iter().map(Effect::Ready));
        if is_over && wants_round {
            self.ask_round(now);
        }
    }

    /// Takes an answer of another node, or this node's own.
    pub fn handle_answer(&mut self, now: Duration, from: NodeId, answer: Answer) {
        if !self.settings.voters.contains(&from) {
            return;
        }
        match answer {
            Answer::Canvassed { ballot, supports, promised, chosen } => {
                self.seen = self.seen.max(promised);
                if chosen > self.log.chosen() {
                    self.is_behind(now, from, chosen);
                }
                self.handle_canvassed(now, from, ballot, supports);
            }
            Answer::Promise { ballot, life, chosen, accepted, more } => {
                let promise = super::electing::Promise { ballot, life, chosen, accepted, more };
                self.handle_promise(now, from, promise);
            }
            Answer::Accepted { ballot, life, first, count, accepted, chosen, beat } => {
                let votes = Votes { ballot, life, first, count, accepted, chosen, beat };
                self.handle_votes(now, from, &votes);
            }
            Answer::Refused { ballot, promised } => self.handle_refused(now, ballot, promised),
            Answer::Chosen { first, values, chosen } => {
                self.handle_chosen(now, from, first, values, chosen);
            }
            Answer::Trimmed { trimmed } => self.handle_trimmed(from, trimmed),
            Answer::TakingOver => {}
        }
    }
}
