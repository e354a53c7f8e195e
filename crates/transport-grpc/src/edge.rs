//! The edge: foreign gRPC clients call the services of an endpoint.

mod answer;
mod drain;
mod health;
mod metadata;
mod methods;
mod request;
mod service;
mod standard;
mod status;
mod stream;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::health::{Health, ServingState};
use convoke_core::{Endpoint, Peer};
use convoke_transport::PeerName;
use convoke_transport::parts::{Seats, SendPool, Settings, TIME_MAX};

use crate::config::WINDOW_BYTES_MAX;
use crate::listener::HTTP2_FRAME_BYTES;
use crate::serve::{Ends, Handler, Request, Response, Server, Terms};
#[cfg(feature = "tls")]
use convoke_transport::identity::ClientCertificates;
use convoke_transport::sockets;
use health::EdgeHealth;
use methods::Methods;
use service::{Inner, Route};
use standard::Standard;

pub use service::EdgeService;

/// A port at which any gRPC client, in any language, calls the services of an endpoint.
///
/// The path of a request names the method; its message passes undecoded into a call of the
/// endpoint, to itself or to whom [`GrpcEdgeBuilder::route`] says, and so do the replies back. A
/// method that answers once, and one that delegates through many nodes first, look the same from
/// outside.
///
/// Dropped, it stops at once; [`GrpcEdge::shutdown`] lets calls end.
pub struct GrpcEdge {
    server: Server,
    service: EdgeService,
}

/// Sets up a [`GrpcEdge`]; made by [`GrpcEdge::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`descriptor_set`](Self::descriptor_set) | none: any method passes, no reflection |
/// | [`route`](Self::route) | to the endpoint itself |
/// | [`health`](Self::health) | the edge and the services of its descriptor set are serving |
/// | [`message_bytes_max`](Self::message_bytes_max) | 4 MiB |
/// | [`calls_max`](Self::calls_max), [`checks_max`](Self::checks_max) | 16,384, 4,096 |
/// | [`request_bytes_total_max`](Self::request_bytes_total_max) | 1 GiB |
/// | [`answer_bytes_total_max`](Self::answer_bytes_total_max) | 1 GiB |
/// | [`handshakes_max`](Self::handshakes_max) | 256 |
/// | [`connections_max`](Self::connections_max), [`streams_max`](Self::streams_max) | 1,024, 256 |
/// | [`resets_max`](Self::resets_max) | 256 |
/// | [`window_bytes`](Self::window_bytes) | 256 KiB |
/// | [`handshake_timeout`](Self::handshake_timeout) | 5 s |
/// | [`idle_timeout`](Self::idle_timeout), [`ping_timeout`](Self::ping_timeout) | 5 min, 20 s |
#[must_use = "a builder does nothing until it is started"]
pub struct GrpcEdgeBuilder {
    endpoint: Endpoint,
    descriptor_set: Option<Bytes>,
    route: Option<Route>,
    health: Option<Health>,
    message_bytes_max: usize,
    calls_max: usize,
    checks_max: usize,
    request_bytes_total_max: usize,
    answer_bytes_total_max: usize,
    handshakes_max: usize,
    connections_max: usize,
    streams_max: u32,
    resets_max: usize,
    window_bytes: u32,
    handshake_timeout: Duration,
    idle_timeout: Duration,
    ping_timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<crate::Identity>,
    #[cfg(feature = "tls")]
    client_certificates: Option<ClientCertificates>,
}

/// Reason why an edge could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EdgeError {
    /// The address is not one, or cannot be bound.
    #[error("cannot listen on {address}: {message}")]
    Bind {
        /// The address asked for.
        address: String,
        /// The operating system's word.
        message: String,
    },
    /// The bytes are not an encoded `FileDescriptorSet` with all its imports.
    #[error("the descriptor set cannot be used: {message}")]
    DescriptorSet {
        /// Its defect.
        message: String,
    },
    /// A setting nobody can work with.
    #[error("the settings of the edge do not go together: {message}")]
    Settings {
        /// The setting.
        message: &'static str,
    },
}

/// Time for streams that still run when a connection is idle or pinged in vain.
const GRACE: Duration = Duration::from_secs(1);
/// Smallest window of a stream: HTTP/2's default.
const WINDOW_BYTES_MIN: u32 = 65_535;

impl GrpcEdge {
    /// An edge of this endpoint, which serves or knows the methods that are called.
    pub fn builder(endpoint: &Endpoint) -> GrpcEdgeBuilder {
        GrpcEdgeBuilder {
            endpoint: endpoint.clone(),
            descriptor_set: None,
            route: None,
            health: None,
            message_bytes_max: 4 << 20,
            calls_max: 16_384,
            checks_max: 4_096,
            request_bytes_total_max: 1 << 30,
            answer_bytes_total_max: 1 << 30,
            handshakes_max: 256,
            connections_max: 1_024,
            streams_max: 256,
            resets_max: 256,
            window_bytes: 256 << 10,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            ping_timeout: Duration::from_secs(20),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            client_certificates: None,
        }
    }

    /// Address at which it listens, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Sets what the health service says of a service, such as `shop.Stock`; of the whole edge with
    /// an empty name. With [`GrpcEdgeBuilder::health`] it sets the same there.
    pub fn set_serving(&self, service: &str, is_serving: bool) {
        self.service.standard().health().set_serving(service, is_serving);
    }

    /// Stops in good order: the health service says of every service that it is not serving, no
    /// further connection is accepted, open ones are told to go elsewhere, and calls have `grace`
    /// to end; then they are cancelled. Always returns.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, it goes on and nobody waits for it: once `grace` has passed,
    /// calls have ended or are cancelled. Dropped before it is polled, it ends the edge at once, as
    /// the drop of that does.
    pub async fn shutdown(self, grace: Duration) {
        self.service.standard().health().drain();
        self.server.drain(grace).await;
    }
}

impl Drop for GrpcEdge {
    fn drop(&mut self) {
        self.server.stop(Duration::ZERO);
    }
}

impl GrpcEdgeBuilder {
    /// The encoded `FileDescriptorSet` of the services, imports included, as `convoke-build` writes
    /// it (`file_descriptor_set_path`). Brings reflection, and makes the edge pass on the methods
    /// in it and no others. Default: none; then any name passes, and the called node says whether
    /// it has the method.
    pub fn descriptor_set(mut self, encoded: impl Into<Bytes>) -> Self {
        self.descriptor_set = Some(encoded.into());
        self
    }

    /// Chooses who is asked, by `package.Service/Method`. Default: the endpoint itself. It runs for
    /// every call and must not block.
    pub fn route(mut self, route: impl Fn(&str) -> Peer + Send + Sync + 'static) -> Self {
        self.route = Some(Box::new(route));
        self
    }

    /// Answers questions after the health of services, as load balancers and probes ask them by
    /// `grpc.health.v1`, with what is said there: give it the [`Health`] of the endpoint, and both
    /// say the same. A service of which nothing is said there is not found. Default: the edge and
    /// every service of its descriptor set are serving, until
    /// [`set_serving`](GrpcEdge::set_serving) says otherwise.
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// The largest request message, in bytes. Default 4 MiB. Larger ones are answered with
    /// `RESOURCE_EXHAUSTED` before they are read. Replies have the endpoint's own limit.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Most calls under way, over all connections. Default 16,384; further ones are answered
    /// with `RESOURCE_EXHAUSTED`. One client may have as many as are free: half, if it is the only
    /// one. Within a [server of one's own](Self::into_service) all that have proven nothing are
    /// one client.
    pub fn calls_max(mut self, count: usize) -> Self {
        self.calls_max = count;
        self
    }

    /// Most requests to health and reflection under way, watches among them, over all connections.
    /// Default 4,096; further ones are answered with `RESOURCE_EXHAUSTED`. They take none of
    /// [`calls_max`](Self::calls_max), so that the health of an edge can be asked for when it is
    /// full. One client may have as many as are free.
    pub fn checks_max(mut self, count: usize) -> Self {
        self.checks_max = count;
        self
    }

    /// Most bytes of request messages on their way into calls, over all connections. A message of
    /// more than 16 KiB counts whole, from when its length is there until its call is opened or,
    /// of several, has taken it; smaller ones are free. Default 1 GiB; a message that finds no room
    /// is answered with `RESOURCE_EXHAUSTED` before it is read. One client may have as much as is
    /// free, one request a quarter of it, or one message as large as is free; this is four times
    /// [`message_bytes_max`](Self::message_bytes_max) at least.
    pub fn request_bytes_total_max(mut self, bytes: usize) -> Self {
        self.request_bytes_total_max = bytes;
        self
    }

    /// Most bytes of replies that their clients have not read, over all connections. A reply of
    /// more than 32 KiB counts whole until the last of it has left; smaller ones, and the two
    /// pieces of 32 KiB that HTTP/2 may have of each answer, are free. Default 1 GiB; a larger
    /// answer ends with `RESOURCE_EXHAUSTED`. One client may have as much as is free, one answer
    /// too: it holds one reply at a time.
    pub fn answer_bytes_total_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_total_max = bytes;
        self
    }

    /// Speaks TLS 1.3 and nothing else. `identity` has the certificate that clients see, which must
    /// name the host they dial, and the authority of theirs: often not those of a node, so give the
    /// edge an identity of its own. Default: plain HTTP/2.
    ///
    /// A client with a certificate is what that proves, in
    /// [`Caller::client`](convoke_core::Caller::client), at every node that the call is routed to.
    /// It is never a node, whatever its certificate names, and one without a certificate is nobody:
    /// see [`client_certificates`](Self::client_certificates).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, identity: crate::Identity) -> Self {
        self.tls = Some(identity);
        self
    }

    /// Makes the edge ask its clients for certificates, or not, with [`tls`](Self::tls). Default:
    /// [`ClientCertificates::Optional`]. One of an authority that the identity does not trust, or
    /// that has expired, is refused with an alert of TLS in any case.
    #[cfg(feature = "tls")]
    pub fn client_certificates(mut self, asked: ClientCertificates) -> Self {
        self.client_certificates = Some(asked);
        self
    }

    /// Most TCP connections in their handshake: of TLS, or until they show that they speak HTTP/2.
    /// Default 256; further ones are closed at once. One address may have as many as are free.
    pub fn handshakes_max(mut self, count: usize) -> Self {
        self.handshakes_max = count;
        self
    }

    /// Most TCP connections. Default 1,024; the first call of a further one is answered with
    /// `RESOURCE_EXHAUSTED`, and it is closed. One client, which is what its certificate proves or
    /// else its address, may have as many as are free: half, if it is the only one, such as a
    /// proxy.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count;
        self
    }

    /// Most calls of one connection at a time. Default 256; clients wait for room.
    pub fn streams_max(mut self, count: u32) -> Self {
        self.streams_max = count;
        self
    }

    /// Most streams that a client may have reset before the edge came to look at them. Default 256.
    /// Above it the connection is closed with `ENHANCE_YOUR_CALM`. A client that cancels late calls
    /// of a fan-out resets many: the 20 that HTTP/2 libraries allow cost it the connection.
    pub fn resets_max(mut self, count: usize) -> Self {
        self.resets_max = count;
        self
    }

    /// The window of an HTTP/2 stream: what a client may send before it was read, in bytes. Default
    /// 256 KiB.
    pub fn window_bytes(mut self, bytes: u32) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Time for a connection to show that it speaks HTTP/2. Default 5 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Time without a call after which a connection is closed. Default 5 min; clients connect
    /// again.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Time between two pings of a connection, and for the answer to one. Default 20 s.
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Listens at this address, a `SocketAddr` or text such as `0.0.0.0:50051`; port 0 takes any.
    ///
    /// # Errors
    /// [`EdgeError`] when the address cannot be bound, the descriptor set is invalid, or a setting
    /// is one nobody can work with.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing listens.
    pub async fn start(self, address: impl ToString) -> Result<GrpcEdge, EdgeError> {
        let address = address.to_string();
        let terms = Arc::new(self.terms()?);
        let settings = Settings {
            handshakes_max: self.handshakes_max,
            connections_max: self.connections_max,
            ..Settings::default()
        };
        let admission = Arc::new(settings.admission());
        let service = self.service()?;
        let edge = Arc::new(Edge(service.clone()));
        let started = sockets::listen(&address, settings.listen_backlog)
            .await
            .and_then(|listener| Server::start(listener, edge, terms, admission));
        let bind = |error: io::Error| EdgeError::Bind { address, message: error.to_string() };
        let server = started.map_err(bind)?;
        tracing::info!(address = %server.local_addr(), "gRPC edge listening");
        Ok(GrpcEdge { server, service })
    }

    /// The same as a `tower` service, for a server of one's own. What concerns connections and
    /// streams is then that server's, TLS included: of the settings only the descriptor set, the
    /// route, the health, the message size, the numbers of calls and checks, and the bytes of
    /// requests and answers count.
    ///
    /// # Errors
    /// [`EdgeError::DescriptorSet`] when the descriptor set is invalid, [`EdgeError::Settings`]
    /// when one of these settings is one nobody can work with, or TLS is asked for.
    pub fn into_service(self) -> Result<EdgeService, EdgeError> {
        #[cfg(feature = "tls")]
        refuse(&[(
            self.tls.is_some() || self.client_certificates.is_some(),
            "tls and client_certificates are for start: here TLS is of the server that has the \
             service",
        )])?;
        self.service()
    }

    fn service(self) -> Result<EdgeService, EdgeError> {
        refuse(&[
            (self.message_bytes_max == 0, "message_bytes_max is zero"),
            (self.calls_max == 0, "calls_max is zero"),
            (self.checks_max == 0, "checks_max is zero"),
            (
                self.request_bytes_total_max / 4 < self.message_bytes_max,
                "request_bytes_total_max is below four times message_bytes_max",
            ),
            (self.answer_bytes_total_max == 0, "answer_bytes_total_max is zero"),
        ])?;
        let set = self.descriptor_set.as_deref();
        if set.is_some_and(<[u8]>::is_empty) {
            let message = "it is empty: leave it out to pass all methods on".to_owned();
            return Err(EdgeError::DescriptorSet { message });
        }
        let methods = set.map(Methods::of).transpose();
        let methods =
            methods.map_err(|error| EdgeError::DescriptorSet { message: error.to_string() })?;
        let health = self.health.unwrap_or_else(|| {
            let health = Health::new();
            let services = methods.iter().flat_map(Methods::services);
            services.for_each(|service| health.set(service, ServingState::Serving));
            health
        });
        let standard = Standard::new(set, EdgeHealth::of(health))?;
        Ok(EdgeService::new(Inner {
            endpoint: self.endpoint,
            route: self.route,
            methods,
            standard,
            message_bytes_max: self.message_bytes_max,
            calls: Seats::new(self.calls_max),
            checks: Seats::new(self.checks_max),
            coming: SendPool::new(self.request_bytes_total_max),
            unread: SendPool::new(self.answer_bytes_total_max),
            unknown: PeerName::Place("clients of whom nothing is known".into()),
        }))
    }

    /// The window of a connection: room for every stream, so that none that is not read can stop
    /// another.
    fn connection_window_bytes(&self) -> u32 {
        self.window_bytes.saturating_mul(self.streams_max).min(WINDOW_BYTES_MAX)
    }

    fn terms(&self) -> Result<Terms, EdgeError> {
        refuse(&[
            (self.handshakes_max == 0, "handshakes_max is zero"),
            (self.connections_max == 0, "connections_max is zero"),
            (self.streams_max == 0, "streams_max is zero"),
            (self.window_bytes < WINDOW_BYTES_MIN, "window_bytes is below 65,535"),
            (
                self.connection_window_bytes() == WINDOW_BYTES_MAX,
                "window_bytes times streams_max is above 2 GiB",
            ),
            (self.handshake_timeout.is_zero(), "handshake_timeout is zero"),
            (self.idle_timeout.is_zero(), "idle_timeout is zero"),
            (self.ping_timeout.is_zero(), "ping_timeout is zero"),
            (self.handshake_timeout > TIME_MAX, "handshake_timeout is above a year"),
            (self.idle_timeout > TIME_MAX, "idle_timeout is above a year"),
            (self.ping_timeout > TIME_MAX, "ping_timeout is above a year"),
            #[cfg(feature = "tls")]
            (
                self.client_certificates.is_some() && self.tls.is_none(),
                "client_certificates is set, but not tls",
            ),
        ])?;
        #[cfg(feature = "tls")]
        let asked = self.client_certificates.unwrap_or_default();
        Ok(Terms {
            #[cfg(feature = "tls")]
            tls: self.tls.clone().map(|identity| crate::tls::Server::of_clients(identity, asked)),
            streams_max: self.streams_max,
            resets_max: self.resets_max,
            stream_window_bytes: self.window_bytes,
            connection_window_bytes: self.connection_window_bytes(),
            frame_bytes_max: HTTP2_FRAME_BYTES,
            handshake_timeout: self.handshake_timeout,
            idle_timeout: self.idle_timeout,
            ping_timeout: self.ping_timeout,
            grace: GRACE,
        })
    }
}

/// # Errors
/// [`EdgeError::Settings`] of the first rule that is broken.
fn refuse(rules: &[(bool, &'static str)]) -> Result<(), EdgeError> {
    match rules.iter().find(|(is_broken, _)| *is_broken) {
        Some((_, message)) => Err(EdgeError::Settings { message }),
        None => Ok(()),
    }
}

/// The edge as what accepted connections ask.
struct Edge(EdgeService);

impl Handler for Edge {
    async fn handle(self: Arc<Self>, mut request: Request, ends: Ends) -> Response {
        request.extensions_mut().insert(ends.name);
        if let Some(principal) = ends.shown.client {
            request.extensions_mut().insert(principal);
        }
        self.0.clone().answer(request).await
    }
}

impl fmt::Debug for GrpcEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcEdge").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}

impl fmt::Debug for GrpcEdgeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcEdgeBuilder").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
