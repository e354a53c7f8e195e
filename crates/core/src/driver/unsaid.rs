//! Lines and counts that a core leaves to be said without its lock: a subscriber of the log, or a
//! recorder of metrics, may ask the endpoint.

use convoke_proto::id::NodeId;
use convoke_proto::wire::Cause;

use super::Driver;
use super::ending::SUBSCRIBER;

/// Line or count that is to be said.
#[derive(Debug)]
pub(super) enum Unsaid {
    /// A frame for this node was too large.
    TooLarge(NodeId, String),
    /// A request was answered without having run.
    Refusal(Cause),
    /// A connection of this scheme has claimed the name of a node without proof.
    Unproven(NodeId, &'static str),
}

impl Driver {
    pub(super) fn say(&self, unsaid: Unsaid) {
        SUBSCRIBER.call(|| match unsaid {
            Unsaid::TooLarge(to, text) => {
                if let Some(left_out) = self.logged.too_large.pass() {
                    tracing::warn!(%to, left_out, "{text}");
                }
            }
            Unsaid::Refusal(cause) => self.telemetry.on_refusal(cause),
            Unsaid::Unproven(peer, scheme) => tracing::warn!(
                %peer, scheme, reason = "unproven",
                "connection closed: another has proven to be the peer"
            ),
        });
    }
}
