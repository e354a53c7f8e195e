//! A ledger that was empty when its replica started, while others have gone on.
//!
//! Either the replica starts for the first time, later than others, or its ledger was lost. Without
//! it a replica may contradict what it has said, so that it counts as one that lies. Nothing tells
//! the two apart but words of the replica that others still have: its signature under a checkpoint
//! proves the loss, and then it takes no part.

use std::collections::BTreeSet;

use convoke::NodeId;

use super::NodeError;
use crate::core::{Message, Replica, Sequence, Signed};
use crate::kv::Machine;

/// A replica that knows nothing yet.
#[derive(Debug)]
pub(super) struct Blank {
    node: NodeId,
    /// Members that have not said how far they are. A replica that joins expects to be behind them.
    unheard: BTreeSet<NodeId>,
}

impl Blank {
    /// That of a replica which is about to start.
    pub(super) fn new(node: NodeId, replica: &Replica<Machine>) -> Self {
        let others = replica.members().nodes.keys().copied().filter(|other| *other != node);
        let unheard = if replica.takes_part() { others.collect() } else { BTreeSet::new() };
        Self { node, unheard }
    }

    /// Hears words of another before the replica, which has executed nothing yet.
    ///
    /// # Errors
    /// [`NodeError::LostLedger`].
    pub(super) fn hear(&mut self, words: &Signed<Message>) -> Result<(), NodeError> {
        match &words.body {
            Message::Stable(stable) if stable.signatures.contains_key(&self.node) => {
                Err(NodeError::LostLedger(stable.checkpoint.sequence))
            }
            // What it says later may have come while this replica was up.
            Message::Status(status) if self.unheard.remove(&words.by) => {
                if status.done > Sequence(0) {
                    self.unheard.clear();
                    tracing::warn!(
                        node = %self.node,
                        "the ledger was empty at the start, and {} has come to place {}: if this \
                         replica has taken part before, its ledger was lost, which counts as a \
                         fault. Stop it then, and let another take its place, with a key of its \
                         own: `pbft member add .. --in-place-of`",
                        words.by, status.done
                    );
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
