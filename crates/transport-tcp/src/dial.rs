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

/// A dial, until it has a connection.
pub(crate) struct Dial {
    pub(crate) config: Arc<Config>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) address: Address,
    pub(crate) expected: Option<NodeId>,
    pub(crate) sink: Arc<dyn Sink>,
}

impl Dial {
    /// Opens a connection, with `on_open` called.
    pub(crate) async fn run(self) -> Result<Arc<dyn Connection>, DialError> {
        let (address, within) = (&self.address, self.config.common.dial_timeout);
        if let Err(message) = self.config.security.verify_own(self.sink.hello().node) {
            return Err(DialError::Untrusted { address: address.clone(), message });
        }
        #[cfg(unix)]
        if address.scheme() == unix::SCHEME {
            let stream = unix::connect(address, within).await?;
            return self.shake_hands(stream).await;
        }
        let stream = sockets::connect(address, within).await?;
        self.shake_hands(stream).await
    }

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
