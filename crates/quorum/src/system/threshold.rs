//! Systems that count members.

use convoke_core::NodeId;

use crate::MemberSet;

use super::{QuorumSystem, Unsuitable};

/// Any one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct First;

/// More than half of the members: any two majorities have a member in common. Enough when members
/// may crash; not when they may lie, see [`Byzantine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Majority;

/// Every member. One that is down makes it impossible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct All;

/// This many members, whichever. Two quorums of `k` and `l` of `n` members have one in common when
/// `k + l > n`: reads of `k` see writes of `l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold(pub usize);

/// A quorum among members of which up to `faulty` may lie: `ceil((n + f + 1) / 2)` of at least `3f
/// + 1`. Any two quorums have `f + 1` members in common, so an honest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Byzantine {
    /// Number of members that may do anything at all: `f`.
    pub faulty: usize,
}

impl Majority {
    /// Size of a majority of `count` members.
    pub const fn of(count: usize) -> usize {
        count / 2 + 1
    }
}

impl Byzantine {
    /// Size of a quorum of `count` members.
    pub const fn of(self, count: usize) -> usize {
        count.saturating_add(self.faulty).saturating_add(1).div_ceil(2)
    }
}

/// # Errors
/// [`Unsuitable`] when fewer than one or more than all are needed.
fn check_count(needed: usize, members: usize) -> Result<(), Unsuitable> {
    match needed {
        _ if members == 0 => Err(Unsuitable::NoMembers),
        0 => Err(Unsuitable::ThresholdZero),
        needed if needed > members => Err(Unsuitable::ThresholdTooHigh {
            threshold: needed as u64,
            available: members as u64,
        }),
        _ => Ok(()),
    }
}

impl QuorumSystem for First {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(1, members.len())
    }

    fn is_quorum(&self, _: &[NodeId], present: &MemberSet) -> bool {
        !present.is_empty()
    }
}

impl QuorumSystem for Majority {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(1, members.len())
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        present.len() >= Self::of(members.len())
    }

    fn fewest(&self, members: usize) -> usize {
        Self::of(members)
    }
}

impl QuorumSystem for All {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(1, members.len())
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        present.len() >= members.len()
    }

    fn fewest(&self, members: usize) -> usize {
        members
    }
}

impl QuorumSystem for Threshold {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(self.0, members.len())
    }

    fn is_quorum(&self, _: &[NodeId], present: &MemberSet) -> bool {
        present.len() >= self.0
    }

    fn fewest(&self, _: usize) -> usize {
        self.0
    }
}

impl QuorumSystem for Byzantine {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        check_count(1, members.len())?;
        let (members, faulty) = (members.len(), self.faulty);
        let needed = faulty.saturating_mul(3).saturating_add(1);
        if members < needed {
            return Err(Unsuitable::TooManyFaulty { faulty, members, needed });
        }
        Ok(())
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        present.len() >= self.of(members.len())
    }

    fn believes_relays(&self) -> bool {
        false
    }

    fn fewest(&self, members: usize) -> usize {
        self.of(members)
    }
}
