//! Calls to a set of members that decide on a quorum of their replies, and echo phases in which the
//! members vote among themselves.
//!
//! A [`Configuration`] is the set of members that are asked. A quorum call sends each one request;
//! a *rule* is asked after every reply and failure whether that is enough, and says *continue*,
//! *done* or *impossible*. It counts distinct members that a connection has proved to be
//! themselves, never messages.
//!
//! ```text
//!   caller ──request──▶ member 1 ──reply──▶ ┐
//!      ├────request──▶ member 2 ──reply──▶ ├─ Replies ─ QuorumFunction ─▶ Continue | Done(T) | Impossible
//!      └────request──▶ member 3 ──failure─▶ ┘
//! ```
//!
//! ```
//! use convoke_core::{Context, Endpoint, Method, Service, Status};
//! use convoke_quorum::{Configuration, Majority, QuorumExt, newest_of};
//!
//! const READ: Method<String, u64> = Method::new("register.Register/Read").read_only();
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let register = Service::new()
//!     .unary(READ, |_key, _: Context| async move { Ok::<_, Status>(7) });
//! let endpoint = Endpoint::builder().serve(register).start().await?;
//! // One member, the endpoint itself; most have more.
//! let members = Configuration::new([endpoint.me()])?;
//! let read = || endpoint.call(READ, "x".into()).to_all(&members);
//! assert_eq!(read().quorum(Majority).await?, [(endpoint.node(), 7)]);
//! assert_eq!(read().quorum(newest_of(Majority, |number: &u64| *number)).await?, 7);
//! # Ok(())
//! # }
//! ```
//!
//! It does **not** agree on who the members are (an epoch says which list is meant, and a protocol
//! of the application changes it), nor make a write of a majority safe from members that lie: see
//! [`Byzantine`].
//!
//! # Modules
//! The rules are pure: [`QuorumSystem`] (which sets are enough), [`QuorumFunction`] (what their
//! replies come to), [`Replies`] (who has said what). The rest drives a core call on the caller's
//! task: [`QuorumBuilder`], [`QuorumCall`], [`Deciding`], [`Correctable`], [`Sending`].
//! [`Latencies`] and [`Membership`] say whom to ask first, and who is there.

#![forbid(unsafe_code)]

mod configuration;
mod correctable;
pub mod echo;
mod error;
mod latency;
mod member_set;
mod membership;
mod multicast;
mod plan;
mod quorum_call;
mod quorum_function;
mod replies;
mod roster;
mod source;
mod system;

pub use configuration::{Configuration, ConfigurationError, Member, ToMember};
pub use correctable::Correctable;
pub use error::{MemberError, QuorumError, Shortfall};
pub use latency::{Latencies, LatencyOrder};
pub use member_set::MemberSet;
pub use membership::{MemberChange, Membership, Stopped};
pub use multicast::{Multicast, MulticastError, Sending};
pub use plan::Retry;
pub use quorum_call::{Decided, Deciding, QuorumBuilder, QuorumCall, QuorumExt};
pub use quorum_function::{
    AckedBy, Closure, Filter, Map, Matching, NewestOf, QuorumFunction, Verdict, matching,
    matching_by, newest_of,
};
pub use replies::Replies;
pub use system::{
    All, Byzantine, First, Grid, Majority, QuorumSystem, Threshold, Unsuitable, Weighted,
};
