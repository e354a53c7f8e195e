//! Ranges of arguments. What is beyond them cannot be done, or would measure nothing: it is refused
//! before anything begins.

use clap::builder::RangedU64ValueParser;

/// Most seconds that a run or a request may take: a day.
const SECONDS_MAX: u64 = 86_400;

/// Seconds of a run.
pub fn seconds() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=SECONDS_MAX)
}

/// Seconds until something has to be done.
pub fn deadline() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(..=SECONDS_MAX)
}

/// Clients of this process, each with an endpoint of its own perhaps.
pub fn clients() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=10_000)
}

/// Nodes, each a process of this machine.
pub fn nodes() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=64)
}

/// Rounds, in each of which all is measured.
pub fn rounds<T: TryFrom<u64>>() -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..=1_000)
}

/// Bytes of a value in a store that takes so many.
pub fn payload(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=most as u64)
}

/// Seeds of a simulation.
pub fn seeds() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..)
}
