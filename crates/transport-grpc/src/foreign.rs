//! The way out: a task calls a gRPC server that is no node.

use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Code, Context, Method, Payload, Status};
use convoke_transport::BoxFuture;
use convoke_transport::parts::TIME_MAX;
use http::Uri;
use http::uri::PathAndQuery;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Streaming;
use tonic::client::Grpc;

use crate::codec::{BytesCodec, Parts};
use crate::headers::Header;
use crate::http2::{self, Http2, Kept, Terms};
use crate::listener::HTTP2_FRAME_BYTES;
use convoke_transport::sockets;

/// A gRPC server that is no node, such as a service of another team. Cheap to clone; clones share
/// one connection, which is opened by the first call, and again by the next one after it was lost.
/// Nothing is encrypted.
///
/// ```no_run
/// # use convoke_core::{Context, Method, Status};
/// # use convoke_transport_grpc::ForeignServer;
/// const PRICE: Method<String, String> = Method::new("shop.v1.Prices/Price");
///
/// async fn price(item: String, prices: &ForeignServer, task: &Context) -> Result<String, Status> {
///     prices.call(PRICE, &item).within(task).await
/// }
/// ```
#[derive(Clone)]
pub struct ForeignServer {
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    connection: Mutex<Option<(Http2, Kept)>>,
}

/// A call of a foreign server, being put together. Awaited, it gives the one reply;
/// [`ForeignCall::stream`] gives those of a server-streaming method.
#[must_use = "nothing is sent until it is awaited or streamed"]
pub struct ForeignCall<Resp> {
    server: ForeignServer,
    method: &'static str,
    message: Bytes,
    deadline: Duration,
    metadata: Vec<(String, Bytes)>,
    message_bytes_max: usize,
    types: PhantomData<fn() -> Resp>,
}

/// The replies of a server-streaming method. Dropped, it cancels the call.
pub struct ForeignReplies<Resp> {
    incoming: Streaming<Bytes>,
    deadline: Instant,
    types: PhantomData<fn() -> Resp>,
}

/// As for any call.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Time for a connection to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two pings of a connection, and for the answer to one.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

impl ForeignServer {
    /// The server at `host:port`. Nothing is sent yet.
    pub fn new(address: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { address: address.into(), connection: Mutex::default() }) }
    }

    /// A call of one of its methods.
    pub fn call<Req: Payload, Resp: Payload>(
        &self,
        method: Method<Req, Resp>,
        message: &Req,
    ) -> ForeignCall<Resp> {
        ForeignCall {
            server: self.clone(),
            method: method.name(),
            message: message.to_bytes(),
            deadline: DEADLINE_DEFAULT,
            metadata: Vec::new(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            types: PhantomData,
        }
    }

    async fn connection(&self) -> io::Result<Http2> {
        let mut connection = self.inner.connection.lock().await;
        if let Some((http2, _)) = connection.as_ref().filter(|(http2, _)| !http2.is_closed()) {
            return Ok(http2.clone());
        }
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let stream = sockets::connect_to(&self.inner.address, CONNECT_TIMEOUT).await?;
        let spoken = timeout_at(deadline, http2::speak(stream, terms())).await?;
        let (http2, _) = connection.insert(spoken.map_err(io::Error::other)?);
        Ok(http2.clone())
    }
}

fn terms() -> Terms {
    Terms {
        stream_window_bytes: STREAM_WINDOW_BYTES,
        connection_window_bytes: CONNECTION_WINDOW_BYTES,
        frame_bytes_max: HTTP2_FRAME_BYTES,
        ping_timeout: PING_TIMEOUT,
        grace: Duration::from_secs(1),
    }
}

impl<Resp: Payload> ForeignCall<Resp> {
    /// Ends within `deadline`, a year at most, which the server is told. Default 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(TIME_MAX);
        self
    }

    /// Adds metadata, as headers: a key in lower case; one that ends in `-bin` may have any bytes,
    /// others printable ASCII.
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.metadata.push((key.to_owned(), Bytes::copy_from_slice(value.as_ref())));
        self
    }

    /// Takes what is left of a task's deadline, and passes its metadata on, as far as it can be
    /// headers.
    pub fn within(mut self, context: &Context) -> Self {
        let pairs =
            context.metadata().iter().filter(|(key, value)| Header::of(key, value).is_some());
        self.metadata
            .extend(pairs.map(|(key, value)| (key.to_owned(), Bytes::copy_from_slice(value))));
        self.deadline(context.remaining())
    }

    /// The largest reply taken, in bytes. Default 4 MiB.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// The replies of a server-streaming method.
    ///
    /// # Errors
    /// The server's status; [`Code::Unavailable`] when it cannot be reached.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled.
    pub async fn stream(self) -> Result<ForeignReplies<Resp>, Status> {
        let deadline = Instant::now() + self.deadline;
        let incoming = timeout_at(deadline, self.open()).await.unwrap_or_else(|_| Err(late()))?;
        Ok(ForeignReplies { incoming, deadline, types: PhantomData })
    }

    async fn open(self) -> Result<Streaming<Bytes>, Status> {
        let request = self.request()?;
        let http2 = self.server.connection().await.map_err(|error| self.unreachable(&error))?;
        let origin = Uri::builder().scheme("http").authority(self.server.inner.address.as_str());
        let origin = origin.path_and_query("/").build().map_err(|error| invalid(&error))?;
        let path: PathAndQuery =
            format!("/{}", self.method).parse().map_err(|error| invalid(&error))?;
        let mut grpc = Grpc::with_origin(http2, origin)
            .max_decoding_message_size(self.message_bytes_max)
            .max_encoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| self.unreachable(&error))?;
        let streaming = grpc.server_streaming(request, path, BytesCodec::of_a_call()).await;
        Ok(streaming.map_err(|status| ours(&status))?.into_inner())
    }

    fn request(&self) -> Result<tonic::Request<Parts>, Status> {
        let mut request = tonic::Request::new(Parts::from(self.message.clone()));
        request.set_timeout(self.deadline);
        for (key, value) in &self.metadata {
            let header = Header::of(key, value).ok_or_else(|| {
                Status::new(
                    Code::InvalidArgument,
                    format!("{key:?} cannot be a header with its value"),
                )
            })?;
            header.append_to(request.metadata_mut());
        }
        Ok(request)
    }

    fn unreachable(&self, error: &dyn fmt::Display) -> Status {
        let text = format!("cannot reach {}: {error}", self.server.inner.address);
        Status::new(Code::Unavailable, text)
    }
}

/// # Cancel safety
/// Dropped before it resolves, the call is cancelled.
impl<Resp: Payload + 'static> IntoFuture for ForeignCall<Resp> {
    type Output = Result<Resp, Status>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut replies = self.stream().await?;
            let reply = replies.next().await?;
            let reply = reply.ok_or_else(|| {
                Status::new(Code::Internal, "the foreign server ended the call without a reply")
            })?;
            // An error may still follow, and counts.
            match replies.next().await? {
                None => Ok(reply),
                Some(_) => {
                    Err(Status::new(Code::Internal, "the foreign server gave a second reply"))
                }
            }
        })
    }
}

impl<Resp: Payload> ForeignReplies<Resp> {
    /// The next reply; `None` at the end.
    ///
    /// # Errors
    /// The server's status, or what kept its reply from arriving.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Resp>, Status> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let message = timeout(left, self.incoming.message()).await.map_err(|_| late())?;
        let Some(message) = message.map_err(|status| ours(&status))? else { return Ok(None) };
        Resp::decode(message).map(Some).map_err(|error| {
            Status::new(Code::Internal, format!("the foreign reply cannot be decoded: {error}"))
        })
    }
}

fn late() -> Status {
    Status::new(Code::DeadlineExceeded, "the foreign server did not answer within the deadline")
}

fn invalid(error: &dyn fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, format!("the address or method cannot be a URI: {error}"))
}

fn ours(status: &tonic::Status) -> Status {
    let number = u32::try_from(status.code() as i32).unwrap_or_default();
    let ours = Status::new(Code::from_number(number), crate::reader::describe(status));
    ours.with_details(Bytes::copy_from_slice(status.details()))
}

impl fmt::Debug for ForeignServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForeignServer").field(&self.inner.address).finish()
    }
}

impl<Resp> fmt::Debug for ForeignCall<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ForeignCall");
        f.field("server", &self.server).field("method", &self.method).finish_non_exhaustive()
    }
}

impl<Resp> fmt::Debug for ForeignReplies<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignReplies").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
