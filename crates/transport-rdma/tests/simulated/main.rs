//! The whole transport over simulated verbs: credit, held memory, faults.

mod faults;
mod flow;
mod held;
mod opening;
mod support;
