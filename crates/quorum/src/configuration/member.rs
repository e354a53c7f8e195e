//! Element of a configuration: a node and, where it is known, its address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use convoke_core::transport::{Address, AddressError};
use convoke_core::{NodeId, Peer};

/// A node that is to be a member, and where it can be dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    node: NodeId,
    address: Option<Address>,
}

impl Member {
    /// The node that listens at this address.
    ///
    /// # Errors
    /// [`AddressError`] when the text is no address.
    pub fn at(node: NodeId, address: &str) -> Result<Self, AddressError> {
        Ok(Self { node, address: Some(address.parse()?) })
    }

    /// Its stable name.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Address at which it can be dialled, if that was given.
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    pub(super) fn into_addressed(self) -> Option<(NodeId, Address)> {
        self.address.map(|address| (self.node, address))
    }
}

impl From<NodeId> for Member {
    fn from(node: NodeId) -> Self {
        Self { node, address: None }
    }
}

impl From<Peer> for Member {
    fn from(peer: Peer) -> Self {
        peer.node().into()
    }
}

impl From<(NodeId, Address)> for Member {
    fn from((node, address): (NodeId, Address)) -> Self {
        Self { node, address: Some(address) }
    }
}

/// The place an address names, however it is written: the same host and port over two schemes are
/// two places, `localhost` and its number are one. Other names are not looked up; a node that is
/// dialled under a wrong id proves its own, and the connection is refused.
pub(super) fn place(address: &Address) -> (String, Result<SocketAddr, String>) {
    let rest = address.rest().to_ascii_lowercase();
    let scheme = address.scheme().to_ascii_lowercase();
    let Some((host, port)) = rest.rsplit_once(':') else { return (scheme, Err(rest)) };
    let Ok(port) = port.parse() else { return (scheme, Err(rest)) };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match host {
        "localhost" | "localhost." => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse().map_err(|_| rest.clone()),
    };
    (scheme, ip.map(|ip| SocketAddr::new(ip, port)))
}
