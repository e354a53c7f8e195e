//! Deliberate defects that the simulation must find: a check of the checks.
//!
//! Each is switched on at exactly one place of the code. Without the feature `mutants` the question
//! is a constant, so nothing of this reaches a program.

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A manifest entry closes its branch without registering the children.
    ChildrenNotRegistered,
    /// A second copy of a request runs again.
    NoDedupe,
    /// Any word of a holder counts, however old its hop is.
    HopIgnored,
    /// A plain probe fences what it does not find.
    FenceOnPlainProbe,
    /// STATUS of a closed task takes the control lane, where it overtakes replies.
    StatusOvertakesReply,
    /// A decision cancels the rest though nobody asked for that.
    CancelAfterDecision,
    /// The simulation's own callers count replies rather than nodes.
    QuorumByPath,
    /// A branch that fails still owes the replies that it declared.
    FailedOwes,
    /// Nothing wakes a call for its deadline.
    DeadlineWakesNobody,
    /// A branch has the time that is left to its call, not to its task.
    TimeOfCall,
    /// A branch that is found lost does not fail.
    LossIgnored,
    /// A copy of a reply is delivered, too.
    CopiesDelivered,
    /// A branch that has failed fails again, by its own word.
    FailsAgain,

    // The rules of settlement (`settlement.md` sections 9 and 11).
    /// A cancelled call counts as settled with its end.
    FloorPassesCancelled,
    /// A call that ended with failures counts as settled with its end.
    FloorPassesFailures,
    /// A call is settled when its root branches have their word.
    OnlyRootsNeedWord,
    /// The branches that a failing task takes along need no word.
    AbortedForgotten,
    /// Nobody is asked what is settled.
    NobodyAsked,
    /// The settled calls of an origin are forgotten with the last record of it.
    IntervalsGoWithLastRecord,
    /// It is known for as long as the last record that went, not the longest.
    IntervalsLiveAsLastRecord,
    /// A statement takes the place of those before it.
    StatementReplaces,
    /// A statement is taken without its exceptions.
    ExceptionsIgnored,
    /// Exceptions that find no room are left out of what is still said.
    ExceptionsCut,
    /// The floor of any request is believed.
    AnybodysFloor,
    /// Nothing is left of a task that another node said to be over.
    NoStubs,
    /// A failure that the initiator guesses counts as the word of the branch.
    GuessIsWord,
    /// Running tasks of a settled call are stopped.
    RunningDropped,
    /// A request that meets a cancel mark is dropped in silence.
    MarkWithoutWord,
    /// A task that has no time left ends in silence.
    ExpiryWithoutWord,
    /// A branch that is handed on has its word.
    TailIsWord,
    /// A node that did not open a call says of it as a whole what is over.
    TasksNotNamed,
    /// A refused request takes the entries that it carried with it.
    RefusalDropsInherited,
    /// A fence is answered and not kept.
    FenceNotKept,
    /// A call that was flat takes the first frame for which it grows without the entries that it
    /// carries.
    GrowingForgetsInherited,
    /// A branch that moved on may be fenced as if it were where its request went.
    TailKeepsRootLink,

    // The rules of trust (`trust.md` section 7).
    /// Anybody who speaks for a branch is believed.
    NoKeys,
    /// A request with another key, from anybody, is a copy.
    KeyNotInIdentity,
    /// Carried entries are believed as they come.
    NoSeals,
    /// A seal is of the name of a task, not of what it declares.
    SealWithoutContent,
    /// All branches of a call have one key.
    OneKeyForCall,
    /// Anybody who says a life is the origin of its calls.
    OriginByLife,
    /// A life is of the node that says it first.
    LifeOfFirst,
    /// A node that says to live the initiator's life cancels all below a prefix.
    CancelByLife,
    /// Anybody cancels all below a prefix.
    CancelByPrefix,
    /// A fence or mark is for every key.
    FenceWithoutKey,
    /// A node that speaks without right fails the branch.
    UnaskedFailsBranch,
    /// The initiator of a call is whom its first request here named.
    RouteOfFirst,
    /// Anybody who shows the key may say that a task did not run.
    NotRunFromAnyHolder,
    /// A node that was asked for one root branch speaks for all.
    AnyAskedSpeaksForRoots,
    /// A STATUS counts without the key of its task.
    StatusWithoutKey,
    /// A branch that takes too much exhausts its call.
    BoundsShared,
    /// A contradiction ends its call.
    ContradictionEndsCall,

    // The rules of shares (`trust.md` section 6).
    /// The first to come may take all.
    AlphaNotApplied,
    /// A record is paid by the initiator of its call, not by who sent the request.
    PaidByOrigin,
    /// The share that a task took as it grew is not given back.
    GrownKeepsShare,

    // Streamed requests.
    /// The end of their connection is taken for the end of the items.
    LostItemsAreComplete,
    /// Items that a handler reads make no room for more.
    ItemsWithoutGrants,

    // Cores (`streams.md`).
    /// A life is compared with its stream.
    LifeWithStream,
    /// A core does not hear what the others have taken.
    CoresDoNotHear,

    // Nodes that stop.
    /// Requests are sent to a node that has said that it takes none any more.
    LeavingUnheard,
    /// Requests that have left are not counted, so that none is waited for.
    SentNotCounted,

    // Casts and quorum calls: found by the tests of these, not by the swarm of calls.
    /// A request that was handed on begins a round about its call, too.
    DelegatedJoins,
    /// A tag that was voted on may be voted on again.
    ClosedTagForgotten,
    /// The casts of a mailbox expire with the first of them.
    ExpiryOfFirst,
    /// Anybody's casts are kept.
    StrangersCast,
    /// One sender may take all the room that there is for casts.
    CastsWithoutShares,
    /// Branches end by the word of the task above, also where that is not to be believed.
    HearsayEndsBranch,
    /// A call that was voted on may be voted on again.
    ClosedCallForgotten,
    /// A tag below the floor may be voted on again.
    FloorForgotten,
    /// One member may begin any number of tags.
    WindowIgnored,
    /// Any one member has a tag announced.
    AnnouncedByAnyone,
    /// A copy of a vote counts again.
    CopiesCount,
    /// A second, different vote of a member counts, too.
    SecondVoteCounts,
    /// A vote counts for the member whose place it claims.
    PlaceBelieved,
    /// Votes of another epoch count.
    EpochIgnored,
    /// A member that has voted votes again, when a rule holds for something else.
    VotesTwice,
    /// Members that are down are not waited for, though a round about a tag has time.
    DownForGood,
    /// Hopelessness is reckoned without what liars may have told others.
    HopeWithoutLiars,
    /// A round that waits is woken for its quorum alone, not for what a rule casts.
    RulesWakeNobody,
    /// Votes leave though they are held.
    HeldLeaves,
    /// Votes that could not be sent are not said again.
    MissedForgotten,
    /// Votes count that the verifier refuses.
    RefusedCounts,
    /// A member that floods a stream is read before all others.
    TurnsIgnored,
    /// Votes that come before their epoch are dropped.
    LaterDropped,
}

impl Mutant {
    /// Those of casts and of quorum calls in trees.
    pub const OF_QUORUMS: [Self; 23] = [
        Self::DelegatedJoins,
        Self::ClosedTagForgotten,
        Self::ExpiryOfFirst,
        Self::StrangersCast,
        Self::CastsWithoutShares,
        Self::HearsayEndsBranch,
        Self::ClosedCallForgotten,
        Self::FloorForgotten,
        Self::WindowIgnored,
        Self::AnnouncedByAnyone,
        Self::CopiesCount,
        Self::SecondVoteCounts,
        Self::PlaceBelieved,
        Self::EpochIgnored,
        Self::VotesTwice,
        Self::DownForGood,
        Self::HopeWithoutLiars,
        Self::RulesWakeNobody,
        Self::HeldLeaves,
        Self::MissedForgotten,
        Self::RefusedCounts,
        Self::TurnsIgnored,
        Self::LaterDropped,
    ];

    /// All others.
    pub const ALL: [Self; 61] = [
        Self::ChildrenNotRegistered,
        Self::NoDedupe,
        Self::HopIgnored,
        Self::FenceOnPlainProbe,
        Self::StatusOvertakesReply,
        Self::CancelAfterDecision,
        Self::QuorumByPath,
        Self::FailedOwes,
        Self::DeadlineWakesNobody,
        Self::TimeOfCall,
        Self::LossIgnored,
        Self::CopiesDelivered,
        Self::FailsAgain,
        Self::FloorPassesCancelled,
        Self::FloorPassesFailures,
        Self::OnlyRootsNeedWord,
        Self::AbortedForgotten,
        Self::NobodyAsked,
        Self::IntervalsGoWithLastRecord,
        Self::IntervalsLiveAsLastRecord,
        Self::StatementReplaces,
        Self::ExceptionsIgnored,
        Self::ExceptionsCut,
        Self::AnybodysFloor,
        Self::NoStubs,
        Self::GuessIsWord,
        Self::RunningDropped,
        Self::MarkWithoutWord,
        Self::ExpiryWithoutWord,
        Self::TailIsWord,
        Self::TasksNotNamed,
        Self::RefusalDropsInherited,
        Self::FenceNotKept,
        Self::GrowingForgetsInherited,
        Self::TailKeepsRootLink,
        Self::NoKeys,
        Self::KeyNotInIdentity,
        Self::NoSeals,
        Self::SealWithoutContent,
        Self::OneKeyForCall,
        Self::OriginByLife,
        Self::LifeOfFirst,
        Self::CancelByLife,
        Self::CancelByPrefix,
        Self::FenceWithoutKey,
        Self::UnaskedFailsBranch,
        Self::RouteOfFirst,
        Self::NotRunFromAnyHolder,
        Self::AnyAskedSpeaksForRoots,
        Self::StatusWithoutKey,
        Self::BoundsShared,
        Self::ContradictionEndsCall,
        Self::AlphaNotApplied,
        Self::PaidByOrigin,
        Self::GrownKeepsShare,
        Self::LostItemsAreComplete,
        Self::ItemsWithoutGrants,
        Self::LifeWithStream,
        Self::CoresDoNotHear,
        Self::LeavingUnheard,
        Self::SentNotCounted,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches this thread to one mutant, or back to the real protocol.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    CURRENT.set(mutant);
}

/// True when this thread runs that mutant.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

/// True when this thread runs that mutant: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn is(_: Mutant) -> bool {
    false
}
