//! TLS over real sockets: who is let in, who is told why not, and who notices.
#![cfg(feature = "tls")]

#[path = "../support/certificates.rs"]
mod certificates;
mod foreign;
mod identities;
mod log;
mod node;
mod raw;
mod reload;
