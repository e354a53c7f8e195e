//! Awaited calls as a tower service, to stack client middleware on.

use std::task::{Context, Poll};

use crate::driver::RoomWait;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::message::Payload;
use crate::method::Request;
use crate::peer::Peer;
use crate::transport::BoxFuture;

use super::Client;

/// Calls to one peer as a tower service: a [`Request`] of any method in, its first reply out. See
/// [`Client::service`]. Cheap to clone.
///
/// It is ready while the connection to the peer has room, or while there is none: the call then
/// dials. Its futures are awaited calls: dropped before they resolve, they cancel theirs.
#[derive(Clone, Debug)]
pub struct PeerService {
    client: Client,
    peer: Peer,
    room: RoomWait,
}

impl Client {
    /// Calls to `peer` as a tower service, for layers that retry, limit or buffer them.
    pub fn service(&self, peer: impl Into<Peer>) -> PeerService {
        PeerService { client: self.clone(), peer: peer.into(), room: RoomWait::default() }
    }
}

impl Endpoint {
    /// Calls to `peer` as a tower service, as [`Client::service`].
    pub fn service(&self, peer: impl Into<Peer>) -> PeerService {
        self.client().service(peer)
    }
}

impl<Resp> tower_service::Service<Request<Resp>> for PeerService
where
    Resp: Payload + 'static,
{
    type Response = Resp;
    type Error = CallError;
    type Future = BoxFuture<Result<Resp, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let driver = self.client.endpoint().driver();
        driver.poll_room(&[self.peer.node()], &mut self.room, cx).map(Ok)
    }

    fn call(&mut self, request: Request<Resp>) -> Self::Future {
        Box::pin(self.client.invoke(request).to(self.peer).into_future())
    }
}
