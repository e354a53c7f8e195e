//! Convoke over QUIC: the addresses `quic://host:port`.
//!
//! ```text
//!  stream              who opens it      carries
//!  bidirectional 0     the dialler       control lane: both hellos, then frames
//!  bidirectional 1     the dialler       data lane: one byte, then frames, announcements, goodbye
//!  unidirectional n    either end        the rest of its n-th large frame
//! ```
//!
//! A flush gives a lane's stream all that is queued with one write. A frame above 64 KiB leaves its
//! first 152 bytes at its place on the data lane, and the rest comes on a stream of its own. The
//! receiver asks its sink which frames must not pass it
//! ([`Sink::order`](convoke_transport::Sink::order)): an endpoint answers that those of the
//! same call must not, so other calls do not wait for it.
//!
//! Credit is QUIC's: a window per stream, and one for the connection that has room for all streams,
//! so that no stream takes another's. What a lost packet holds up is its stream.
//!
//! # Modules
//!
//! Without I/O: `framing`, `send_lane`, `backlog` (what waits for a large frame). With:
//! `connection` (who may write), `writer`, `reader`, `large`, `handshake`, `dial`, `listener`,
//! `socket`.

mod backlog;
mod config;
mod connection;
mod connection_ids;
mod dial;
mod framing;
mod handshake;
mod large;
mod listener;
mod reader;
mod send_lane;
mod socket;
mod writer;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::identity::{Identity, IdentitySeam as _};
use convoke_transport::parts::Admission;
use convoke_transport::{Address, DialFuture, ListenFuture, Sink, Transport, own_address};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{AckFrequencyConfig, ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

pub use config::QuicTransportBuilder;
pub use convoke_transport::parts::SettingsError as QuicConfigError;

use crate::quic::config::{Config, INCOMING_BYTES_MAX};
use crate::quic::dial::Dialers;

pub(crate) const SCHEME: &str = "quic";

/// Name that both ends must give in the TLS handshake; another version of this transport, another
/// name.
const PROTOCOL: &[u8] = b"convoke/1";
/// Packets that a peer may leave unacknowledged. QUIC begins with ten on their way: of a large
/// frame the ninth brings the word on which the next ones leave.
const HELD_PACKETS_MAX: u32 = 8;
/// Time for which it may: where fewer packets are on their way, as after losses, what comes next
/// waits for no longer.
const HELD_MAX: Duration = Duration::from_millis(5);

/// Makes QUIC connections. Cheap to clone; clones share the limits on accepted connections and the
/// sockets that are dialled from.
///
/// Both ends present a certificate, which proves the node id in the hello; see [`Identity`]. A
/// connection outlives a change of the dialler's address ([`rebind`](Self::rebind)). Nothing is
/// sent before the handshake is complete (no 0-RTT), so nothing can be replayed.
///
/// Its futures, and the connections they make, run on the tokio runtime they are polled on, which
/// needs I/O and time enabled. The sockets are driven by the runtime that first dialled or
/// listened.
#[derive(Clone)]
pub struct QuicTransport {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    config: Config,
    identity: Identity,
    client: ClientConfig,
    server: ServerConfig,
    admission: Admission,
    dialers: Dialers,
}

impl QuicTransport {
    /// With the defaults that [`QuicTransportBuilder`] lists.
    pub fn new(identity: Identity) -> Self {
        Self::from_config(identity, Config::default())
    }

    /// For other settings than the defaults.
    pub fn builder(identity: Identity) -> QuicTransportBuilder {
        QuicTransportBuilder::new(identity)
    }

    /// Moves everything that was dialled to new local sockets, as when the machine has changed its
    /// network. Connections and their calls go on; a peer that can be reached no more is noticed by
    /// the keep-alive timeout. Answers where the sockets are: at most one for each of IPv4 and
    /// IPv6.
    ///
    /// Connections move by themselves if the system keeps a socket working through such a change.
    ///
    /// # Errors
    /// Those of binding a socket; what was not moved stays where it was.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn rebind(&self) -> io::Result<Vec<SocketAddr>> {
        self.shared.dialers.rebind()
    }

    fn from_config(identity: Identity, config: Config) -> Self {
        let shared = Shared {
            client: client_config(&identity, &config),
            server: server_config(&identity, &config),
            admission: config.common.admission(),
            dialers: Dialers::default(),
            identity,
            config,
        };
        Self { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for QuicTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuicTransport").field(&self.shared).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("identity", &self.identity)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Transport for QuicTransport {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    fn proves_peers(&self) -> bool {
        true
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        self.shared.identity.trusts_node(node)
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.shared.identity.nodes()
    }

    /// Accepts until the listener is closed or dropped. A connection that was in its handshake then
    /// may still open. The port is free once the last connection over it has ended.
    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        let (shared, address) = (Arc::clone(&self.shared), own_address(self.schemes(), address));
        Box::pin(async move { listener::listen(shared, address?, sink).await })
    }

    /// # Cancel safety
    /// A future dropped before it is ready leaves no connection behind.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let (shared, address) = (Arc::clone(&self.shared), own_address(self.schemes(), address));
        Box::pin(async move { dial::dial(&shared, address?, expected, sink).await })
    }
}

fn client_config(identity: &Identity, config: &Config) -> ClientConfig {
    let tls = QuicClientConfig::try_from(identity.client_config(PROTOCOL))
        .expect("the suites of ring include the one that QUIC begins with");
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(transport_config(config, 0)));
    client
}

fn server_config(identity: &Identity, config: &Config) -> ServerConfig {
    let tls = QuicServerConfig::try_from(identity.server_config(PROTOCOL))
        .expect("the suites of ring include the one that QUIC begins with");
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::new(transport_config(config, 2)));
    server.max_incoming(config.common.handshakes_max);
    server.incoming_buffer_size(INCOMING_BYTES_MAX);
    server.incoming_buffer_size_total(config.incoming_bytes_total());
    server
}

/// `lanes` is how many streams the peer opens for lanes.
fn transport_config(config: &Config, lanes: u32) -> TransportConfig {
    let connection_window = config.connection_window_bytes();
    let timeout = IdleTimeout::try_from(config.common.keep_alive_timeout)
        .expect("the builder keeps it below a day");
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(lanes.into())
        .max_concurrent_uni_streams(u32::from(config.large_frames_max).into())
        .stream_receive_window(config.window_bytes.into())
        .receive_window(VarInt::from_u64(connection_window).expect("the builder bounds its parts"))
        // A peer like this one grants as much, so no stream is held up by what others have queued.
        .send_window(connection_window)
        .max_idle_timeout(Some(timeout))
        // Two keep-alives may be lost.
        .keep_alive_interval(Some(config.common.keep_alive_timeout / 3))
        .ack_frequency_config(Some(acknowledgements()))
        .datagram_receive_buffer_size(None);
    transport
}

/// Manner in which a peer acknowledges packets. A batch of calls is some packets, and its answers
/// leave right after it was read: they carry what would take a write, a read and a wake of its own.
fn acknowledgements() -> AckFrequencyConfig {
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements
        .ack_eliciting_threshold(VarInt::from_u32(HELD_PACKETS_MAX))
        // A packet out of order is told at once, as losses are found by it.
        .reordering_threshold(VarInt::from_u32(1))
        .max_ack_delay(Some(HELD_MAX));
    acknowledgements
}
