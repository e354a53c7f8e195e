//! An address says its scheme.

use std::net::SocketAddr;

use convoke_core::Endpoint;

fn listen(address: SocketAddr) {
    let _ = Endpoint::builder().listen(address);
}

fn main() {}
