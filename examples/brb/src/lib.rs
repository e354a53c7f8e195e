//! Bracha's reliable broadcast: a source sends a value to all members; whatever it and up to `f` of
//! `n >= 3f + 1` others do, the correct ones deliver the same value, or none does.
//!
//! ```text
//!   source ──SEND(value)──▶ all ──ECHO(digest)──▶ all ──READY(digest)──▶ all ──▶ deliver
//!                                 on the value          on ceil((n+f+1)/2) ECHO      on 2f+1 READY
//!                                                       or f+1 READY                 and the value
//! ```
//! Votes carry digests; who is to deliver and lacks the value pulls it from those who echoed it.
//! Votes that are lost are said again, so that a member which was away catches up; after how long
//! it must be helped is said in [`node`].
//!
//! - [`protocol`]: what a member does next, from the votes it has. Pure;
//!   `tests/members/swarm.rs` tries it on liars, crashes, copies and any order.
//! - [`broadcasts`]: all broadcasts of all sources at a member, each source within its share. Pure,
//!   too.
//! - [`node`]: members over endpoints, by [`EchoStream`](convoke::quorum::echo::EchoStream).
//! - [`liar`]: a member that tells each other one what it likes.
//! - [`demo`]: four of them in one process.
//! - [`mutant`]: defects that the tests must find.

#![forbid(unsafe_code)]

pub mod broadcasts;
pub mod demo;
pub mod liar;
pub mod mutant;
pub mod node;
pub mod protocol;
