//! A social network spread over many processes, asked the short queries of the LDBC benchmark.
//!
//! The [Social Network Benchmark](https://ldbcouncil.org/benchmarks/snb/) of the Linked Data
//! Benchmark Council describes a graph of persons, friendships, forums, posts and comments, and
//! seven short queries about it, IS1 to IS7. They are lookups that lead from shard to shard: from a
//! person to their messages, from each message up to the post its thread started from, from there
//! to that post's author. That is what call trees are for.
//!
//! ```text
//!   LDBC folder ──► csv ──┐                 ┌──► Shard 0 ─┐
//!                         ├──► store::Graph ┼──► Shard 1 ─┼──► a query as a call tree ──┐
//!   a seed ──► generate ──┘        │        └──► Shard 2 ─┘                             ▼
//!                                  └──► reference ──────────► query::Answer ◄── equal? ─┘
//! ```
//!
//! A process reads its own part of the graph only ([`store::Shard::read`]). The same queries
//! answered over the whole graph ([`mod@reference`]) and the benchmark's own answers ([`expected`])
//! are what every other way of answering is held to.
//!
//! ```
//! use graph::generate::{Recipe, generate};
//! use graph::query::Query;
//! use graph::reference;
//!
//! let graph = generate(Recipe { persons: 30, seed: 7 });
//! let friends = reference::answer(&graph, Query::Is3, 1);
//! println!("{:?}", Query::Is3.columns());
//! for row in friends.rows {
//!     println!("{row:?}");
//! }
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | [`model`] | ids and plain records: person, forum, message, friendship |
//! | [`store`] | which shard is the home of what; one part of the graph, or all of it |
//! | [`csv`] | the benchmark's folder of tables, read and written |
//! | [`generate`] | a made-up graph from a seed |
//! | [`query`] | the queries, the rows of their answers, and their order |
//! | [`mod@reference`] | the queries answered in one place |
//! | [`expected`] | files of right answers, and differences from them |
//! | [`steps`] | a query as steps at shards: pure |
//! | [`proto`], [`node`], [`forms`] | the service, a shard as a node, a query in three forms |
//! | [`cluster`], [`serve`], [`processes`] | where the shards are; one shard; all of them on this machine |
//! | [`simulated`] | the same over a simulated network, in one process |
//! | [`mod@check`], [`demo`], [`choose`], [`trace`], [`lanes`] | what the commands do |
//! | [`mod@file`] | what can be wrong with a file of data, and where |

#![forbid(unsafe_code)]

pub mod check;
pub mod choose;
pub mod cluster;
pub mod csv;
pub mod demo;
pub mod expected;
pub mod file;
pub mod forms;
pub mod generate;
pub mod lanes;
pub mod model;
pub mod node;
pub mod processes;
pub mod query;
pub mod reference;
pub mod serve;
pub mod simulated;
pub mod steps;
pub mod store;
pub mod trace;

/// Messages, client and server, generated from `proto/graph.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/graph.rs"));
}
