//! Promises of the planner: its invariants over random networks, the golden vectors, the published
//! tables.

mod invariants;
mod network;
mod oracle;
mod thesis;
mod vectors;
