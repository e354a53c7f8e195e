//! Plan of a round: its phases, and the rules between them.

use std::sync::Arc;

use convoke_core::NodeId;

/// The phases of a round, and when each is cast. Cheap to clone; make it once.
///
/// Bracha's reliable broadcast, in which a member is ready on enough echoes or on enough others
/// that are:
/// ```
/// use convoke_quorum::echo::{EchoPlan, Phase, Rule, byzantine_quorum};
///
/// # fn main() -> Result<(), convoke_quorum::echo::PlanError> {
/// let (members, faulty) = (4, 1);
/// let (echo, ready) = (0, 1);
/// let enough = byzantine_quorum(members, faulty);
/// let plan = EchoPlan::new(members, [
///     Phase::new("echo", enough),
///     Phase::new("ready", 2 * faulty + 1)
///         .cast_on(Rule::on(echo, enough).or(Rule::on(ready, faulty + 1))),
/// ])?;
/// # assert_eq!(plan.phase_count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EchoPlan {
    members: usize,
    phases: Arc<[Phase]>,
    askers: Arc<[NodeId]>,
    faulty: Option<usize>,
}

/// One phase of a round.
#[derive(Clone, Debug)]
pub struct Phase {
    name: &'static str,
    quorum: usize,
    cast_on: Rule,
}

/// Condition under which a phase is cast without being told to: any one of its clauses is enough.
#[derive(Clone, Debug, Default)]
pub struct Rule(Vec<Clause>);

/// Something that can be true of the votes for one digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clause {
    /// So many members have cast it in this phase.
    Count { phase: u16, at_least: usize },
    /// This member has.
    Heard { phase: u16, node: NodeId },
}

/// Reason why phases make no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is none.
    #[error("an echo plan needs at least one phase")]
    NoPhase,
    /// There are more than [`EchoPlan::PHASES_MAX`].
    #[error("{count} phases are more than {}", EchoPlan::PHASES_MAX)]
    TooManyPhases {
        /// Number of phases given.
        count: usize,
    },
    /// There are more than [`EchoPlan::MEMBERS_MAX`].
    #[error("{members} members are more than {}", EchoPlan::MEMBERS_MAX)]
    TooManyMembers {
        /// Number of members.
        members: usize,
    },
    /// A rule is about a phase that does not exist.
    #[error("a rule is about phase {phase}, which does not exist")]
    UnknownPhase {
        /// The phase it is about.
        phase: u16,
    },
    /// So many votes hold always, or never.
    #[error("a threshold of {threshold} is not from 1 to the {members} members there are")]
    Threshold {
        /// Of how many votes.
        threshold: usize,
        /// Number of members.
        members: usize,
    },
    /// With so many faulty members no plan is safe.
    #[error("{members} members cannot bear {faulty} faulty ones: that takes 3f + 1")]
    TooManyFaulty {
        /// Members.
        members: usize,
        /// Of them faulty.
        faulty: usize,
    },
}

impl Rule {
    /// Once so many members, this one included, have cast a digest in a phase: it is cast on.
    pub fn on(phase: u16, at_least: usize) -> Self {
        Self(vec![Clause::Count { phase, at_least }])
    }

    /// Once this member has cast a digest in a phase.
    pub fn heard(phase: u16, node: NodeId) -> Self {
        Self(vec![Clause::Heard { phase, node }])
    }

    /// Or once the other holds.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub(super) fn clauses(&self) -> &[Clause] {
        &self.0
    }
}

impl Phase {
    /// A phase that ends with so many equal votes, and is cast by hand.
    pub fn new(name: &'static str, quorum: usize) -> Self {
        Self { name, quorum, cast_on: Rule::default() }
    }

    /// Casts it by itself once the rule holds, for the digest for which it does; unless it was cast
    /// before.
    #[must_use]
    pub fn cast_on(mut self, rule: Rule) -> Self {
        self.cast_on = rule;
        self
    }

    /// Its name in errors.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// With how many equal votes it ends.
    pub fn quorum(&self) -> usize {
        self.quorum
    }

    pub(super) fn rule(&self) -> &Rule {
        &self.cast_on
    }
}

impl EchoPlan {
    /// The most members: of so many a mailbox takes casts.
    pub const MEMBERS_MAX: usize = 1_024;

    /// Most phases: members and phases together bound what a round remembers.
    pub const PHASES_MAX: usize = 64;

    /// These phases, numbered from 0, for so many members.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(members: usize, phases: impl IntoIterator<Item = Phase>) -> Result<Self, PlanError> {
        let phases: Arc<[Phase]> = phases.into_iter().collect();
        if phases.is_empty() {
            return Err(PlanError::NoPhase);
        }
        if phases.len() > Self::PHASES_MAX {
            return Err(PlanError::TooManyPhases { count: phases.len() });
        }
        if members > Self::MEMBERS_MAX {
            return Err(PlanError::TooManyMembers { members });
        }
        let plan = Self { members, phases, askers: Arc::default(), faulty: None };
        plan.check().map(|()| plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        let members = self.members;
        let threshold = |threshold| match (1..=members).contains(&threshold) {
            true => Ok(()),
            false => Err(PlanError::Threshold { threshold, members }),
        };
        for phase in &*self.phases {
            threshold(phase.quorum)?;
            for clause in phase.cast_on.clauses() {
                let (Clause::Count { phase, .. } | Clause::Heard { phase, .. }) = *clause;
                self.phase(phase).ok_or(PlanError::UnknownPhase { phase })?;
                if let Clause::Count { at_least, .. } = *clause {
                    threshold(at_least)?;
                }
            }
        }
        Ok(())
    }

    /// So many phases, each of a majority, each cast on the majority of the one before; the first
    /// by hand.
    ///
    /// Safe if members crash, not if they lie: two majorities have one member in common, and if
    /// that one tells each what it wants to hear, both decide. See [`byzantine_quorum`].
    ///
    /// # Errors
    /// [`PlanError`] for no members, no phases or too many.
    pub fn majority(members: usize, phases: u16) -> Result<Self, PlanError> {
        let quorum = majority(members);
        let phase = |at: u16| match at.checked_sub(1) {
            None => Phase::new("echo", quorum),
            Some(before) => Phase::new("echo", quorum).cast_on(Rule::on(before, quorum)),
        };
        Ok(Self::new(members, (0..phases).map(phase))?.bearing(0))
    }

    /// Says how many members may lie, or crash in the middle of a cast so that others have heard it
    /// and this member has not. A phase that is cast by its rule alone is then known to be hopeless
    /// as soon as the rule can hold at no correct member any more. A phase with a rule must then
    /// not be cast by hand. Default: nobody knows, and only the votes of a phase itself make it
    /// hopeless.
    ///
    /// With 0 a phase that is cast on the word of one member ends at once where that is down
    /// without having said it here. Of [`Self::majority`] it is 0, which makes a difference only
    /// where votes are split.
    #[must_use]
    pub fn bearing(mut self, faulty: usize) -> Self {
        self.faulty = Some(faulty);
        self
    }

    pub(super) fn faulty(&self) -> Option<usize> {
        self.faulty
    }

    /// Lets requests of these nodes begin the round of a call, too, where they delegate those of
    /// its initiator: a leader whom all members know. What such a node says of a call is believed,
    /// also whose it is. Default: the initiator's own requests alone.
    #[must_use]
    pub fn asked_by(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.askers = nodes.into_iter().collect();
        self
    }

    pub(super) fn is_asked_by(&self, node: NodeId) -> bool {
        self.askers.contains(&node)
    }

    /// Number of members that vote.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Number of phases.
    pub fn phase_count(&self) -> u16 {
        u16::try_from(self.phases.len()).unwrap_or(u16::MAX)
    }

    /// One of them, if it exists.
    pub fn phase(&self, phase: u16) -> Option<&Phase> {
        self.phases.get(usize::from(phase))
    }

    pub(super) fn phases(&self) -> impl Iterator<Item = (u16, &Phase)> {
        (0..).zip(&*self.phases)
    }
}

/// More than half of `members`: two such sets have a member in common.
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// `ceil((n + f + 1) / 2)`: two such sets have a correct member in common, where `faulty` members
/// may say anything.
pub const fn byzantine_quorum(members: usize, faulty: usize) -> usize {
    members.saturating_add(faulty) / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_meet_in_a_correct_member() {
        assert_eq!([1, 2, 3, 4, 5, 7].map(majority), [1, 2, 2, 3, 3, 4]);
        for (members, faulty) in [(4, 1), (5, 1), (7, 2), (10, 3), (100, 33)] {
            let quorum = byzantine_quorum(members, faulty);
            assert_eq!(quorum, (members + faulty + 1).div_ceil(2));
            assert!(2 * quorum - members > faulty, "two meet in more than the faulty");
            assert!(quorum <= members - faulty, "the correct alone reach it");
        }
        assert!(byzantine_quorum(4, usize::MAX) > 4, "no members are one");
    }

    #[test]
    fn thresholds_that_hold_always_or_never_are_refused() {
        let plan = |quorum, at_least| {
            EchoPlan::new(4, [Phase::new("a", quorum).cast_on(Rule::on(0, at_least))]).map(drop)
        };
        assert_eq!(plan(3, 3), Ok(()));
        for wrong in [0, 5] {
            let error = Err(PlanError::Threshold { threshold: wrong, members: 4 });
            assert_eq!((plan(wrong, 1), plan(1, wrong)), (error.clone(), error));
        }
        let unknown = Phase::new("a", 1).cast_on(Rule::on(0, 1).or(Rule::on(1, 1)));
        let error = EchoPlan::new(4, [unknown]).map(drop);
        assert_eq!(error, Err(PlanError::UnknownPhase { phase: 1 }));
    }

    #[test]
    fn a_plan_has_a_phase_and_a_bounded_number_of_them() {
        let count = |phases| EchoPlan::majority(4, phases).map(|plan| plan.phase_count());
        assert_eq!(count(0), Err(PlanError::NoPhase));
        assert_eq!(count(64), Ok(64));
        assert_eq!(count(65), Err(PlanError::TooManyPhases { count: 65 }));
        let nobody = EchoPlan::majority(0, 1).map(drop);
        assert_eq!(nobody, Err(PlanError::Threshold { threshold: 1, members: 0 }));
    }
}
