//! Compiles `.proto` files to convoke clients and servers. No `protoc` is needed: [protox]
//! compiles, [prost-build] makes the messages, and this crate the rest.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), convoke_build::Error> {
//!     convoke_build::compile_protos(&["proto/graph.proto"], &["proto"])
//! }
//! ```
//! ```protobuf
//! syntax = "proto3";
//! package social;
//! import "convoke/options.proto";   // brought by this crate
//!
//! service Graph {
//!   rpc Profile(ProfileRequest) returns (Profile);
//!   rpc FriendsNamed(FriendsNamedRequest) returns (stream Profile);
//!   rpc Home(ProfileRequest) returns (Profile) { option (convoke.tree) = true; }
//! }
//! ```
//! For each package that writes a file, here `social.rs`, to be included where it is wanted:
//! ```text
//! pub mod social {
//!     include!(concat!(env!("OUT_DIR"), "/social.rs"));
//! }
//! ```
//!
//! # What is generated
//!
//! | for the service `Graph` of package `social` | |
//! |---|---|
//! | `mod graph` | a [`Method`] constant for each rpc: `graph::FRIENDS_NAMED.request(..)` delegates |
//! | `trait Graph` | to implement, with `async fn`s |
//! | `GraphServer<T>` | `GraphServer::new(shard)` turns it into a [`Service`] to serve |
//! | `GraphClient` | `GraphClient::new(&endpoint).profile(request)` gives an [`Invocation`] |
//! | `GraphMembers` | where methods are for configurations: `client.on(&replicas).profile(request)` gives a [`QuorumBuilder`] |
//!
//! An rpc that `returns (stream ..)` has a [`Task`] in its handler, too, and replies any number of
//! times: an edge answers gRPC clients with an error where a method replies twice and does not say
//! so. One that takes a `stream` has `Items` in its handler, and a `StreamInvocation` in its
//! client.
//!
//! Comments become documentation. Maps are `BTreeMap`s, so that the same message always has the
//! same bytes. The including crate depends on `convoke` alone (and `prost-types`, for a `Timestamp`
//! and the like), and sees no warnings of this code, even where it denies `missing_docs`, `unused`,
//! `unreachable_pub` or clippy's `pedantic`. Only `forbid` cannot be quieted.
//!
//! # Options
//!
//! | in `convoke/options.proto` | the handler |
//! |---|---|
//! | `option (convoke.tree) = true;` | gets a [`Task`], and answers once, or hands over |
//! | `option (convoke.ordered) = true;` | runs alone for each peer, in the order of submission |
//! | `option (convoke.read_only) = true;` | changes nothing, and may be cancelled once a call is decided |
//! | `option (convoke.idempotent) = true;` | may run twice: a quorum call may ask a member again |
//! | `option (convoke.quorum) = true;` | is asked of a configuration: `client.on(&replicas)` has it |
//! | `option (convoke.multicast) = true;` | is told to a configuration, one-way; its response is empty |
//! | `option (convoke.echo_phases) = 2;` | has its reply held back for so many echo phases among the members |
//! | `option (convoke.ordered_service) = true;` | of the service: its methods are ordered among each other |
//!
//! # What it does **not** do
//!
//! Streamed requests to a configuration: an rpc that takes a `stream` asks one node.
//!
//! [`Method`]: https://docs.rs/convoke/latest/convoke/struct.Method.html
//! [`Service`]: https://docs.rs/convoke/latest/convoke/struct.Service.html
//! [`Invocation`]: https://docs.rs/convoke/latest/convoke/struct.Invocation.html
//! [`QuorumBuilder`]: https://docs.rs/convoke/latest/convoke/quorum/struct.QuorumBuilder.html
//! [`Task`]: https://docs.rs/convoke/latest/convoke/struct.Task.html
//! [protox]: https://docs.rs/protox
//! [prost-build]: https://docs.rs/prost-build

#![forbid(unsafe_code)]

mod builder;
mod compile;
mod error;
mod names;
mod options;
mod output;
mod polish;
mod service;

use std::path::Path;

pub use builder::Builder;
pub use error::Error;
/// The crate that [`Builder::prost`] configures, in the version this crate uses.
pub use prost_build;

/// The text of `convoke/options.proto`, for other tools that compile the same files: `protoc`,
/// linters, editors.
pub const OPTIONS_PROTO: &str = include_str!("../proto/convoke/options.proto");

/// Compiles these files, which lie in one of the folders `includes`, and what they import, into the
/// `OUT_DIR` of a build script.
///
/// # Errors
/// [`Error`], which says where in which file. Returned from a build script's `main`, it is
/// readable.
pub fn compile_protos(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<(), Error> {
    configure().compile_protos(protos, includes)
}

/// Settings other than those of [`compile_protos`].
pub fn configure() -> Builder {
    Builder::new()
}

/// Types of generated code, as the compiler checks them: a client method takes its own message,
/// ```
/// # mod social { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/social.rs")); }
/// # use social::{GraphClient, ProfileRequest};
/// fn call(graph: &GraphClient) {
///     let _ = graph.profile(ProfileRequest::default());
/// }
/// ```
/// no other,
/// ```compile_fail,E0308
/// # mod social { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/social.rs")); }
/// # use social::{FriendsNamedRequest, GraphClient};
/// fn call(graph: &GraphClient) {
///     let _ = graph.profile(FriendsNamedRequest::default());
/// }
/// ```
/// and a task replies with the message of its method only.
/// ```compile_fail,E0308
/// # mod social { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/social.rs")); }
/// # use convoke::{Finish, Status, Task};
/// # use social::{Change, ProfileRequest};
/// async fn last(task: Task<Change>) -> Result<Finish, Status> {
///     task.answer(&ProfileRequest::default())
/// }
/// ```
///
/// Members that echo are all asked by one call,
/// ```
/// # mod replicated { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/replicated.rs")); }
/// # use convoke::{Status, quorum::{Configuration, Majority}};
/// # use replicated::{Entry, Key, StorageClient, Stored};
/// async fn write(storage: &StorageClient, replicas: &Configuration) -> Result<Stored, Status> {
///     storage.on(replicas).forget(Key::default()).send_and_forget()?;
///     Ok(storage.on(replicas).write_echo(Entry::default()).acked_by(Majority).await?)
/// }
/// ```
/// never one alone,
/// ```compile_fail,E0599
/// # mod replicated { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/replicated.rs")); }
/// # use replicated::{Entry, StorageClient};
/// fn write(storage: &StorageClient) {
///     let _ = storage.write_echo(Entry::default());
/// }
/// ```
/// and nobody waits for the answers to a multicast.
/// ```compile_fail,E0599
/// # mod replicated { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/replicated.rs")); }
/// # use convoke::quorum::{Configuration, Majority};
/// # use replicated::{Key, StorageClient};
/// fn forget(storage: &StorageClient, replicas: &Configuration) {
///     let _ = storage.on(replicas).forget(Key::default()).quorum(Majority);
/// }
/// ```
#[cfg(doctest)]
struct GeneratedTypes;
