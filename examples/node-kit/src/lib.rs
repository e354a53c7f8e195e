//! Parts of a node program beside its protocol.
//!
//! A protocol is a pure core in a crate of its own: input in, effects out. This library has what a
//! program around such a core needs before people can run it as a node.
//!
//! | module | contents |
//! |---|---|
//! | [`cluster`] | the cluster file: nodes, addresses, keys, settings; refused with line and key |
//! | [`durable`] | values that may leave only once a ledger has made durable what they rest on |
//! | [`ending`] | the end of a node: its last answers leave, its ledger is closed |
//! | [`history`] | what clients asked for, what they were told, and when; as JSON |
//! | [`lanes`] | frames of nodes in virtual time as lanes, for a picture |
//! | [`ledger`] | records in order, durable in groups, on a disk or in memory; snapshots |
//! | [`linearizable`] | is there an order that agrees with a history? |
//! | [`load`] | load in closed and open loops; latencies of those who had to wait, too |
//! | [`mutant`] | deliberate defects that a simulation must find, with the feature `mutants` |
//! | [`operation`] | logs, metrics, health and readiness for others to read; the orderly end |
//! | [`pages`] | pairs in order that a clone freezes: the store behind a key-value machine |
//! | [`places`] | bounded places of those who ask: who asks much leaves some for others |
//! | [`processes`] | nodes as child processes: killed, paused, started again, never left behind |
//! | [`program`] | commands of a node program that are the same whatever its protocol |
//! | [`sessions`] | requests that take effect once, however often they are sent |
//! | [`signals`] | SIGTERM and Ctrl-C, for who wants nothing else of [`operation`] |
//! | [`simulation`] | whole nodes and clients under seeded faults, in virtual time |
//! | [`turns`] | turns of the task that owns a core: what has come by now, one wait for the ledger |
//! | [`world`] | parts of seeded worlds: schedule, network, timer, a ledger that crashes |

#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
pub mod cluster;
pub mod durable;
pub mod ending;
pub mod history;
#[cfg(feature = "lanes")]
pub mod lanes;
pub mod ledger;
pub mod linearizable;
#[cfg(feature = "load")]
pub mod load;
pub mod mutant;
#[cfg(feature = "operation")]
pub mod operation;
pub mod pages;
pub mod places;
pub mod processes;
#[cfg(feature = "program")]
pub mod program;
pub mod sessions;
#[cfg(feature = "signals")]
pub mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod turns;
#[cfg(feature = "world")]
pub mod world;
