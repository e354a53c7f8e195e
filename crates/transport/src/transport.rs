//! Transports, which make connections, and reasons why they make none.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_proto::id::NodeId;

use crate::security::Security;
use crate::{Address, Connection, Sink};

/// A future of the set-up path; no call boxes one.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Outcome of [`Transport::listen`], once it is ready.
pub type ListenFuture = BoxFuture<Result<Box<dyn Listener>, ListenError>>;

/// Outcome of [`Transport::dial`], once it is ready.
pub type DialFuture = BoxFuture<Result<Arc<dyn Connection>, DialError>>;

/// A place where connections are accepted until it is dropped or closed.
pub trait Listener: Send + Sync + fmt::Debug {
    /// Address at which it listens, with the port that the system chose in place of 0.
    fn local_address(&self) -> Address;

    /// Stops accepting; open connections stay.
    fn close(&self);
}

/// Reason why a dial failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// Nobody answers there, or the network failed.
    #[error("cannot reach {address}: {message}")]
    Unreachable {
        /// Address that was dialled.
        address: Address,
        /// Word of the operating system.
        message: String,
    },
    /// No answer in time.
    #[error("{address} {limit}")]
    Timeout {
        /// Address that was dialled.
        address: Address,
        /// Time that passed.
        limit: DialLimit,
    },
    /// Somebody answers, but not with this protocol or version.
    #[error("{address} refused the hello: {message}")]
    Handshake {
        /// Address that was dialled.
        address: Address,
        /// Defect of the other end's handshake.
        message: String,
    },
    /// The other end's certificate does not prove what it claims, or it does not accept this end's.
    /// Neither end's word is trusted further; repeating the dial helps once a certificate changes.
    #[error("{address} and this node do not trust each other: {message}")]
    Untrusted {
        /// Address that was dialled.
        address: Address,
        /// Certificate and its defect.
        message: String,
    },
    /// Somebody else than the expected node answers.
    #[error("{address} is {found}, not {expected}")]
    WrongNode {
        /// Address that was dialled.
        address: Address,
        /// Node that was expected.
        expected: NodeId,
        /// Node that answered.
        found: NodeId,
    },
    /// No transport of the endpoint has the address's scheme.
    #[error("no transport for {address}: {}", to_add(.address))]
    NoTransport {
        /// Address that was dialled.
        address: Address,
    },
    /// No address of the node is known.
    #[error("no address of {node} is known: give one with Endpoint::peer")]
    NoAddress {
        /// The node.
        node: NodeId,
    },
    /// The resolver of the endpoint found no address of the node.
    #[error("no address of {node} is known, and the resolver found none: {message}")]
    Unresolved {
        /// The node.
        node: NodeId,
        /// Its own error, or that it did not answer in time, or panicked.
        message: String,
    },
}

/// Bound of the time of a dial, which its transport was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialLimit {
    /// Until the other end takes the connection: nothing is there, or nothing gets through to it.
    #[error(
        "did not take the connection within the dial_timeout of {0:?}: is it up, and the way open?"
    )]
    Connect(Duration),
    /// From then on until it has said its hello.
    #[error(
        "took the connection, and said no hello within the handshake_timeout of {0:?}: it hangs, \
         or is another program"
    )]
    Handshake(Duration),
}

impl DialLimit {
    /// The error of a dial that it ended.
    pub fn passed(self, address: &Address) -> DialError {
        DialError::Timeout { address: address.clone(), limit: self }
    }
}

/// Reason why listening failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {message}")]
    Bind {
        /// Address that was asked for.
        address: Address,
        /// Word of the operating system.
        message: String,
    },
    /// The transport's own certificate does not prove this node's id.
    #[error("cannot listen on {address}: {message}")]
    Identity {
        /// Address that was asked for.
        address: Address,
        /// Identity that the certificate proves instead.
        message: String,
    },
    /// No transport of the endpoint has the address's scheme.
    #[error("no transport for {address}: {}", to_add(.address))]
    NoTransport {
        /// Address that was asked for.
        address: Address,
    },
}

/// An address whose scheme is not one of the transport's.
#[derive(Debug)]
pub struct OtherScheme(Address);

/// The address, if it has one of these schemes.
///
/// # Errors
/// [`OtherScheme`], which becomes the error of a dial or of a listener.
pub fn own_address(schemes: &[&str], address: &Address) -> Result<Address, OtherScheme> {
    let address = address.clone();
    if schemes.contains(&address.scheme()) { Ok(address) } else { Err(OtherScheme(address)) }
}

impl From<OtherScheme> for ListenError {
    fn from(OtherScheme(address): OtherScheme) -> Self {
        Self::NoTransport { address }
    }
}

impl From<OtherScheme> for DialError {
    fn from(OtherScheme(address): OtherScheme) -> Self {
        Self::NoTransport { address }
    }
}

/// The line to add for the scheme of an address, and the feature that brings it.
fn to_add(address: &Address) -> String {
    let (line, feature) = match address.scheme() {
        "unix" if cfg!(not(unix)) => return "this system has no sockets of the file system".into(),
        "tcp" | "unix" => ("TcpTransport::new()", "`tcp`"),
        "tls" => ("TcpTransport::tls(identity)", "`tls`"),
        "quic" => ("QuicTransport::new(identity)", "`quic`"),
        "grpc" => ("GrpcTransport::new()", "`grpc`"),
        "grpcs" => ("GrpcTransport::tls(identity)", "`grpc` with `tls`"),
        "rdma" => ("RdmaTransport::open(device)?", "`rdma`"),
        "mem" => return "add `.transport(MemTransport::new())` to the endpoint".into(),
        "sim" => ("network.transport()", "`sim`"),
        "http" | "https" => {
            return "a node has an address such as tcp://127.0.0.1:7000, and a gRPC server that is \
                    no node is called by `ForeignServer`"
                .into();
        }
        other if other.chars().any(|c| c.is_ascii_uppercase()) => {
            return "a scheme is in lower case".into();
        }
        _ => return "add one with this scheme by `EndpointBuilder::transport`".into(),
    };
    format!("add `.transport({line})` to the endpoint, of the feature {feature}")
}

/// Makes connections of one kind.
pub trait Transport: Send + Sync + fmt::Debug {
    /// The address schemes it serves, such as `tcp`.
    fn schemes(&self) -> &'static [&'static str];

    /// Security of its sockets, where it has sockets. What follows is told from it. Default: none.
    fn security(&self) -> Option<&Security> {
        None
    }

    /// True when its connections prove who the peer is, so that each has a
    /// [`principal`](crate::Link::principal).
    fn proves_peers(&self) -> bool {
        self.security().is_some_and(Security::proves_peers)
    }

    /// True when it trusts a certificate of this very node, rather than of an authority: then
    /// nobody may claim the node's name without that proof, over any transport of the endpoint.
    /// Asked for every connection that opens.
    fn trusts_node(&self, node: NodeId) -> bool {
        self.security().is_some_and(|security| security.trusts_node(node))
    }

    /// The nodes that its connections can prove this endpoint to be; none where they prove nothing.
    /// The endpoint is one of them, the first unless its owner or another transport says otherwise.
    fn nodes(&self) -> Vec<NodeId> {
        self.security().map(Security::nodes).unwrap_or_default()
    }

    /// Preference among the ways to dial a peer. An endpoint dials the addresses of its transports
    /// of highest preference first, those of equal preference in the order they are known in, and
    /// goes on to the next when one fails. Default: 0.
    fn preference(&self) -> i8 {
        0
    }

    /// Starts to accept at `address`; connections go to `sink`.
    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture;

    /// Opens a connection to `address`. With `expected`, another node answering is an error.
    /// `sink.on_open` has been called when it resolves.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn schemes(&self) -> &'static [&'static str] {
        (**self).schemes()
    }

    fn security(&self) -> Option<&Security> {
        (**self).security()
    }

    fn proves_peers(&self) -> bool {
        (**self).proves_peers()
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        (**self).trusts_node(node)
    }

    fn nodes(&self) -> Vec<NodeId> {
        (**self).nodes()
    }

    fn preference(&self) -> i8 {
        (**self).preference()
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        (**self).listen(address, sink)
    }

    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        (**self).dial(address, expected, sink)
    }
}
