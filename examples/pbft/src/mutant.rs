//! Deliberate defects that the tests must find: a check of the checks. Each is switched on at one
//! place; without the feature `mutants` the question is a constant.

use std::str::FromStr;

/// One rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The primary's proposal counts beside its vote to prepare.
    PrimaryCountedTwice,
    /// Words count before their signature.
    VoteUnverified,
    /// Votes leave before they are durable.
    VoteNotDurable,
    /// One place too many is open.
    WatermarkOffByOne,
    /// The state at a checkpoint lacks the sessions.
    CheckpointWithoutSessions,
    /// A new view leaves gaps open.
    NoNullRequests,
    /// A new view takes the batch that was prepared in the earliest view.
    OldestCertificate,
    /// Votes that were lost stay lost.
    VotesNotRepeated,
    /// Requests count before their client's signature.
    RequestsUnsigned,
    /// Whatever a new primary proposes again is right.
    PlanNotChecked,
    /// A replica takes nothing along into a view change.
    ProofsDropped,
    /// Votes count, not members.
    VotesWithoutSender,
    /// Votes to commit that come before those to prepare are lost.
    EarlyCommitsDropped,
    /// The timeout stays as it is when views fail.
    TimerNotDoubled,
    /// A quorum is 2f + 1, whatever n.
    QuorumOfThree,
    /// A state is taken from anybody as it is.
    StateUnchecked,
    /// Requests that were pulled are those that were lacking, whatever they are.
    PulledUnchecked,
    /// Requests that a proposal names and a replica lacks are not pulled.
    LackingNotPulled,
    /// Words of any epoch count.
    EpochNotChecked,
    /// A change takes the place of another that is under way.
    ChangesOverlap,
    /// A change is in force at the next checkpoint, whatever places are open.
    ChangeAtOnce,
    /// Words without a signature count in any name, where connections prove names.
    NamesClaimed,
    /// The word of one member is enough for a request, where connections prove them.
    OneVouches,
    /// Whatever a primary proposes was asked for.
    ProposalsBelieved,
    /// A primary proposes what nobody else may have heard of.
    UnbackedProposed,
    /// All signatures in the beginning of a view are checked, whoever begins it.
    BegunByAnybody,
    /// A member has all answers that it asks for, at once.
    AllFetchesAnswered,
    /// Batches of any size are taken.
    SizesUnchecked,
    /// A view begins with batches that its primary lacks.
    BegunWithoutBatches,
}

impl Mutant {
    /// Those that a simulation finds within 2,000 seeds.
    pub const BY_SEEDS: &[Self] = &[
        Self::PrimaryCountedTwice,
        Self::VoteUnverified,
        Self::VoteNotDurable,
        Self::WatermarkOffByOne,
        Self::CheckpointWithoutSessions,
        Self::NoNullRequests,
        Self::OldestCertificate,
        Self::VotesNotRepeated,
        Self::RequestsUnsigned,
        Self::PlanNotChecked,
        Self::ProofsDropped,
        Self::VotesWithoutSender,
        Self::TimerNotDoubled,
        Self::QuorumOfThree,
        Self::StateUnchecked,
        Self::PulledUnchecked,
    ];

    /// Those that a simulation in which members change finds within 2,000 seeds.
    pub const BY_MEMBER_SEEDS: &[Self] =
        &[Self::EpochNotChecked, Self::ChangesOverlap, Self::ChangeAtOnce];

    /// Those that a simulation in which connections prove names finds within 2,000 seeds.
    pub const BY_CHANNEL_SEEDS: &[Self] = &[
        Self::NamesClaimed,
        Self::OneVouches,
        Self::ProposalsBelieved,
        Self::UnbackedProposed,
        Self::RequestsUnsigned,
    ];

    /// Those that a simulation does not meet: a test of the rule itself finds them.
    pub const BY_RULES: &[Self] = &[
        Self::EarlyCommitsDropped,
        Self::LackingNotPulled,
        Self::BegunWithoutBatches,
        Self::SizesUnchecked,
        Self::AllFetchesAnswered,
        Self::BegunByAnybody,
    ];
}

/// No mutant has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mutant {0:?}")]
pub struct UnknownMutant(String);

impl FromStr for Mutant {
    type Err = UnknownMutant;

    fn from_str(name: &str) -> Result<Self, UnknownMutant> {
        let by_seeds = Self::BY_SEEDS.iter().chain(Self::BY_CHANNEL_SEEDS);
        let mut all = by_seeds.chain(Self::BY_MEMBER_SEEDS).chain(Self::BY_RULES);
        let found = all.find(|mutant| format!("{mutant:?}") == name);
        found.copied().ok_or_else(|| UnknownMutant(name.to_owned()))
    }
}

node_kit::mutant_switch!(Mutant);
