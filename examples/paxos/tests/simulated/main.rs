//! Replicas and whole nodes without a host: single rules, models, seeded worlds, virtual time; in
//! one program that is linked once.

mod behind;
mod delays;
mod direct;
mod disk;
mod failover;
mod model;
mod mutants;
mod node_mutants;
mod nodes;
mod reads;
mod single_rules;
mod told;
mod world;
