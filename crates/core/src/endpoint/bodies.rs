//! The method by which a node gets the message of a request that no carrier brings it, from whoever
//! sent the request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;

use crate::carrier::GET;
use crate::driver::Driver;
use crate::error::{Code, Status};
use crate::peer::Peer;
use crate::server::{Context, Service};
use crate::transport::BoxFuture;

use super::Endpoint;

/// The service of [`GET`].
pub(super) fn service() -> Service {
    Service::new().unary(GET, |reference, context: Context| async move {
        let carrier = context.driver().carrier();
        let body = carrier.and_then(|carrier| carrier.held(context.parent(), &reference));
        body.ok_or_else(|| Status::new(Code::NotFound, "this node does not have the message"))
    })
}

/// Calls [`GET`] of the sender, if it is connected: who sends a reference must not make this node
/// dial, or ask its resolver.
pub(super) fn pull(
    driver: Arc<Driver>,
    from: NodeId,
    reference: Bytes,
    budget: Duration,
) -> BoxFuture<Result<Bytes, String>> {
    Box::pin(async move {
        let asked = Endpoint::within(driver).call(GET, reference).to(Peer::new(from));
        asked.never_dial().deadline(budget).await.map_err(|error| error.to_string())
    })
}
