//! Sockets as the system gives them, with nothing said yet and no security over them.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;

use convoke_transport::security::Security;
use convoke_transport::sockets::send_promptly;
use convoke_transport::{Address, Remote};
use tokio::net::TcpStream;

use crate::config::Config;
use crate::handshake::HandshakeError;
use crate::socket::Socket;

/// A socket that has just been connected or accepted.
pub(crate) trait Fresh: Send + Sync + 'static {
    /// The other end, as the system knows it.
    type Peer: fmt::Debug + Clone + Into<Remote> + Send;

    /// The other end; an error when it is gone again.
    fn peer(&self) -> io::Result<Self::Peer>;

    /// Writes what the socket takes at once.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// The dialler's part of the security.
    fn dialled(
        self,
        security: &Security,
        address: &Address,
    ) -> impl Future<Output = Result<Socket, HandshakeError>> + Send;

    /// The other part.
    fn accepted(
        self,
        config: &Config,
    ) -> impl Future<Output = Result<Socket, HandshakeError>> + Send;
}

impl Fresh for TcpStream {
    type Peer = SocketAddr;

    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn dialled(
        self,
        security: &Security,
        address: &Address,
    ) -> Result<Socket, HandshakeError> {
        Socket::dial(security, self, address).await
    }

    async fn accepted(self, config: &Config) -> Result<Socket, HandshakeError> {
        send_promptly(&self)?;
        Socket::accept(&config.security, self, config.common.close_grace).await
    }
}
