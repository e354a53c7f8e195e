//! Reading for a while what nobody wants any more.
//!
//! A handler may answer, and a request be refused, before its client has sent all. To reset such a
//! stream would count each frame that is on its way as an error of the connection, which ends for
//! some of these, with all calls on it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Time and bytes that a client has to notice.
const TIME_MAX: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 1 << 20;

/// The body of a request. What has not come when it is dropped is read in a task of its own.
pub(super) struct Drained<B: Body<Data = Bytes> + Send + 'static> {
    /// `None` behind its last frame.
    body: Option<Pin<Box<B>>>,
    /// The body has said that this was its end.
    has_ended: bool,
}

impl<B: Body<Data = Bytes> + Send + 'static> Drained<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body: Some(Box::pin(body)), has_ended: false }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Body for Drained<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.has_ended = body.is_end_stream();
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.has_ended, |body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Drop for Drained<B> {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        // Without a runtime its connection is gone, too.
        if let (Some(body), Ok(runtime)) = (body, Handle::try_current()) {
            // Who goes on is reset.
            runtime.spawn(timeout(TIME_MAX, drain(body)));
        }
    }
}

async fn drain<B: Body<Data = Bytes>>(mut body: Pin<Box<B>>) {
    let mut bytes = 0;
    while bytes <= BYTES_MAX
        && let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await
    {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}
