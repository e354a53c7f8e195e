//! Traits of transports, from [`convoke_transport`]: the only seam to a network; and [`mem`], the
//! transport within one process.

pub mod mem;

#[cfg(feature = "conformance")]
pub use convoke_transport::conformance;
pub use convoke_transport::{
    ADDRESS_BYTES_MAX, Address, AddressError, Appended, BoxFuture, CloseReason, Connection,
    Counters, Credentials, DialError, Hello, Lane, Link, ListenError, Listener, NotWritable,
    ORDER_HEAD_BYTES, Order, PeerName, Principal, Received, Remote, Sink, ToAddresses, Transport,
    parts, sockets,
};
