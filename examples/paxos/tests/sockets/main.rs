//! Nodes on sockets of this host, in this process and in processes of their own; in one program
//! that is linked once.

mod client;
mod demo;
mod members;
mod program;
mod secure_members;
mod torture;
