//! Small sequences by hand: nodes, connections that deliver when told, and the frames between them.

mod bounds;
mod faults;
mod flow;
mod mesh;
mod quorum;
mod relay;
mod strangers;
