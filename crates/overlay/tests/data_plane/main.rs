//! Several sites of an overlay on a network with faults, in virtual time. The numbers P9 to P15 are
//! those of the invariants that the overlay was designed with; P9 stands beside the tree picker.

mod bounds;
mod crashes;
mod faults;
mod oracle;
mod plans;
mod traffic;
mod world;
