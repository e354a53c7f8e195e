//! UDP sockets and what drives them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes that the system is asked to buffer per socket and direction: the packets of a large frame
/// come faster than they are read. It gives what it allows.
const BUFFER_BYTES: usize = 2 << 20;

/// Binds a socket and starts to drive it on the current runtime.
pub(crate) fn endpoint(address: SocketAddr, accepts: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = bind(address)?;
    Endpoint::new(EndpointConfig::default(), accepts, socket, Arc::new(TokioRuntime))
}

/// Binds a socket.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // `[::]` is every interface, IPv4 included, whatever the system's default.
        socket.set_only_v6(false)?;
    }
    // Less is slower, and no reason to fail.
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
