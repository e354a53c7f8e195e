//! Quorum systems: which sets of members are enough.

mod grid;
mod threshold;
mod weighted;

use convoke_core::NodeId;

use crate::MemberSet;

pub use grid::Grid;
pub use threshold::{All, Byzantine, First, Majority, Threshold};
pub use weighted::Weighted;

/// Sets of members that are enough, whatever they say.
///
/// Implement it for a type of your own, and give that to `quorum`, `acked_by` or [`newest_of`] as
/// it is. A system must be *monotone*: a set that has a quorum in it is one. So it is known at once
/// when none can be reached any more: when all that have replied and all that still may are none
/// together.
///
/// [`newest_of`]: crate::newest_of
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no rule that decides a quorum call",
    label = "neither a `QuorumSystem` nor a `QuorumFunction`",
    note = "a closure is given to `.quorum_by(|replies| ..)`",
    note = "a type implements `QuorumSystem`, which members are enough, or `QuorumFunction`, what \
            their replies come to"
)]
pub trait QuorumSystem {
    /// Refuses members that can form no quorum at all. Asked before anything is sent.
    ///
    /// # Errors
    /// [`Unsuitable`] says what does not fit.
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable>;

    /// True when `present`, by their index among `members`, are a quorum.
    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool;

    /// True where a member among the leaves of a tree has failed when the node above it says so.
    /// Where nodes may lie that is no proof: the call then goes on until the member speaks for
    /// itself or the initiator finds it gone. Default true.
    fn believes_relays(&self) -> bool {
        true
    }

    /// Size of the smallest quorum of so many members, or less: until as many have replied the
    /// caller is not woken. Default 1.
    fn fewest(&self, members: usize) -> usize {
        let _ = members;
        1
    }
}

impl<S: QuorumSystem + ?Sized> QuorumSystem for &S {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        S::check(self, members)
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        S::is_quorum(self, members, present)
    }

    fn believes_relays(&self) -> bool {
        S::believes_relays(self)
    }

    fn fewest(&self, members: usize) -> usize {
        S::fewest(self, members)
    }
}

/// A quorum rule that does not fit the members it is to be used with: the caller's doing. Nothing
/// was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsuitable {
    /// Nobody is asked.
    #[error("there are no members to ask")]
    NoMembers,
    /// One node is asked twice.
    #[error("{node} is asked twice in one quorum call")]
    DuplicateMember {
        /// The node.
        node: NodeId,
    },
    /// No reply at all would be enough.
    #[error("a threshold of 0 needs no reply: use 1 or more")]
    ThresholdZero,
    /// More replies are needed than there are members, or more weight than they have.
    #[error("a threshold of {threshold} is more than the {available} there are")]
    ThresholdTooHigh {
        /// Replies or weight needed.
        threshold: u64,
        /// Replies or weight that all members together can give.
        available: u64,
    },
    /// So many Byzantine members are too many.
    #[error("{members} members cannot bear {faulty} Byzantine ones: it takes {needed}")]
    TooManyFaulty {
        /// Number of members that may be faulty.
        faulty: usize,
        /// Number of members.
        members: usize,
        /// Number of members it takes: 3f + 1.
        needed: usize,
    },
    /// The members do not fill the rows.
    #[error("{members} members are no grid of {columns} columns")]
    NoGrid {
        /// Number of members.
        members: usize,
        /// Number of members in a row.
        columns: usize,
    },
}

#[cfg(test)]
mod tests;
