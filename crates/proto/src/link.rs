//! A connection as the protocol knows it: who is at its ends, and which lane a frame takes. What
//! carries the frames is no part of this crate.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::address::Address;
use crate::id::{Incarnation, LinkNonce, NodeId};

/// Queue of a connection that a frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Small and urgent: CREDIT, CANCEL, plain PROBE, STATUS of running tasks. Overtakes data.
    Control,
    /// Everything whose order matters to the call protocol.
    Data,
}

/// Greeting of a node to a peer when a connection opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node that it is.
    pub node: NodeId,
    /// Life of the node.
    pub incarnation: Incarnation,
    /// Addresses at which others can dial it; empty for a node that only dials out. Never an
    /// unspecified address: the transport replaces `0.0.0.0` by the connection's local address. Nor
    /// a private one, `unix://`: a node that is told of one does not dial it.
    pub advertised: Vec<Address>,
    /// The largest frame it takes, in bytes.
    pub frame_bytes_max: u32,
}

/// One connection as both its ends know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The greeting of the other end.
    pub peer: Hello,
    /// The name both ends have for this connection.
    pub nonce: LinkNonce,
    /// True when this end dialled.
    pub is_dialler: bool,
    /// The transport's scheme.
    pub scheme: &'static str,
    /// The principal that the peer proved to be, where the transport authenticates; then
    /// `peer.node` is proven, too.
    pub principal: Option<Principal>,
    /// The place the peer connects from, where the transport has such: what a peer without proof of
    /// its name is counted by.
    pub remote: Option<Remote>,
}

impl Link {
    /// Name of the peer, for what it may take of what all peers share.
    pub fn peer_name(&self) -> PeerName {
        PeerName::of(self.peer.node, self.principal.as_ref(), self.remote.as_ref())
    }
}

/// Place that a peer connects from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A host, by its address without the port.
    Host(Arc<str>),
    /// A process of this host, by what the kernel says of it.
    Process(Credentials),
}

impl From<IpAddr> for Remote {
    fn from(address: IpAddr) -> Self {
        Self::Host(address.to_string().into())
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

impl From<Credentials> for Remote {
    fn from(credentials: Credentials) -> Self {
        Self::Process(credentials)
    }
}

/// User, group and process at the other end of a connection within this host, as its kernel says.
///
/// They are of the time when the peer connected or, at the end that dialled, began to listen: the
/// process may have passed the connection on, or ended. Of a user that the user namespace of this
/// process does not know, the kernel says 65534, whoever it is.
///
/// The kernel knows users and no nodes: what the peer says of its node is as unproven as without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user, as effective for the process.
    pub uid: u32,
    /// Its group, as effective for the process.
    pub gid: u32,
    /// The process, where the system says it. For logs: its number is given again once it ended.
    pub pid: Option<i32>,
}

/// Name of a peer, for what it may take of what all peers share: its node where the connection
/// proves that, else the place it connects from, for names are free there. Within this host that is
/// the user: processes, too, are free.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerName {
    /// A node that its connections prove, or one that only claims its name where the transport
    /// knows no place.
    Node(NodeId),
    /// All who connect from there: an address without its port, of IPv6 its first 64 bits.
    Place(Arc<str>),
    /// All processes of a user of this host.
    User(u32),
    /// A client of a gRPC edge that has proven who it is, and is no node.
    Certified(Principal),
}

impl PeerName {
    /// The name of who claims to be `node`, by what the transport knows of it.
    pub fn of(node: NodeId, proven: Option<&Principal>, remote: Option<&Remote>) -> Self {
        match (proven, remote) {
            (None, Some(remote)) => remote.into(),
            _ => Self::Node(node),
        }
    }
}

impl From<&Remote> for PeerName {
    /// The name of who has proven nothing.
    fn from(remote: &Remote) -> Self {
        match remote {
            Remote::Host(address) => Self::Place(place_of(address)),
            Remote::Process(credentials) => Self::User(credentials.uid),
        }
    }
}

/// The place of a host, by its address. Of IPv6 that is the network of 64 bits, in which a host has
/// as many addresses as it likes (RFC 7934, RFC 8981).
fn place_of(address: &Arc<str>) -> Arc<str> {
    let Ok(IpAddr::V6(v6)) = address.parse() else { return address.clone() };
    match v6.to_canonical() {
        IpAddr::V4(v4) => v4.to_string().into(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)).into()
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Place(place) => f.write_str(place),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Certified(principal) => write!(f, "{principal}"),
        }
    }
}

/// Identity that a peer proved when its connection opened, such as `spiffe://shop.example/node/7`:
/// what the transport found in the peer's certificate. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// A principal that a transport has proof of.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// As the transport writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As many first bytes of a frame as [`Glance`](crate::wire::Glance) takes, or the whole frame:
/// what a transport shows of a frame before the rest is there.
pub const ORDER_HEAD_BYTES: usize = 152;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_many_addresses_is_one_peer() {
        let name = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            PeerName::of(NodeId::new(7), None, Some(&address.into())).to_string()
        };
        for (address, place) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1::", "2001:db8:0:1::/64"),
            ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
            ("2001:db8:0:2::7", "2001:db8:0:2::/64"),
        ] {
            assert_eq!(name(address), place, "{address}");
        }
    }
}
