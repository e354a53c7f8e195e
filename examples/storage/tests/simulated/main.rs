//! Replicas on a simulated network, under virtual time: what a write costs, and that the register
//! is atomic.

mod atomic;
mod cost;
