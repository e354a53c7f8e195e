//! Deliberate defects that the simulation must find: a check of the checks. Each is switched on at
//! one place; without the feature `mutants` the question is a constant.

/// One rule that is broken. A command line has its name with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutant {
    /// Promises leave before they are durable.
    PromiseNotDurable,
    /// Votes leave before they are durable.
    VoteNotDurable,
    /// A candidate asks others before its own promise is durable, so a restart takes the ballot
    /// again.
    BallotNotPersisted,
    /// Accepting in a ballot promises nothing.
    AcceptPromisesNothing,
    /// Votes of all ballots add up.
    VotesOfAllBallots,
    /// Half of the voters are enough.
    HalfIsEnough,
    /// A new leader takes the value of the earliest ballot.
    TakesEarliestValue,
    /// A new leader closes gaps up: later values move to earlier slots.
    GapsCloseUp,
    /// A follower takes whatever it accepted for what the leader says is chosen.
    LearnsAnyBallot,
    /// A node that has lost its ledger is counted.
    WipedNodeVotes,
    /// A read waits for what is known to be chosen, not for what was proposed.
    ReadsBelowProposed,
    /// A read does not ask if its leader still leads.
    ReadUnconfirmed,
    /// A client counts votes for a slot, whatever their ballot.
    CountsPerSlot,
    /// Votes answer commands whose result nobody knows beforehand.
    ResultFromVotes,
    /// Canvassed nodes support everybody.
    SupportsEverybody,
    /// A leader that nobody hears goes on.
    LeadsUnheard,
    /// A leader goes on that has learned another value for a slot than it proposed.
    LeadsOutvoted,
    /// A new leader proposes before it has applied what was chosen before.
    ProposesBehind,
    /// Questions of who is no member, or of a configuration that is over, are answered.
    EpochNotChecked,
    /// A change is taken while another is under way.
    WindowsOverlap,
    /// Slots of other voters are opened before these have promised.
    NextUnprepared,
    /// A leader opens four windows of slots.
    OpensBeyondWindow,
    /// A client goes on to ask a follower that has named the leader.
    StaysAtFollower,
    /// A request that has run runs again when it is sent again.
    RunsAgain,
    /// A snapshot has no sessions.
    SessionsNotInSnapshot,
}

impl Mutant {
    /// Those that a simulation finds within 2,000 seeds.
    pub const BY_SEEDS: [Self; 14] = [
        Self::VoteNotDurable,
        Self::HalfIsEnough,
        Self::TakesEarliestValue,
        Self::GapsCloseUp,
        Self::LearnsAnyBallot,
        Self::WipedNodeVotes,
        Self::ReadsBelowProposed,
        Self::SupportsEverybody,
        Self::LeadsUnheard,
        Self::ProposesBehind,
        Self::EpochNotChecked,
        Self::WindowsOverlap,
        Self::NextUnprepared,
        Self::OpensBeyondWindow,
    ];

    /// Those that a simulation meets too seldom: a test of the rule itself finds them.
    pub const BY_RULES: [Self; 6] = [
        Self::PromiseNotDurable,
        Self::BallotNotPersisted,
        Self::AcceptPromisesNothing,
        Self::VotesOfAllBallots,
        Self::ReadUnconfirmed,
        Self::LeadsOutvoted,
    ];

    /// Those that make the direct shape unsafe, each found by a test of its rule.
    pub const OF_DIRECT: [Self; 3] =
        [Self::ReadsBelowProposed, Self::CountsPerSlot, Self::ResultFromVotes];
}

node_kit::mutant_switch!(Mutant);
