//! Frames that did not count: who speaks without right changes nothing, and is counted (`trust.md`
//! T9).

use std::fmt;

/// Attempt that a frame made which did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ignored {
    /// It spoke for a branch of a call of this node, without its key.
    SpeaksForOther,
    /// It gave orders to a task of this node, without its key.
    OrdersOther,
}

/// Numbers of frames that did not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredCounts {
    /// See [`Ignored::SpeaksForOther`].
    pub speaks_for_other: u64,
    /// See [`Ignored::OrdersOther`].
    pub orders_other: u64,
}

impl IgnoredCounts {
    pub(super) fn note(&mut self, why: Ignored) {
        match why {
            Ignored::SpeaksForOther => self.speaks_for_other += 1,
            Ignored::OrdersOther => self.orders_other += 1,
        }
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.speaks_for_other + self.orders_other
    }
}

impl std::ops::Add for IgnoredCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            speaks_for_other: self.speaks_for_other + other.speaks_for_other,
            orders_other: self.orders_other + other.orders_other,
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SpeaksForOther => "it spoke for a branch without its key",
            Self::OrdersOther => "it gave orders to a task without its key",
        })
    }
}
