//! Members, quorums, and the numbers that order everything.

use std::fmt;

use convoke::NodeId;

use super::sizes;
use crate::mutant::{self, Mutant};

/// The number of a configuration of roles: its primary is one member after the other.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View(pub u64);

impl View {
    /// The view behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A place in the order of batches, from 1 on. Zero is the place before the first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The place behind it.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The place so many behind it.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// The name of a client. Its key is a part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// SHA-256 of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes. They say themselves what they are, by a first word of their own.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        Self(digest)
    }
}

/// Members of a cluster: n, of whom f may lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    members: Vec<NodeId>,
}

/// A cluster without members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster needs a member")]
pub struct NoMembers;

/// So many members have more places open above a checkpoint than a view can begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "with {members} replicas a view could begin with more than a message holds: set \
     checkpoint_every to {} at most", .most / 2
)]
pub struct TooOpen {
    members: usize,
    most: u64,
}

impl Group {
    /// A cluster of these, each counted once.
    ///
    /// # Errors
    /// [`NoMembers`].
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Result<Self, NoMembers> {
        let mut members: Vec<NodeId> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        if members.is_empty() { Err(NoMembers) } else { Ok(Self { members }) }
    }

    /// All members, in order.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// True for a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// The primary of a view.
    pub fn primary(&self, view: View) -> NodeId {
        let index = view.0 % self.members.len() as u64;
        self.members[usize::try_from(index).unwrap_or(0)]
    }

    /// f, the most members that may lie: n >= 3f + 1.
    pub fn faults(&self) -> usize {
        (self.members.len() - 1) / 3
    }

    /// Members of whom any two sets share f + 1, so one that does not lie: the least q with
    /// 2q - n > f. It is 2f + 1 only where n is 3f + 1.
    pub fn quorum(&self) -> usize {
        if mutant::is(Mutant::QuorumOfThree) {
            return 2 * self.faults() + 1;
        }
        (self.members.len() + self.faults() + 1).div_ceil(2)
    }

    /// Places above a checkpoint that may be open, at most: a view begins with word of a quorum
    /// about all of them, in one message.
    pub fn window_max(&self) -> u64 {
        sizes::window_max(self.quorum())
    }

    /// Checks that a view can begin where so many places may be open.
    ///
    /// # Errors
    /// [`TooOpen`]: how many there may be.
    pub fn check_window(&self, window: u64) -> Result<(), TooOpen> {
        let (members, most) = (self.members.len(), self.window_max());
        if window > most { Err(TooOpen { members, most }) } else { Ok(()) }
    }

    /// Members of whom one does not lie: f + 1.
    pub fn witnesses(&self) -> usize {
        self.faults() + 1
    }

    /// Members of whom f + 1 do not lie: 2f + 1. As many are there without the liars.
    pub fn backers(&self) -> usize {
        2 * self.faults() + 1
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_share_one_that_does_not_lie() {
        for n in 1..40 {
            let group = Group::new((1..=n).map(NodeId::new)).unwrap();
            let (n, f, q) = (group.members().len(), group.faults(), group.quorum());
            assert!(n > 3 * f && 2 * q > n + f && 2 * (q - 1) <= n + f, "{n} {f} {q}");
            assert!(q <= n - f, "without the liars there is a quorum: {n} {f} {q}");
            assert!(group.backers() <= n - f, "and so many that all believe: {n} {f}");
        }
    }
}
