//! Messages that travel beside their requests and do not come: asked of whoever sent the request,
//! over the connection that brought it.
//!
//! ```text
//!  initiator                                    member
//!  REQUEST /0 with a reference ───────────────▶ task /0: the carrier does not bring the message
//!            ◀─────── convoke.Bodies/Get ─────── asks for it
//!            ─────────── the message ──────────▶ its handler starts
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;

use crate::carrier::CarryError;
use crate::error::{Code, Status};
use crate::transport::BoxFuture;

use super::Driver;

/// Asks a node for the message of this reference, for so long; the text says why it has none. The
/// endpoint gives it: the driver makes no calls.
pub(crate) type Pull = fn(Arc<Driver>, NodeId, Bytes, Duration) -> BoxFuture<Result<Bytes, String>>;

impl Driver {
    /// The message of a request or cast that `from` has sent: of the carrier, or else of `from`
    /// itself.
    ///
    /// # Errors
    /// The reason the carrier does not bring it, if `from` does not have it either.
    pub(super) async fn bring(
        self: &Arc<Self>,
        from: NodeId,
        reference: Bytes,
        budget: Duration,
    ) -> Result<Bytes, Status> {
        let missing = match self.carrier() {
            None => {
                let text = "the message travels beside its request, and this node has no overlay \
                            to take it from";
                Status::new(Code::FailedPrecondition, text)
            }
            Some(carrier) => match carrier.body(from, reference.clone()).await {
                Err(error @ CarryError::Missing { .. }) => error.into(),
                brought => return brought.map_err(Status::from),
            },
        };
        let pulled = (self.pull)(self.clone(), from, reference, budget).await;
        pulled.map_err(|error| {
            tracing::debug!(%from, error, "the message of a request is not at its sender either");
            missing
        })
    }
}
