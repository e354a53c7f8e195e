//! Async multiparty RPC: one call, many parties.
//!
//! A multi-hop request, a quorum read, a broadcast: on top of request and response each is written
//! by hand, and each differently. Here they are one thing, the **call**. It opens branches to some
//! nodes; the task at each replies, or *delegates* to further nodes, whose tasks reply **straight
//! to the initiator**. The call knows when it is complete, and which branch failed, where, and
//! whether it may have run.
//!
//! ```text
//!   initiator ──request──▶ task ──request──▶ task ──request──▶ task
//!       ▲                    │                 │                 │
//!       └──────reply─────────┴─────reply───────┴──────reply──────┘
//! ```
//!
//! # Example
//!
//! Two shards keep the persons of a social network. Whichever is asked for somebody's friends
//! delegates to both, and each sends those it keeps to whoever asked. Messages of one's own need
//! `prost = "0.14"` beside `convoke`, the version that [`prost`] is:
//!
//! ```
//! # #[cfg(feature = "tcp")] mod example {
//! use std::time::Duration;
//!
//! use convoke::{Context, Endpoint, Finish, Method, Peer, Service, Status, Task};
//!
//! #[derive(Clone, PartialEq, prost::Message)]
//! struct Ids {
//!     #[prost(uint64, repeated, tag = "1")]
//!     ids: Vec<u64>,
//! }
//!
//! #[derive(Clone, PartialEq, prost::Message)]
//! struct Person {
//!     #[prost(uint64, tag = "1")]
//!     id: u64,
//!     #[prost(uint64, repeated, tag = "2")]
//!     friends: Vec<u64>,
//! }
//!
//! // Names of methods, with input and output; `convoke-build` makes them of a .proto file.
//! const PERSON: Method<Ids, Person> = Method::new("social.Graph/Person").read_only();
//! const PERSONS: Method<Ids, Person> = Method::new("social.Graph/Persons").read_only();
//! const FRIENDS: Method<Person, Person> = Method::new("social.Graph/Friends").read_only();
//!
//! /// The shards with the even and the odd ids.
//! #[derive(Clone, Copy)]
//! struct Shard {
//!     even: Peer,
//!     odd: Peer,
//! }
//!
//! impl Shard {
//!     // One reply.
//!     async fn person(&self, request: Ids, _: Context) -> Result<Person, Status> {
//!         Ok(Person { id: request.ids[0], friends: vec![2, 3, 4] })
//!     }
//!
//!     // Many replies.
//!     async fn persons(&self, request: Ids, task: Task<Person>) -> Result<Finish, Status> {
//!         for id in request.ids {
//!             task.reply(&Person { id, friends: Vec::new() })?;
//!         }
//!         Ok(task.finish())
//!     }
//!
//!     // Two branches. If `PERSONS` answered with anything but a `Person`, this would not compile.
//!     async fn friends(&self, of: Person, task: Task<Person>) -> Result<Finish, Status> {
//!         let (even, odd) = of.friends.into_iter().partition(|id| id % 2 == 0);
//!         let parts = [(self.even, even), (self.odd, odd)];
//!         task.fan_out(parts.map(|(shard, ids)| (shard, PERSONS.request(Ids { ids })))).await
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = |id| convoke::NodeId::new(id);
//! // An endpoint is server and client at once, and keeps one connection to each peer for both.
//! let (even, odd) = (node(2), node(1));
//! let shard = Shard { even: even.into(), odd: odd.into() };
//! let service = || {
//!     Service::with(shard)
//!         .unary(PERSON, Shard::person)
//!         .tree(PERSONS, Shard::persons)
//!         .tree(FRIENDS, Shard::friends)
//! };
//! let listening = || convoke::endpoint().listen("tcp://127.0.0.1:0").serve(service());
//! let odd_endpoint = listening().node(odd).start().await?;
//! let at = odd_endpoint.addresses()[0].to_string();
//! let even_endpoint = listening().node(even).peer(odd, [at]).start().await?;
//!
//! let client: Endpoint = convoke::endpoint().start().await?;
//! let peer = client.connect(even_endpoint.addresses()).await?;
//!
//! // One branch, one reply.
//! let ada = client.call(PERSON, Ids { ids: vec![1] }).to(peer).await?;
//! assert_eq!(ada.friends, [2, 3, 4]);
//!
//! // A tree: replies come from whoever has them, in no order.
//! let mut call = client.call(FRIENDS, ada).to(peer).open()?;
//! let mut friends = Vec::new();
//! while let Some(reply) = call.next().await {
//!     let reply = reply?;
//!     println!("{} from {}", reply.message().id, reply.from());
//!     friends.push((reply.message().id, reply.from()));
//! }
//! friends.sort();
//! assert_eq!(friends, [(2, even), (3, odd), (4, even)]);
//! assert!(call.outcome().await.is_complete());
//!
//! // Several branches, of which the first reply is awaited: what is late is cancelled.
//! let odd_peer = client.connect(odd_endpoint.addresses()).await?;
//! let call = client.call(PERSON, Ids { ids: vec![1] }).deadline(Duration::from_secs(5));
//! assert_eq!(call.to_all([peer, odd_peer]).await?.id, 1);
//!
//! // Branches that differ, in one call.
//! let person = PERSON.request(Ids { ids: vec![1] });
//! let persons = PERSONS.request(Ids { ids: vec![5, 7] });
//! let call = client.fan_out([(peer, person), (odd_peer, persons)]).open()?;
//! let (replies, outcome) = call.collect().await?;
//! assert_eq!((replies.len(), outcome.is_complete()), (3, true));
//!
//! for endpoint in [client, even_endpoint, odd_endpoint] {
//!     endpoint.shutdown(Duration::from_secs(5)).await;
//! }
//! # Ok(())
//! # }
//! # }
//! # fn main() {
//! #     #[cfg(feature = "tcp")]
//! #     example::main().unwrap();
//! # }
//! ```
//!
//! With a `.proto` file, `convoke-build` writes the constants, the trait to implement and the
//! client:
//!
//! ```text
//! impl Graph for Shard {
//!     async fn person(&self, request: Ids, _: Context) -> Result<Person, Status> { .. }
//!     async fn friends(&self, of: Person, task: Task<Person>) -> Result<Finish, Status> { .. }
//! }
//!
//! let graph = GraphServer::new(shard);
//! let endpoint = convoke::endpoint().listen("tcp://0.0.0.0:7000").serve(graph).start().await?;
//! let ada = GraphClient::new(&endpoint).person(request).to(peer).await?;
//! ```
//!
//! # What holds
//!
//! - A request runs at most once. A failure says whether it may have run ([`Executed`]).
//! - Every call has a deadline, 10 s unless another is given, and travels with what remains of it.
//! - Dropping a call cancels it, wherever its tasks are.
//! - Queues, trees, payloads and remembered ids are bounded ([`Limits`]); at a bound there is a
//!   typed error.
//!
//! **Not** part of it: discovery by itself, retries by itself, exactly-once. A loop of
//! [`Endpoint::peer`] and [`Endpoint::forget`] or a [`Resolve`] says who is where, and a [`OneOf`]
//! picks one of several.
//!
//! # Where to look
//!
//! | to | see |
//! |---|---|
//! | set up a node | [`endpoint`], with the transports of this crate's features, and [`EndpointBuilder`] |
//! | call | [`Endpoint::call`], [`Client`], [`CallBuilder`], [`Call`], [`Reply`], [`Outcome`], [`CallError`] |
//! | stream | [`Client::call_stream`], [`RequestStream`], [`Items`], [`ReplyStream`] |
//! | serve | [`Service`], [`ServiceOf`], [`Context`], [`Task`], [`Deferred`], [`Status`], [`details`] |
//! | name methods | [`Method`], [`Request`] |
//! | operate | [`health`], [`Endpoint::shutdown`], [`Endpoint::watch_peer`], [`Limits`] |
//! | write a transport | [`transport`] |
//!
//! # Features
//!
//! | feature | brings | default |
//! |---|---|---|
//! | `tcp` | the transport for `tcp://` addresses and, on Unix, `unix://`: `TcpTransport` | yes |
//! | `quorum` | the module `quorum`: configurations, quorum calls, echo phases | yes |
//! | `overlay` | the module `overlay`: large fan-outs and casts travel over planned trees between sites | no |
//! | `overlay-lp` | the same with one-relay trees, `Family::OneRelay`, by a linear program | no |
//! | `tls` | certificates (`Identity`) and `TcpTransport::tls` for `tls://` addresses; with `grpc`, `GrpcTransport::tls` for `grpcs://` and TLS at the edge | no |
//! | `quic` | the same for `quic://` addresses, `QuicTransport` | no |
//! | `grpc` | the module `grpc`: the transport for `grpc://` addresses, the edge, calls out | no |
//! | `rdma` | the module `rdma`: the transport for `rdma://` addresses, over RDMA verbs on Linux | no |
//! | `rdma-simulated` | the same module over simulated devices, for tests; needs no library of the system | no |
//! | `tower` | middleware: `Service::layer`, `Endpoint::service` | no |
//! | `tracing-spans` | a `tracing` span for each call and handler, `EndpointBuilder::propagator` | no |
//! | `metrics` | counts through the `metrics` facade, `EndpointBuilder::metrics` | no |
//! | `zstd` | compression of large messages, `EndpointBuilder::compression`; compiles C | no |
//! | `json` | `Json`: messages of serde types, without a `.proto` file | no |
//! | `disk` | the module `disk`: the files of a node as a trait, and those of the host | no |
//! | `sim` | the module `sim`: simulated networks, scheme `sim://`, simulated disks, and delays on real networks | no |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "zstd")]
pub use convoke_core::Compression;
#[cfg(feature = "json")]
pub use convoke_core::Json;
pub use convoke_core::id::{MethodId, NotANodeId, PathTooDeep, TaskKey};
pub use convoke_core::prost;
pub use convoke_core::prost::bytes::Bytes;
pub use convoke_core::proto::initiator::OpenError;
pub use convoke_core::proto::limits::LimitsError;
pub use convoke_core::proto::task::ItemsFailure;
pub use convoke_core::{
    Awaited, Call, CallBuilder, CallError, CallId, Caller, Cause, Client, Code, ConnectError,
    Context, DecodeError, Deferred, EdgeClient, End, Endpoint, EndpointBuilder, Executed, Failure,
    FanOut, Finish, FromRequest, Handler, IntoService, Invocation, Items, ItemsError,
    KeepConnected, Limits, Load, Metadata, Method, NoPeers, NodeId, OneOf, Outcome, Outgoing, Path,
    Payload, Peer, PeerState, RawMessage, Refused, Reply, ReplyDial, ReplyStream, Request,
    RequestStream, Resolve, SendError, Service, ServiceOf, StartError, Status, StreamBuilder,
    StreamInvocation, Task, TaskRef, Way, details, health,
};
#[cfg(feature = "disk")]
pub use convoke_disk as disk;
#[cfg(feature = "overlay")]
pub use convoke_overlay as overlay;
#[cfg(feature = "quorum")]
pub use convoke_quorum as quorum;
#[cfg(feature = "sim")]
pub use convoke_sim as sim;
#[cfg(feature = "grpc")]
pub use convoke_transport_grpc as grpc;
#[cfg(feature = "rdma-simulated")]
pub use convoke_transport_rdma as rdma;

/// Transports, the traits by which others are written, and addresses.
pub mod transport {
    pub use convoke_core::id::{Incarnation, LinkNonce};
    pub use convoke_core::transport::mem::{MemTransport, MemTransportBuilder};
    pub use convoke_core::transport::{
        ADDRESS_BYTES_MAX, Address, AddressError, Appended, BoxFuture, CloseReason, Connection,
        Counters, Credentials, DialError, DialLimit, Hello, Lane, Link, ListenError, Listener,
        NotWritable, ORDER_HEAD_BYTES, Order, PeerName, Principal, Received, Remote, Sink,
        ToAddresses, Transport, parts, sockets,
    };
    pub use convoke_core::{BoxError, OpenConnection, ToPeers};
    #[cfg(feature = "grpc")]
    pub use convoke_transport_grpc::GrpcTransport;
    #[cfg(feature = "rdma-simulated")]
    pub use convoke_transport_rdma::RdmaTransport;
    #[cfg(any(feature = "tcp", feature = "quic"))]
    pub use convoke_transport_tcp::ConfigError;
    #[cfg(any(feature = "quic", feature = "tls"))]
    pub use convoke_transport_tcp::{Identity, IdentityError, IdentityWatch};
    #[cfg(feature = "quic")]
    pub use convoke_transport_tcp::{QuicConfigError, QuicTransport, QuicTransportBuilder};
    #[cfg(feature = "tcp")]
    pub use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};
}

/// One-way messages among members, on which echo phases are built.
pub mod cast {
    pub use convoke_core::{
        Announce, CastBody, CastPort, CastSpace, CastsDropped, Digest, JoinRefusal, Reach,
        ReceivedCast, SpaceRefusal, Waiting,
    };
}

/// Middleware: requests on their way to handlers, and calls as a tower service.
#[cfg(feature = "tower")]
pub mod middleware {
    pub use convoke_core::{Handled, HandlerService, Incoming, PeerService};
}

/// Traces: of a call's tree, and of what it is part of.
pub mod telemetry {
    pub use convoke_core::proto::trace::{EntryBy, TraceEvent, Traced};
    pub use convoke_core::time::Timestamp;
    #[cfg(feature = "tracing-spans")]
    pub use convoke_core::{Propagator, SpanEnd, SpanKind, SpanStart};
    pub use convoke_core::{TraceContext, TraceContextError};
}

/// Sets up an endpoint that speaks `tcp://` and, on Unix, `unix://`, whatever features are on.
/// Other transports are added by value, with [`EndpointBuilder::transport`].
///
/// [`Endpoint::builder`] sets up one without any, for other settings of TCP:
/// ```
/// # #[cfg(feature = "tcp")]
/// let builder = convoke::Endpoint::builder()
///     .transport(convoke::transport::TcpTransport::builder().build()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tcp")]
pub fn endpoint() -> EndpointBuilder {
    Endpoint::builder().transport(transport::TcpTransport::new())
}

/// Nothing where the feature `quorum` is on; otherwise an error that says so, for generated code
/// that needs it.
#[cfg(feature = "quorum")]
#[doc(hidden)]
#[macro_export]
macro_rules! requires_quorum {
    () => {};
}

/// Nothing where the feature `quorum` is on; otherwise an error that says so, for generated code
/// that needs it.
///
/// ```compile_fail
/// convoke::requires_quorum!();
/// ```
#[cfg(not(feature = "quorum"))]
#[doc(hidden)]
#[macro_export]
macro_rules! requires_quorum {
    () => {
        compile_error!(
            "this service has methods for configurations (`quorum`, `multicast` or `echo_phases`): \
             turn on the feature `quorum` of the crate `convoke`"
        );
    };
}

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
