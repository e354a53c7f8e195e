//! TLS 1.3 over a socket, with rustls and without a task of its own.
//!
//! ```text
//!  batch ─▶ session.writer ─▶ sealed records ─▶ socket      whoever has the duty to write
//!  sink  ◀─ session.reader ◀─ session.read_tls ◀─ socket    the reader
//! ```
//!
//! The session is one value behind a lock that is held to seal one write or to open one read. What
//! is sealed must go out before anything else is: so a write keeps how much it has sealed, and
//! answers only when the socket has it all. For whoever writes nothing changes: a batch that would
//! block is offered again.

mod half;
mod session;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::identity::{Identity, IdentitySeam as _, TlsError};
use convoke_transport::parts::{Foreign, HelloError, Mutex, refusal};
use convoke_transport::security::{Tls, server_name};
use convoke_transport::sockets::linger;
use convoke_transport::{Address, Principal};
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::handshake::{self, HandshakeError};
use crate::tls::session::{Incoming, Opened, Session};

pub(crate) use half::{TlsReadHalf, TlsWriteHalf};

/// The protocol's name in the handshake, so that it fails with a peer that speaks another over TLS.
pub(crate) const PROTOCOL: &[u8] = b"convoke";

/// A socket after its TLS handshake.
pub(crate) struct TlsStream {
    stream: TcpStream,
    session: Session,
    incoming: Incoming,
    identity: Identity,
}

impl TlsStream {
    /// The client's handshake. In TLS 1.3 it may end well although the server goes on to refuse
    /// this end's certificate: then the first read fails.
    pub(crate) async fn dial(
        tls: &Tls,
        stream: TcpStream,
        address: &Address,
    ) -> Result<Self, HandshakeError> {
        let client = ClientConnection::new(Arc::clone(&tls.client), server_name(address))
            .map_err(TlsError::from)?;
        let shaken = match Self::shake_hands(tls, stream, client.into()).await {
            Ok(shaken) => shaken,
            Err((TlsError::NotTls(Foreign::Convoke), failed)) => {
                return Err(failed.refused().await);
            }
            Err((error, _)) => return Err(error.into()),
        };
        // A hello tells addresses: nobody of another domain gets it.
        let domain = tls.identity.verify_domain(shaken.session.peer_certificates());
        domain.map_err(TlsError::from)?;
        Ok(shaken)
    }

    /// Reason why the server would not even begin: a port that has no time for another handshake
    /// says so plainly.
    async fn refused(self) -> HandshakeError {
        match handshake::read_greeting(&mut self.incoming.bytes().chain(self.stream)).await {
            Err(HandshakeError::Hello(refused @ HelloError::Refused(_))) => refused.into(),
            _ => TlsError::NotTls(Foreign::Convoke).into(),
        }
    }

    /// The server's handshake. A peer that fails it is told as far as it can understand.
    pub(crate) async fn accept(
        tls: &Tls,
        stream: TcpStream,
        close_grace: Duration,
    ) -> Result<Self, TlsError> {
        let server = ServerConnection::new(Arc::clone(&tls.server))?;
        let (error, mut stream) = match Self::shake_hands(tls, stream, server.into()).await {
            Ok(stream) => return Ok(stream),
            Err((error, failed)) => (error, failed.stream),
        };
        let is_told = match &error {
            TlsError::NotTls(Foreign::Convoke) => {
                let text = "this port takes TLS only: dial it as tls://, with a certificate";
                stream.write_all(&refusal(text)).await.is_ok()
            }
            // By an alert, which is out already.
            TlsError::Rustls(_) => true,
            _ => false,
        };
        if is_told {
            linger(stream, close_grace).await;
        }
        Err(error)
    }

    async fn shake_hands(
        tls: &Tls,
        stream: TcpStream,
        connection: Connection,
    ) -> Result<Self, (TlsError, Self)> {
        let identity = tls.identity.clone();
        let (session, incoming) = (Session::new(connection), Incoming::new());
        let mut shaken = Self { stream, session, incoming, identity };
        match poll_fn(|cx| shaken.poll_handshake(cx)).await {
            Ok(()) => Ok(shaken),
            Err(error) => {
                // The alert that says why, if the socket takes it now.
                let _ = shaken.session.drain(&shaken.stream);
                Err((error, shaken))
            }
        }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        loop {
            ready!(self.poll_drain(cx)).map_err(TlsError::Network)?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let is_first = self.incoming.is_fresh();
            let count = ready!(self.incoming.poll_fill(&mut self.stream, cx));
            if count.map_err(TlsError::Network)? == 0 {
                return Poll::Ready(Err(TlsError::Closed));
            }
            if is_first && let Some(foreign) = Foreign::to_tls(self.incoming.bytes()) {
                return Poll::Ready(Err(TlsError::NotTls(foreign)));
            }
            self.session.handshake(&mut self.incoming)?;
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.session.drain(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                drained => return Poll::Ready(drained),
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Verifies that the peer's certificate proves `claimed`.
    pub(crate) fn verify_peer(&self, claimed: NodeId) -> Result<Principal, TlsError> {
        let certificates = self.session.peer_certificates();
        Ok(self.identity.verify_node(certificates, claimed)?)
    }

    pub(crate) fn into_split(self) -> (TlsReadHalf, TlsWriteHalf) {
        let (read, write) = self.stream.into_split();
        let session = Arc::new(Mutex::new(self.session));
        let write = TlsWriteHalf::new(write, Arc::clone(&session));
        (TlsReadHalf::new(read, session, self.incoming), write)
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.session.open(&mut self.incoming, out)? {
                Opened::Ready => return Poll::Ready(Ok(())),
                Opened::NeedsMore => {
                    ready!(self.incoming.poll_fill(&mut self.stream, cx))?;
                }
            }
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.session.write(&self.stream, &[io::IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(cx))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.close();
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}
