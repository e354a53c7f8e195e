//! Deliberate defects that the simulation must find: a check of the checks.
//!
//! Each is switched on at exactly one place of the code. Without the feature `mutants` the question is a
//! constant, so nothing of this reaches a program.

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
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ChildrenNotRegistered,
        Self::NoDedupe,
        Self::HopIgnored,
        Self::FenceOnPlainProbe,
        Self::StatusOvertakesReply,
        Self::CancelAfterDecision,
        Self::QuorumByPath,
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

/// Whether this thread runs that mutant.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

/// Whether this thread runs that mutant: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn is(_: Mutant) -> bool {
    false
}
