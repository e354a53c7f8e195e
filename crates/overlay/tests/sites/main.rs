//! Whole sites, on simulated networks in virtual time and over real sockets; in one program that is
//! linked once.

mod guests;
mod lives;
mod over_sim;
mod over_tcp;
