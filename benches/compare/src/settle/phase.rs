//! Phases: the events beside the ordinary calls.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Phases of the measurement, each set apart by one kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// All calls are echoes.
    Calm,
    /// One of a hundred fails with `NotFound`, or what the system has for it.
    NotFound,
    /// One of a hundred is no call: its caller rests as long as one that is cancelled waits.
    /// The control of the phase below, since 64 callers that answers bring in step fall out of it.
    Rested,
    /// One of a hundred is cancelled while its handler waits.
    Cancelled,
    /// One is open from the begin of the phase to its end.
    OneOpen,
    /// The server is killed after a third of the phase, and started again a second later.
    Restarted,
}

impl Phase {
    /// All but the calm one.
    pub const TROUBLED: [Self; 5] =
        [Self::NotFound, Self::Rested, Self::Cancelled, Self::OneOpen, Self::Restarted];

    /// As in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::NotFound => "not-found",
            Self::Rested => "rested",
            Self::Cancelled => "cancelled",
            Self::OneOpen => "one-open",
            Self::Restarted => "restarted",
        }
    }

    /// The kind of the call of this number.
    pub(super) fn kind_of(self, number: u64) -> Kind {
        match self {
            Self::NotFound if number % 100 == 99 => Kind::NotFound,
            Self::Rested if number % 100 == 99 => Kind::Rest,
            Self::Cancelled if number % 100 == 99 => Kind::Cancelled,
            _ => Kind::Echo,
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Echo,
    NotFound,
    Rest,
    Cancelled,
}
