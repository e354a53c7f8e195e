//! Deliberate defects that the tests must find: a check of the checks. Each is switched on at one
//! place; without the feature `mutants` the question is a constant.

/// One rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A majority of echoes is enough to be ready.
    MajorityEchoes,
    /// Nobody is ready because others are.
    NoAmplification,
    /// As many others as may lie are enough to be ready.
    AmplifiesEarly,
    /// Delivers on so few that are ready that others may never be.
    DeliversEarly,
    /// Takes the value that comes with a digest for the digest's.
    SentUnchecked,
    /// Takes what any member sends for the source's.
    AnybodySends,
    /// Delivers whatever value is here.
    DeliversUnchecked,
    /// Forgets what was delivered above the floor.
    DeliversTwice,
    /// A source may have any number of broadcasts under way.
    WindowIgnored,
    /// The floor of a source stays where it is.
    FloorStays,
    /// Says nothing again to a member that is back.
    RepeatsNothing,
    /// Asks nobody for what it lacks.
    AsksNobody,
    /// Forgets at once what it has said.
    RemembersNothing,
    /// Deliveries that the application has not taken keep it from the votes.
    WaitsForTaker,
}

impl Mutant {
    /// Those of one broadcast.
    pub const OF_PROTOCOL: [Self; 7] = [
        Self::MajorityEchoes,
        Self::NoAmplification,
        Self::AmplifiesEarly,
        Self::DeliversEarly,
        Self::SentUnchecked,
        Self::AnybodySends,
        Self::DeliversUnchecked,
    ];

    /// Those of all broadcasts of a source.
    pub const OF_SOURCES: [Self; 3] = [Self::DeliversTwice, Self::WindowIgnored, Self::FloorStays];

    /// Those of a member that loses votes.
    pub const OF_LOSSES: [Self; 3] =
        [Self::RepeatsNothing, Self::AsksNobody, Self::RemembersNothing];
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

#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
