//! TLS 1.3 under HTTP/2, by tokio-rustls: between nodes with certificates of both ends, at the edge
//! with that of the server and, if they have any, those of its clients.

mod noting;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use convoke_transport::identity::{
    ClientCertificates, Identity, IdentitySeam as _, TlsError, rustls_error,
};
use convoke_transport::parts::Foreign;
use convoke_transport::security::{Tls, server_name};
use convoke_transport::sockets::linger;
use convoke_transport::{Address, PeerName};
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::security::Shown;
use crate::serve;

pub(crate) use noting::Noting;

/// The name of HTTP/2 in the handshake (RFC 9113, section 3.2).
pub(crate) const PROTOCOL: &[u8] = b"h2";

/// First TLS failure of a connection that carries HTTP/2, which does not pass it on.
pub(crate) type Failure = Arc<OnceLock<rustls::Error>>;

/// Side that accepts: whom it asks for certificates.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    identity: Identity,
    config: Arc<ServerConfig>,
    takes: Takes,
}

#[derive(Clone, Copy, Debug)]
enum Takes {
    Nodes,
    Clients,
}

impl Server {
    /// Takes nodes of the cluster.
    pub(crate) fn of_nodes(tls: &Tls) -> Self {
        let (identity, config) = (tls.identity.clone(), Arc::clone(&tls.server));
        Self { identity, config, takes: Takes::Nodes }
    }

    /// Takes clients that are no nodes.
    pub(crate) fn of_clients(identity: Identity, asked: ClientCertificates) -> Self {
        let config = Arc::new(identity.edge_config(PROTOCOL, asked));
        Self { identity, config, takes: Takes::Clients }
    }

    /// The server's handshake. A peer that fails it is told as far as it can understand.
    pub(crate) async fn accept(
        &self,
        mut stream: TcpStream,
        close_grace: Duration,
    ) -> Result<(server::TlsStream<TcpStream>, Shown), TlsError> {
        let mut first = [0];
        match stream.peek(&mut first).await.map_err(TlsError::Network)? {
            0 => return Err(TlsError::Closed),
            _ if Foreign::to_tls(&first).is_some() => {
                return Err(TlsError::NotTls(tell(&mut stream, close_grace).await));
            }
            _ => {}
        }
        let accepting = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).into_fallible();
        let mut stream = match accepting.await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                // The alert is out, and would be taken back by closing with bytes unread.
                linger(stream, close_grace).await;
                return Err(of_handshake(error));
            }
        };
        let session = stream.get_ref().1;
        if let Err(error) = agreed(session) {
            // It has given no name of a protocol, and may speak any.
            let _ = stream.write_all(serve::REFUSAL).await;
            linger(stream, close_grace).await;
            return Err(error);
        }
        let shown = self.shown(session);
        Ok((stream, shown))
    }

    fn shown(&self, session: &CommonState) -> Shown {
        let certificates = certificates(session);
        match self.takes {
            Takes::Nodes => {
                let nodes = self.identity.nodes_proven(&certificates);
                let name = nodes.first().map(|node| PeerName::Node(*node));
                Shown { name, client: None, certificates }
            }
            Takes::Clients => {
                let client = self.identity.client_principal(&certificates);
                let name = client.clone().map(PeerName::Certified);
                Shown { name, client, ..Shown::default() }
            }
        }
    }
}

/// The dialler's handshake with a node. In TLS 1.3 it may end well although the other end goes on
/// to refuse this end's certificate: then the first read fails, which the [`Failure`] tells.
pub(crate) async fn dial(
    tls: &Tls,
    stream: TcpStream,
    address: &Address,
) -> Result<(Noting<client::TlsStream<TcpStream>>, Shown, Failure), TlsError> {
    let connector = TlsConnector::from(Arc::clone(&tls.client));
    let connected = connector.connect(server_name(address), stream).await;
    let stream = connected.map_err(of_handshake)?;
    let session = stream.get_ref().1;
    agreed(session)?;
    let certificates = certificates(session);
    // A hello tells addresses: nobody of another domain gets it.
    tls.identity.verify_domain(&certificates)?;
    let (stream, failure) = Noting::new(stream);
    Ok((stream, Shown { certificates, ..Shown::default() }, failure))
}

/// Fails unless both ends have said that HTTP/2 follows.
fn agreed(session: &CommonState) -> Result<(), TlsError> {
    match session.alpn_protocol() {
        Some(PROTOCOL) => Ok(()),
        _ => Err(rustls::Error::NoApplicationProtocol.into()),
    }
}

fn certificates(session: &CommonState) -> Arc<[CertificateDer<'static>]> {
    session.peer_certificates().unwrap_or_default().into()
}

fn of_handshake(error: io::Error) -> TlsError {
    match rustls_error(&error) {
        Some(error) => error.clone().into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => TlsError::Closed,
        None => TlsError::Network(error),
    }
}

/// Tells somebody who does not speak TLS, and answers what it speaks.
async fn tell(stream: &mut TcpStream, close_grace: Duration) -> Foreign {
    let mut said = [0; serve::PREFACE.len()];
    let count = stream.read(&mut said).await.unwrap_or_default();
    let said = &said[..count];
    let is_http2 = serve::PREFACE.starts_with(said);
    let told = match is_http2 {
        true => stream.write_all(&serve::go_away(TLS_ONLY)).await,
        false => stream.write_all(HTTP_REFUSAL).await,
    };
    if told.is_ok() {
        linger(stream, close_grace).await;
    }
    Foreign::to_tls(said).unwrap_or(Foreign::Unknown)
}

/// Text for who speaks plain HTTP/2.
const TLS_ONLY: &str = "this port takes TLS only: dial it as grpcs://, with a certificate";
/// Answer to those who speak something else, if it is anything like HTTP.
const HTTP_REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
    Content-Length: 41\r\n\r\nthis port speaks gRPC, over TLS 1.3 only.\r\n";
