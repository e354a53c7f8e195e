//! Nodes on sockets of this host, in this process and in processes of their own; in one program
//! that is linked once.

mod channel_nodes;
mod demo;
mod members;
mod nodes;
mod program;
mod torture;
