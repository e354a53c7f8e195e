//! Endpoints as their users see them, a file for each idea, in one program: linked once, not thirty
//! times. Tests that need a process of their own, as for a counting allocator, a subscriber or a
//! signal, are programs beside it.

#[cfg(any(feature = "quic", feature = "tls"))]
#[path = "../../crates/transport/tests/support/certificates.rs"]
mod certificates;
#[path = "../support/mod.rs"]
mod support;

mod call_over_flows;
mod call_over_quic;
mod call_over_rdma;
mod call_over_tcp;
mod cancel_burst;
mod carrier;
mod clients;
mod compression;
mod cores;
mod deadlines;
mod deferred;
mod discovery;
mod draining;
mod frame_hooks;
mod handlers;
mod health;
mod interface;
mod json;
mod large_replies;
mod lives;
mod middleware;
mod mistakes;
mod reconnect;
mod relayed_replies;
mod reply_metadata;
mod reply_streams;
mod secure;
mod service_bounds;
mod services;
mod streamed_requests;
