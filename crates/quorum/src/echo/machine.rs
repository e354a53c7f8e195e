//! One round of echo phases as a state machine: casts in, casts and quorums out. No I/O, no clock.

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_core::{CastBody, Digest, NodeId};
use convoke_proto::mutant::{self, Mutant};
use smallvec::SmallVec;

use crate::Configuration;

use super::error::{CastRefused, EchoError};
use super::plan::{Clause, EchoPlan};
use super::tally::{Evidence, Heard, Refusal, Refused, Tally, Vote};

/// For each phase, whether a correct member may still cast it.
type Beginnings = SmallVec<[bool; 8]>;

/// One round at one member: about one call, or one tag.
///
/// ```
/// use convoke_core::{Digest, NodeId};
/// use convoke_quorum::Configuration;
/// use convoke_quorum::echo::{EchoCore, EchoPlan, EchoVote};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let [a, b, c] = [1, 2, 3].map(NodeId::new);
/// let members = Configuration::new([a, b, c])?;
/// let mut core = EchoCore::new(a, &members, EchoPlan::majority(3, 1)?)?;
///
/// let digest = Digest([7; 32]);
/// core.cast(0, digest)?;
/// assert_eq!(core.poll_transmit(), Some(EchoVote { phase: 0, digest })); // to all others
/// assert_eq!(core.reached(0), None); // one of two
///
/// core.handle_vote(b, EchoVote { phase: 0, digest })?;
/// assert_eq!(core.reached(0).map(|reached| reached.digest), Some(digest));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EchoCore {
    members: Configuration,
    plan: EchoPlan,
    me: u16,
    tally: Tally,
    /// By phase, once there is a quorum.
    reached: Vec<Option<Digest>>,
    out: VecDeque<EchoVote>,
    /// Votes that count and have not been looked at by the rules.
    fresh: VecDeque<(EchoVote, u16)>,
    /// Members that vote in a later epoch.
    later: Vec<NodeId>,
    refused: Refused,
}

/// A phase and what is voted for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoVote {
    /// The phase.
    pub phase: u16,
    /// The value it speaks for.
    pub digest: Digest,
}

/// A phase has its quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// For this value.
    pub digest: Digest,
    /// So many members have cast it by now.
    pub count: usize,
}

impl EchoCore {
    /// A round of `me`, which is one of `members`, with no vote yet.
    ///
    /// # Errors
    /// [`EchoError::NotMember`], or [`EchoError::Members`] when the plan is for another number of
    /// members.
    pub fn new(me: NodeId, members: &Configuration, plan: EchoPlan) -> Result<Self, EchoError> {
        let index = members.index_of(me).ok_or(EchoError::NotMember { node: me })?;
        if plan.members() != members.len() {
            let (plan, members) = (plan.members(), members.len());
            return Err(EchoError::Members { plan, members });
        }
        Ok(Self {
            tally: Tally::new(plan.members(), plan.phase_count()),
            reached: vec![None; plan.phase_count().into()],
            members: members.clone(),
            plan,
            me: index,
            out: VecDeque::new(),
            fresh: VecDeque::new(),
            later: Vec::new(),
            refused: Refused::default(),
        })
    }

    /// Votes in a phase. It counts here at once, and is to be sent to the others. True unless this
    /// node had cast the same before, which is not sent again.
    ///
    /// # Errors
    /// [`CastRefused`] when there is no such phase, or this node has cast another digest in it.
    pub fn cast(&mut self, phase: u16, digest: Digest) -> Result<bool, CastRefused> {
        self.plan.phase(phase).ok_or(CastRefused::UnknownPhase { phase })?;
        match self.cast_in(phase) {
            Some(cast) if cast == digest => Ok(false),
            Some(cast) => Err(CastRefused::AlreadyCast { phase, digest: cast }),
            None => {
                self.cast_new(EchoVote { phase, digest });
                self.apply_rules();
                Ok(true)
            }
        }
    }

    /// Checks that this node has cast a vote, which is about to be sent.
    ///
    /// # Errors
    /// [`CastRefused`] when it has cast another digest in the phase, or none.
    pub(super) fn check_cast(
        &self,
        EchoVote { phase, digest }: EchoVote,
    ) -> Result<(), CastRefused> {
        match self.cast_in(phase) {
            Some(cast) if cast == digest => Ok(()),
            Some(cast) => Err(CastRefused::AlreadyCast { phase, digest: cast }),
            None => Err(CastRefused::NotCast { phase, digest }),
        }
    }

    /// Takes back a cast of an earlier life of this node, which others may have heard: it counts,
    /// and nothing else is ever cast in that phase. It is sent again.
    ///
    /// # Errors
    /// As [`Self::cast`].
    pub fn restore(&mut self, vote: EchoVote) -> Result<bool, CastRefused> {
        self.cast(vote.phase, vote.digest)
    }

    /// A vote of another member, as its connection says.
    ///
    /// # Errors
    /// [`Refusal`]: the sender's doing, and counted. The vote is dropped.
    pub fn handle_vote(&mut self, from: NodeId, vote: EchoVote) -> Result<Heard, Refusal> {
        let index = self.index_of(from);
        let taken = index.and_then(|index| self.take(from, index, vote, Bytes::new()));
        self.note_refused(taken)
    }

    /// A cast of another member, as its connection says; with all that it claims.
    ///
    /// # Errors
    /// As [`Self::handle_vote`].
    pub fn handle_cast(&mut self, from: NodeId, cast: CastBody) -> Result<Heard, Refusal> {
        let CastBody { phase, sender, epoch, digest, payload } = cast;
        let checked = self.index_of(from).and_then(|index| match (index, epoch) {
            _ if epoch != self.members.epoch() && !mutant::is(Mutant::EpochIgnored) => {
                Err(Refusal::WrongEpoch { node: from, epoch })
            }
            _ if sender != index && mutant::is(Mutant::PlaceBelieved) => Ok(sender),
            _ if sender != index => Err(Refusal::WrongIndex { node: from, claimed: sender }),
            _ => Ok(index),
        });
        if checked.is_err() && epoch > self.members.epoch() && self.index_of(from).is_ok() {
            self.note_later(from);
        }
        let vote = EchoVote { phase, digest };
        let taken = checked.and_then(|index| self.take(from, index, vote, payload));
        self.note_refused(taken)
    }

    fn note_later(&mut self, node: NodeId) {
        if !self.later.contains(&node) {
            self.later.push(node);
        }
    }

    /// This node's own votes come from [`Self::cast`] alone, so that each counts once and in order.
    fn index_of(&self, from: NodeId) -> Result<u16, Refusal> {
        let index = self.members.index_of(from).filter(|index| *index != self.me);
        index.ok_or(Refusal::NotMember { node: from })
    }

    fn note_refused(&mut self, taken: Result<Heard, Refusal>) -> Result<Heard, Refusal> {
        taken.inspect_err(|refusal| self.refused.note(*refusal))
    }

    fn take(
        &mut self,
        from: NodeId,
        index: u16,
        vote: EchoVote,
        payload: Bytes,
    ) -> Result<Heard, Refusal> {
        let EchoVote { phase, digest } = vote;
        self.plan.phase(phase).ok_or(Refusal::UnknownPhase { phase })?;
        let heard = self.tally.record(phase, index, from, Vote { digest, payload });
        if heard == Heard::Counted {
            self.fresh.push_back((vote, index));
            self.apply_rules();
        }
        Ok(heard)
    }

    fn cast_new(&mut self, vote: EchoVote) {
        let node = self.members.members()[usize::from(self.me)].node();
        let own = Vote { digest: vote.digest, payload: Bytes::new() };
        self.tally.record(vote.phase, self.me, node, own);
        self.fresh.push_back((vote, self.me));
        self.out.push_back(vote);
    }

    /// Looks at each vote that is new: whether its phase has a quorum by it, and what is cast on
    /// it. What is cast is a new vote in its turn.
    fn apply_rules(&mut self) {
        while let Some((vote, by)) = self.fresh.pop_front() {
            let EchoVote { phase, digest } = vote;
            let count = self.tally.count(phase, digest);
            let quorum = self.plan.phase(phase).map_or(usize::MAX, |phase| phase.quorum());
            let reached = &mut self.reached[usize::from(phase)];
            if reached.is_none() && count >= quorum {
                *reached = Some(digest);
            }
            for next in self.due(vote, by, count) {
                self.cast_new(EchoVote { phase: next, digest });
            }
        }
    }

    /// The phases to be cast by a rule that this vote makes true.
    fn due(&self, vote: EchoVote, by: u16, count: usize) -> Vec<u16> {
        let holds = |clause: &Clause| match *clause {
            Clause::Count { phase, at_least } => phase == vote.phase && count >= at_least,
            Clause::Heard { phase, node } => {
                phase == vote.phase && self.members.index_of(node) == Some(by)
            }
        };
        let votes_twice = by != self.me && mutant::is(Mutant::VotesTwice);
        let is_open = |phase| match self.cast_in(phase) {
            Some(cast) => votes_twice && cast != vote.digest,
            None => true,
        };
        let due = self
            .plan
            .phases()
            .filter(|(phase, of)| is_open(*phase) && of.rule().clauses().iter().any(holds));
        due.map(|(phase, _)| phase).collect()
    }

    /// The next vote of this node that is to be sent to all other members.
    pub fn poll_transmit(&mut self) -> Option<EchoVote> {
        self.out.pop_front()
    }

    /// Cast of this node in a phase.
    pub fn cast_in(&self, phase: u16) -> Option<Digest> {
        self.plan.phase(phase)?;
        self.tally.vote(phase, self.me)
    }

    /// True when a phase has its quorum. Once it has, it keeps it.
    pub fn reached(&self, phase: u16) -> Option<Reached> {
        let digest = (*self.reached.get(usize::from(phase))?)?;
        Some(Reached { digest, count: self.tally.count(phase, digest) })
    }

    /// True when a phase has or can still have its quorum, if no member of which `is_down` is true
    /// casts any more. Members that vote in a later epoch do not.
    pub fn is_possible(&self, phase: u16, is_down: impl Fn(NodeId) -> bool) -> bool {
        let Some(of) = self.plan.phase(phase) else { return false };
        if self.reached(phase).is_some() {
            return true;
        }
        let is_gone = |node: NodeId| is_down(node) || self.later.contains(&node);
        self.most(phase, &self.beginnings(&is_gone), &is_gone) >= of.quorum()
    }

    /// The phases that a correct member may still cast.
    fn beginnings(&self, is_gone: &impl Fn(NodeId) -> bool) -> Beginnings {
        let (known, count) = (self.plan.faulty().is_none(), self.plan.phase_count().into());
        let mut may_begin = Beginnings::from_elem(known, count);
        // Each round of this finds a further phase, or nothing.
        while self.plan.faulty().is_some() && self.find_beginnings(&mut may_begin, is_gone) {}
        may_begin
    }

    /// The most votes that one digest may still have in a phase.
    fn most(&self, phase: u16, may_begin: &[bool], is_gone: &impl Fn(NodeId) -> bool) -> usize {
        self.tally.count_max(phase) + self.coming(phase, may_begin, is_gone)
    }

    /// Votes that may still come in a phase: of all who have not voted, where a correct member may
    /// still begin it, else of those who may lie.
    fn coming(&self, phase: u16, may_begin: &[bool], is_gone: &impl Fn(NodeId) -> bool) -> usize {
        let silent = self.silent(phase).filter(|node| !is_gone(*node)).count();
        match may_begin[usize::from(phase)] {
            true => silent,
            false => silent.min(self.plan.faulty().unwrap_or(silent)),
        }
    }

    /// Finds phases that a correct member may still cast, by hand or by a rule; true when it found
    /// any that was not known.
    fn find_beginnings(&self, may_begin: &mut [bool], is_gone: &impl Fn(NodeId) -> bool) -> bool {
        let faulty = self.plan.faulty().unwrap_or(usize::MAX);
        let mut has_found = false;
        for (phase, of) in self.plan.phases() {
            let may_hold = |clause: &Clause| match *clause {
                // Who lies may have told another member what it has not told this one, and so may
                // one that was gone in the middle of it.
                Clause::Count { phase, at_least } => {
                    let silent = self.silent(phase).filter(|node| !is_gone(*node)).count();
                    let others = self.plan.members() - silent;
                    let lies = match mutant::is(Mutant::HopeWithoutLiars) {
                        true => 0,
                        false => (others - self.tally.count_max(phase)).min(faulty),
                    };
                    self.most(phase, may_begin, is_gone) + lies >= at_least
                }
                // The same; and what one has told this member others have heard, too.
                Clause::Heard { phase, node } => {
                    !is_gone(node) || faulty > 0 || !self.silent(phase).any(|silent| silent == node)
                }
            };
            let clauses = of.rule().clauses();
            if !may_begin[usize::from(phase)]
                && (clauses.is_empty() || clauses.iter().any(may_hold))
            {
                may_begin[usize::from(phase)] = true;
                has_found = true;
            }
        }
        has_found
    }

    /// True when members have voted for different values in a phase.
    pub fn is_split(&self) -> bool {
        self.tally.is_split()
    }

    /// Members that have said they vote in a later epoch.
    pub fn later(&self) -> &[NodeId] {
        &self.later
    }

    /// The fewest further casts after which a phase may have its quorum or can have none any more,
    /// or something may have to be cast, if no member of which `is_down` is true casts any more.
    pub fn needed(&self, phase: u16, is_down: impl Fn(NodeId) -> bool) -> usize {
        let is_gone = |node: NodeId| is_down(node) || self.later.contains(&node);
        let may_begin = self.beginnings(&is_gone);
        let lacks = |phase: u16, at_least: usize| {
            at_least.saturating_sub(self.tally.count_max(phase)).max(1)
        };
        // As many, for other digests, may make the quorum impossible.
        let hopeless = |phase: u16, at_least: usize| {
            let most = self.most(phase, &may_begin, &is_gone);
            (most + 1).saturating_sub(at_least).max(1)
        };
        let either = |phase: u16, at_least| lacks(phase, at_least).min(hopeless(phase, at_least));
        let quorum = self.plan.phase(phase).map_or(1, |of| either(phase, of.quorum()));
        if mutant::is(Mutant::RulesWakeNobody) {
            return quorum;
        }
        // Of a rule it is known only where it is known how many may lie.
        let knows_hopeless = self.plan.faulty().is_some();
        let rules = self.plan.phases().filter(|(phase, _)| self.cast_in(*phase).is_none());
        let clauses = rules.flat_map(|(_, of)| of.rule().clauses());
        let needed = clauses.map(|clause| match *clause {
            Clause::Count { phase, at_least } if knows_hopeless => either(phase, at_least),
            Clause::Count { phase, at_least } => lacks(phase, at_least),
            Clause::Heard { .. } => 1,
        });
        needed.fold(quorum, usize::min)
    }

    /// Members that have not cast in a phase, this node included.
    pub fn silent(&self, phase: u16) -> impl Iterator<Item = NodeId> {
        let exists = self.plan.phase(phase).is_some();
        let silent = exists.then(|| self.tally.silent(phase));
        silent.into_iter().flatten().map(|at| self.members.members()[usize::from(at)].node())
    }

    /// The votes in a phase that count, in the order of the members.
    pub fn votes(&self, phase: u16) -> impl Iterator<Item = (NodeId, Digest)> {
        let members = self.plan.phase(phase).map(|_| self.members.nodes());
        let members = (0..).zip(members.into_iter().flatten());
        members.filter_map(move |(at, node)| Some((node, self.tally.vote(phase, at)?)))
    }

    /// The value that a member sent along with its vote in a phase.
    pub fn payload(&self, phase: u16, member: NodeId) -> Option<&Bytes> {
        self.plan.phase(phase)?;
        self.tally.payload(phase, self.members.index_of(member)?)
    }

    /// The most members that have cast one digest in a phase.
    pub fn count_max(&self, phase: u16) -> usize {
        self.plan.phase(phase).map_or(0, |_| self.tally.count_max(phase))
    }

    /// Members that have voted twice.
    pub fn evidence(&self) -> &[Evidence] {
        self.tally.evidence()
    }

    /// Number of casts that were refused.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Its phases.
    pub fn plan(&self) -> &EchoPlan {
        &self.plan
    }

    /// The members that vote.
    pub fn members(&self) -> &Configuration {
        &self.members
    }

    /// This node's place among them.
    pub fn index(&self) -> u16 {
        self.me
    }

    /// Casts of others that may still come, if each casts once in each phase.
    pub fn outstanding(&self) -> usize {
        let phases = usize::from(self.plan.phase_count());
        let own = (0..self.plan.phase_count()).filter(|phase| self.cast_in(*phase).is_some());
        (self.plan.members() - 1) * phases - (self.tally.vote_count() - own.count())
    }
}

#[cfg(test)]
mod tests;
