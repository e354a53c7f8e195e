//! What everybody in a simulated network shares.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::topology::Topology;

/// Locks are taken in this order: a connection's, then the topology's.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) topology: Mutex<Topology>,
    /// A partition was healed.
    pub(crate) healed: Notify,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self { topology: Mutex::new(Topology::new(seed)), healed: Notify::new() }
    }
}
