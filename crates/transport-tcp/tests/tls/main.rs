//! TLS over real sockets: who is let in, who is told why not, and who notices.
#![cfg(feature = "tls")]

#[path = "../../../transport/tests/support/certificates.rs"]
mod certificates;
#[path = "../../../transport/tests/support/credulous.rs"]
mod credulous;
mod deeds;
mod flows;
mod foreign;
#[path = "../../../transport/tests/support/identities.rs"]
mod identities;
#[path = "../../../transport/tests/support/log.rs"]
mod log;
mod node;
mod raw;
mod secure;
#[path = "../../../transport/tests/support/trust.rs"]
mod trust;
#[path = "../support/wire.rs"]
mod wire;
