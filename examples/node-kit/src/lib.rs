//! Parts of a node program beside its protocol.
//!
//! A protocol is a pure core in a crate of its own: input in, effects out. This library has what a
//! program around such a core needs before people can run it as a node.
//!
//! | module | contents |
//! |---|---|
//! | [`durable`] | values that may leave only once a ledger has made durable what they rest on |
//! | [`sessions`] | requests that take effect once, however often they are sent |

#![forbid(unsafe_code)]

pub mod durable;
pub mod sessions;
