//! Reaching a node: resolve, connect to one address after the other, shake hands.

use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::parts::Admission;
use convoke_transport::{Address, Connection, DialError, Sink, sockets};
use tokio::time::timeout;

use crate::config::Config;
use crate::handshake;
use crate::socket::Socket;

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
    let stream = sockets::connect(&address, config.common.dial_timeout).await?;
    let handshake = async {
        let socket = Socket::dial(&config.security, stream, &address).await?;
        handshake::dial(&config, &admission, socket, expected, sink).await
    };
    match timeout(config.common.handshake_timeout, handshake).await {
        Ok(shaken) => shaken.map_err(|error| {
            tracing::debug!(%address, %error, "dial failed");
            error.into_dial_error(address)
        }),
        Err(_) => Err(DialError::Timeout { address }),
    }
}
