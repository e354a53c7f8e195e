//! Members as a client learns of them, and changes of them.

use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;
use convoke::quorum::Configuration;

use super::{Client, ClientError};
use crate::core::{Change, Changed, Handover, Members, Scope, View};
use crate::proto::{Handovers, Since};
use crate::wire;

/// Time for one node to say what it knows.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

impl Client {
    /// Changes the members, as their administrator. Taken, the change is in force behind the place
    /// that the result names, which [`learn`](Self::learn) shows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change(&mut self, change: &Change) -> Result<Changed, ClientError> {
        let result = self.ask(wire::encode(change)).await?;
        wire::decode(result).map_err(|_| {
            ClientError::Refused("this client is not the administrator of the cluster".to_owned())
        })
    }

    /// Members of the latest epoch that this client knows of.
    pub fn members(&self) -> &Members {
        &self.latest
    }

    /// Learns of the members that have come since, from f + 1 nodes. They show proofs, of which the
    /// client has the keys of the first, and each brings those of the next. A client all of whose
    /// members have left needs a newer cluster file.
    ///
    /// Gives the count of nodes that have answered. With fewer than f + 1 there may be
    /// [members](Self::members) that nobody has told of.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it keeps what it has learned.
    pub async fn learn(&mut self) -> usize {
        let mut answers = 0;
        for node in self.nodes.nodes().collect::<Vec<_>>() {
            if self.learn_from(node).await {
                answers += 1;
            }
            if answers >= self.keys.group().witnesses() {
                break;
            }
        }
        answers
    }

    /// True when the node has said all that it knows.
    async fn learn_from(&mut self, node: NodeId) -> bool {
        loop {
            let Scope { cluster, epoch } = self.keys.scope();
            let since = Since { epoch, cluster };
            let asked = self.client.hand_over(since).to(node).deadline(ANSWER_WITHIN).await;
            let Ok(Handovers { handovers }) = asked else { return false };
            if handovers.is_empty() {
                return true;
            }
            for proof in handovers {
                if !self.take(proof) {
                    return false;
                }
            }
        }
    }

    /// Takes the proof that the epoch known here has ended. False when it proves something else.
    fn take(&mut self, proof: Bytes) -> bool {
        let handover = wire::decode::<Handover>(proof).ok();
        let handover = handover.and_then(|handover| self.keys.open_handover(handover).ok());
        let Some(handover) = handover.map(|handover| handover.into_inner()) else { return false };
        let nodes: Vec<NodeId> = handover.members.nodes.keys().copied().collect();
        let (Ok(keys), Ok(members)) = (self.keys.after(&handover), Configuration::new(nodes))
        else {
            return false;
        };
        for (node, member) in &handover.members.nodes {
            if !member.addresses.is_empty()
                && let Err(error) = self.endpoint.peer(*node, &member.addresses)
            {
                tracing::warn!("the addresses of member {node}: {error}");
            }
        }
        self.primary = keys.primary(View(0));
        (self.keys, self.nodes, self.latest) = (keys.into(), members, handover.members);
        true
    }
}
