//! Convoke beside other RPC stacks and bare sockets: the same operations, in one run, in turns.
//!
//! ```text
//!   for each round: for each case (bench, form, system, runtime):
//!     processes  start the servers, each a process ── bencher  warm up, begin ── drive  callers or a window
//!     ── end: tally (latencies, failures), meter (processor time, allocations) ── processes end
//!   report: rows, table, ratios within each round ── svg: a chart
//! ```
//!
//! It is no library for others: two binaries and their tests use it, of which `compare-counted`
//! counts allocations and `compare` does not. `docs/benchmarks.md` says
//! what each bench means, and what keeps the comparison fair.

#![forbid(unsafe_code)]

pub mod attack;
pub mod authority;
pub mod bench;
pub mod bencher;
pub mod control;
pub mod drive;
pub mod flavour;
pub mod lab;
pub mod meter;
mod output;
pub mod pin;
pub mod plan;
pub mod processes;
pub mod program;
mod proto;
pub mod report;
pub mod roo;
pub mod scale;
pub mod settle;
pub mod svg;
pub mod system;
mod systems;
pub mod tally;
mod thrift;
