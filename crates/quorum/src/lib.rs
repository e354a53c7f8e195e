//! Calls to a set of members that decide on a quorum of their replies, and echo phases in which the members
//! vote among themselves.

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

pub use configuration::{Configuration, ConfigurationError, Member};
pub use correctable::{Correctable, Correction};
pub use error::{MemberError, QuorumError, Shortfall};
pub use latency::{Latencies, LatencyOrder};
pub use member_set::MemberSet;
pub use membership::{MemberChange, Membership, Stopped};
pub use multicast::{Multicast, SendError, SendFailed, Sending, Unsent};
pub use plan::Retry;
pub use quorum_call::{Decided, Deciding, Detailed, QuorumBuilder, QuorumCall, QuorumExt, each};
pub use quorum_function::{
    Gathered, Matching, NewestOf, Of, QuorumFunction, Verdict, matching, matching_by, newest_of,
};
pub use replies::Replies;
pub use system::{
    All, Byzantine, First, Grid, Majority, QuorumSystem, Threshold, Unsuitable, Weighted,
};
