//! Replicas and whole nodes without a host: single rules, models, seeded worlds, virtual time; in
//! one program that is linked once.

mod channels;
mod delays;
mod disk;
mod lost;
mod model;
mod mutants;
mod replica;
mod simulation;
mod simulation_mutants;
mod single_rules;
mod world;
