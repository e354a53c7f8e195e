//! Reaching a node: resolve, connect to one address after the other, shake hands.

use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::parts::Admission;
use convoke_transport::{Address, Connection, DialError, Sink, sockets};
use tokio::time::timeout;

use crate::config::Config;
use crate::fresh::Fresh;
use crate::handshake;
#[cfg(unix)]
use crate::unix;

/// Opens a connection to `address`, with `on_open` called.
pub(crate) async fn dial(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let within = config.common.dial_timeout;
    if let Err(message) = config.security.verify_own(sink.hello().node) {
        return Err(DialError::Untrusted { address, message });
    }
    let dial = Dial { config, admission, address, expected, sink };
    #[cfg(unix)]
    if dial.address.scheme() == unix::SCHEME {
        let stream = unix::connect(&dial.address, within).await?;
        return dial.shake_hands(stream).await;
    }
    let stream = sockets::connect(&dial.address, within).await?;
    dial.shake_hands(stream).await
}

/// A dial that has a stream, until it has a connection.
struct Dial {
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
}

impl Dial {
    async fn shake_hands(self, stream: impl Fresh) -> Result<Arc<dyn Connection>, DialError> {
        let Self { config, admission, address, expected, sink } = self;
        let handshake = async {
            let socket = stream.dialled(&config.security, &address).await?;
            handshake::dial(&config, &admission, socket, expected, sink, &address).await
        };
        match timeout(config.common.handshake_timeout, handshake).await {
            Ok(shaken) => shaken.map_err(|error| {
                tracing::debug!(%address, %error, "dial failed");
                error.into_dial_error(address)
            }),
            Err(_) => Err(DialError::Timeout { address }),
        }
    }
}
