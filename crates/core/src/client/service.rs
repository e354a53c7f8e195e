//! Awaited calls as a tower service, to stack client middleware on.

use std::task::{Context, Poll};

use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::method::Request;
use crate::peer::Peer;
use crate::transport::{BoxFuture, Lane};

use super::Invocation;

/// Calls to one peer as a tower service: a [`Request`] of any method in, its first reply out. See
/// [`Endpoint::service`]. Cheap to clone.
///
/// It is ready while the connection to the peer has room, or while there is none: the call then
/// dials. Its futures are awaited calls: dropped before they resolve, they cancel theirs.
#[derive(Clone, Debug)]
pub struct PeerService {
    endpoint: Endpoint,
    peer: Peer,
}

impl Endpoint {
    /// Calls from this endpoint to `peer` as a tower service, for layers that retry, limit or
    /// buffer them.
    pub fn service(&self, peer: &Peer) -> PeerService {
        PeerService { endpoint: self.clone(), peer: *peer }
    }
}

impl<Resp> tower_service::Service<Request<Resp>> for PeerService
where
    Resp: prost::Message + Default + 'static,
{
    type Response = Resp;
    type Error = CallError;
    type Future = BoxFuture<Result<Resp, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        match self.endpoint.driver().connection_to(self.peer.node()) {
            Some(connection) => connection.poll_writable(Lane::Data, cx).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Request<Resp>) -> Self::Future {
        Box::pin(Invocation::new(&self.endpoint, request).to(&self.peer).into_future())
    }
}
