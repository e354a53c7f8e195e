//! From `scheme://host:port` to socket addresses and back.

use std::io;
use std::net::SocketAddr;

use convoke_core::transport::Address;

/// The socket addresses of `host:port`, where host is an IPv4 address, an IPv6 address in brackets,
/// or a name.
pub(crate) async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(socket) = address.rest().parse() {
        return Ok(vec![socket]);
    }
    let found: Vec<_> = tokio::net::lookup_host(address.rest()).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// The address of a socket.
pub(crate) fn of_socket(scheme: &str, socket: SocketAddr) -> Address {
    format!("{scheme}://{socket}").parse().expect("a socket address after a scheme is an address")
}
