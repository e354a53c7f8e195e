//! Batches that were executed, wherever that was.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::NodeId;
use node_kit::simulation::Violation;
use parking_lot::Mutex;

use crate::core::{Digest, Sequence};
use crate::node::Observer;

/// Batches by their places, as nodes that do not lie have executed them.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    executed: BTreeMap<Sequence, Digest>,
    violation: Option<Violation>,
}

impl Truth {
    /// Eyes on a node that does not lie.
    pub(super) fn observer(&self, node: NodeId) -> Observer {
        let known = Arc::clone(&self.0);
        Observer::new(move |sequence, second| known.lock().executed(node, sequence, second))
    }

    /// The first violation that was seen, if there was one.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.0.lock().violation.clone().map_or(Ok(()), Err)
    }
}

impl Known {
    fn executed(&mut self, node: NodeId, sequence: Sequence, second: Digest) {
        let first = *self.executed.entry(sequence).or_insert(second);
        if first != second {
            let broken = format!(
                "{node} executes {second:?} in place {sequence}, where {first:?} was executed before"
            );
            self.violation.get_or_insert(Violation::Broken(broken));
        }
    }
}
