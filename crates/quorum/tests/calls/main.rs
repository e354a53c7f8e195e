//! Quorum calls and what belongs to them, a file for each idea, in one program that is linked once.

#[path = "../support/cluster.rs"]
mod support;

mod blocking;
mod configurations;
mod correctables;
mod deadlines;
mod defects;
mod edges;
mod liars;
mod membership;
mod multicast;
mod no_runtime;
mod quorum_calls;
mod swarm;
mod trees;
