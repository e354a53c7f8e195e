//! Manner in which the peers of a test reach their victim: plain, or over TLS.

use std::io;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::sync::Arc;

use convoke_transport::Address;
use convoke_transport_grpc::{GrpcEdgeBuilder, GrpcTransport, GrpcTransportBuilder};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

#[cfg(feature = "tls")]
use crate::certificates::Authority;
#[cfg(feature = "tls")]
use crate::trust::identity;

/// Id of a peer that misbehaves, and over TLS has a good certificate.
pub(crate) const ATTACKER: u64 = 66;

/// A stream of bytes to a victim.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

#[derive(Clone)]
pub(crate) enum Over {
    Plain,
    /// With certificates of this authority.
    #[cfg(feature = "tls")]
    Tls(Arc<Authority>),
}

/// Makes two tests of each, in modules `plain` and `tls`.
macro_rules! over_both {
    ($($test:ident),* $(,)?) => {
        mod plain {
            $(#[tokio::test] async fn $test() { super::$test(crate::over::Over::Plain).await; })*
        }
        #[cfg(feature = "tls")]
        mod tls {
            $(#[tokio::test] async fn $test() { super::$test(crate::over::Over::tls()).await; })*
        }
    };
}
pub(crate) use over_both;

impl Over {
    #[cfg(feature = "tls")]
    pub(crate) fn tls() -> Self {
        Self::Tls(Arc::new(Authority::new()))
    }

    /// An address to listen at.
    pub(crate) fn any(&self) -> Address {
        let scheme = match self {
            Self::Plain => "grpc",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "grpcs",
        };
        format!("{scheme}://127.0.0.1:0").parse().expect("it is an address")
    }

    /// The transport of any of these nodes.
    pub(crate) fn transport(&self, builder: GrpcTransportBuilder, nodes: &[u64]) -> GrpcTransport {
        let _ = nodes;
        let builder = match self {
            Self::Plain => builder,
            #[cfg(feature = "tls")]
            Self::Tls(authority) => {
                builder.tls(identity(&authority.issue(nodes.iter().copied()), authority))
            }
        };
        builder.build().expect("the settings of the test are legal")
    }

    pub(crate) fn edge(&self, builder: GrpcEdgeBuilder) -> GrpcEdgeBuilder {
        match self {
            Self::Plain => builder,
            #[cfg(feature = "tls")]
            Self::Tls(authority) => builder.tls(identity(&authority.issue([1]), authority)),
        }
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(to).await?;
        match self {
            Self::Plain => Ok(Box::new(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(authority) => {
                let issued = authority.issue([ATTACKER]);
                let config = crate::credulous::client_config(Some(&issued), Some(b"h2"));
                Ok(Box::new(crate::tls_client::handshake(config, stream).await?))
            }
        }
    }

    /// A channel of tonic, with settings.
    pub(crate) async fn channel(
        &self,
        to: SocketAddr,
        set: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("a URI");
        let stream = self.connect(to).await.expect("the victim listens");
        channel_over(set(endpoint), stream).await
    }
}

/// A channel of tonic over a stream that is open.
pub(crate) async fn channel_over(endpoint: Endpoint, stream: Box<dyn Stream>) -> Channel {
    let mut stream = Some(TokioIo::new(stream));
    let once = tower::service_fn(move |_: http::Uri| {
        let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
        async move { stream.map_err(io::Error::from) }
    });
    endpoint.connect_with_connector(once).await.expect("the stream is open")
}
