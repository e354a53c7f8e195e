//! Calls to a set of members that decide on a quorum of their replies, and echo phases in which the members
//! vote among themselves.

#![forbid(unsafe_code)]

mod configuration;

pub use configuration::{Configuration, ConfigurationError, Member};
