//! Reaching a node: resolve, connect, speak HTTP/2, shake hands.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::id::NodeId;
use convoke_transport::parts::{Admission, Greeting, Lifetime, Pipe, PipeConnection};
use convoke_transport::{Address, Connection, DialError, Sink, sockets};
use http::Uri;
use http::uri::PathAndQuery;
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

/// Reason why there is no connection though somebody answers.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Because(String),
    #[error("{expected} was expected, not {found}")]
    WrongNode { expected: NodeId, found: NodeId },
}

/// Opens a connection to `address`, with `on_open` called.
pub(crate) async fn dial(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let stream = sockets::connect(&address, config.common.dial_timeout).await?;
    let shaken = shake_hands((&config, &admission), stream, &address, expected, sink);
    match timeout(config.common.handshake_timeout, shaken).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(Refusal::Because(message))) => {
            tracing::debug!(%address, %message, "dial failed");
            Err(DialError::Handshake { address, message })
        }
        Ok(Err(Refusal::WrongNode { expected, found })) => {
            Err(DialError::WrongNode { address, expected, found })
        }
        Err(_) => Err(DialError::Timeout { address }),
    }
}

async fn shake_hands(
    (config, admission): (&Config, &Admission),
    stream: TcpStream,
    address: &Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, Refusal> {
    let because = |error: String| Refusal::Because(error);
    let local = stream.local_addr().map_err(|error| because(error.to_string()))?;
    let remote = stream.peer_addr().map_err(|error| because(error.to_string()))?;
    let (http2, kept) = http2::speak(stream, http2_terms(config))
        .await
        .map_err(|error| because(format!("it does not speak HTTP/2: {error}")))?;
    let mine = handshake::greeting(config, &*sink, local.ip());
    let pipe = Pipe::new(Some(hello::encode(&mine)));
    let mut goodbye = Goodbye { pipe: &pipe, text: Some("the dial was given up".into()) };
    let (incoming, first) =
        exchange(config, http2.clone(), address, &pipe).await.map_err(because)?;
    match open((config, admission), (&mine, remote.ip()), first, expected, &pipe, &sink) {
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
    (mine, remote): (&Greeting, IpAddr),
    hello: Bytes,
    expected: Option<NodeId>,
    pipe: &Arc<Pipe>,
    sink: &Arc<dyn Sink>,
) -> Result<(Lifetime<PipeConnection>, Terms), Refusal> {
    let theirs = hello::decode(hello).map_err(|error| Refusal::Because(error.to_string()))?;
    let found = theirs.hello.node;
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(Refusal::WrongNode { expected, found });
    }
    let opened = handshake::open(both, (mine, &theirs), (true, remote), pipe, sink);
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
    let uri = Uri::builder().scheme("http").authority(address.rest()).path_and_query("/");
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
        tonic::Code::FailedPrecondition => format!("it refused: {}", status.message()),
        code => format!("it answered with {code:?}: {}", describe(status)),
    }
}

/// HTTP/2's part of the settings: one stream a connection.
fn http2_terms(config: &Config) -> http2::Terms {
    http2::Terms {
        stream_window_bytes: config.window_bytes,
        connection_window_bytes: config.connection_window_bytes(2),
        frame_bytes_max: HTTP2_FRAME_BYTES,
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
