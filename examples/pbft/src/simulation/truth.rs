//! Batches that were executed, wherever that was.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::NodeId;
use parking_lot::Mutex;

use super::Violation;
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
            let violation = Violation::TwoBatches { node, sequence, first, second };
            self.violation.get_or_insert(violation);
        }
    }
}
