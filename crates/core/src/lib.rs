//! The call protocol of convoke, and the endpoint that drives it.
//!
//! A *call* is one exchange among many parties. The initiator opens branches to some nodes; each task
//! there replies to the initiator, any number of times, or *delegates*: it opens branches to further
//! nodes, whose tasks reply **straight to the initiator**. The call is complete when the initiator has
//! everything that will ever come, which it knows from *manifests*: every task declares at its end how
//! many branches it opened and how many replies it sent. In the common cases that costs no message.
//!
//! ```text
//!   initiator ──request──▶ task ──request──▶ task ──request──▶ task
//!       ▲                    │                 │                 │
//!       └──────reply─────────┴─────reply───────┴──────reply──────┘
//! ```
//!
//! ```
//! use convoke_core::{CallBuilder, Context, Endpoint, Method, Service, Status};
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
//! let answer = CallBuilder::new(&endpoint).branch(request, &endpoint.me()).await?;
//! assert_eq!(answer.value, 42);
//! # Ok(())
//! # }
//! ```
//!
//! What it does **not** do: quorum systems and echo phases (`convoke-quorum`), overlays
//! (`convoke-overlay`), any network of its own ([`transport::Transport`] is the seam), discovery, and
//! exactly-once: a request runs at most once, and a failure says whether it may have run.
//!
//! # Modules
//! - [`id`], [`time`], [`wire`]: names, time as a number, the bytes of every frame;
//! - [`proto`]: the protocol as pure state machines, without I/O or clock;
//! - [`transport`]: what a network must do;
//! - the rest, behind the feature `runtime` (default): [`Endpoint`], [`Call`], [`Task`] on tokio.

#![forbid(unsafe_code)]

#[cfg(feature = "runtime")]
pub mod carrier;
#[cfg(feature = "runtime")]
mod client;
#[cfg(feature = "runtime")]
mod driver;
#[cfg(feature = "runtime")]
mod endpoint;
#[cfg(feature = "runtime")]
mod error;
#[cfg(feature = "runtime")]
pub mod health;
pub mod id;
#[cfg(feature = "runtime")]
mod method;
#[cfg(feature = "runtime")]
mod packing;
pub mod proto;
#[cfg(feature = "runtime")]
mod server;
#[cfg(feature = "runtime")]
mod telemetry;
pub mod time;
#[cfg(feature = "runtime")]
mod trace_context;
pub mod transport;
pub mod wire;

#[cfg(feature = "tower")]
pub use client::PeerService;
#[cfg(feature = "runtime")]
pub use client::{
    Awaited, Call, CallBuilder, DecidingCall, Invocation, Outcome, Peer, Progress, Reply,
};
#[cfg(feature = "runtime")]
pub use driver::{Load, PeerState};
#[cfg(feature = "runtime")]
pub use endpoint::{Endpoint, EndpointBuilder, KeepConnected};
#[cfg(feature = "runtime")]
pub use error::{CallError, Code, ConnectError, StartError, Status};
pub use id::{CallId, NodeId, Path};
#[cfg(feature = "runtime")]
pub use method::{Method, RawMessage, Request};
#[cfg(feature = "zstd")]
pub use packing::Compression;
pub use proto::call::{Decision, End, Tally};
pub use proto::failure::Failure;
pub use proto::limits::{Limits, ReplyDial};
pub use proto::mailbox::{Announce, CastsDropped, JoinRefusal, SpaceTaken};
pub use proto::node::Reach;
pub use proto::task::TaskRefusal;
#[cfg(feature = "runtime")]
pub use server::{
    Caller, CastBody, CastPort, CastSpace, Context, Finish, ReceivedCast, Refused, ReplyStream,
    SendError, Service, Task, Waiting,
};
#[cfg(feature = "tower")]
pub use server::{Handled, HandlerService, Incoming};
#[cfg(feature = "tracing-spans")]
pub use telemetry::Propagator;
#[cfg(feature = "runtime")]
pub use trace_context::{TraceContext, TraceContextError};
#[cfg(feature = "runtime")]
pub use transport::Principal;
pub use wire::{Cause, Digest, Executed};
