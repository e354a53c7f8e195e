//! Convoke over TCP: the addresses `tcp://host:port`, where host is an IPv4 address, an IPv6
//! address in brackets, or a name. On Unix, also over sockets of this host: `unix:///run/a.sock` is
//! a file by its absolute path, `unix://@name` an abstract name of Linux.
//!
//! [`TcpTransport`] is one [`Transport`] of an endpoint. A connection carries frames in two lanes
//! and keeps the promises of [`convoke_transport`]: order per lane, whole frames, credit,
//! control ahead of data, an end with a reason.
//!
//! ```text
//! append ─▶ send queue ─▶ batch ─▶ socket ┄▶ socket ─▶ read buffer ─▶ decoder ─▶ Sink::on_batch
//!           per lane,     whole              64 KiB a                chunks      frames are slices
//!           within        chunks,            read                    become      of the buffer
//!           credit        control first                              frames
//! ```
//!
//! # What it costs
//!
//! Frames are encoded straight into the connection's buffer; many go out with one write, and one
//! read brings many. `flush` writes in place when nobody else is writing; a task of the connection
//! takes over only when the socket is full. `TCP_NODELAY` is always set. In
//! [`Counters`](convoke_transport::Counters), bytes count from the first after the hello, and
//! writes and reads are the calls that moved any.
//!
//! # What a peer can do to this node
//!
//! A peer that breaks the rules is closed with [`Fault`]; one that says nothing is closed after the
//! handshake or keep-alive timeout; none disturbs another connection. Whatever it does, with the
//! default settings a connection holds at most:
//!
//! | | bound | default |
//! |---|---|---|
//! | read buffer | 64 KiB, or the largest chunk and its word | 64 KiB + 4 B |
//! | frames being put together | largest frame, per lane | 2 x (4 MiB + 64 KiB) |
//! | frames to send, data | hard bound | 16 MiB |
//! | frames to send, control | reserve, or one frame when that is larger | 1 MiB |
//! | being written | a batch and a chunk | 192 KiB |
//!
//! All that connections have to send or write is at most 256 MiB, beside 16 KiB each. Of that a
//! connection may have a quarter of what is free, or one frame, and all connections of one peer,
//! the node that a certificate proves or else an address or a user of this host, as much as is
//! free. One peer may have as many of the accepted connections, and of the handshakes, as are free.
//!
//! In its handshake it holds at most 8 KiB; over TLS 32 KiB besides, and up to 64 KiB of a message
//! that TLS puts together. What the sink keeps of a frame keeps the read buffer
//! that the frame is a slice of, so it should copy small frames it keeps for long.
//!
//! # What it does not do
//!
//! Without the feature `tls` it does not encrypt or authenticate: a peer is who it says it is. It
//! does not dial again when a connection ends; the endpoint does. It does not order frames across
//! lanes or connections.
//!
//! # Sockets of this host
//!
//! The kernel says which user and process is at the other end of a `unix://` connection
//! ([`Remote::Process`]), which proves no node. A listener holds a lock on a file beside its
//! socket, `.lock` after the name, takes the socket of a dead process of the same user over, and
//! removes both files when it closes. Something else at either path is an error and stays. No peer
//! is told of such an address.
//!
//! # TLS
//!
//! With the feature `tls`, `TcpTransport::builder().tls(identity)` makes a transport for
//! `tls://host:port`. An `Identity` is a certificate with its key, and the certificates to trust;
//! both ends must prove the node ids they claim. An open connection then holds 32 KiB more to read,
//! and up to 64 KiB of sealed records.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use convoke_transport::id::{Incarnation, NodeId};
//! use convoke_transport::{
//!     CloseReason, Connection, Hello, Lane, Link, Received, Sink, Transport,
//! };
//! use convoke_transport_tcp::TcpTransport;
//!
//! /// Answers every frame with the same bytes.
//! #[derive(Debug)]
//! struct Echo(u64);
//!
//! impl Sink for Echo {
//!     fn hello(&self) -> Hello {
//!         Hello {
//!             node: NodeId::new(self.0),
//!             incarnation: Incarnation(1),
//!             advertised: Vec::new(),
//!             frame_bytes_max: 1 << 20,
//!         }
//!     }
//!     fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
//!         Ok(())
//!     }
//!     fn on_batch(
//!         &self,
//!         from: &Arc<dyn Connection>,
//!         frames: &mut dyn Iterator<Item = Received>,
//!     ) -> Result<(), String> {
//!         for frame in frames {
//!             from.append_bytes(frame.lane, &[], frame.bytes).map_err(|error| error.to_string())?;
//!         }
//!         from.flush();
//!         Ok(())
//!     }
//!     fn on_closed(&self, link: &Link, reason: CloseReason) {
//!         println!("{} is gone: {reason}", link.peer.node);
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let tcp = TcpTransport::new();
//! let listener = tcp.listen(&"tcp://127.0.0.1:0".parse()?, Arc::new(Echo(1))).await?;
//! let address = listener.local_address();
//! let connection = tcp.dial(&address, Some(NodeId::new(1)), Arc::new(Echo(2))).await?;
//! connection.append_copy(Lane::Data, &[], b"hello")?;
//! connection.flush();
//! assert_eq!(connection.link().peer.node, NodeId::new(1));
//! connection.close(CloseReason::Local);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # QUIC
//!
//! With the feature `quic` there is a second transport, `QuicTransport`, for the addresses
//! `quic://host:port`: the same promises and certificates, large frames on streams of their own,
//! and connections that outlive a change of address. It shares the hello with TCP; its module
//! `quic` says what its streams carry.
//!
//! # Modules
//!
//! Parts without I/O are in [`convoke_transport::parts`]. Here are `connection` and `platform`,
//! what that stands on; `writer`, `reader`, `handshake`, `dial`, `listener`; `socket`, what differs
//! with TLS and within this host, and `fresh`, the same before the hello; `flows`, how a
//! connection gets several sockets; `unix`, whose file is
//! whose; `tls`. Certificates, and whom they prove, are in `convoke_transport::identity`.
//!
//! [`Fault`]: convoke_transport::CloseReason::Fault
//! [`Transport`]: convoke_transport::Transport
//! [`Remote::Process`]: convoke_transport::Remote::Process
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod config;
mod connection;
mod dial;
mod flows;
mod fresh;
mod handshake;
mod listener;
mod platform;
#[cfg(feature = "quic")]
mod quic;
mod reader;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(unix)]
mod unix;
mod writer;

pub use config::TcpTransportBuilder;
#[cfg(any(feature = "quic", feature = "tls"))]
pub use convoke_transport::identity::{Identity, IdentityError, IdentityWatch};
pub use convoke_transport::parts::SettingsError as ConfigError;
#[cfg(feature = "quic")]
pub use quic::{QuicConfigError, QuicTransport, QuicTransportBuilder};

use crate::config::Config;

convoke_transport::over_sockets! {
    /// Makes TCP connections and, on Unix, connections of this host. Cheap to clone; clones share
    /// the limits on accepted connections and on what all connections have to send.
    TcpTransport, TcpTransportBuilder, "tls://"
}
