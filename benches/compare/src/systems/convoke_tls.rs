//! `convoke-tls`: Convoke over TLS 1.3, with certificates of both ends.

use std::sync::Arc;

use convoke::transport::TcpTransport;

use super::convoke::{Make, Wire};

/// Address to listen at, and the transport with its defaults.
pub(crate) const WIRE: Wire = Wire {
    listen: "tls://127.0.0.1:0",
    transport: Make::Secure(|identity| Arc::new(TcpTransport::tls(identity))),
};
