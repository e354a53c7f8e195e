//! The connections of an endpoint, for the one who operates it.

use convoke_proto::id::NodeId;

use crate::endpoint::Endpoint;
use crate::transport::{Counters, Principal, Remote};

/// One open connection, as it was when [`Endpoint::connections`] was called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenConnection {
    /// The node at the other end.
    pub peer: NodeId,
    /// The transport's scheme, such as `tcp`.
    pub scheme: &'static str,
    /// True when this end dialled.
    pub is_dialler: bool,
    /// Identity that the peer has proven, where the transport authenticates.
    pub principal: Option<Principal>,
    /// The place that the peer connects from, where the transport has such.
    pub remote: Option<Remote>,
    /// Traffic that it has carried.
    pub counters: Counters,
}

impl Endpoint {
    /// The open connections of this endpoint, in no order. Takes the lock of the endpoint for a
    /// moment.
    pub fn connections(&self) -> Vec<OpenConnection> {
        let all = self.driver().connections();
        let open = all.iter().map(|connection| {
            let link = connection.link();
            OpenConnection {
                peer: link.peer.node,
                scheme: link.scheme,
                is_dialler: link.is_dialler,
                principal: link.principal.clone(),
                remote: link.remote.clone(),
                counters: connection.counters(),
            }
        });
        open.collect()
    }

    /// Traffic of the connections that have ended: with that of the open ones,
    /// [`Endpoint::counters`].
    pub fn ended(&self) -> Counters {
        self.driver().ended()
    }
}
