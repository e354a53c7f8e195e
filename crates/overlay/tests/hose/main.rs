//! Whole data planes over the hose network, in virtual time: what a plan promises is what comes, on
//! the network and with the loads of ShallowForest, tables 7.1 to 7.3. P12 and P16 are numbers of
//! the invariants that the overlay was designed with.

mod coded;
mod fast;
mod faults;
mod hostile;
mod kill;
mod tables;
mod throughput;
mod wan;
