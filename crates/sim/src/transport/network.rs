//! State that everybody in a simulated network shares.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::carrier;
use super::topology::Topology;

/// Locks are taken in this order: a connection's, then the topology's.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) topology: Mutex<Topology>,
    /// A partition was healed.
    pub(crate) healed: Notify,
    /// Something goes through the hose, or the network is gone.
    pub(crate) carried: Arc<Notify>,
    carrier: Mutex<Option<JoinHandle<()>>>,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            topology: Mutex::new(Topology::new(seed)),
            healed: Notify::new(),
            carried: Arc::default(),
            carrier: Mutex::default(),
        }
    }

    /// Sees to it that somebody moves frames through the hose. To be called within a runtime.
    pub(crate) fn ensure_carrier(self: &Arc<Self>) {
        let mut carrier = self.carrier.lock();
        // Its runtime may be over while the network lives on in another.
        if carrier.as_ref().is_none_or(JoinHandle::is_finished) {
            *carrier = Some(carrier::start(self));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.carried.notify_one();
    }
}
