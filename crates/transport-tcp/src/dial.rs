//! Reaching a node: resolve, connect to one address after the other, shake hands.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::{Address, Connection, DialError, Sink};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::admission::Admission;
use crate::config::Config;
use crate::handshake;
use convoke_transport::sockets;

/// Opens a connection to `address`, with `on_open` called.
pub(crate) async fn dial(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    if let Err(message) = config.security.verify_own(sink.hello().node) {
        return Err(DialError::Untrusted { address, message });
    }
    let stream = match connect(&config, &address).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(DialError::Timeout { address });
        }
        Err(error) => {
            return Err(DialError::Unreachable { address, message: error.to_string() });
        }
    };
    let handshake = async {
        let socket = config.security.dial(stream, &address).await?;
        handshake::dial(&config, &admission, socket, expected, sink).await
    };
    match timeout(config.handshake_timeout, handshake).await {
        Ok(shaken) => shaken.map_err(|error| {
            tracing::debug!(%address, %error, "dial failed");
            error.into_dial_error(address)
        }),
        Err(_) => Err(DialError::Timeout { address }),
    }
}

async fn connect(config: &Config, address: &Address) -> io::Result<TcpStream> {
    let deadline = Instant::now() + config.dial_timeout;
    let resolved = timeout_at(deadline, sockets::resolve(address.rest())).await??;
    let stream = connect_first(&resolved, deadline).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Tries one after the other. Each gets its share of the time left, so that one which swallows
/// packets leaves some to the next.
async fn connect_first(sockets: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for (socket, left) in sockets.iter().zip((1..=sockets.len()).rev()) {
        let share = deadline.saturating_duration_since(Instant::now())
            / u32::try_from(left).unwrap_or(u32::MAX);
        result = match timeout(share, TcpStream::connect(socket)).await {
            Ok(connected) => connected,
            Err(elapsed) => Err(elapsed.into()),
        };
        if result.is_ok() {
            break;
        }
    }
    result
}
