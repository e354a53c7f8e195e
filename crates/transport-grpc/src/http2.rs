//! The dialling end of HTTP/2: one connection to one address.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;

/// Opens streams on a connection, which ends soon after the last clone and the last stream are
/// gone.
#[derive(Clone, Debug)]
pub(crate) struct Http2 {
    send: SendRequest<tonic::body::Body>,
}

/// While it is there the connection stays; afterwards its streams have a grace to end.
#[derive(Debug)]
pub(crate) struct Kept {
    _until_dropped: oneshot::Sender<()>,
}

/// Manner of speaking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) stream_window_bytes: u32,
    pub(crate) connection_window_bytes: u32,
    pub(crate) frame_bytes_max: u32,
    pub(crate) ping_interval: Duration,
    pub(crate) ping_timeout: Duration,
    pub(crate) grace: Duration,
}

const DETAILS: &str = "grpc-status-details-bin";

/// Streams that were dropped and are remembered for their late frames.
const RESET_STREAMS_MAX: usize = 1_024;

/// Bytes that a read takes where HTTP/2 asks for fewer: it begins with 8 KiB, and asks for the rest
/// of a frame once it has its head.
const READ_BYTES: usize = 16 * 1024;

/// The stream, of which a frame of some calls is taken with one read.
pub(crate) fn in_one_read<S: AsyncRead>(stream: S) -> BufReader<S> {
    BufReader::with_capacity(READ_BYTES, stream)
}

/// Speaks HTTP/2 on a stream, in a task of its own.
pub(crate) async fn speak(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    terms: Terms,
) -> hyper::Result<(Http2, Kept)> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(terms.stream_window_bytes)
        .initial_connection_window_size(terms.connection_window_bytes)
        .max_frame_size(terms.frame_bytes_max)
        // Streams are dropped before their end in good order, and frames of them come late. Who was
        // dialled gains nothing by them, so that they are no reason to lose all streams.
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(terms.ping_interval)
        .keep_alive_timeout(terms.ping_timeout);
    let (send, connection) = builder.handshake(TokioIo::new(in_one_read(stream))).await?;
    let (kept, dropped) = oneshot::channel();
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = dropped => timeout(terms.grace, connection).await.unwrap_or(Ok(())),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "HTTP/2 connection lost");
        }
    });
    Ok((Http2 { send }, Kept { _until_dropped: kept }))
}

impl Http2 {
    /// True when no further stream can be opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }
}

/// True when a call has failed before any of it was sent: its connection was closed by then.
pub(crate) fn was_not_sent(status: &tonic::Status) -> bool {
    let causes = std::iter::successors(std::error::Error::source(status), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<hyper::Error>()).any(hyper::Error::is_canceled)
}

/// Code of a stream or connection that has failed, behind what tonic says of a call (gRPC over
/// HTTP/2, "Errors"); `None` when the call has a status.
pub(crate) fn code_of_failure(status: &tonic::Status) -> Option<tonic::Code> {
    let source = std::error::Error::source(status)?;
    let mut causes = std::iter::successors(Some(source), |error| error.source());
    let error = causes.find_map(|cause| cause.downcast_ref::<h2::Error>());
    // Without a word of HTTP/2 the connection has broken.
    let reason = error.filter(|error| !error.is_go_away()).and_then(h2::Error::reason);
    Some(match reason {
        None | Some(h2::Reason::REFUSED_STREAM) => tonic::Code::Unavailable,
        Some(h2::Reason::CANCEL) => tonic::Code::Cancelled,
        Some(h2::Reason::ENHANCE_YOUR_CALM) => tonic::Code::ResourceExhausted,
        Some(h2::Reason::INADEQUATE_SECURITY) => tonic::Code::PermissionDenied,
        Some(h2::Reason::STREAM_CLOSED) => tonic::Code::Unknown,
        Some(_) => tonic::Code::Internal,
    })
}

impl tonic::codegen::Service<http::Request<tonic::body::Body>> for Http2 {
    type Response = http::Response<Answer>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.send.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let answered = self.send.send_request(request);
        Box::pin(async move {
            let mut response = answered.await?;
            leave_out_broken_details(response.headers_mut());
            Ok(response.map(Answer))
        })
    }
}

/// The body of an answer, whose trailers can be read as a status.
#[derive(Debug)]
pub(crate) struct Answer(Incoming);

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            leave_out_broken_details(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Leaves a status without details that are not base64, for which tonic panics.
fn leave_out_broken_details(headers: &mut HeaderMap) {
    if !headers.contains_key(DETAILS) {
        return;
    }
    let mut map = MetadataMap::from_headers(std::mem::take(headers));
    if map.get_bin(DETAILS).is_some_and(|details| details.to_bytes().is_err()) {
        tracing::debug!("details of a status left out: they are not base64");
        map.remove_bin(DETAILS);
    }
    *headers = map.into_headers();
}
