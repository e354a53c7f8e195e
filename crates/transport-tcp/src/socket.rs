//! Socket under a connection: one of TCP, bare or with TLS over it, or one within this host.
//! Everything above is the same for all.
//!
//! During the hellos it is a [`Socket`]; then a [`ReadHalf`] for the reader and a [`WriteHalf`] for
//! whoever has the duty to write. A write does not wait: it takes bytes or would block.

use std::io::{self, IoSlice};
#[cfg(unix)]
use std::net::Ipv4Addr;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::security::Security;
use convoke_transport::{Address, Principal, Remote};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

use crate::fresh::Fresh;
use crate::handshake::HandshakeError;
use crate::platform::Half;
#[cfg(feature = "tls")]
use crate::tls::{TlsReadHalf, TlsStream, TlsWriteHalf};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

/// The receiving direction.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Plain(OwnedReadHalf),
    #[cfg(unix)]
    Unix(unix::OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(TlsReadHalf),
}

/// The sending direction; its drop ends it.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Plain(OwnedWriteHalf),
    #[cfg(unix)]
    Unix(unix::OwnedWriteHalf),
    #[cfg(feature = "tls")]
    Tls(TlsWriteHalf),
}

impl Socket {
    /// The dialler's part over a fresh socket.
    pub(crate) async fn dial(
        security: &Security,
        stream: TcpStream,
        address: &Address,
    ) -> Result<Self, HandshakeError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = security.as_tls() {
            return Ok(Self::Tls(Box::new(TlsStream::dial(tls, stream, address).await?)));
        }
        let _ = (security, address);
        Ok(Self::Plain(stream))
    }

    /// The other part.
    pub(crate) async fn accept(
        security: &Security,
        stream: TcpStream,
        close_grace: Duration,
    ) -> Result<Self, HandshakeError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = security.as_tls() {
            return Ok(Self::Tls(Box::new(TlsStream::accept(tls, stream, close_grace).await?)));
        }
        let _ = (security, close_grace);
        Ok(Self::Plain(stream))
    }

    /// The scheme of its address.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Plain(_) => "tcp",
            #[cfg(unix)]
            Self::Unix(_) => crate::unix::SCHEME,
            #[cfg(feature = "tls")]
            Self::Tls(_) => "tls",
        }
    }

    /// The place the peer connects from.
    pub(crate) fn remote(&self) -> Option<Remote> {
        match self {
            Self::Plain(stream) => stream.peer().ok().map(Into::into),
            #[cfg(unix)]
            Self::Unix(stream) => stream.peer().ok().map(Into::into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.peer_addr().ok().map(Into::into),
        }
    }

    /// The address of this end that the peer reaches, or is reached from; within this host none,
    /// which is the unspecified one.
    pub(crate) fn local_ip(&self) -> io::Result<IpAddr> {
        let address = match self {
            Self::Plain(stream) => stream.local_addr(),
            #[cfg(unix)]
            Self::Unix(_) => return Ok(Ipv4Addr::UNSPECIFIED.into()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.local_addr(),
        };
        address.map(|address| address.ip())
    }

    /// True for one within this host.
    pub(crate) fn is_within_host(&self) -> bool {
        #[cfg(unix)]
        return matches!(self, Self::Unix(_));
        #[cfg(not(unix))]
        false
    }

    /// The socket address of the other end.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(stream) => stream.peer_addr(),
            #[cfg(unix)]
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.peer_addr(),
        }
    }

    /// Principal that the peer, which claims to be `claimed`, has proven to be; nobody without TLS.
    pub(crate) fn verify_peer(&self, claimed: NodeId) -> Result<Option<Principal>, HandshakeError> {
        let _ = claimed;
        match self {
            Self::Plain(_) => Ok(None),
            #[cfg(unix)]
            Self::Unix(_) => Ok(None),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Ok(Some(stream.verify_peer(claimed)?)),
        }
    }

    pub(crate) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Plain(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tls(read), WriteHalf::Tls(write))
            }
        }
    }
}

impl Half for WriteHalf {
    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(half) => half.writable().await,
            #[cfg(unix)]
            Self::Unix(half) => half.writable().await,
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.writable().await,
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(half) => half.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.try_write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(half) => half.try_write_vectored(slices),
            #[cfg(unix)]
            Self::Unix(half) => half.try_write_vectored(slices),
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.try_write_vectored(slices),
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(cx, out),
            #[cfg(unix)]
            Self::Unix(half) => Pin::new(half).poll_read(cx, out),
            #[cfg(feature = "tls")]
            Self::Tls(half) => half.poll_read(cx, out),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, out),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, out),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.poll_write(cx, bytes),
        }
    }

    /// Nothing to do: a write is only ready once the socket has its bytes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.poll_shutdown(cx),
        }
    }
}
