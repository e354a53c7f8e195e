//! Element of a configuration: a node and, where it is known, its address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use convoke_core::transport::{Address, ToAddresses};
use convoke_core::{Endpoint, NodeId, Peer};

use super::ConfigurationError;

/// A node that is to be a member, and where it can be dialled; see [`ToMember`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    node: NodeId,
    addresses: Vec<Address>,
}

impl Member {
    /// Its stable name.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Addresses at which it can be dialled, if any was given.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(super) fn into_addressed(self) -> Option<(NodeId, Vec<Address>)> {
        (!self.addresses.is_empty()).then_some((self.node, self.addresses))
    }
}

/// A member as [`Configuration::new`](super::Configuration::new) takes it: a [`NodeId`], a
/// [`Peer`], an [`Endpoint`] with where it listens, or a node and its [addresses](ToAddresses),
/// such as `(1, "tcp://a:7000")`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a member of a configuration",
    label = "does not say which node it is",
    note = "an address alone names no node: `(1, \"tcp://a:7000\")` is node 1 at that address",
    note = "a `NodeId`, a `Peer`, a `&Endpoint`, and a `NodeId` or number with addresses are members"
)]
pub trait ToMember {
    /// The member.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the number is no node's, or a text is not an address.
    fn to_member(self) -> Result<Member, ConfigurationError>;
}

impl ToMember for Member {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        Ok(self)
    }
}

impl ToMember for NodeId {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        Ok(Member { node: self, addresses: Vec::new() })
    }
}

impl ToMember for &NodeId {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        (*self).to_member()
    }
}

impl ToMember for Peer {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        self.node().to_member()
    }
}

impl ToMember for &Peer {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        self.node().to_member()
    }
}

impl ToMember for &Endpoint {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        (self.node(), self.addresses()).to_member()
    }
}

impl<A: ToAddresses> ToMember for (NodeId, A) {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        Ok(Member { node: self.0, addresses: self.1.to_addresses()? })
    }
}

impl<A: ToAddresses> ToMember for (u64, A) {
    fn to_member(self) -> Result<Member, ConfigurationError> {
        let node = NodeId::try_from(self.0).map_err(|_| ConfigurationError::NoNode)?;
        (node, self.1).to_member()
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
