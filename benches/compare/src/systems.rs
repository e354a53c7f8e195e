//! One file for each system, and what some of them share.

pub(crate) mod convoke;
pub(crate) mod convoke_edge;
pub(crate) mod convoke_grpc;
pub(crate) mod convoke_quic;
pub(crate) mod convoke_tcp;
pub(crate) mod convoke_tls;
pub(crate) mod frames;
pub(crate) mod ntex_grpc;
pub(crate) mod quinn;
pub(crate) mod tarpc;
pub(crate) mod tcp_blocking;
pub(crate) mod tcp_tokio;
pub(crate) mod tonic;
pub(crate) mod tonic_bidi;
pub(crate) mod tonic_server;
pub(crate) mod volo;
