//! A peer that speaks HTTP/2 by hyper, and says any bytes in a stream to the method of frames.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use crate::in_time;
use crate::over::{ATTACKER, Over, Stream};

/// Method of frames.
pub(crate) const PATH: &str = "/convoke.transport.v1.Transport/Frames";

/// Kinds of chunks.
pub(crate) const LAST: u32 = 0;
pub(crate) const MORE: u32 = 1;
pub(crate) const GOODBYE: u32 = 3;

/// Bytes before a message of gRPC: that it is not compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A hello as it goes over the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(fixed64, tag = "2")]
    node: u64,
    #[prost(fixed64, tag = "3")]
    incarnation: u64,
    #[prost(fixed64, tag = "4")]
    random: u64,
    #[prost(uint32, tag = "5")]
    frame_bytes_max: u32,
    #[prost(uint32, tag = "6")]
    message_bytes_max: u32,
    #[prost(uint32, tag = "7")]
    keep_alive_timeout_ms: u32,
}

/// The message in which a node says hello.
pub(crate) fn hello(version: u32, node: u64) -> Vec<u8> {
    let hello = Hello {
        version,
        node,
        incarnation: 1,
        random: 7,
        frame_bytes_max: 1 << 20,
        message_bytes_max: 64 << 10,
        keep_alive_timeout_ms: 10_000,
    };
    message(&hello.encode_to_vec())
}

/// A message of gRPC.
pub(crate) fn message(body: &[u8]) -> Vec<u8> {
    [&announced(body.len())[..], body].concat()
}

/// The bytes before a message.
pub(crate) fn announced(len: usize) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = u32::try_from(len).expect("test messages are small").to_be_bytes();
    [0, a, b, c, d]
}

/// A chunk of `kind` on a lane (0 control, 1 data).
pub(crate) fn chunk(kind: u32, lane: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("test chunks are small");
    [&(kind << 29 | lane << 28 | len).to_le_bytes()[..], body].concat()
}

/// A stream to the victim.
pub(crate) struct Attack {
    /// `None` once this end has ended.
    pub(crate) send: Option<mpsc::Sender<Bytes>>,
    incoming: Incoming,
    /// Heard, and not looked at.
    heard: BytesMut,
    /// Opens streams, and keeps the connection.
    opening: http2::SendRequest<Outgoing>,
}

impl Attack {
    /// Opens a stream with these first bytes.
    pub(crate) async fn begin(
        over: &Over,
        victim: SocketAddr,
        path: &str,
        first: Vec<u8>,
    ) -> Result<Self, Status> {
        let stream = over.connect(victim).await.expect("the victim listens");
        Self::over(stream, path, first).await
    }

    /// The same over a socket that is connected.
    pub(crate) async fn over(
        stream: Box<dyn Stream>,
        path: &str,
        first: Vec<u8>,
    ) -> Result<Self, Status> {
        let builder = http2::Builder::new(TokioExecutor::new());
        let speaking = in_time(builder.handshake(TokioIo::new(stream))).await;
        let (opening, connection) = speaking.expect("the victim speaks HTTP/2");
        tokio::spawn(connection);
        Self::open(opening, path, first).await
    }

    /// The same beside this one, over its socket.
    pub(crate) async fn beside(&self, path: &str, first: Vec<u8>) -> Result<Self, Status> {
        Self::open(self.opening.clone(), path, first).await
    }

    async fn open(
        mut opening: http2::SendRequest<Outgoing>,
        path: &str,
        first: Vec<u8>,
    ) -> Result<Self, Status> {
        let (send, outgoing) = mpsc::channel(16);
        send.try_send(first.into()).expect("there is room");
        let request = http::Request::post(format!("http://victim{path}"))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Outgoing(outgoing))
            .expect("it is a request");
        let answer = in_time(opening.send_request(request)).await;
        let answer = answer.map_err(|error| Status::unavailable(error.to_string()))?;
        if let Some(refusal) = Status::from_header_map(answer.headers()) {
            return Err(refusal);
        }
        let incoming = answer.into_body();
        let heard = BytesMut::new();
        Ok(Self { send: Some(send), incoming, heard, opening })
    }

    /// One that has said hello and was answered.
    pub(crate) async fn after_hello(over: &Over, victim: SocketAddr) -> Self {
        let opened = Self::begin(over, victim, PATH, hello(1, ATTACKER)).await;
        let mut this = opened.expect("the victim opens");
        let theirs = this.message().await.expect("the victim says hello");
        let theirs = Hello::decode(theirs).expect("a hello");
        assert_eq!((theirs.version, theirs.node), (1, 1));
        this
    }

    /// Says these bytes; the victim may have ended the stream already.
    pub(crate) async fn say(&self, bytes: Vec<u8>) {
        let send = self.send.as_ref().expect("it has not ended");
        let _ = in_time(send.send(bytes.into())).await;
    }

    /// The next message; `None` at the end, however it comes.
    pub(crate) async fn message(&mut self) -> Option<Bytes> {
        while !is_whole(&self.heard) {
            let frame = poll_fn(|cx| Pin::new(&mut self.incoming).poll_frame(cx));
            let frame = in_time(frame).await?.ok()?;
            self.heard.extend_from_slice(&frame.into_data().ok()?);
        }
        self.heard.advance(1);
        let len = self.heard.get_u32() as usize;
        Some(self.heard.split_to(len).freeze())
    }

    /// The goodbye that comes last, or nothing.
    pub(crate) async fn goodbye(mut self) -> String {
        let mut last = Bytes::new();
        while let Some(message) = self.message().await {
            last = message;
        }
        let word = last.try_get_u32_le().unwrap_or_default();
        let text = if word >> 29 == GOODBYE { last } else { Bytes::new() };
        String::from_utf8(text.into()).expect("it is a text")
    }
}

/// True when the first message of these is all there.
fn is_whole(heard: &[u8]) -> bool {
    let Some(([_, len @ ..], body)) = heard.split_first_chunk::<PREFIX_BYTES>() else {
        return false;
    };
    body.len() >= u32::from_be_bytes(*len) as usize
}

/// The body of a request: what is sent, until the sender is gone.
struct Outgoing(mpsc::Receiver<Bytes>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
