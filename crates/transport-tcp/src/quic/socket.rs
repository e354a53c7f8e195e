//! UDP sockets and what drives them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::identity::{Identity, IdentitySeam as _};
use quinn::{Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use ring::hmac;
use socket2::{Domain, Protocol, Socket, Type};

use crate::quic::connection_ids::ConnectionIds;

/// Bytes that the system is asked to buffer per socket and direction: the packets of a large frame
/// come faster than they are read. It gives what it allows.
const BUFFER_BYTES: usize = 2 << 20;

/// Binds a socket to dial from, and starts to drive it on the current runtime.
pub(crate) fn dialling(address: SocketAddr) -> io::Result<Endpoint> {
    start(EndpointConfig::default(), bind(address)?, None)
}

/// Binds a socket of a node to accept at, and starts to drive it on the current runtime.
///
/// A life of the node that comes after this one, at the same address, resets what this one had
/// accepted: it knows the secret by which the peers can tell (RFC 9000, section 10.3). Else they
/// would wait for their timeouts. A socket at another address has other secrets: it would tell
/// whoever asks how to reset the connections of this one, which it does not know.
pub(crate) fn accepting(
    address: SocketAddr,
    accepts: ServerConfig,
    (identity, node): (&Identity, NodeId),
) -> io::Result<Endpoint> {
    let socket = bind(address)?;
    let local = socket.local_addr()?;
    let secret = |of: &str| identity.secret(node, &format!("{of} of QUIC connections at {local}"));
    let resets = hmac::Key::new(hmac::HMAC_SHA256, &secret("resets"));
    let mut config = EndpointConfig::new(Arc::new(resets));
    let ids = ConnectionIds::new(&secret("ids"));
    config.cid_generator(move || Box::new(ids.clone()));
    start(config, socket, Some(accepts))
}

fn start(
    config: EndpointConfig,
    socket: UdpSocket,
    accepts: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    Endpoint::new(config, accepts, socket, Arc::new(TokioRuntime))
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
