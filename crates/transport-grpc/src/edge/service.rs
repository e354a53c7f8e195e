//! One gRPC request as one call of the endpoint.

use std::convert::Infallible;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::seam::{EndpointSeam, RequestSeam as _};
use convoke_core::wire::Executed;
use convoke_core::{
    Call, CallBuilder, CallError, Endpoint, Peer, RawMessage, Reply, Request, StreamBuilder,
    StreamInvocation,
};
use convoke_transport::parts::{NoSeat, Seat, Seats, SendPool, TIME_MAX};
use convoke_transport::{PeerName, Principal};
use futures_core::Stream;
use http::{HeaderValue, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::answer::{Answer, Terms};
use super::drain::Drained;
use super::methods::{Known, Methods, Shape};
use super::request::{Checked, MESSAGE_TIME_MAX, Whole, messages, not_whole, whole};
use super::standard::Standard;
use super::stream::Pump;
use super::{metadata, standard, status};
use crate::headers::is_grpc;
use crate::serve::Unread;

/// Chooses who is asked.
pub(super) type Route = Box<dyn Fn(&str) -> Peer + Send + Sync>;

/// The edge as a `tower` service, for a server of one's own: with TLS, with other services beside
/// it, behind layers. It answers every path, so it is the fallback of a router.
///
/// Made by [`GrpcEdgeBuilder::into_service`](crate::GrpcEdgeBuilder::into_service). Cheap to clone.
///
/// Clients are anonymous there, unless a layer puts what they have proven, a
/// [`Principal`](convoke_core::transport::Principal), into the extensions of the request: then
/// [`Caller::client`](convoke_core::Caller::client) has it.
///
/// Bodies of HTTP/2 say by [`is_end_stream`](hyper::body::Body::is_end_stream) that they have
/// ended, as hyper's do and those of axum and tonic around them. A streamed request whose body
/// gives nothing more, and does not say so, was reset by its client: its call is cancelled. A layer
/// that gives a request a body of its own passes this on.
///
/// A layer sees every request before it becomes a call, and every answer:
/// ```
/// # use convoke_core::Endpoint;
/// # use convoke_transport_grpc::GrpcEdge;
/// use tower::ServiceBuilder;
///
/// # type Request = http::Request<tonic::body::Body>;
/// # fn serve(endpoint: &Endpoint) -> Result<(), Box<dyn std::error::Error>> {
/// let edge = GrpcEdge::builder(endpoint).into_service()?;
/// let edge = ServiceBuilder::new()
///     .map_request(|mut request: Request| {
///         // Who the tenant is, is not for clients to say.
///         request.headers_mut().insert("tenant", http::HeaderValue::from_static("shop"));
///         request
///     })
///     .service(edge);
/// # fn is_service(_: impl tower::Service<Request>) {}
/// # is_service(edge);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EdgeService {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) endpoint: Endpoint,
    pub(super) route: Option<Route>,
    pub(super) methods: Option<Methods>,
    pub(super) standard: Standard,
    pub(super) message_bytes_max: usize,
    pub(super) calls: Arc<Seats>,
    /// Of requests to the standard services, which are answered also where there is no other.
    pub(super) checks: Arc<Seats>,
    /// Room for messages on their way into calls.
    pub(super) coming: Arc<SendPool>,
    /// Room for answers that are not read.
    pub(super) unread: Arc<SendPool>,
    /// Name of all clients of whom nothing is known, in a server of one's own.
    pub(super) unknown: PeerName,
}

/// Largest message to the standard services: a name.
const STANDARD_BYTES_MAX: usize = 16 << 10;
/// Time from the deadline of a call until its answer has to be read: of one that its client set,
/// and has given it up by then, and of another, for clients that read slowly.
const READ_GRACE: Duration = Duration::from_secs(1);
const READ_GRACE_MAX: Duration = Duration::from_secs(60);

impl EdgeService {
    pub(super) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn standard(&self) -> &Standard {
        &self.inner.standard
    }

    /// Answers one request, whatever it is.
    pub(crate) async fn answer<B>(self, request: http::Request<B>) -> http::Response<Body>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send,
    {
        let request = request.map(Drained::new);
        if let Some(refusal) = not_grpc(&request) {
            return refusal;
        }
        let client = request.extensions().get::<Principal>().cloned();
        let name = request.extensions().get::<PeerName>().cloned();
        let name = name.or_else(|| client.clone().map(PeerName::Certified));
        let name = name.unwrap_or_else(|| self.inner.unknown.clone());
        let path = request.uri().path();
        if let Err(status) = metadata::check_size(request.headers(), path) {
            return refusal(path, status);
        }
        let message_time = metadata::deadline(request.headers())
            .map_or(MESSAGE_TIME_MAX, |deadline| deadline.min(MESSAGE_TIME_MAX));
        if let Some(standard) = self.inner.standard.find(path) {
            let place = match self.inner.checks.take(name) {
                Ok(seat) => Arc::new(seat),
                Err(full) => return refusal(path, no_seat("places for health", &full)),
            };
            let checked = |body| Body::new(Checked::new(body, STANDARD_BYTES_MAX, false, None));
            let answered = timeout(message_time, standard(request.map(checked))).await;
            return match answered {
                Ok(response) => standard::placed(response, place),
                Err(_) => not_whole(message_time).into_http(),
            };
        }
        let (shape, one, coming) = match self.prepare(path, client, name) {
            Ok(prepared) => prepared,
            Err(status) => return refusal(path, status),
        };
        let bytes_max = self.inner.message_bytes_max;
        let room = Some(self.inner.coming.open(one.client_name.clone()));
        let version = request.version();
        let checked = |body| Checked::new(body, bytes_max, shape.takes_one(), room).over(version);
        let request = request.map(checked);
        let response = async {
            let answered = one.answer(shape, request).await;
            answered.unwrap_or_else(|refused| saying_that_nothing_ran(refused.into_http()))
        };
        tokio::select! {
            biased;
            response = response => response,
            late = late(message_time, coming) => late.into_http(),
        }
    }

    /// Finds out what to do; the body of the request was not looked at yet.
    fn prepare(
        &self,
        path: &str,
        client: Option<Principal>,
        client_name: PeerName,
    ) -> Result<(Shape, One, oneshot::Receiver<Infallible>), Status> {
        let inner = &self.inner;
        let method = path.strip_prefix('/').unwrap_or(path);
        let known = match &inner.methods {
            Some(methods) => Some(methods.find(method).ok_or_else(|| unknown(method))?),
            None => None,
        };
        if inner.route.is_none() && inner.endpoint.served_method(method).is_none() {
            return Err(not_served(method));
        }
        // All replies of a method nobody knows are given: of a unary one there is one.
        let shape = match known {
            Some(known) => known.shape,
            None if inner.endpoint.takes_items(method) => Shape::Streaming,
            None => Shape::ServerStreaming,
        };
        let permit = inner.calls.take(client_name.clone());
        let permit = permit.map_err(|full| no_seat("calls", &full))?;
        let me = || inner.endpoint.me();
        let peer = inner.route.as_ref().map_or_else(me, |route| route(method));
        let (inner, method, permit) = (Arc::clone(inner), method.to_owned(), Some(permit));
        let (coming, whole) = oneshot::channel();
        let coming = Some(coming);
        let began = Instant::now();
        let one = One { inner, method, known, client, client_name, peer, permit, began, coming };
        Ok((shape, one, whole))
    }
}

/// Status of a request whose message does not come whole in time; never, when it does.
async fn late(time: Duration, whole: oneshot::Receiver<Infallible>) -> Status {
    if timeout(time, whole).await.is_ok() {
        return pending().await;
    }
    not_whole(time)
}

impl<B> Service<http::Request<B>> for EdgeService
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError> + Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.answer(request).await) })
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("endpoint", &self.endpoint)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

/// The answer to what is HTTP/2 but not gRPC, as gRPC over HTTP/2 asks for.
fn not_grpc<B>(request: &http::Request<B>) -> Option<http::Response<Body>> {
    let code = if !is_grpc(request.headers()) {
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    } else if request.method() != http::Method::POST {
        StatusCode::METHOD_NOT_ALLOWED
    } else {
        return None;
    };
    tracing::debug!(path = request.uri().path(), %code, "request refused: it is not gRPC");
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = code;
    Some(response)
}

fn refusal(path: &str, status: Status) -> http::Response<Body> {
    tracing::debug!(%path, reason = status.message(), "gRPC request refused");
    status.into_http()
}

fn no_seat(what: &str, full: &NoSeat) -> Status {
    status::own(Code::ResourceExhausted, format!("of the {what} {full}"), Executed::No)
}

fn unknown(method: &str) -> Status {
    let text = format!("{method} is not among the methods served here");
    status::own(Code::Unimplemented, text, Executed::No)
}

fn not_served(method: &str) -> Status {
    let text = format!(
        "{method} is not served by the endpoint of this edge: serve it there, or give the edge a \
         `route` to the node that does"
    );
    status::own(Code::Unimplemented, text, Executed::No)
}

/// Adds to a refusal of tonic's that nothing ran: a status of the edge always says whether it did,
/// so one that does not is about a request that tonic did not pass on.
fn saying_that_nothing_ran(mut response: http::Response<Body>) -> http::Response<Body> {
    let said = response.headers_mut().entry(status::EXECUTED);
    said.or_insert(HeaderValue::from_static("no"));
    response
}

/// One request on its way into a call.
pub(super) struct One {
    inner: Arc<Inner>,
    method: String,
    /// The method, where there is a descriptor set.
    pub(super) known: Option<Known>,
    /// Identity that the client has proven.
    client: Option<Principal>,
    /// Name by which the client has its shares.
    client_name: PeerName,
    peer: Peer,
    permit: Option<Seat>,
    /// Time of the headers.
    began: Instant,
    /// Goes when the message has come.
    pub(super) coming: Option<oneshot::Sender<Infallible>>,
}

impl One {
    /// Answers the request, whose messages may be yet to come.
    async fn answer<B>(
        self,
        shape: Shape,
        request: http::Request<Checked<B>>,
    ) -> Result<http::Response<Body>, Status>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<StdError>,
    {
        match shape {
            Shape::Unary => self.unary(whole(request).await?).await,
            Shape::ServerStreaming => self.server_streaming(whole(request).await?).await,
            Shape::ClientStreaming => self.client_streaming(messages(request)?).await,
            Shape::Streaming => self.streaming(messages(request)?).await,
        }
    }

    async fn unary(mut self, request: Whole) -> Result<http::Response<Body>, Status> {
        let (call, terms) = self.open(request).await?;
        Ok(answer(only_reply(call, self.known).await?, terms))
    }

    /// Answers when there is a first reply, or none: so that a call that fails has only a status.
    async fn server_streaming(mut self, request: Whole) -> Result<http::Response<Body>, Status> {
        let (call, terms) = self.open(request).await?;
        let mut replies = Replies::new(call, None);
        let first = poll_fn(|cx| Pin::new(&mut replies).poll_next(cx)).await.transpose()?;
        let headers = std::mem::take(&mut replies.beside);
        Ok(Answer { headers, first, replies: Some(replies), terms }.into_http())
    }

    fn builder(
        &self,
        headers: &MetadataMap,
        message: Bytes,
    ) -> Result<CallBuilder<RawMessage>, Status> {
        let request = self.request(headers, message)?;
        let deadline = self.left_of(request.deadline_set());
        let builder = self.inner.endpoint.invoke(request).to(self.peer);
        Ok(deadline.into_iter().fold(builder, CallBuilder::deadline))
    }

    /// The same of a request whose messages follow.
    pub(super) fn stream_builder(
        &self,
        headers: &MetadataMap,
    ) -> Result<StreamBuilder<RawMessage, RawMessage>, Status> {
        let request = self.request(headers, Bytes::new())?;
        let deadline = self.left_of(request.deadline_set());
        let invocation = self.inner.endpoint.client().invoke_stream(request);
        Ok(deadline.into_iter().fold(invocation, StreamInvocation::deadline).to(self.peer))
    }

    /// Time that is left of a deadline of the client's, which counts from the headers.
    fn left_of(&self, deadline: Option<Duration>) -> Option<Duration> {
        deadline.map(|deadline| deadline.saturating_sub(self.began.elapsed()))
    }

    /// Terms of the answer to a call that is opened now, with the place that it takes.
    /// `is_set` says that its client has set the deadline.
    pub(super) fn terms(&mut self, is_set: bool, budget: Duration) -> Terms {
        let grace = if is_set { READ_GRACE } else { READ_GRACE_MAX };
        let read_by = Instant::now() + budget.min(TIME_MAX) + grace;
        let unread = Unread { read_by, place: Arc::new(self.permit.take()) };
        Terms { unread, room: (Arc::clone(&self.inner.unread), self.client_name.clone()) }
    }

    fn request(
        &self,
        headers: &MetadataMap,
        message: Bytes,
    ) -> Result<Request<RawMessage>, Status> {
        let request = match self.name() {
            Some(name) => Request::raw_named(name, message),
            None => Request::raw(&self.method, message),
        };
        metadata::apply(headers, request.of_client(self.client.as_ref()))
    }

    /// The name of the method in spans and metrics. Names that only clients give have no place
    /// there.
    fn name(&self) -> Option<&'static str> {
        let known = self.known.map(|known| known.name);
        known.or_else(|| self.inner.endpoint.served_method(&self.method))
    }

    async fn open(&mut self, request: Whole) -> Result<(Call<RawMessage>, Terms), Status> {
        self.coming = None;
        let Whole { headers, message, room } = request;
        let is_set = headers.contains_key(metadata::TIMEOUT);
        let builder = self.builder(&headers, message)?;
        let terms = self.terms(is_set, builder.budget());
        let call = builder.open_when_writable().await;
        drop(room);
        Ok((call.map_err(|error| status::of_error(&error))?, terms))
    }
}

/// The one reply of a call with what it carries.
pub(super) fn answer(reply: Reply<RawMessage>, terms: Terms) -> http::Response<Body> {
    let mut headers = MetadataMap::new();
    metadata::append(reply.metadata(), &mut headers, 0);
    let first = Some(reply.into_inner().into_bytes());
    Answer::<Replies> { headers, first, replies: None, terms }.into_http()
}

/// The reply of a call that has one, read to its end: never a part of what it answers.
pub(super) async fn only_reply(
    mut call: Call<RawMessage>,
    known: Option<Known>,
) -> Result<Reply<RawMessage>, Status> {
    let mut only = None;
    while let Some(reply) = call.next().await {
        match reply {
            Ok(reply) if only.is_none() => only = Some(reply),
            // The call goes with it, and is cancelled.
            Ok(_) => return Err(status::of_part(known, &[])),
            // The outcome has it.
            Err(CallError::Branch(_)) => {}
            Err(error) => {
                let status = status::of_error(&error);
                return Err(if only.is_some() { status::replied(status) } else { status });
            }
        }
    }
    let outcome = call.outcome().await;
    match (only, status::of_outcome(&outcome)) {
        (Some(reply), None) => Ok(reply),
        (Some(_), Some(_)) if !outcome.failures.is_empty() => {
            Err(status::of_part(known, &outcome.failures))
        }
        (Some(_), Some(status)) => Err(status::replied(status)),
        (None, None) => Err(status::of_error(&CallError::NoReply)),
        (None, Some(status)) => Err(status),
    }
}

/// The replies of a call, and at their end its status where it is not complete. Dropped before
/// that, it cancels the call.
pub(super) struct Replies {
    /// `None` at the end.
    call: Option<Call<RawMessage>>,
    /// Passes on the messages of a streamed request.
    pump: Option<Pump>,
    has_replied: bool,
    /// Metadata of the replies since the headers left, which the trailers take.
    beside: MetadataMap,
}

impl Stream for Replies {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(call) = &mut self.call else { return Poll::Ready(None) };
            match ready!(Pin::new(call).poll_next(cx)) {
                Some(Ok(reply)) => {
                    self.has_replied = true;
                    metadata::append(reply.metadata(), &mut self.beside, 0);
                    return Poll::Ready(Some(Ok(reply.into_inner().into_bytes())));
                }
                // The outcome has it; the other branches' replies follow.
                Some(Err(CallError::Branch(_))) => {}
                Some(Err(error)) => {
                    self.call = None;
                    return Poll::Ready(Some(Err(self.proven(status::of_error(&error)))));
                }
                None => return Poll::Ready(self.end(cx)),
            }
        }
    }
}

impl Replies {
    pub(super) fn new(call: Call<RawMessage>, pump: Option<Pump>) -> Self {
        Self { call: Some(call), pump, has_replied: false, beside: MetadataMap::new() }
    }

    /// The status with what replies prove of the execution.
    fn proven(&self, status: Status) -> Status {
        if self.has_replied { status::replied(status) } else { status }
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Option<Result<Bytes, Status>> {
        let outcome = std::pin::pin!(self.call.take()?.outcome());
        match outcome.poll(cx) {
            Poll::Ready(outcome) => {
                let fault = self.pump.take().and_then(|pump| pump.fault());
                let status = status::of_outcome(&outcome).map(|status| fault.unwrap_or(status));
                let status = status.map(|status| self.proven(status));
                self.trailers(status).map(Err)
            }
            Poll::Pending => unreachable!("a call that was read to its end has an outcome"),
        }
    }

    /// The status at the end with the metadata of the replies; none where both say nothing.
    fn trailers(&mut self, status: Option<Status>) -> Option<Status> {
        let beside = std::mem::take(&mut self.beside);
        match status {
            Some(mut status) => {
                let own = status::bytes_of(&status);
                metadata::merge(&beside, status.metadata_mut(), own);
                Some(status)
            }
            None if beside.is_empty() => None,
            None => Some(Status::with_metadata(Code::Ok, "", beside)),
        }
    }
}
