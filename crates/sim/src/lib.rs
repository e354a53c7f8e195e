//! A seeded simulation of convoke: many nodes in virtual time on a network with faults, an oracle
//! that knows the truth, and the properties of the call protocol checked after every event.
//!
//! ```text
//!   seed ──▶ Scenario ──▶ World ── events in virtual time ──▶ Report, or the Violation
//!                          │ ├ Network   latency, loss, copies, order, partitions, cuts
//!                          │ ├ hosts     the real protocol cores, with scripted applications
//!                          │ └ Oracle ──▶ invariants, after each event
//! ```
//! A seed decides everything: the same seed gives the same run, with the same hash. The `sim`
//! program replays one seed with its trace, or tries fresh ones on all cores.
//!
//! The cores are the very ones that the async endpoint drives; nothing of them is replaced. What
//! the simulation does not cover is the driver, the transports and real time.
//!
//! Beside it there is a network for whole endpoints, [`transport::SimNetwork`], with latency,
//! faults, and uplinks and downlinks by the [`hose`] model, which is a component of its own, and
//! [`disk::SimDisk`], a disk for each host. These and the delay line are behind the feature
//! `runtime` (default); without that the crate depends on [`convoke_proto`] alone. The simulation
//! of the protocol is behind `protocol` (default): programs that simulate their own do without.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "runtime")]
mod clock;
#[cfg(feature = "runtime")]
pub mod delay;
#[cfg(feature = "runtime")]
pub mod disk;
pub mod hose;
#[cfg(feature = "protocol")]
pub mod invariants;
#[cfg(feature = "protocol")]
pub mod network;
#[cfg(feature = "protocol")]
pub mod oracle;
#[cfg(feature = "protocol")]
pub mod plan;
pub mod random;
#[cfg(feature = "protocol")]
pub mod scenario;
#[cfg(feature = "protocol")]
pub mod swarm;
#[cfg(feature = "protocol")]
pub mod trace;
#[cfg(feature = "runtime")]
pub mod transport;
#[cfg(feature = "protocol")]
pub mod world;
