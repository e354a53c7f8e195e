//! Elections: a replica comes to lead, and stops.

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use super::super::ballot::{Ballot, Life, Slot};
use super::super::leader::Role;
use super::super::message::{Accepted, Ask};
use super::super::preparing::{NotYet, Preparing};
use super::{Effect, Replica, Settings, Standing};
use crate::mutant::{self, Mutant};

/// A promise, as its answer has it.
pub(super) struct Promise {
    pub(super) ballot: Ballot,
    pub(super) life: Life,
    pub(super) chosen: Slot,
    pub(super) accepted: Vec<Accepted>,
    pub(super) more: Option<Slot>,
}

impl Replica {
    /// Waits anew before it does something about a leader: the election timeout, and up to as much
    /// again, so that not all try at once.
    pub(super) fn defer_election(&mut self, now: Duration) {
        let timeout = self.settings.election_timeout;
        let draw = scramble(self.settings.seed ^ scramble(self.attempts ^ self.seen.round << 20));
        let share = timeout.mul_f64((draw >> 11) as f64 / (1_u64 << 53) as f64);
        self.election = now + timeout + share;
    }

    /// Asks the others if they miss a leader, too.
    pub(super) fn canvass(&mut self, now: Duration) {
        self.attempts += 1;
        self.step_down();
        if matches!(self.standing, Standing::Following(_)) {
            self.stand(Standing::Leaderless); // Or it would have heard that leader by now.
        }
        self.defer_election(now);
        if !self.votes() {
            return self.look_around(self.sources());
        }
        let ballot = self.seen.max(self.acceptor.promised()).next(self.settings.node);
        self.role = Role::Canvassing { ballot, supporters: BTreeSet::new() };
        self.ask_others(Ask::Canvass { ballot });
        if self.looks_in_vain() {
            self.look_around(self.strangers()); // members are asked already
        }
        self.try_prepare(now);
    }

    /// True for a node that has neither led nor heard a leader for so long that others may have
    /// taken the place of the members it knows.
    pub(super) fn looks_in_vain(&self) -> bool {
        self.attempts > ATTEMPTS_IN_VAIN
    }

    /// Attempts to lead, or to find who does, since it led or heard a leader.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(super) fn handle_canvassed(
        &mut self,
        now: Duration,
        from: NodeId,
        of: Ballot,
        supports: bool,
    ) {
        if let Role::Canvassing { ballot, supporters } = &mut self.role
            && *ballot == of
            && supports
        {
            supporters.insert(from);
            self.try_prepare(now);
        }
    }

    fn try_prepare(&mut self, now: Duration) {
        if let Role::Canvassing { supporters, .. } = &self.role
            && self.is_supported(supporters)
        {
            self.prepare_own(now);
        }
    }

    /// Takes a ballot of its own. Others are asked once it is durable that it is taken: after a
    /// restart it must not be taken again.
    pub(super) fn prepare_own(&mut self, now: Duration) {
        self.step_down();
        let ballot = self.seen.max(self.acceptor.promised()).next(self.settings.node);
        self.defer_election(now);
        let own = self.prepare(now, ballot, self.log.chosen().next());
        self.seen = ballot;
        self.role = Role::Preparing(Preparing::new(ballot, self.settings.node));
        if mutant::is(Mutant::BallotNotPersisted) {
            self.effects.retain(|effect| !matches!(effect, Effect::Append(_)));
        }
        self.effects.push_back(Effect::Own(Held::new(own)));
    }

    pub(super) fn handle_promise(&mut self, now: Duration, from: NodeId, promise: Promise) {
        let preparing = match &mut self.role {
            Role::Preparing(preparing) => preparing,
            Role::Leading(leading) => &mut leading.prepared,
            Role::Following | Role::Canvassing { .. } => return,
        };
        if preparing.ballot != promise.ballot {
            return;
        }
        preparing.add(from, &promise.accepted, promise.chosen);
        if let Some(from_slot) = promise.more {
            let ask = Ask::Prepare { ballot: promise.ballot, from: from_slot };
            return self.ask_rest(now, from, ask);
        }
        preparing.promise(from, promise.life);
        if from == self.settings.node {
            let ask = Ask::Prepare { ballot: promise.ballot, from: self.log.chosen().next() };
            self.ask_others(ask);
        }
        if let Role::Leading(leading) = &mut self.role {
            leading.inherit();
            return self.inherit(now);
        }
        self.try_lead(now);
    }

    /// The rest of what a node has accepted. Of its own it takes it at once.
    fn ask_rest(&mut self, now: Duration, node: NodeId, ask: Ask) {
        let Ask::Prepare { ballot, from } = ask else { return };
        if node != self.settings.node {
            return self.ask(node, ask);
        }
        let own = self.prepare(now, ballot, from);
        self.effects.push_back(Effect::Own(Held::new(own)));
    }

    fn try_lead(&mut self, now: Duration) {
        let Role::Preparing(preparing) = &self.role else { return };
        let Settings { node, voters, window, .. } = &self.settings;
        let formed = self.membership.as_ref();
        match preparing.quorum(voters, *window, formed, (*node, self.life)) {
            Ok(membership) => {
                let Role::Preparing(done) = mem::replace(&mut self.role, Role::Following) else {
                    return;
                };
                self.lead(now, done, membership);
            }
            Err(NotYet::Promises) => {}
            Err(NotYet::OtherLife) => {
                self.is_stranger = true;
                self.step_down();
            }
            Err(NotYet::Stranger) => {
                let (known, source) = preparing.known();
                self.step_down();
                self.is_behind(now, source, known);
            }
        }
    }

    /// Somebody has promised a later ballot than this node's.
    pub(super) fn handle_refused(&mut self, now: Duration, ballot: Ballot, promised: Ballot) {
        self.seen = self.seen.max(promised);
        let own = match &self.role {
            Role::Preparing(preparing) => preparing.ballot,
            Role::Leading(leading) => leading.ballot(),
            Role::Following | Role::Canvassing { .. } => return,
        };
        if own == ballot && promised > own {
            self.step_down();
            self.defer_election(now);
        }
    }

    /// Stops to lead, and to try.
    pub(super) fn step_down(&mut self) {
        if let Role::Leading(leading) = mem::replace(&mut self.role, Role::Following) {
            let unready = leading.reads.iter().map(|read| Effect::Unready(read.token));
            self.effects.extend(unready);
        }
        if matches!(self.standing, Standing::Leading(_)) {
            self.stand(Standing::Leaderless);
        }
    }
}

/// Attempts to lead after which others than members are asked, too. Two nodes that try at once, and
/// a leader that comes and goes, take fewer.
const ATTEMPTS_IN_VAIN: u64 = 3;

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a number that looks drawn.
fn scramble(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
