//! The program as people use it: its bench, its demonstration, its pictures, replicas by a cluster
//! file; in one program that is linked once.

mod bench;
mod cluster;
mod demo;
mod picture;
