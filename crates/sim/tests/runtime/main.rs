//! The simulated transport, the simulated disk and the delay line; a file for each idea, in one
//! program that is linked once.
#![cfg(feature = "runtime")]

mod disk;
mod transport_conformance;
mod transport_delay;
mod transport_determinism;
mod transport_faults;
mod transport_hose;
