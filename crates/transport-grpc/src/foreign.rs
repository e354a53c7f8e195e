//! The way out: a task calls a gRPC server that is no node.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{self, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Code, Context, Method, Payload, Status};
use convoke_transport::BoxFuture;
use convoke_transport::parts::{Mutex, TIME_MAX};
use futures_core::Stream;
use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::Grpc;

use crate::codec::{BytesCodec, Parts};
use crate::config::WINDOW_BYTES_MAX;
use crate::framing::{Breach, Framing};
use crate::headers::{Header, is_for_service, is_grpc};
use crate::http2::{self, Http2, Kept, Terms};
use crate::listener::HTTP2_FRAME_BYTES;
use convoke_transport::sockets;

/// A gRPC server that is no node, such as a service of another team. Cheap to clone; clones share
/// one connection, which is opened by the first call, and again by the next one after it was lost,
/// or has brought nothing while a call waited for its answer until the deadline, or has taken no
/// further call until the deadline of one: servers bound the streams of a connection. Nothing is
/// encrypted.
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
    connection: Mutex<Connecting>,
}

/// The connection, or the attempt to open it that all calls wait for.
type Connecting = Option<watch::Receiver<Attempt>>;

/// Outcome of an attempt; none while it is under way.
type Attempt = Option<Result<Arc<Line>, String>>;

/// A connection, which stays until nobody calls over it and its last call has ended.
struct Line {
    http2: Http2,
    opened: Instant,
    /// When something of an answer last came.
    heard: Mutex<Instant>,
    _kept: Kept,
}

/// A call of a foreign server, being put together. Awaited, it gives the one reply;
/// [`ForeignCall::stream`] gives those of a server-streaming method.
#[must_use = "nothing is sent until it is awaited or streamed"]
pub struct ForeignCall<Resp> {
    server: ForeignServer,
    method: &'static str,
    message: Bytes,
    deadline: Option<Duration>,
    /// End of the task within which it is made.
    task_ends: Option<Instant>,
    metadata: Vec<(String, Bytes)>,
    message_bytes_max: usize,
    types: PhantomData<fn() -> Resp>,
}

/// The replies of a server-streaming method. Dropped, it cancels the call.
pub struct ForeignReplies<Resp> {
    incoming: Streaming<Bytes>,
    /// Kept until HTTP/2 takes it, which may be after the answer has begun.
    _message: Arc<Unsent>,
    deadline: Instant,
    types: PhantomData<fn() -> Resp>,
}

/// The message of a request that HTTP/2 has not taken. A connection that has as many streams as its
/// server allows keeps requests until one ends, also those of calls that are long over: the
/// message is the call's, and goes with it.
#[derive(Debug, Default)]
struct Unsent(Mutex<Option<Bytes>>);

/// The message as the body of a request.
struct Outgoing(Weak<Unsent>);

impl Stream for Outgoing {
    type Item = Parts;

    fn poll_next(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Option<Parts>> {
        let message = self.0.upgrade().and_then(|unsent| unsent.0.lock().take());
        Poll::Ready(message.map(Parts::from))
    }
}

/// As for any call.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Time for a connection to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which a connection takes a request, unless it has as many as its server allows.
const TAKEN_WITHIN: Duration = Duration::from_millis(100);
/// Time between two pings of a connection. Servers close one that is pinged more often than every
/// five minutes while they have nothing to say (gRPC A8, "Server Enforcement").
const PING_INTERVAL: Duration = Duration::from_secs(310);
/// Time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Room for every stream: calls of many tasks share the connection, and one that does not read its
/// replies stops no other.
const CONNECTION_WINDOW_BYTES: u32 = WINDOW_BYTES_MAX;

impl ForeignServer {
    /// The server at `host:port`, as text or as a `SocketAddr`. Nothing is sent yet.
    pub fn new(address: impl ToString) -> Self {
        let address = address.to_string();
        Self { inner: Arc::new(Inner { address, connection: Mutex::default() }) }
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
            deadline: None,
            task_ends: None,
            metadata: Vec::new(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            types: PhantomData,
        }
    }

    /// The connection, once it is open. An attempt to open it is one for all who wait for it, and
    /// goes on when one of them is dropped.
    async fn connection(&self) -> Result<Arc<Line>, String> {
        let mut attempt = self.attempt();
        let Ok(outcome) = attempt.wait_for(Option::is_some).await else {
            return Err("the attempt to connect was given up".to_owned());
        };
        match outcome.as_ref() {
            Some(Ok(line)) => Ok(Arc::clone(line)),
            Some(Err(error)) => Err(error.clone()),
            None => unreachable!("it has an outcome"),
        }
    }

    /// The attempt that is under way or has led to a connection, or a new one.
    fn attempt(&self) -> watch::Receiver<Attempt> {
        let mut connection = self.inner.connection.lock();
        let is_good = |attempt: &watch::Receiver<Attempt>| match attempt.borrow().as_ref() {
            None => attempt.has_changed().is_ok(),
            Some(Ok(line)) => !line.http2.is_closed(),
            Some(Err(_)) => false,
        };
        if let Some(attempt) = connection.as_ref().filter(|attempt| is_good(attempt)) {
            return attempt.clone();
        }
        let (told, attempt) = watch::channel(None);
        let address = self.inner.address.clone();
        tokio::spawn(async move {
            let opened = open(&address).await.map_err(|error| error.to_string());
            told.send_replace(Some(opened.map(Arc::new)));
        });
        connection.insert(attempt).clone()
    }

    /// True when a call over its connection has been answered.
    fn has_answered(&self) -> bool {
        let connection = self.inner.connection.lock();
        connection.as_ref().is_some_and(|attempt| match attempt.borrow().as_ref() {
            Some(Ok(line)) => *line.heard.lock() > line.opened,
            _ => false,
        })
    }

    /// A call that began then has waited in vain. If nothing else has come, either, there may be
    /// nobody behind the connection; if the call `is_unsent`, it takes no more. Later calls open
    /// another, and those under way keep it.
    fn note_late(&self, began: Instant, is_unsent: bool) {
        self.inner.connection.lock().take_if(|attempt| {
            let is_of_no_use = |line: &Arc<Line>| match is_unsent {
                true => line.opened <= began,
                false => *line.heard.lock() <= began,
            };
            matches!(attempt.borrow().as_ref(), Some(Ok(line)) if is_of_no_use(line))
        });
    }
}

async fn open(address: &str) -> io::Result<Line> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let stream = sockets::connect_to(address, CONNECT_TIMEOUT).await?;
    let spoken = timeout_at(deadline, http2::speak(stream, terms())).await?;
    let (http2, kept) = spoken.map_err(io::Error::other)?;
    let opened = Instant::now();
    Ok(Line { http2, opened, heard: Mutex::new(opened), _kept: kept })
}

fn terms() -> Terms {
    Terms {
        stream_window_bytes: STREAM_WINDOW_BYTES,
        connection_window_bytes: CONNECTION_WINDOW_BYTES,
        frame_bytes_max: HTTP2_FRAME_BYTES,
        ping_interval: PING_INTERVAL,
        ping_timeout: PING_TIMEOUT,
        grace: Duration::from_secs(1),
    }
}

impl<Resp: Payload> ForeignCall<Resp> {
    /// Ends within `deadline`, a year at most. The server is told what is left of it when the
    /// connection is open. Default 10 s, or what [`within`](Self::within) says. With both the
    /// smaller one counts.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline.min(TIME_MAX));
        self
    }

    /// Adds metadata, as headers: a key in lower case; one that ends in `-bin` may have any bytes,
    /// others printable ASCII, sent without the spaces at its ends. Headers that are gRPC's own or
    /// HTTP's, such as `grpc-timeout`, are refused.
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.metadata.push((key.to_owned(), Bytes::copy_from_slice(value.as_ref())));
        self
    }

    /// Ends with a task's deadline at the latest, and passes its metadata on, as far as it can be
    /// headers. In place of the default it takes all that is left of the task's.
    pub fn within(mut self, context: &Context) -> Self {
        let is_header = |key, value| is_for_service(key) && Header::of(key, value).is_some();
        let pairs = context.metadata().iter().filter(|(key, value)| is_header(key, value));
        self.metadata
            .extend(pairs.map(|(key, value)| (key.to_owned(), Bytes::copy_from_slice(value))));
        let ends = Instant::now() + context.remaining().min(TIME_MAX);
        self.task_ends = self.task_ends.into_iter().chain([ends]).min();
        self
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
        let (began, server) = (Instant::now(), self.server.clone());
        let deadline = began + self.time_left(began);
        let message = Arc::<Unsent>::default();
        let opened = timeout_at(deadline, self.open(&message, deadline)).await;
        let incoming = opened.unwrap_or_else(|_| {
            let is_unsent = deadline - began >= TAKEN_WITHIN && message.0.lock().is_some();
            server.note_late(began, is_unsent);
            Err(late())
        })?;
        Ok(ForeignReplies { incoming, _message: message, deadline, types: PhantomData })
    }

    async fn open(
        self,
        message: &Arc<Unsent>,
        deadline: Instant,
    ) -> Result<Streaming<Bytes>, Status> {
        let opened = match self.try_open(message, deadline).await? {
            // The server had closed the connection, which was not known yet.
            Err(status) if http2::was_not_sent(&status) => self.try_open(message, deadline).await?,
            opened => opened,
        };
        opened.map_err(|status| {
            let has_broken = http2::code_of_failure(&status) == Some(tonic::Code::Unavailable);
            if !has_broken || self.server.has_answered() {
                return ours(&status);
            }
            // What was sent may have run all the same.
            let (reason, address) = (crate::reader::describe(&status), &self.server.inner.address);
            let text = format!(
                "the connection to {address} ended before it gave any answer ({reason}): is it a \
                 gRPC server?"
            );
            Status::new(Code::Unavailable, text)
        })
    }

    /// Opens the stream; the inner error is what came of it.
    async fn try_open(
        &self,
        message: &Arc<Unsent>,
        deadline: Instant,
    ) -> Result<Result<Streaming<Bytes>, tonic::Status>, Status> {
        let mut request = self.request(message)?;
        let line = self.server.connection().await.map_err(|error| self.unreachable(&error))?;
        let origin = Uri::builder().scheme("http").authority(self.server.inner.address.as_str());
        let origin = origin.path_and_query("/").build().map_err(|error| invalid(&error))?;
        let path: PathAndQuery =
            format!("/{}", self.method).parse().map_err(|error| invalid(&error))?;
        let measured = Measured { line, message_bytes_max: self.message_bytes_max };
        let mut grpc = Grpc::with_origin(measured, origin)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        if let Err(error) = grpc.ready().await {
            return Ok(Err(tonic::Status::from_error(Box::new(error))));
        }
        // That of the connection is spent.
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        *message.0.lock() = Some(self.message.clone());
        let streaming = grpc.streaming(request, path, BytesCodec::of_a_call()).await;
        Ok(streaming.map(tonic::Response::into_inner))
    }

    /// Time for a call that begins now.
    fn time_left(&self, now: Instant) -> Duration {
        let of_task = self.task_ends.map(|ends| ends.saturating_duration_since(now));
        self.deadline.into_iter().chain(of_task).min().unwrap_or(DEADLINE_DEFAULT)
    }

    fn request(&self, message: &Arc<Unsent>) -> Result<tonic::Request<Outgoing>, Status> {
        let mut request = tonic::Request::new(Outgoing(Arc::downgrade(message)));
        for (key, value) in &self.metadata {
            let header = Header::of(key, value).filter(|_| is_for_service(key));
            let header = header.ok_or_else(|| {
                let text = format!("{key:?} cannot be a header with its value, or is not a call's");
                Status::new(Code::InvalidArgument, text)
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

/// The server's own status; what HTTP/2 says where the stream or the connection has failed.
fn ours(status: &tonic::Status) -> Status {
    let code = http2::code_of_failure(status).unwrap_or(status.code());
    let number = u32::try_from(code as i32).unwrap_or_default();
    let ours = Status::new(Code::from_number(number), crate::reader::describe(status));
    ours.with_details(Bytes::copy_from_slice(status.details()))
}

/// The connection as one call has it, which measures its replies before any of them is kept.
struct Measured {
    line: Arc<Line>,
    message_bytes_max: usize,
}

/// The body of an answer, which breaks off where the server breaks a rule.
struct Replied {
    line: Arc<Line>,
    /// `None` where the answer is not gRPC's: then the HTTP status has its code.
    body: Option<http2::Answer>,
    framing: Framing,
}

impl tonic::codegen::Service<http::Request<Body>> for Measured {
    type Response = http::Response<Replied>;
    type Error = hyper::Error;
    type Future = BoxFuture<hyper::Result<Self::Response>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<hyper::Result<()>> {
        self.line.http2.clone().poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (line, framing) = (Arc::clone(&self.line), Framing::new(self.message_bytes_max));
        Box::pin(async move {
            let response = line.http2.clone().call(request).await?;
            *line.heard.lock() = Instant::now();
            let is_grpc = response.status() == StatusCode::OK && is_grpc(response.headers());
            Ok(response.map(|body| Replied { line, body: is_grpc.then_some(body), framing }))
        })
    }
}

impl Replied {
    fn check(&mut self, frame: &Frame<Bytes>) -> Result<(), Breach> {
        if let Some(data) = frame.data_ref() {
            return self.framing.handle_data(data);
        }
        match frame.trailers_ref().and_then(|trailers| trailers.get(tonic::Status::GRPC_STATUS)) {
            // It says itself that the replies are not whole.
            Some(code) if code != "0" => Ok(()),
            _ => self.framing.handle_end(),
        }
    }
}

impl hyper::body::Body for Replied {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let breach = |breach: Breach| tonic::Status::new(breach.code(), breach.to_string());
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = ready!(Pin::new(body).poll_frame(cx));
        *self.line.heard.lock() = Instant::now();
        Poll::Ready(match polled {
            Some(Ok(frame)) => Some(self.check(&frame).map(|()| frame).map_err(breach)),
            Some(Err(error)) => Some(Err(tonic::Status::from_error(Box::new(error)))),
            None => self.framing.handle_end().map_err(breach).err().map(Err),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(hyper::body::Body::is_end_stream)
    }
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
