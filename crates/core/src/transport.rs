//! Traits of transports, from [`convoke_transport`]: the only seam to a network; and [`mem`], the
//! transport within one process.

pub mod mem;

#[cfg(feature = "conformance")]
pub use convoke_transport::conformance;
pub use convoke_transport::{
    ADDRESS_BYTES_MAX, Address, AddressError, Appended, BoxFuture, Buffer, CloseReason, Connection,
    Counters, Credentials, DialError, DialFuture, DialLimit, Hello, Lane, Link, ListenError,
    ListenFuture, Listener, NotWritable, ORDER_HEAD_BYTES, Order, OtherScheme, PeerName, Principal,
    Received, Remote, Sink, ToAddresses, Transport, own_address, parts, security, sockets,
};
