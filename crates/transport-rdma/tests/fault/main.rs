//! Faults for real: peers that die, stop or ignore the rules, a device that goes down, a wire
//! that loses. Runs where there is a verbs device, which `cargo xtask rdma` provides.
//!
//! Each case is a process of its own. The module `device` harms the network, so it runs in a
//! machine only; the module `pair` runs on two machines at once, in each as one of its ends.

mod child;
mod credit;
mod device;
mod frames;
mod leaks;
mod node;
mod pair;
mod peer;
mod saturation;
mod tally;
