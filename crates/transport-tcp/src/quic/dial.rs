//! Reaching a node: resolve, connect to one address after the other, shake hands.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::identity::IdentitySeam as _;
use convoke_transport::parts::Mutex;
use convoke_transport::{Address, Connection, DialError, DialLimit, Sink};
use quinn::{ClientConfig, ConnectError, Connecting, ConnectionError, Endpoint};
use tokio::time::{Instant, timeout};

use crate::quic::Shared;
use crate::quic::handshake::{self, HandshakeError};
use crate::quic::socket;
use convoke_transport::sockets;

/// Name in the TLS handshake. Nobody looks at it: a node is who its certificate says.
const SERVER_NAME: &str = "convoke.invalid";

/// The sockets that a transport dials from: one for each family, made when first needed.
#[derive(Debug, Default)]
pub(crate) struct Dialers {
    endpoints: Mutex<[Option<Endpoint>; 2]>,
}

impl Dialers {
    /// Begins to connect, from the socket of the address's family.
    fn connect(&self, config: &ClientConfig, to: SocketAddr) -> io::Result<Connecting> {
        let slot = &mut self.endpoints.lock()[usize::from(to.is_ipv6())];
        if let Some(endpoint) = slot {
            match endpoint.connect_with(config.clone(), to, SERVER_NAME) {
                // The runtime that it was made on is gone.
                Err(ConnectError::EndpointStopping) => {}
                connecting => return connecting.map_err(io::Error::other),
            }
        }
        let endpoint = socket::dialling(any_of_family(to.is_ipv6()))?;
        let connecting = endpoint.connect_with(config.clone(), to, SERVER_NAME);
        *slot = Some(endpoint);
        connecting.map_err(io::Error::other)
    }

    /// Moves everything that was dialled to new sockets. Answers where they are.
    pub(crate) fn rebind(&self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = Vec::new();
        for (endpoint, is_ipv6) in self.endpoints.lock().iter().zip([false, true]) {
            if let Some(endpoint) = endpoint {
                endpoint.rebind(socket::bind(any_of_family(is_ipv6))?)?;
                addresses.push(endpoint.local_addr()?);
            }
        }
        Ok(addresses)
    }
}

fn any_of_family(is_ipv6: bool) -> SocketAddr {
    match is_ipv6 {
        true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// Reason why no QUIC connection came to be.
enum Failure {
    /// Nobody said anything.
    Silence(Duration),
    Io(io::Error),
    Lost(ConnectionError),
}

impl Failure {
    fn into_dial_error(self, address: Address) -> DialError {
        let message = match self {
            Self::Lost(lost) => return HandshakeError::Lost(lost).into_dial_error(address),
            Self::Io(error) => error.to_string(),
            // Over UDP, nobody there and no answer are one.
            Self::Silence(waited) => format!("no answer over UDP for {waited:?}"),
        };
        DialError::Unreachable { address, message }
    }
}

/// Opens a connection to `address`, with `on_open` called.
pub(crate) async fn dial(
    shared: &Shared,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    if let Err(message) = shared.identity.verify_own(sink.hello().node) {
        return Err(DialError::Untrusted { address, message });
    }
    let (address, dial_timeout) = (&address, shared.config.common.dial_timeout);
    let begun = Instant::now();
    let sockets = sockets::resolve_to_dial(address, dial_timeout).await?;
    let connect = |socket, share| async move {
        let connected = connect_one(shared, socket, share).await;
        connected.map_err(|failure| failure.into_dial_error(address.clone()))
    };
    let shake_hands = |quic| {
        let sink = Arc::clone(&sink);
        async move { shake_hands(shared, &quic, (address, expected), sink).await }
    };
    let left = dial_timeout.saturating_sub(begun.elapsed());
    let none = Failure::Io(io::ErrorKind::AddrNotAvailable.into()).into_dial_error(address.clone());
    sockets::try_each(&sockets, left, none, connect, shake_hands).await
}

async fn shake_hands(
    shared: &Shared,
    quic: &quinn::Connection,
    (address, expected): (&Address, Option<NodeId>),
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let within = shared.config.common.handshake_timeout;
    match timeout(within, handshake::dial(shared, quic, expected, sink)).await {
        Ok(shaken) => shaken.map_err(|error| {
            tracing::debug!(%address, %error, "dial failed");
            error.into_dial_error(address.clone())
        }),
        Err(_) => Err(DialLimit::Handshake(within).passed(address)),
    }
}

async fn connect_one(
    shared: &Shared,
    socket: SocketAddr,
    share: Duration,
) -> Result<quinn::Connection, Failure> {
    let connecting = shared.dialers.connect(&shared.client, socket).map_err(Failure::Io)?;
    match timeout(share, connecting).await {
        Ok(connected) => connected.map_err(|lost| match lost {
            ConnectionError::TimedOut => Failure::Silence(share),
            lost => Failure::Lost(lost),
        }),
        Err(_) => Err(Failure::Silence(share)),
    }
}
