//! Endpoints and their parts, a file for each idea, in one program that is linked once. The test of
//! a subscriber is a program beside it.

mod budget;
mod crash;
mod full_connections;
mod heard_addresses;
mod layers;
mod limits;
mod mem;
mod owners;
mod panicking_wakers;
mod references;
mod same_number;
mod shutdown;
mod unpolled_callers;
mod unread_replies;
