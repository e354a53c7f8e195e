//! Reasons why an accepted connection is not served, or no longer.

use std::io;

/// Reason why an accepted connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    NoRoom(String),
    #[error("it did not show within the handshake timeout that it speaks HTTP/2")]
    Late,
    #[error("this end stops")]
    Stopped,
    #[error("it does not speak HTTP/2, which gRPC needs")]
    NotHttp2,
    #[error("it begins as TLS does, and this port is plain")]
    Tls,
    #[cfg(feature = "tls")]
    #[error("{0}")]
    NoTrust(#[from] convoke_transport::identity::TlsError),
    #[error("the network failed: {0}")]
    Network(#[from] io::Error),
    #[error("HTTP/2 failed: {0}")]
    Http2(#[from] hyper::Error),
}

impl Refused {
    /// True when any port on the internet sees this all day.
    pub(crate) fn is_noise(&self) -> bool {
        match self {
            Self::Late | Self::Stopped | Self::NotHttp2 | Self::Network(_) => true,
            #[cfg(feature = "tls")]
            Self::NoTrust(error) => error.is_noise(),
            Self::NoRoom(_) | Self::Tls | Self::Http2(_) => false,
        }
    }
}
