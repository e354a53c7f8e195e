//! Streams of one accepted connection, counted to know when it is idle.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Streams that a connection has, and has ever had.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: AtomicUsize,
    seen: AtomicUsize,
}

impl Streams {
    pub(super) fn open(this: &Arc<Self>) -> OpenStream {
        this.open.fetch_add(1, Ordering::Relaxed);
        this.seen.fetch_add(1, Ordering::Relaxed);
        OpenStream(Arc::clone(this))
    }

    pub(super) fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn has_been_idle_since(&self, seen: usize) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && self.seen() == seen
    }
}

/// One stream, until its drop.
pub(super) struct OpenStream(Arc<Streams>);

impl OpenStream {
    pub(super) fn until_end_of(self, body: tonic::body::Body) -> Counted {
        Counted { body, _open: self }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response, whose stream counts as open until it is dropped.
pub(super) struct Counted {
    body: tonic::body::Body,
    _open: OpenStream,
}

impl hyper::body::Body for Counted {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
