//! Nodes whose connections have no room for requests, as all cores of an endpoint see them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_proto::id::NodeId;
use convoke_transport::parts::Mutex;

/// Nodes for whose connection the last request was the last that it had room for. There is none
/// most of the time, and to see that takes no lock.
#[derive(Debug, Default)]
pub(super) struct FullNodes {
    has_some: AtomicBool,
    nodes: Mutex<BTreeSet<NodeId>>,
}

impl FullNodes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        !self.is_empty() && self.nodes.lock().contains(&node)
    }

    pub(super) fn insert(&self, node: NodeId) {
        let mut nodes = self.nodes.lock();
        nodes.insert(node);
        self.has_some.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn remove(&self, node: NodeId) {
        if !self.is_empty() {
            let mut nodes = self.nodes.lock();
            nodes.remove(&node);
            self.has_some.store(!nodes.is_empty(), Ordering::Release);
        }
    }
}
