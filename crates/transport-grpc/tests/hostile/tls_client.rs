//! TLS by hand, over a socket that is open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::certificates::Issued;
use crate::credulous::client_config;
use crate::http2::PREFACE;
use crate::in_time;
use crate::over::channel_over;

/// A channel of tonic to `to`, with this certificate or none.
pub(crate) async fn channel(to: SocketAddr, issued: Option<&Issued>) -> Channel {
    let stream = TcpStream::connect(to).await.expect("the victim listens");
    let stream = handshake(client_config(issued, Some(b"h2")), stream).await;
    let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("a URI");
    channel_over(endpoint, Box::new(stream.expect("the handshake goes well"))).await
}

/// The client's handshake; a refusal of its certificate comes later.
pub(crate) async fn handshake(
    config: ClientConfig,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("victim").expect("it is a name");
    in_time(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Refusal of whoever comes with this certificate, or none. A client hears of it once it reads.
pub(crate) async fn refusal(stream: TcpStream, issued: Option<&Issued>) -> String {
    let refused = async {
        let mut stream = handshake(client_config(issued, Some(b"h2")), stream).await?;
        stream.write_all(PREFACE).await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    in_time(refused).await.expect_err("it is refused").to_string()
}
