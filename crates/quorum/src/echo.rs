//! Echo phases: members of a configuration vote among themselves, all to all, in one-way messages.
//!
//! ```text
//!             write                echo phase                reply
//!   client ──REQUEST──▶ member 0 ──CAST──▶ members 1, 2, 3 ──REPLY──▶ client
//!          ──REQUEST──▶ member 1 ──CAST──▶ members 0, 2, 3 ──REPLY──▶
//!          ──REQUEST──▶ member 2 ──CAST──▶ ...
//!          ──REQUEST──▶ member 3
//! ```
//! A phase ends at a member with a quorum of equal votes, its own among them. With `p` phases, a
//! call to `n` members costs `2n + p·n(n-1)` messages and `2 + p` one-way delays.
//!
//! # Which kind
//! - [`echo_phases`]: in a handler, `p` majority phases, one after the other. For crashes only.
//! - [`EchoExt::echo`]: the same around a handler, which then need not know of it; [`EchoOf::echo`]
//!   of a service with a state.
//! - [`EchoRound`]: any phases with any rules ([`EchoPlan`]), in a handler or about a tag.
//! - [`EchoSpace`]: rounds about names of the application's own, for phases that outlive a call.
//! - [`EchoStream`]: all votes about such names, for a protocol with a core of its own.
//! - [`EchoCore`]: the same without I/O and clock, for protocols and simulations.
//!
//! # What is promised
//! - A member counts once in a phase, this node itself as well. Who it is says its connection.
//! - A second, different vote is [`Evidence`], and no vote.
//! - This node casts once in a phase.
//! - Votes may have to pass a [`Verifier`] before they count, and wait to be signed before they
//!   leave.
//! - What comes early waits, within bounds, and what comes late is harmless.
//! - When a quorum cannot be reached any more, the phase fails at once and names who is missing.
//!
//! # What is not
//! Votes are not signed, unless the application does so: one member cannot prove to another what a
//! third has said. A round repeats those that a broken connection took while it is awaited, a
//! stream does not: there the member must be helped by the application.

mod digest;
mod error;
mod gate;
mod machine;
mod members;
mod payloads;
mod plan;
mod round;
mod said;
mod serve;
mod space;
mod stream;
mod tally;

pub use digest::digest_of;
pub use error::{CastRefused, EchoError, QuorumNotReached};
pub use gate::{TaggedCast, Verifier};
pub use machine::{EchoCore, EchoVote, Reached};
pub use members::EchoMembers;
pub use payloads::{Payloads, PullError, Pulled, ValueTooLarge};
pub use plan::{EchoPlan, Phase, PlanError, Rule, byzantine_quorum, majority};
pub use round::{EchoOutcome, EchoRound, echo_phases};
pub use serve::{EchoExt, EchoOf};
pub use space::{EchoSpace, EchoSpaceBuilder};
pub use stream::{EchoStream, StreamRefused};
pub use tally::{Evidence, Heard, Refusal, Refused, Vote};
