//! Convoke through gRPC: for networks that let only HTTP/2 through, for callers that speak gRPC,
//! and for calls to servers that do.
//!
//! Three things live here, independent of each other:
//!
//! - [`GrpcTransport`], the addresses `grpc://host:port`, and `grpcs://host:port` with TLS: one
//!   bidirectional HTTP/2 stream carries the frames between two nodes, many in one gRPC message.
//! - [`GrpcEdge`], a port at which any gRPC client calls the services of an endpoint, with health
//!   and reflection.
//! - [`ForeignServer`], a gRPC server that is no node, called from a task.
//!
//! ```text
//!   node ◀═══ frames in one HTTP/2 stream ═══▶ node ───▶ ForeignServer ──gRPC──▶ any gRPC server
//!                                               ▲
//!   any gRPC client ───gRPC───▶ GrpcEdge ──call─┘
//! ```
//!
//! # The transport
//!
//! It keeps the promises of [`convoke_transport`]. The first message in either direction is a
//! hello; a refusal is a gRPC status. Every further message holds whole chunks of frames, control
//! before data. The window of the HTTP/2 stream is the credit: a receiver that does not read stops
//! the sender, which keeps its frames within bounds, and control waits behind no more than the
//! window and a message. Keep-alives are frames, so they reach through proxies, which answer
//! HTTP/2's pings themselves.
//!
//! In [`Counters`](convoke_transport::Counters), writes and reads are gRPC messages, and
//! bytes are theirs, without those of HTTP/2.
//!
//! | a peer makes this end hold at most | default |
//! |---|---|
//! | the window of a stream, and a message being read | 1 MiB + 256 KiB |
//! | frames being put together, per lane | 2 x (4 MiB + 64 KiB) |
//! | frames to send, data and control | 16 MiB + 1 MiB |
//! | messages that HTTP/2 has to send, two | 2 x 320 KiB |
//! | bytes read that HTTP/2 has not taken | 16 KiB |
//!
//! # The edge
//!
//! A request's path names the method, and its message passes undecoded into a call: the edge needs
//! no generated code. `grpc-timeout` becomes the deadline, headers become metadata, `traceparent`
//! the trace context; the codes are the same. Metadata of the first reply becomes headers, that of
//! later ones and of failures trailers. A stream that the client resets cancels its call.
//!
//! # What it does not do
//!
//! Without the feature `tls` it does not encrypt, and calls out are never encrypted. It does not
//! compress; a compressed request is answered with `UNIMPLEMENTED`.
//!
//! # TLS
//!
//! With the feature `tls`, `GrpcTransport::tls(identity)` makes a transport for
//! `grpcs://host:port`: both ends must prove the node ids they claim, as over `tls://`.
//! `GrpcEdgeBuilder::tls` serves clients over TLS; one with a certificate is a [client with a
//! principal](convoke_core::EdgeClient::principal) to rules and handlers, and never a node. An open
//! connection then holds up to 64 KiB of sealed records besides.
//!
//! # Example
//!
//! ```
//! use convoke_core::{Context, Endpoint, Method, Service, Status};
//! use convoke_transport_grpc::{ForeignServer, GrpcEdge, GrpcTransport};
//!
//! const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello");
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let hello = |name: String, _: Context| async move { Ok::<_, Status>(format!("hello, {name}")) };
//! let greeter = Service::new().unary(HELLO, hello);
//! let server = Endpoint::builder()
//!     .transport(GrpcTransport::new())
//!     .listen("grpc://127.0.0.1:0")
//!     .serve(greeter)
//!     .start()
//!     .await?;
//!
//! // An edge of another node, which passes the calls on.
//! let client = Endpoint::builder().transport(GrpcTransport::new()).start().await?;
//! let peer = client.connect(server.addresses()).await?;
//! let edge = GrpcEdge::builder(&client).route(move |_| peer).start("127.0.0.1:0").await?;
//!
//! // Any gRPC client would do.
//! let foreign = ForeignServer::new(edge.local_addr());
//! assert_eq!(foreign.call(HELLO, &"Ada".into()).await?, "hello, Ada");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! Parts without I/O are in [`convoke_transport::parts`]. Of the transport are `connection`,
//! `reader`, `handshake`, `dial`, `listener`. `security` is what a peer has proven, `tls` how.
//! `serve` and `http2` are HTTP/2's two ends, which the `edge` and `foreign` share with it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod codec;
mod config;
mod connection;
mod dial;
mod edge;
mod foreign;
mod framing;
mod handshake;
mod headers;
mod hello;
mod http2;
mod listener;
mod reader;
mod security;
mod serve;
#[cfg(feature = "tls")]
mod tls;

pub use config::GrpcTransportBuilder;
#[cfg(feature = "tls")]
pub use convoke_transport::identity::{ClientCertificates, Identity, IdentityError, IdentityWatch};
pub use convoke_transport::parts::SettingsError as ConfigError;
pub use edge::{EdgeError, EdgeService, GrpcEdge, GrpcEdgeBuilder};
pub use foreign::{ForeignCall, ForeignReplies, ForeignServer};

use crate::config::Config;

convoke_transport::over_sockets! {
    /// Makes connections of one HTTP/2 stream each. Cheap to clone; clones share the limit on
    /// accepted connections.
    GrpcTransport, GrpcTransportBuilder, "grpcs://"
}
