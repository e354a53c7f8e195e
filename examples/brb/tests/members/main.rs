//! Members: their protocol alone, on a simulated network, and in the demonstration; in one program
//! that is linked once.

mod demo;
mod forever;
mod liar;
mod losses;
mod swarm;
