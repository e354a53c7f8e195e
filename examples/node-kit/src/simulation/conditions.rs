//! Conditions of a run: how many clients, how slow all is, and which faults there are.

use std::time::Duration;

/// Conditions of a run. A program draws them beside those of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Clients.
    pub clients: u64,
    /// Keys.
    pub keys: u64,
    /// The longest pause between two calls of a client.
    pub pause: Duration,
    /// Time of a message.
    pub latency: Duration,
    /// The most that is added to it.
    pub jitter: Duration,
    /// The longest time of a sync.
    pub sync: Duration,
    /// Syncs that fail, per mille: the node then stops, and starts again.
    pub failing_syncs: u32,
    /// The longest pause between two faults.
    pub fault: Duration,
    /// Time with faults.
    pub faulty_for: Duration,
}
