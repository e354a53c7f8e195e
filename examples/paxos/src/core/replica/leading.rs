//! A replica that leads: phase 2, rounds, reads.

use std::cmp::Reverse;
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use super::super::ballot::{Ballot, Life, Slot, Value};
use super::super::leader::{Follower, Leading, Read, Role};
use super::super::membership::Membership;
use super::super::message::{Answer, Ask, Record};
use super::super::preparing::Preparing;
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
            Role::Leading(leading) if self.votes() => {
                leading.room(self.log.chosen(), self.membership.as_ref())
            }
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
        let ballot = leading.ballot();
        let slot = leading.propose(value);
        self.ask_accepts(now, Duration::ZERO);
        Ok((ballot, slot))
    }

    /// Voters of a slot that this node has proposed, if they are those of all open slots before
    /// it: then a majority of votes that say so proves all up to there chosen, and a client may
    /// count them. `None` while a change of the members comes into force in between. This node is
    /// the first; of the others those come first who have answered the latest rounds.
    pub fn electorate(&self, slot: Slot) -> Option<Vec<(NodeId, Life)>> {
        let (Role::Leading(leading), Some(membership)) = (&self.role, &self.membership) else {
            return None;
        };
        let members = membership.at(slot);
        let beat = |node: NodeId| leading.followers.get(&node).map_or(0, |follower| follower.beat);
        let mut voters: Vec<_> = members.voters().collect();
        voters.sort_by_key(|(node, _)| (*node != self.settings.node, Reverse(beat(*node))));
        (members.epoch == membership.now.epoch).then_some(voters)
    }

    /// Waits until all that was proposed before is applied, and this node is known to have led
    /// then: "read index" of the Raft thesis, section 6.4. [`Effect::Ready`] has the token.
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn read(&mut self, token: Token) -> Result<(), NotLeading> {
        let leader = self.leader();
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return Err(NotLeading { leader }) };
        let below = mutant::is(Mutant::ReadsBelowProposed);
        // Not the last slot known to be chosen: a client that counts votes itself knows one to be
        // chosen before its leader does.
        let index = if below { chosen } else { leading.last() };
        leading.reads.push(Read { token, beat: leading.beat + 1, index });
        if leading.round.is_none() {
            self.ask_round();
        }
        self.answer_reads();
        Ok(())
    }

    /// Asks a voter that is up to date to lead in place of this node. Does nothing while values
    /// wait to be chosen, or when nobody follows.
    pub fn hand_over(&mut self) {
        self.hand_over_from(Slot::default());
    }

    /// The same, to a voter whose log is known up to here at least.
    fn hand_over_from(&mut self, slot: Slot) {
        let Role::Leading(leading) = &self.role else { return };
        let ballot = leading.ballot();
        let members = leading.members(self.membership.as_ref());
        let voters = leading.followers.iter().filter(|(node, of)| members.counts(**node, of.life));
        let able = voters.filter(|(_, follower)| follower.chosen >= slot);
        let best = able.max_by_key(|(_, follower)| (follower.chosen, follower.heard));
        if let (Some((&node, _)), true) = (best, leading.pending.is_empty()) {
            self.ask(node, Ask::TakeOver { ballot });
        }
    }

    /// A leader that fetches a snapshot neither proposes nor answers reads until it has it: who
    /// knows more leads instead.
    fn give_way(&mut self) {
        if self.is_fetching() {
            self.hand_over_from(self.log.chosen().next());
        }
    }

    /// Phase 1 is done: first all slots that are open are proposed again.
    pub(super) fn lead(&mut self, now: Duration, done: Preparing, formation: Membership) {
        let (me, chosen) = ((self.settings.node, self.life), self.log.chosen());
        let ballot = done.ballot;
        let mut leading = Leading::new(me, done, formation.clone(), chosen, now);
        if leading.last() == Slot::FIRST
            && self.membership.is_none()
            && leading.prepared.last().is_none()
        {
            leading.propose(Value::Formation(formation.into()));
        }
        self.attempts = 0;
        self.role = Role::Leading(Box::new(leading));
        self.stand(Standing::Leading(ballot));
        self.inherit(now);
        self.beat(now);
    }

    /// Catches up with what promises have told, and goes on.
    pub(super) fn inherit(&mut self, now: Duration) {
        let Role::Leading(leading) = &self.role else { return };
        let (known, source) = leading.prepared.known();
        if known > self.log.chosen() {
            self.is_behind(now, source, known);
        }
        self.go_on(now);
    }

    /// More is chosen, or promised: goes on with what phase 1 has found, and with the reads.
    pub(super) fn go_on(&mut self, now: Duration) {
        let chosen = self.log.chosen();
        if let Role::Leading(leading) = &mut self.role {
            leading.propose_found(chosen, self.membership.as_ref());
            self.ask_accepts(now, Duration::ZERO);
        }
        self.answer_reads();
        self.retire();
    }

    /// A round: heartbeat, votes that are missing, and what a leader has to give up for.
    pub(super) fn beat(&mut self, now: Duration) {
        let is_new = self.leads_anew(now);
        let lately = now.saturating_sub(self.settings.election_timeout);
        let Role::Leading(leading) = &mut self.role else { return };
        let membership = self.membership.as_ref();
        let is_heard =
            is_new || leading.is_majority(membership, |follower| follower.heard >= lately);
        if !is_heard && !mutant::is(Mutant::LeadsUnheard) {
            self.step_down();
            return self.defer_election(now);
        }
        leading.next_beat = now + self.settings.heartbeat;
        self.ask_accepts(now, now.saturating_sub(2 * self.settings.heartbeat));
        self.ask_round();
        self.answer_reads();
        self.give_way();
        self.tend(now);
    }

    /// Asks about all open slots that nobody was asked about since then.
    pub(super) fn ask_accepts(&mut self, now: Duration, since: Duration) {
        let bytes = self.settings.message_bytes_max;
        while let Role::Leading(leading) = &mut self.role
            && let Some((first, values)) = leading.take_unasked(since, now, bytes)
        {
            self.ask_accept(now, first, values);
        }
    }

    /// Asks all for a sign that this node still leads, and says what is chosen.
    pub(super) fn ask_round(&mut self) {
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return };
        leading.beat += 1;
        leading.round = Some(leading.beat);
        let (ballot, beat) = (leading.ballot(), leading.beat);
        let first = leading.proposed().next();
        self.ask_others(Ask::Accept { ballot, first, values: Vec::new(), chosen, beat });
    }

    /// Asks all to accept, this node with them.
    fn ask_accept(&mut self, now: Duration, first: Slot, values: Vec<Value>) {
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return };
        leading.beat += 1;
        let (ballot, beat) = (leading.ballot(), leading.beat);
        let ask = Ask::Accept { ballot, first, values: values.clone(), chosen, beat };
        self.ask_others(ask);
        let own = self.accept(now, ballot, first, values, beat);
        self.effects.push_back(Effect::Own(Held::new(own)));
    }

    pub(super) fn handle_votes(&mut self, now: Duration, from: NodeId, votes: &Votes) {
        let Role::Leading(leading) = &mut self.role else { return };
        let is_meant = votes.ballot == leading.ballot() || mutant::is(Mutant::VotesOfAllBallots);
        if !is_meant {
            return;
        }
        let voter = (from, votes.life);
        let membership = self.membership.as_ref();
        leading.vote(voter, (votes.first, votes.last()), membership);
        leading.vote(voter, (Slot::FIRST, votes.accepted), membership);
        if from == self.settings.node {
            leading.durable = leading.durable.max(votes.chosen);
        } else {
            let follower = leading.followers.entry(from).or_default();
            if follower.life != votes.life {
                // Nothing that another ledger was asked about is in this one.
                *follower = Follower { life: votes.life, ..Follower::default() };
            }
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
            let record = Record::Chosen { ballot: leading.ballot(), upto: self.log.chosen() };
            self.append(record);
        }
    }

    /// Gives out reads whose round is over, and begins the round of those that came meanwhile.
    pub(super) fn answer_reads(&mut self) {
        let chosen = self.log.chosen();
        let Role::Leading(leading) = &mut self.role else { return };
        let had_round = leading.round.is_some();
        let ready = leading.take_ready(self.membership.as_ref(), chosen);
        let is_over = had_round && leading.round.is_none();
        let wants_round = leading.reads.iter().any(|read| read.beat > leading.beat);
        self.effects.extend(ready.into_iter().map(Effect::Ready));
        if is_over && wants_round {
            self.ask_round();
        }
    }

    /// Takes an answer of another node, or this node's own.
    pub fn handle_answer(&mut self, now: Duration, from: NodeId, answer: Answer) {
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
            Answer::Trimmed { trimmed } => self.handle_trimmed(now, from, trimmed),
            Answer::OtherEpoch { epoch, is_member, chosen } => {
                self.handle_other_epoch(now, from, epoch, is_member.then_some(chosen));
            }
            Answer::TakingOver => {}
        }
    }
}
