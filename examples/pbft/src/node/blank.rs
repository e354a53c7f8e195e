//! A ledger that was empty when its replica started, while others have gone on.
//!
//! Either the replica starts for the first time, later than others, or its ledger was lost. Without
//! it a replica may contradict what it has said, so that it counts as one that lies. Nothing tells
//! the two apart but words of the replica that others still have: its signature under a checkpoint
//! proves the loss, and then it takes no part.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;
use tokio::sync::mpsc;

use super::NodeError;
use super::actor::Input;
use crate::core::{Message, Replica, Sequence, Signed};
use crate::kv::Machine;
use crate::proto::{InspectRequest, PbftClient};

/// Members answer within this time how far they are, or tell it with their first report.
const WITHIN: Duration = Duration::from_secs(10);

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

    /// Asks the members how far they are. The replica has said nothing yet, so that their answers
    /// rest on no vote of this life: those would soon bring it to where they are.
    pub(super) fn ask(&self, client: &PbftClient, inputs: mpsc::Sender<Input>) {
        let question = client.inspect(InspectRequest { with_state: false });
        let others = self.unheard.iter().copied();
        let Ok(mut call) = question.to_all(others).deadline(WITHIN).open() else { return };
        tokio::spawn(async move {
            while let Some(answer) = call.next().await {
                let Ok(answer) = answer else { continue }; // it reports once it is up
                let by = answer.from();
                let executed = Sequence(answer.into_inner().executed);
                if inputs.send(Input::GoneOn { by, executed }).await.is_err() {
                    break;
                }
            }
        });
    }

    /// Hears words of another before the replica, which has executed this much.
    ///
    /// # Errors
    /// [`NodeError::LostLedger`].
    pub(super) fn hear(
        &mut self,
        words: &Signed<Message>,
        executed: Sequence,
    ) -> Result<(), NodeError> {
        match &words.body {
            _ if executed > Sequence(0) => Ok(()),
            Message::Stable(stable) if stable.signatures.contains_key(&self.node) => {
                Err(NodeError::LostLedger(stable.checkpoint.sequence))
            }
            Message::Status(status) => {
                self.told(words.by, status.done);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A member has come to this place. Places of which it tells later may have come while this
    /// replica was up.
    pub(super) fn told(&mut self, by: NodeId, place: Sequence) {
        if self.unheard.remove(&by) && place > Sequence(0) {
            self.unheard.clear();
            tracing::warn!(
                node = %self.node,
                "the ledger was empty at the start, and {by} has come to place {place}: if this \
                 replica has taken part before, its ledger was lost, which counts as a fault. Stop \
                 it then, and let another take its place, with a key of its own: `pbft member add \
                 .. --in-place-of`"
            );
        }
    }
}
