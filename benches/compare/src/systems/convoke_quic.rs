//! `convoke-quic`: Convoke over QUIC, with certificates of both ends.

use std::sync::Arc;

use convoke::transport::QuicTransport;

use super::convoke::{Make, Wire};

/// Address to listen at, and the transport with its defaults.
pub(crate) const WIRE: Wire = Wire {
    listen: "quic://127.0.0.1:0",
    transport: Make::Secure(|identity| Arc::new(QuicTransport::new(identity))),
};
