//! The benches, and the forms that a call over several servers can have.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One question. Its name says what an operation is; docs/benchmarks.md says it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// An echo of 100 bytes, one at a time.
    UnaryLatency,
    /// The same, 64 in flight over one connection.
    UnaryThroughput,
    /// The same, of which one of [`REFUSED_EVERY`] is refused as not found.
    UnaryErrors,
    /// An echo of 4 KiB, 64 in flight over one connection.
    UnaryThroughput4Kib,
    /// An echo of 1 MiB, one at a time.
    Large,
    /// One request, answered with [`ITEMS`] items of 100 bytes.
    StreamItems,
    /// A request that visits this many servers, one after another.
    Hops {
        /// How many servers.
        servers: usize,
        /// How many requests at a time.
        in_flight: usize,
    },
    /// A request to one server that leads to this many others at once.
    Fanout {
        /// How many others.
        leaves: usize,
    },
    /// A request to [`MEMBERS`] servers, done with [`QUORUM`] answers, by 16 callers.
    Quorum,
}

/// Items of one stream.
pub const ITEMS: u32 = 1_000;
/// Servers asked by a quorum call.
pub const MEMBERS: usize = 4;
/// Answers that decide it.
pub const QUORUM: usize = 3;
/// Of this many operations one is refused, where a bench is about errors.
pub const REFUSED_EVERY: usize = 100;

impl Bench {
    /// All, in the order of the table.
    pub const ALL: [Self; 22] = [
        Self::UnaryLatency,
        Self::UnaryThroughput,
        Self::UnaryErrors,
        Self::UnaryThroughput4Kib,
        Self::Large,
        Self::StreamItems,
        hops(1, 1),
        hops(2, 1),
        hops(3, 1),
        hops(4, 1),
        hops(5, 1),
        hops(7, 1),
        hops(10, 1),
        hops(5, 32),
        fanout(1),
        fanout(2),
        fanout(3),
        fanout(4),
        fanout(5),
        fanout(7),
        fanout(10),
        Self::Quorum,
    ];

    /// Operations at a time.
    pub fn in_flight(self) -> usize {
        match self {
            Self::UnaryThroughput | Self::UnaryErrors | Self::UnaryThroughput4Kib => 64,
            Self::Hops { in_flight, .. } => in_flight,
            Self::Quorum => 16,
            Self::UnaryLatency | Self::Large | Self::StreamItems | Self::Fanout { .. } => 1,
        }
    }

    /// True when the server is to refuse the operation of this turn.
    pub fn refuses(self, turn: usize) -> bool {
        self == Self::UnaryErrors && turn.is_multiple_of(REFUSED_EVERY)
    }

    /// Bytes of a request's payload, and of each answer's.
    pub fn payload_bytes(self) -> usize {
        match self {
            Self::UnaryThroughput4Kib => 4 << 10,
            Self::Large => 1 << 20,
            _ => 100,
        }
    }

    /// Server processes it takes.
    pub fn servers(self) -> usize {
        match self {
            Self::Hops { servers, .. } => servers,
            Self::Fanout { leaves } => 1 + leaves,
            Self::Quorum => MEMBERS,
            _ => 1,
        }
    }

    /// True when it has a form for each way to lead a call over several servers.
    pub fn has_forms(self) -> bool {
        matches!(self, Self::Hops { .. } | Self::Fanout { .. })
    }

    /// One-way trips between the request and its last answer, in one of the forms.
    pub fn trips(self, form: Form) -> usize {
        match (self, form) {
            (Self::Hops { servers, .. }, Form::Tree) => servers + 1,
            (Self::Hops { servers, .. }, Form::Client | Form::Nested) => 2 * servers,
            (Self::Fanout { .. }, Form::Tree) => 3,
            (Self::Fanout { .. }, Form::Client | Form::Nested) => 4,
            _ => 2,
        }
    }
}

const fn hops(servers: usize, in_flight: usize) -> Bench {
    Bench::Hops { servers, in_flight }
}

const fn fanout(leaves: usize) -> Bench {
    Bench::Fanout { leaves }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnaryLatency => f.write_str("unary_latency_100b"),
            Self::UnaryThroughput => f.write_str("unary_throughput_64_inflight"),
            Self::UnaryErrors => f.write_str("unary_throughput_64_errors"),
            Self::UnaryThroughput4Kib => f.write_str("unary_throughput_4kib"),
            Self::Large => f.write_str("large_1mib"),
            Self::StreamItems => f.write_str("stream_items"),
            Self::Hops { servers, in_flight: 1 } => write!(f, "hops_{servers}"),
            Self::Hops { servers, in_flight } => write!(f, "hops_{servers}_{in_flight}_inflight"),
            Self::Fanout { leaves } => write!(f, "fanout_{leaves}"),
            Self::Quorum => f.write_str("quorum_3_of_4_16_callers"),
        }
    }
}

/// Forms of a call over several servers, by who leads it from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Each server delegates, and the last answer the client.
    Tree,
    /// The client asks one after another.
    Client,
    /// Each server asks the next, waits, and answers whoever asked it.
    Nested,
}

impl Form {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Client, Self::Nested];

    /// As in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Client => "client",
            Self::Nested => "nested",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_hops_saves_all_but_one_of_the_trips_back() {
        assert_eq!(hops(1, 1).trips(Form::Tree), hops(1, 1).trips(Form::Client));
        assert_eq!((hops(5, 1).trips(Form::Tree), hops(5, 1).trips(Form::Nested)), (6, 10));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = Bench::ALL.iter().map(Bench::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Bench::ALL.len());
    }
}
