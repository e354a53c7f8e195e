//! Reaching a node: resolve, then connect and shake hands at one address after the other.

use std::sync::Arc;

use convoke_transport::id::NodeId;
use convoke_transport::parts::Admission;
use convoke_transport::{Address, Connection, DialError, DialLimit, Sink, sockets};
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
    sockets::dial(&dial.address, within, |stream| dial.shake_hands(stream)).await
}

/// A dial until it has a connection.
struct Dial {
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
}

impl Dial {
    async fn shake_hands(&self, stream: impl Fresh) -> Result<Arc<dyn Connection>, DialError> {
        let Self { config, admission, address, expected, sink } = self;
        let handshake = async {
            let socket = stream.dialled(&config.security, address).await?;
            let sink = Arc::clone(sink);
            handshake::dial(config, admission, socket, *expected, sink, address).await
        };
        let within = config.common.handshake_timeout;
        match timeout(within, handshake).await {
            Ok(shaken) => shaken.map_err(|error| {
                tracing::debug!(%address, %error, "dial failed");
                error.into_dial_error(address.clone())
            }),
            Err(_) => Err(DialLimit::Handshake(within).passed(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use convoke_transport::conformance::Recorder;
    use convoke_transport::{Listener, Transport};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use crate::TcpTransport;

    use super::*;

    async fn bound() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let at = listener.local_addr().expect("it is bound");
        (listener, at)
    }

    async fn node(number: u64) -> (Box<dyn Listener>, SocketAddr) {
        let any = "tcp://127.0.0.1:0".parse().expect("it is an address");
        let sink = Arc::new(Recorder::new(number));
        let listener = TcpTransport::new().listen(&any, sink).await.expect("it binds");
        let at = listener.local_address().rest().parse().expect("it is a socket's");
        (listener, at)
    }

    async fn dial_at(
        sockets: &[SocketAddr],
        expected: u64,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let (dial, long) = (dial_of(expected), Duration::from_secs(30));
        let shake_hands = |stream| dial.shake_hands(stream);
        sockets::dial_at(&dial.address, sockets, (long, long), shake_hands).await
    }

    fn dial_of(expected: u64) -> Dial {
        let mut config = Config::default();
        config.common.handshake_timeout = Duration::from_millis(100);
        Dial {
            admission: Arc::new(config.common.admission()),
            config: Arc::new(config),
            address: "tcp://several:1".parse().expect("it is an address"),
            expected: Some(NodeId::new(expected)),
            sink: Arc::new(Recorder::new(9)),
        }
    }

    #[tokio::test]
    async fn a_node_is_found_at_whichever_address_of_its_name() {
        let (gone, nobody) = bound().await;
        drop(gone);
        let (_hangs, silent) = bound().await; // The system takes connections for it.
        let (web, foreign) = bound().await;
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = web.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let ((_one, first), (_two, second)) = (node(1).await, node(2).await);
        let found = dial_at(&[nobody, silent, foreign, first, second], 2).await;
        let connection = found.expect("it is at the last");
        assert_eq!(connection.link().peer.node, NodeId::new(2));
        connection.close(convoke_transport::CloseReason::Local);
        let error = dial_at(&[first, nobody], 3).await.expect_err("it is nowhere");
        assert!(matches!(error, DialError::WrongNode { .. }), "who was there says more: {error}");
        serving.abort();
    }
}
