//! The async endpoint of convoke on tokio: it drives the call protocol of [`convoke_proto`].
//!
//! A *call* is one exchange among many parties. The initiator opens branches to some nodes; each
//! task there replies to the initiator, any number of times, or *delegates*: it opens branches to
//! further nodes, whose tasks reply **straight to the initiator**. The call is complete when the
//! initiator has everything that will ever come, which it knows from *manifests*: every task
//! declares at its end how many branches it opened and how many replies it sent. In the common
//! cases that costs no message.
//!
//! ```text
//!   initiator ──request──▶ task ──request──▶ task ──request──▶ task
//!       ▲                    │                 │                 │
//!       └──────reply─────────┴─────reply───────┴──────reply──────┘
//! ```
//!
//! ```
//! use convoke_core::{Context, Endpoint, Method, Service, Status};
//!
//! #[derive(Clone, PartialEq, prost::Message)]
//! struct Number {
//!     #[prost(uint64, tag = "1")]
//!     value: u64,
//! }
//! const DOUBLE: Method<Number, Number> = Method::new("math.Math/Double");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let math = Service::new().unary(DOUBLE, |number, _: Context| async move {
//!     Ok::<_, Status>(Number { value: number.value * 2 })
//! });
//! let endpoint = Endpoint::builder().serve(math).start().await?;
//! let request = DOUBLE.request(Number { value: 21 });
//! let answer = endpoint.invoke(request).to(&endpoint.me()).await?;
//! assert_eq!(answer.value, 42);
//! # Ok(())
//! # }
//! ```
//!
//! **Not** part of it: quorum systems and echo phases (`convoke-quorum`), overlays
//! (`convoke-overlay`), any network of its own ([`transport::Transport`] is the seam), discovery,
//! and exactly-once: a request runs at most once, and a failure says whether it may have run.
//!
//! # Modules
//! - [`proto`]: the crate [`convoke_proto`], the protocol as pure state machines, without I/O or
//!   clock;
//! - [`id`], [`time`], [`wire`] of it: names, time as a number, the bytes of every frame;
//! - [`transport`]: what a network must do;
//! - [`seam`]: what crates built on this one need and users do not;
//! - the rest: [`Endpoint`], [`Call`], [`Task`] on tokio.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod caller;
pub mod carrier;
mod client;
mod coop;
pub mod details;
mod driver;
mod endpoint;
mod error;
pub mod health;
#[cfg(feature = "json")]
mod json;
mod message;
mod method;
mod one_of;
mod packing;
mod peer;
mod resolve;
pub mod seam;
mod server;
mod telemetry;
mod timer;
mod trace_context;
pub mod transport;
mod way;

/// The protobuf library whose messages are [`Payload`]s.
pub use prost;

pub use caller::{Caller, EdgeClient};
#[cfg(feature = "tower")]
pub use client::PeerService;
pub use client::{
    Awaited, Call, CallBuilder, Client, Invocation, Outcome, Outgoing, Reply, RequestStream,
    StreamBuilder, StreamInvocation,
};
pub use convoke_proto as proto;
pub use convoke_proto::call::End;
pub use convoke_proto::failure::Failure;
pub use convoke_proto::id::{CallId, NodeId, Path};
pub use convoke_proto::limits::{Limits, ReplyDial};
pub use convoke_proto::mailbox::{Announce, CastsDropped, JoinRefusal, SpaceRefusal};
pub use convoke_proto::metadata::Metadata;
pub use convoke_proto::node::Reach;
pub use convoke_proto::task::SendError;
pub use convoke_proto::wire::{Cause, Digest, Executed};
pub use convoke_proto::{id, time, wire};
pub use driver::{KeepConnected, Load, OwedPlace, PeerState};
pub use endpoint::{Endpoint, EndpointBuilder, OpenConnection};
pub use error::{CallError, Code, ConnectError, StartError, Status};
#[cfg(feature = "json")]
pub use json::Json;
pub use message::{DecodeError, Payload};
pub use method::{Method, RawMessage, Request};
pub use one_of::{NoPeers, OneOf};
#[cfg(feature = "zstd")]
pub use packing::Compression;
pub use peer::{Peer, ToPeers};
pub use resolve::{BoxError, Resolve};
pub use server::{
    CastBody, CastPort, CastSpace, Context, Deferred, FanOut, Finish, FromRequest, Handler,
    IntoService, Items, ItemsError, ReceivedCast, Refused, ReplyStream, Service, ServiceOf, Task,
    TaskRef, Waiting,
};
#[cfg(feature = "tower")]
pub use server::{Handled, HandlerService, Incoming};
#[cfg(feature = "tracing-spans")]
pub use telemetry::{Propagator, SpanEnd, SpanKind, SpanStart};
pub use trace_context::{TraceContext, TraceContextError};
pub use transport::Principal;
pub use way::Way;
