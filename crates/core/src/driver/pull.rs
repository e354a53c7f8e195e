//! Messages that travel beside their requests and do not come: asked of whoever sent the request,
//! while that is connected. Nobody is dialled for it.
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
use convoke_proto::task::TaskFailure;
use convoke_proto::visits::Start;
use convoke_proto::wire::{Cause, Executed};

use crate::carrier::CarryError;
use crate::error::{Code, Status};
use crate::transport::BoxFuture;

use super::Driver;

/// Asks a node for the message of this reference, for so long; the text says why it has none. The
/// endpoint gives it: the driver makes no calls.
pub(crate) type Pull = fn(Arc<Driver>, NodeId, Bytes, Duration) -> BoxFuture<Result<Bytes, String>>;

impl Driver {
    /// The message of a request that is beside it, for as long as its task may run. Whoever brought
    /// the request pays for the message as for one in it, and from when it is asked for: whoever
    /// asks has room for the largest one. So that room also bounds the calls that ask.
    ///
    /// # Errors
    /// The failure for the task, which did not run.
    pub(super) async fn bring_body(
        self: &Arc<Self>,
        start: &Start,
        reference: Bytes,
    ) -> Result<Bytes, TaskFailure> {
        let Start { ref task, from, link, deadline, .. } = *start;
        let origin = task.call.origin;
        let reserve = || {
            self.with_node(origin, |node, _| {
                let links = node.links();
                match links.is_up(link) || links.current(from).is_some() {
                    true => node.reserve_request(task),
                    false => Err(not_begun(Status::new(Code::Unavailable, GONE))),
                }
            })
        };
        let body = self.bring(from, reference, deadline.since(self.now()), reserve).await?;
        let (size, limit) = (body.len(), self.limits.message_bytes_max);
        if size > limit {
            let text = format!("a message of {size} bytes is larger than the limit of {limit}");
            return Err(TaskFailure::new(Cause::BadRequest, Executed::No, text));
        }
        self.with_node(origin, |node, _| node.resize_request(task, body.len()))?;
        Ok(body)
    }

    /// The message of a request or cast that `from` has sent: of the carrier, or else of `from`
    /// itself, if it may be asked.
    ///
    /// # Errors
    /// The reason the carrier does not bring it, if `from` does not have it either, or why that is
    /// not asked.
    pub(super) async fn bring(
        self: &Arc<Self>,
        from: NodeId,
        reference: Bytes,
        budget: Duration,
        may_ask: impl FnOnce() -> Result<(), TaskFailure>,
    ) -> Result<Bytes, TaskFailure> {
        let missing = match self.carrier() {
            None => {
                let text = "the message travels beside its request, and this node has no overlay \
                            to take it from";
                Status::new(Code::FailedPrecondition, text)
            }
            Some(carrier) => match carrier.body(from, reference.clone()).await {
                Err(error @ CarryError::Missing { .. }) => error.into(),
                brought => return brought.map_err(|error| not_begun(error.into())),
            },
        };
        may_ask()?;
        let pulled = (self.pull)(self.clone(), from, reference, budget).await;
        pulled.map_err(|error| {
            tracing::debug!(%from, error, "the message of a request is not at its sender either");
            not_begun(missing)
        })
    }
}

/// The failure of a task whose handler was not reached.
pub(super) fn not_begun(status: Status) -> TaskFailure {
    TaskFailure { executed: Executed::No, ..TaskFailure::from(status) }
}

/// Reason why the sender of a request is not asked for its message.
const GONE: &str =
    "the message travels beside its request, and its sender is not connected any more";
