//! A stream that keeps the TLS failure which ends it: HTTP/2 keeps its kind and text alone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_transport::identity::rustls_error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::Failure;

/// A TLS stream whose first failure is noted.
#[derive(Debug)]
pub(crate) struct Noting<S> {
    stream: S,
    failure: Failure,
}

impl<S: Unpin> Noting<S> {
    pub(crate) fn new(stream: S) -> (Self, Failure) {
        let failure = Failure::default();
        (Self { stream, failure: Arc::clone(&failure) }, failure)
    }

    fn note<T>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Self { stream, failure } = self.get_mut();
        let polled = poll(Pin::new(stream));
        if let Poll::Ready(Err(error)) = &polled
            && let Some(error) = rustls_error(error)
        {
            // The first one says why.
            let _ = failure.set(error.clone());
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noting<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.note(|stream| stream.poll_read(cx, out))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noting<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note(|stream| stream.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note(|stream| stream.poll_write_vectored(cx, slices))
    }
}
