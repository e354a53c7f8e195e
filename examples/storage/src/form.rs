//! Forms of a write, by who leads its echo phases, and how many phases there are.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Forms of a write, by who leads the echo phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The replicas, by casts: echo phases of the call.
    Echo,
    /// The replicas, by quorum calls to all of them inside their handlers: the form of the paper.
    Nested,
    /// The client, by a quorum call for each phase.
    Client,
}

/// How many echo phases follow the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phases {
    /// `Write`.
    None,
    /// `Write + Echo`.
    One,
    /// `Write + Echo + Echo`.
    Two,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Echo, Self::Nested, Self::Client];

    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Nested => "nested",
            Self::Client => "client",
        }
    }

    /// Frames of a write to `members` replicas, with all answers, when nobody fails and the client
    /// is none of them.
    pub fn frames(self, members: u64, phases: Phases) -> u64 {
        let (p, write) = (u64::from(phases.count()), 2 * members);
        match self {
            Self::Echo => write + p * members * (members - 1),
            Self::Nested => write + 2 * p * members * (members - 1),
            Self::Client => write + p * write,
        }
    }

    /// One-way delays of a write, when all are the same.
    pub fn delays(self, phases: Phases) -> u32 {
        match self {
            Self::Echo => 2 + phases.count(),
            Self::Nested | Self::Client => 2 + 2 * phases.count(),
        }
    }
}

impl Phases {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::One, Self::Two];

    /// How many.
    pub fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Name of the write in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "Write",
            Self::One => "Write + Echo",
            Self::Two => "Write + Echo + Echo",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|form| form.name() == text);
        found.ok_or_else(|| format!("{text:?} is no form: echo, nested or client"))
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count().fmt(f)
    }
}

impl FromStr for Phases {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|phases| phases.to_string() == text);
        found.ok_or_else(|| format!("{text:?} is no number of phases: 0, 1 or 2"))
    }
}

impl Serialize for Phases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.count())
    }
}
