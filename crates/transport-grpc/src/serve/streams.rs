//! Streams of one accepted connection, counted to know when it is idle, and what HTTP/2 was given
//! for them, timed to know when a client takes no more.
//!
//! HTTP/2 asks for data before its client has room for it, and keeps it until then: for ever, if
//! the client does no more than answer pings. No stream can be ended meanwhile, so the connection
//! is.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use convoke_transport::parts::Mutex;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::Response;

/// Time for a client to take what HTTP/2 was given for it, at least.
const TAKE_TIME: Duration = Duration::from_secs(60);

/// Terms of a response that its client may leave unread, in its extensions.
#[derive(Clone)]
pub(crate) struct Unread {
    /// Time by which all of it has to be read. [`TAKE_TIME`] later the client has to have taken
    /// what HTTP/2 was given by then.
    pub(crate) read_by: Instant,
    /// Place that it has until the client has taken all of it.
    pub(crate) place: Arc<dyn Send + Sync>,
}

/// Streams that a connection has, and has ever had.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: AtomicUsize,
    seen: AtomicUsize,
    /// Times by which pieces have to leave, and how many by each.
    leaving: Mutex<BTreeMap<Instant, usize>>,
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

    /// Resolves once a piece is beyond its time.
    pub(super) async fn stuck(&self) {
        loop {
            let first = self.leaving.lock().first_key_value().map(|(by, _)| *by);
            let now = Instant::now();
            if first.is_some_and(|by| by <= now) {
                return;
            }
            // Those to come have as long at least, whatever time the first one has.
            let look_at = now + TAKE_TIME;
            sleep_until(first.map_or(look_at, |by| by.min(look_at))).await;
        }
    }
}

/// One stream, until its drop.
pub(super) struct OpenStream(Arc<Streams>);

impl OpenStream {
    pub(super) fn until_end_of(self, mut response: Response) -> http::Response<Counted> {
        let unread = response.extensions_mut().remove();
        response.map(|body| Counted { body, open: self, unread })
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
    open: OpenStream,
    unread: Option<Unread>,
}

impl Body for Counted {
    type Data = Piece;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Status>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        polled.map_ok(|frame| {
            frame.map_data(|bytes| Piece::new(bytes, &this.open.0, this.unread.as_ref()))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Data that HTTP/2 was given; dropped once the client has taken it.
pub(super) struct Piece {
    bytes: Bytes,
    streams: Arc<Streams>,
    leaves_by: Instant,
    _place: Option<Arc<dyn Send + Sync>>,
}

impl Piece {
    fn new(bytes: Bytes, streams: &Arc<Streams>, unread: Option<&Unread>) -> Self {
        let now = Instant::now();
        let leaves_by = unread.map_or(now, |unread| unread.read_by.max(now)) + TAKE_TIME;
        *streams.leaving.lock().entry(leaves_by).or_default() += 1;
        let place = unread.map(|unread| Arc::clone(&unread.place));
        Self { bytes, streams: Arc::clone(streams), leaves_by, _place: place }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut leaving = self.streams.leaving.lock();
        let count = leaving.get_mut(&self.leaves_by).expect("it has this piece");
        *count -= 1;
        if *count == 0 {
            leaving.remove(&self.leaves_by);
        }
    }
}
