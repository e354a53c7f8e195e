//! `convoke-grpc`: Convoke over one bidirectional gRPC stream.

use std::sync::Arc;

use convoke::transport::GrpcTransport;

use super::convoke::{Make, Wire};

/// Address to listen at, and the transport with its defaults.
pub(crate) const WIRE: Wire = Wire {
    listen: "grpc://127.0.0.1:0",
    transport: Make::Plain(|| Arc::new(GrpcTransport::new())),
};
