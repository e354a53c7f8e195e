//! A replicated register whose replicas echo each write among themselves.
//!
//! A client writes a value to all replicas. In an *echo phase* each replica tells all others that
//! it has the value, and goes on once a majority has told the same; only then it answers. So an
//! answer of one replica says that a majority has the value; after a second phase, that a majority
//! knows so. Writes with no, one and two phases are the benchmark of a paper on all-to-all
//! communication in Gorums, and its figures are what this program plays ([`demo`]) and measures
//! ([`mod@bench`]).
//!
//! ```text
//!  echo    client ─Write─▶ replicas ─cast─▶ replicas ──────────────────▶ client      2 + p delays
//!  nested  client ─Write─▶ replicas ─EchoWrite─▶ replicas ─▶ replicas ─▶ client      2 + 2p
//!  client  client ─Write─▶ replicas ─▶ client ─EchoWrite─▶ replicas ───▶ client      2 + 2p
//! ```
//! The [`form::Form`] says who leads the phases. With `p` phases among `n` replicas the first costs
//! `2n + p·n(n-1)` frames, the second `2n + 2p·n(n-1)`, the third `2n + 2pn`, where every frame of
//! a phase goes through the client.
//!
//! | module | what it has |
//! |---|---|
//! | [`register`] | the newest value of each key: pure |
//! | [`form`] | who leads the phases, and how many there are |
//! | [`proto`], [`replica`], [`client`] | the service, a replica as a node, a write in each form |
//! | [`cluster`], [`serve`], [`processes`] | where the replicas are; one; all of them on this machine |
//! | [`life`] | a replica starts once in its cluster |
//! | [`simulated`] | all of them in one process, in virtual time |
//! | [`demo`], [`mod@bench`], [`lanes`] | what the commands do |
//! | [`statistics`], [`svg`] | confidence intervals, figures |

#![forbid(unsafe_code)]

pub mod bench;
pub mod client;
pub mod cluster;
pub mod demo;
pub mod form;
pub mod lanes;
pub mod life;
pub mod processes;
pub mod register;
pub mod replica;
pub mod serve;
pub mod simulated;
pub mod statistics;
pub mod svg;

/// Messages, client and server, generated from `proto/storage.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/storage.rs"));
}
