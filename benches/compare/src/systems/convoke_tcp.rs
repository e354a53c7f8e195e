//! `convoke-tcp`: Convoke over plain TCP.

use std::sync::Arc;

use convoke::transport::TcpTransport;

use super::convoke::{Make, Wire};

/// Address to listen at, and the transport with its defaults.
pub(crate) const WIRE: Wire =
    Wire { listen: "tcp://127.0.0.1:0", transport: Make::Plain(|| Arc::new(TcpTransport::new())) };
