//! The whole transport over simulated verbs: credit, held memory, faults.

mod deeds;
mod faults;
mod flow;
mod held;
mod opening;
mod owners;
mod stranger;
mod support;
