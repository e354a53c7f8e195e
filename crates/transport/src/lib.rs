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
//!
//! # Modules
//!
//! [`parts`] is what transports are made of, each part without I/O; [`sockets`] is for transports
//! over IP, of which [`over_sockets!`] makes the type; [`security`] is what such may put over their
//! sockets, with certificates of `identity` (feature of that name); `conformance`, behind the
//! feature of that name, has the duties above as tests, which every transport runs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
#[cfg(feature = "identity")]
pub mod identity;
mod over_sockets;
pub mod parts;
pub mod security;
pub mod sockets;
mod transport;

pub use convoke_proto::address::{ADDRESS_BYTES_MAX, Address, AddressError};
pub use convoke_proto::id;
pub use convoke_proto::link::{
    Credentials, Hello, Lane, Link, ORDER_HEAD_BYTES, PeerName, Principal, Remote,
};

pub use address::ToAddresses;
pub use connection::{
    Appended, Buffer, CloseReason, Connection, Counters, NoBuffer, NotWritable, Order, Received,
    Sink,
};
pub use transport::{
    BoxFuture, DialError, DialFuture, DialLimit, ListenError, ListenFuture, Listener, OtherScheme,
    Transport, own_address,
};
