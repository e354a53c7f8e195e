//! The only seam to a network.
//!
//! A [`Transport`] makes [`Connection`]s; a connection carries frames between two nodes and hands
//! what it receives to a [`Sink`]. Frames are opaque here: bytes with a [`Lane`].
//!
//! Duties of a transport:
//! - **Order.** Frames of one connection and lane arrive in the order they were appended. A
//!   transport that sends large frames beside the lane may let later frames pass one that is not
//!   complete, but only those of which [`Sink::order`] says that it does not matter.
//! - **Whole or not at all.** A frame arrives once and complete, or the connection closes. What was
//!   appended before a close may or may not have arrived.
//! - **Credit.** A receiver never has to buffer more than it granted (L1, per lane). A sender
//!   without credit keeps frames in its own bounded buffer, then answers [`NotWritable`]; it never
//!   drops. The credit comes back when the sink has taken the frame, and the sink always takes.
//! - **Lanes.** Control frames never wait behind data, however large: data is cut into chunks.
//! - **Identity.** Both ends exchange a [`Hello`] before anything else; `on_open` reports it.
//! - **An end with a reason.** After `on_open` comes exactly one `on_closed`, after the last batch.
//!
//! Duty of the sink: `on_batch` returns without waiting on a network or an application.
//!
//! The model of this contract is `src/transport.h` of eRPC (Kalia et al., NSDI 2019).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_proto::id::NodeId;

pub use convoke_proto::address::{ADDRESS_BYTES_MAX, Address, AddressError};
pub use convoke_proto::link::{Hello, Lane, Link, ORDER_HEAD_BYTES, PeerName, Principal};

/// Addresses at which a node listens or can be dialled: text, an [`Address`], or several of either.
/// A scheme is always written, as in `tcp://127.0.0.1:7000`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address with a scheme",
    label = "should be text such as \"tcp://127.0.0.1:7000\", or several",
    note = "an address says its scheme: `format!(\"tcp://{{}}\", socket_address)`",
    note = "another endpoint has `addresses()`"
)]
pub trait ToAddresses {
    /// The addresses, in the order in which they are tried.
    ///
    /// # Errors
    /// [`AddressError`] when a text is not one.
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError>;
}

impl ToAddresses for str {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![self.parse()?])
    }
}

impl ToAddresses for String {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_str().to_addresses()
    }
}

impl ToAddresses for Address {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![self.clone()])
    }
}

impl<A: ToAddresses> ToAddresses for [A] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        let each: Vec<Vec<Address>> =
            self.iter().map(ToAddresses::to_addresses).collect::<Result<_, _>>()?;
        Ok(each.concat())
    }
}

impl<A: ToAddresses, const N: usize> ToAddresses for [A; N] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_slice().to_addresses()
    }
}

impl<A: ToAddresses> ToAddresses for Vec<A> {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_slice().to_addresses()
    }
}

impl<A: ToAddresses + ?Sized> ToAddresses for &A {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        (**self).to_addresses()
    }
}

/// A future of the set-up path; no call boxes one.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A frame as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The lane it took.
    pub lane: Lane,
    /// Its bytes; shares the receive buffer where the transport can.
    pub bytes: Bytes,
}

/// Order that a received frame keeps with others of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// With all: it passes none, and none passes it.
    Lane,
    /// With those of the same number, such as the frames of one call, and with those of
    /// [`Order::Lane`].
    Group(u64),
}

/// A frame was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// There is room for more.
    Writable,
    /// Taken, but whoever can wait should now wait for [`Connection::poll_writable`].
    Full,
}

/// A frame was not taken: the lane's buffer is at its hard bound, or the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritable {
    /// The peer grants no credit and the send buffer is full.
    #[error("the send buffer of the connection is full: the peer does not read")]
    Full,
    /// The frame is larger than the peer takes.
    #[error("a frame of {size} bytes is larger than the peer's limit of {limit}")]
    TooLarge {
        /// The frame.
        size: usize,
        /// Largest frame that the peer takes.
        limit: usize,
    },
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// Reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end shut down or no longer needed it.
    #[error("closed by this end")]
    Local,
    /// The other end said goodbye, with this text.
    #[error("closed by the peer: {0}")]
    Peer(String),
    /// Nothing came for the keep-alive timeout.
    #[error("nothing received for the keep-alive timeout")]
    KeepAlive,
    /// The other end broke the transport's rules.
    #[error("the peer broke the protocol: {0}")]
    Fault(String),
    /// The network or the operating system.
    #[error("the network failed: {0}")]
    Network(String),
    /// The peer does not read, and the send buffer is at its bound.
    #[error("the peer does not read")]
    Overloaded,
    /// Frames over it may be stale: this process was paused for longer than the keep-alive timeout,
    /// or the peer has started again since.
    #[error("stale: this process was paused for too long, or the peer has restarted")]
    Stale,
    /// The peer had only claimed to be a node, and another connection has proven to be that node.
    #[error("another connection has proven to be the node that this one claimed to be")]
    Unproven,
}

impl CloseReason {
    /// True when what was appended is still sent and what still comes is still delivered.
    pub fn is_gentle(&self) -> bool {
        matches!(self, Self::Local | Self::Overloaded)
    }

    /// Text of the goodbye to the other end.
    pub fn goodbye_text(&self) -> String {
        match self {
            Self::Local => "it shuts down or no longer needs the connection".into(),
            Self::Overloaded => "this end did not read what it sent".into(),
            Self::KeepAlive => "it heard nothing for its keep-alive timeout".into(),
            Self::Stale => "it was paused for too long, or the other has restarted".into(),
            Self::Unproven => self.to_string(),
            Self::Fault(text) | Self::Peer(text) | Self::Network(text) => text.clone(),
        }
    }
}

/// Traffic of a connection since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the network.
    pub frames_sent: u64,
    /// Frames handed to the sink.
    pub frames_received: u64,
    /// Bytes handed to the network, headers included.
    pub bytes_sent: u64,
    /// Bytes taken from the network, headers included.
    pub bytes_received: u64,
    /// Write calls to the operating system, where there are any.
    pub writes: u64,
    /// Read calls to the operating system, where there are any.
    pub reads: u64,
    /// The transport's own frames sent (credit, keep-alive), not counted in `frames_sent`.
    pub transport_frames_sent: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            frames_sent: self.frames_sent + other.frames_sent,
            frames_received: self.frames_received + other.frames_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            transport_frames_sent: self.transport_frames_sent + other.transport_frames_sent,
        }
    }
}

/// One connection to one peer. Dropping the last handle does not close it; [`Connection::close`]
/// does.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Name, life and bounds of the other end.
    fn link(&self) -> &Link;

    /// Appends a frame of `len` bytes, which `write` fills in place: all of them, for they are not
    /// zeroed before and may be those of an earlier frame to the same peer.
    ///
    /// # Errors
    /// [`NotWritable`]; then `write` was not called.
    fn append(
        &self,
        lane: Lane,
        len: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Appended, NotWritable>;

    /// Appends a frame made of `head` and `body`, without copying a large body where the transport
    /// can.
    ///
    /// # Errors
    /// [`NotWritable`]; then nothing was taken.
    fn append_bytes(&self, lane: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable>;

    /// Sends what was appended, as far as that goes without waiting; the connection sends the rest
    /// by itself. The driver calls it once per batch.
    fn flush(&self);

    /// Ready once everything appended before has been handed to the network, or on close.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready while the lane has room, or on close. Several tasks may wait.
    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()>;

    /// Closes: sends what was appended and the reason if the peer takes them within the transport's
    /// grace, then ends. The sink hears `on_closed` once.
    fn close(&self, reason: CloseReason);

    /// Traffic so far.
    fn counters(&self) -> Counters;
}

/// Receiver of connections and their frames: the endpoint.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Hello of this node to its peers.
    fn hello(&self) -> Hello;

    /// A connection is open, dialled or accepted. Comes before its first batch.
    ///
    /// # Errors
    /// A text when the endpoint does not want it (it shuts down, or the peer claims this node's own
    /// name, or without proof that of a node which is known by proof); the transport then closes it
    /// with that text, and no `on_closed` follows.
    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String>;

    /// Frames of one read, in order; at least one. Never waits on a network or an application. What
    /// it leaves in the iterator is dropped.
    ///
    /// # Errors
    /// A text when the peer broke the call protocol; the transport then closes the connection with
    /// it.
    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String>;

    /// Order that a frame of the data lane keeps, told by its first [`ORDER_HEAD_BYTES`]. Asked
    /// only while a large frame before it is not complete.
    fn order(&self, head: &[u8]) -> Order {
        let _ = head;
        Order::Lane
    }

    /// The connection ended; nothing follows.
    fn on_closed(&self, link: &Link, reason: CloseReason);
}

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
    #[error("no answer from {address} within the dial timeout")]
    Timeout {
        /// Address that was dialled.
        address: Address,
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
    /// The endpoint's [resolver](crate::EndpointBuilder::resolver) found no address of the node.
    #[error("no address of {node} is known, and the resolver found none: {message}")]
    Unresolved {
        /// The node.
        node: NodeId,
        /// Its own error, or that it did not answer in time, or panicked.
        message: String,
    },
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

/// The line to add for the scheme of an address, and the feature that brings it.
fn to_add(address: &Address) -> String {
    let (line, feature) = match address.scheme() {
        "tcp" | "unix" => ("TcpTransport::new()", "tcp"),
        "tls" => ("TcpTransport::tls(identity)", "tls"),
        "quic" => ("QuicTransport::new(identity)", "quic"),
        "grpc" => ("GrpcTransport::new()", "grpc"),
        "rdma" => ("RdmaTransport::open(device)?", "rdma"),
        _ => return "add one with this scheme by `EndpointBuilder::transport`".into(),
    };
    format!("add `.transport({line})` to the endpoint, of the feature `{feature}`")
}

/// Makes connections of one kind.
pub trait Transport: Send + Sync + fmt::Debug {
    /// The address schemes it serves, such as `tcp`.
    fn schemes(&self) -> &'static [&'static str];

    /// True when its connections prove who the peer is, so that each has a
    /// [`principal`](Link::principal). Default: no.
    fn proves_peers(&self) -> bool {
        false
    }

    /// True when it trusts a certificate of this very node, rather than of an authority: then
    /// nobody may claim the node's name without that proof, over any transport of the endpoint.
    /// Asked for every connection that opens. Default: no.
    fn trusts_node(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// The node that its connections prove this endpoint to be. Default: none.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// Preference among the ways to dial a peer. An endpoint dials the addresses of its transports
    /// of highest preference first, those of equal preference in the order they are known in, and
    /// goes on to the next when one fails. Default: 0.
    fn preference(&self) -> i8 {
        0
    }

    /// Starts to accept at `address`; connections go to `sink`.
    fn listen(
        &self,
        address: &Address,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Box<dyn Listener>, ListenError>>;

    /// Opens a connection to `address`. With `expected`, another node answering is an error.
    /// `sink.on_open` has been called when it resolves.
    fn dial(
        &self,
        address: &Address,
        expected: Option<NodeId>,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Arc<dyn Connection>, DialError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn schemes(&self) -> &'static [&'static str] {
        (**self).schemes()
    }

    fn proves_peers(&self) -> bool {
        (**self).proves_peers()
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        (**self).trusts_node(node)
    }

    fn node(&self) -> Option<NodeId> {
        (**self).node()
    }

    fn preference(&self) -> i8 {
        (**self).preference()
    }

    fn listen(
        &self,
        address: &Address,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Box<dyn Listener>, ListenError>> {
        (**self).listen(address, sink)
    }

    fn dial(
        &self,
        address: &Address,
        expected: Option<NodeId>,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Arc<dyn Connection>, DialError>> {
        (**self).dial(address, expected, sink)
    }
}

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod parts;
pub mod sockets;
