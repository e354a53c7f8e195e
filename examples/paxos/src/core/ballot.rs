//! Ballots, slots, and the values that are chosen in them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use convoke::NodeId;

use super::membership::{Members, Membership};

/// The number of an attempt to lead. Greater is later; its node makes it unique.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Counts attempts, 1 or more.
    pub round: u64,
    /// The id of the node that leads it; 0 in [`Ballot::NONE`].
    pub node: u64,
}

impl Ballot {
    /// Before all ballots.
    pub const NONE: Self = Self { round: 0, node: 0 };

    /// The next one of a node that has seen this one.
    #[must_use]
    pub fn next(self, node: NodeId) -> Self {
        Self { round: self.round + 1, node: node.get() }
    }

    /// The node that leads it.
    pub fn leader(self) -> Option<NodeId> {
        NodeId::try_from(self.node).ok()
    }
}

/// A place in the log, from 1 on. Zero is the place before the first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

impl Slot {
    /// The first place.
    pub const FIRST: Self = Self(1);

    /// The place behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The place so many behind it.
    #[must_use]
    pub fn plus(self, count: usize) -> Self {
        Self(self.0.saturating_add(count as u64))
    }

    /// Places from `earlier` up to this one; 0 when it is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A voter's ledger, by the number it was given when it was made: one that was lost and made anew
/// has another, and so has memory after a restart.
pub type Life = u64;

/// Nodes with their lives.
pub type Lives = BTreeMap<NodeId, Life>;

/// Contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Nothing: fills a gap.
    Noop,
    /// The first value of every log: whose votes count, and with which ledger.
    Formation(Box<Membership>),
    /// Other members, from a window later on, if they are those of the next epoch.
    Change(Members),
    /// Commands of clients, as the replicated machine reads them.
    Commands(Bytes),
}

impl Value {
    /// Bytes it takes in messages and in memory, about.
    pub fn size(&self) -> usize {
        match self {
            Self::Noop => 16,
            Self::Formation(membership) => 32 + membership.now.size(),
            Self::Change(members) => 16 + members.size(),
            Self::Commands(commands) => 16 + commands.len(),
        }
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}.{}", self.round, self.node)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.round, self.node)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
