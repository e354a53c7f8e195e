//! Echo phases among endpoints on a simulated network, in virtual time.

mod counts;
mod faults;
mod floods;
mod liars;
mod mutants;
mod pull;
mod spaces;
mod streams;
mod support;
mod swarm;
mod told;
