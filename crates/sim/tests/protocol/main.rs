//! The call protocol: its simulation, a model of its completion, and the program `sim`; a file for
//! each idea, in one program that is linked once.
#![cfg(feature = "protocol")]

mod coverage;
mod determinism;
mod model_completion;
mod mutants;
mod outcomes;
mod program;
mod swarm;
