//! Lines between the lab and the two ends of a path.

use serde::{Deserialize, Serialize};

use crate::wire::Wire;

/// First line to an end; it answers with the addresses at which it listens.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) wire: Wire,
    /// The address at which to listen. None of the end that calls.
    pub(crate) listen: Option<String>,
    /// Identity of the end, where the transport wants one.
    pub(crate) identity: Option<Pems>,
}

/// A certificate, its key, and the authority to trust, as PEM.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pems {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) trust: String,
}

/// Calls to make; the answer is what became of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// The other end.
    pub(crate) address: String,
    /// Calls a second, whoever waits.
    pub(crate) per_second: f64,
    /// Calls at once, at most.
    pub(crate) callers: usize,
    /// Size of each request and of each reply.
    pub(crate) bytes: usize,
    /// Size of the large replies that one more caller asks for, one after the other; 0 for no such
    /// caller.
    pub(crate) bulk_bytes: u32,
    /// Seconds before anything is counted.
    pub(crate) warm_up: u64,
    /// Seconds that are counted.
    pub(crate) seconds: u64,
}

/// Results of calls. Latencies begin when a call should have begun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Called {
    /// Calls that were answered, a second.
    pub(crate) per_second: f64,
    /// Half of the calls took no longer than this.
    pub(crate) p50_ms: f64,
    /// 99 in 100.
    pub(crate) p99_ms: f64,
    /// 999 in 1,000.
    pub(crate) p999_ms: f64,
    /// The longest.
    pub(crate) max_ms: f64,
    /// Calls that failed.
    pub(crate) failed: u64,
    /// Calls that found no caller until the end, as those do that become due with it.
    pub(crate) not_begun: u64,
    /// The first failure, in words.
    pub(crate) complaint: Option<String>,
    /// Rate of the large replies, Mbit/s.
    pub(crate) bulk_mbit: f64,
}
