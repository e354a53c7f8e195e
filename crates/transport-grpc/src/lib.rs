//! Convoke through gRPC, for networks that let only HTTP/2 through, and for callers that speak gRPC.
//!
//! Two things live here, independent of each other:
//!
//! - [`GrpcTransport`], the addresses `grpc://host:port`: one bidirectional HTTP/2 stream carries the
//!   frames between two nodes, many in one gRPC message.
#![forbid(unsafe_code)]

mod address;
mod codec;
mod config;
mod connection;
mod dial;
mod edge;
mod framing;
mod handshake;
mod hello;
mod http2;
mod listener;
mod reader;
mod send_queue;
mod serve;

use std::sync::Arc;

use convoke_core::id::NodeId;
use convoke_core::transport::{
    Address, BoxFuture, Connection, DialError, ListenError, Listener, Sink, Transport,
};
use tokio::sync::Semaphore;

pub use config::{ConfigError, GrpcTransportBuilder};
pub use edge::{EdgeError, EdgeService, GrpcEdge, GrpcEdgeBuilder};

use crate::address::SCHEME;
use crate::config::Config;

/// Makes connections of one HTTP/2 stream each. Cheap to clone; clones share the limit on accepted
/// connections.
///
/// Its futures, and the connections they make, run on the tokio runtime they are polled on, which
/// needs I/O and time enabled.
#[derive(Clone, Debug)]
pub struct GrpcTransport {
    config: Arc<Config>,
    slots: Arc<Semaphore>,
}

impl GrpcTransport {
    /// With the defaults that [`GrpcTransportBuilder`] lists.
    pub fn new() -> Self {
        Self::from_config(Config::default())
    }

    /// For other settings than the defaults.
    pub fn builder() -> GrpcTransportBuilder {
        GrpcTransportBuilder::new()
    }

    fn from_config(config: Config) -> Self {
        let permits = config.connections_max.min(Semaphore::MAX_PERMITS);
        Self { config: Arc::new(config), slots: Arc::new(Semaphore::new(permits)) }
    }
}

impl Default for GrpcTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for GrpcTransport {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    /// Accepts until the listener is closed or dropped. A connection that was in its handshake then
    /// may still open.
    fn listen(
        &self,
        address: &Address,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Box<dyn Listener>, ListenError>> {
        let (config, slots) = (Arc::clone(&self.config), Arc::clone(&self.slots));
        let address = address.clone();
        Box::pin(async move {
            if address.scheme() != SCHEME {
                return Err(ListenError::NoTransport { address });
            }
            listener::listen(config, slots, address, sink).await
        })
    }

    /// # Cancel safety
    /// A future dropped before it is ready leaves no connection behind.
    fn dial(
        &self,
        address: &Address,
        expected: Option<NodeId>,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<Result<Arc<dyn Connection>, DialError>> {
        let (config, address) = (Arc::clone(&self.config), address.clone());
        Box::pin(async move {
            if address.scheme() != SCHEME {
                return Err(DialError::NoTransport { address });
            }
            dial::dial(config, address, expected, sink).await
        })
    }
}
