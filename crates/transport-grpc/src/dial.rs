//! Reaching a node: resolve, connect, speak HTTP/2, shake hands.

use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::id::NodeId;
use convoke_transport::parts::{Admission, Greeting, Lifetime, Pipe, PipeConnection};
use convoke_transport::{Address, Connection, DialError, DialLimit, Sink, sockets};
use http::Uri;
use http::uri::PathAndQuery;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};

use crate::codec::BytesCodec;
use crate::config::Config;
use crate::connection::Outgoing;
use crate::handshake::{self, PATH};
use crate::hello;
use crate::http2::{self, Http2};
use crate::listener::HTTP2_FRAME_BYTES;
use crate::reader::{self, Terms, describe, linger};
use crate::security::Shown;
use crate::serve::Ends;

/// Reason why there is no connection though somebody answers.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Because(String),
    #[error("{expected} was expected, not {found}")]
    WrongNode { expected: NodeId, found: NodeId },
    #[error("not trusted: {0}")]
    Untrusted(String),
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(#[from] convoke_transport::identity::TlsError),
}

impl Refusal {
    fn into_dial_error(self, address: Address) -> DialError {
        match self {
            Self::Because(message) => DialError::Handshake { address, message },
            Self::WrongNode { expected, found } => {
                DialError::WrongNode { address, expected, found }
            }
            Self::Untrusted(message) => DialError::Untrusted { address, message },
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.into_dial_error(address),
        }
    }
}

/// Opens a connection to `address`, with `on_open` called.
pub(crate) async fn dial(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    if let Err(message) = config.security.verify_own(sink.hello().node) {
        return Err(DialError::Untrusted { address, message });
    }
    let within = config.common.dial_timeout;
    let dial = Dial { config, admission, address, expected, sink };
    sockets::dial(&dial.address, within, |stream| dial.meet(stream)).await
}

/// A dial until it has a connection.
struct Dial {
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
}

impl Dial {
    async fn meet(&self, stream: TcpStream) -> Result<Arc<dyn Connection>, DialError> {
        let Self { config, admission, address, expected, sink } = self;
        let within = config.common.handshake_timeout;
        let shaken = shake_hands((config, admission), stream, address, *expected, Arc::clone(sink));
        match timeout(within, shaken).await {
            Ok(shaken) => shaken.map_err(|refusal| {
                tracing::debug!(%address, reason = %refusal, "dial failed");
                refusal.into_dial_error(address.clone())
            }),
            Err(_) => Err(DialLimit::Handshake(within).passed(address)),
        }
    }
}

async fn shake_hands(
    both: (&Config, &Admission),
    stream: TcpStream,
    address: &Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, Refusal> {
    let [local, remote] = [stream.local_addr(), stream.peer_addr()]
        .map(|end| end.map_err(|error| Refusal::Because(error.to_string())));
    let (local, remote) = (local?, remote?);
    #[cfg(feature = "tls")]
    if let Some(tls) = both.0.security.as_tls() {
        let (stream, shown, failure) = crate::tls::dial(tls, stream, address).await?;
        let ends = Ends::new(local, remote, shown);
        let opened = carry(both, stream, (address, &ends), expected, sink).await;
        return opened.map_err(|refusal| match failure.get() {
            Some(error) => Refusal::Tls(error.clone().into()),
            None => refusal,
        });
    }
    let ends = Ends::new(local, remote, Shown::default());
    carry(both, stream, (address, &ends), expected, sink).await
}

async fn carry(
    (config, admission): (&Config, &Admission),
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    (address, ends): (&Address, &Ends),
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, Refusal> {
    let (http2, kept) = http2::speak(stream, http2_terms(config))
        .await
        .map_err(|error| Refusal::Because(format!("it does not speak HTTP/2: {error}")))?;
    let mine = handshake::greeting(config, &*sink, ends.local.ip());
    let pipe = Pipe::new(Some(hello::encode(&mine)));
    let mut goodbye = Goodbye { pipe: &pipe, text: Some("the dial was given up".into()) };
    let (incoming, first) =
        exchange(config, http2.clone(), address, &pipe).await.map_err(Refusal::Because)?;
    match open((config, admission), (&mine, ends), first, expected, &pipe, &sink) {
        Ok((lifetime, terms)) => {
            goodbye.text = None;
            Ok(reader::start(lifetime, incoming, terms, (http2, kept)))
        }
        Err(refusal) => {
            goodbye.text = Some(refusal.to_string());
            let grace = config.common.close_grace;
            tokio::spawn(async move {
                linger(incoming, grace).await;
                drop((http2, kept));
            });
            Err(refusal)
        }
    }
}

/// Judges the other end by its hello, and opens the connection.
fn open(
    both: (&Config, &Admission),
    (mine, ends): (&Greeting, &Ends),
    hello: Bytes,
    expected: Option<NodeId>,
    pipe: &Arc<Pipe>,
    sink: &Arc<dyn Sink>,
) -> Result<(Lifetime<PipeConnection>, Terms), Refusal> {
    let theirs = hello::decode(hello).map_err(|error| Refusal::Because(error.to_string()))?;
    let found = theirs.hello.node;
    let principal = ends.shown.verify_peer(&both.0.security, found);
    let principal = principal.map_err(Refusal::Untrusted)?;
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(Refusal::WrongNode { expected, found });
    }
    let opened =
        handshake::open(both, (mine, &theirs), (true, ends.remote.ip(), principal), pipe, sink);
    let lifetime = opened.map_err(Refusal::Because)?;
    Ok((lifetime, handshake::terms(both.0, mine, &theirs)))
}

/// Opens the stream; answers it and the other end's hello.
async fn exchange(
    config: &Config,
    http2: Http2,
    address: &Address,
    pipe: &Arc<Pipe>,
) -> Result<(Streaming<Bytes>, Bytes), String> {
    let uri = Uri::builder()
        .scheme(config.security.choose("http", "https"))
        .authority(address.rest())
        .path_and_query("/");
    let uri = uri.build().map_err(|error| error.to_string())?;
    let limit = config.message_bytes_max as usize;
    let mut grpc = Grpc::with_origin(http2, uri)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    grpc.ready().await.map_err(|error| error.to_string())?;
    let request = Request::new(Outgoing(Arc::clone(pipe)));
    let codec = BytesCodec::of_a_connection();
    let response = grpc.streaming(request, PathAndQuery::from_static(PATH), codec).await;
    let mut incoming = response.map_err(|status| in_words(&status))?.into_inner();
    match incoming.message().await.map_err(|status| in_words(&status))? {
        Some(hello) => Ok((incoming, hello)),
        None => Err("it ended the stream without a hello".into()),
    }
}

fn in_words(status: &Status) -> String {
    match status.code() {
        tonic::Code::FailedPrecondition
        | tonic::Code::PermissionDenied
        | tonic::Code::ResourceExhausted => format!("it refused: {}", describe(status)),
        code => format!("it answered with {code:?}: {}", describe(status)),
    }
}

/// HTTP/2's part of the settings: one stream a connection.
fn http2_terms(config: &Config) -> http2::Terms {
    http2::Terms {
        stream_window_bytes: config.window_bytes,
        connection_window_bytes: config.connection_window_bytes(1),
        frame_bytes_max: HTTP2_FRAME_BYTES,
        ping_interval: config.common.keep_alive_timeout,
        ping_timeout: config.common.keep_alive_timeout,
        grace: config.common.close_grace,
    }
}

/// A dial that comes to nothing, or is dropped, tells the other end, which may have opened already.
struct Goodbye<'a> {
    pipe: &'a Pipe,
    text: Option<String>,
}

impl Drop for Goodbye<'_> {
    fn drop(&mut self) {
        if let Some(text) = self.text.take() {
            self.pipe.refuse(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use convoke_transport::conformance::Recorder;
    use convoke_transport::{Listener, Transport};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use crate::GrpcTransport;

    use super::*;

    async fn bound() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let at = listener.local_addr().expect("it is bound");
        (listener, at)
    }

    async fn node(number: u64) -> (Box<dyn Listener>, SocketAddr) {
        let any = "grpc://127.0.0.1:0".parse().expect("it is an address");
        let sink = Arc::new(Recorder::new(number));
        let listener = GrpcTransport::new().listen(&any, sink).await.expect("it binds");
        let at = listener.local_address().rest().parse().expect("it is a socket's");
        (listener, at)
    }

    async fn dial_at(
        sockets: &[SocketAddr],
        expected: u64,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let mut config = Config::default();
        config.common.handshake_timeout = Duration::from_millis(200);
        let dial = Dial {
            admission: Arc::new(config.common.admission()),
            config: Arc::new(config),
            address: "grpc://several:1".parse().expect("it is an address"),
            expected: Some(NodeId::new(expected)),
            sink: Arc::new(Recorder::new(9)),
        };
        let long = Duration::from_secs(30);
        sockets::dial_at(&dial.address, sockets, (long, long), |stream| dial.meet(stream)).await
    }

    #[tokio::test]
    async fn a_node_is_found_at_whichever_address_of_its_name() {
        let (gone, nobody) = bound().await;
        drop(gone);
        let (_hangs, silent) = bound().await; // The system takes connections for it.
        let (web, foreign) = bound().await;
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = web.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let ((_one, first), (_two, second)) = (node(1).await, node(2).await);
        let found = dial_at(&[nobody, silent, foreign, first, second], 2).await;
        let connection = found.expect("it is at the last");
        assert_eq!(connection.link().peer.node, NodeId::new(2));
        connection.close(convoke_transport::CloseReason::Local);
        let error = dial_at(&[first, nobody], 3).await.expect_err("it is nowhere");
        assert!(matches!(error, DialError::WrongNode { .. }), "who was there says more: {error}");
        serving.abort();
    }
}
