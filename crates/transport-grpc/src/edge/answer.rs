//! The body of an answer: in small pieces, and there no longer than it may take to be read.
//!
//! HTTP/2 asks for a piece before its client has room for it, and for the next one when that has
//! left. So a client that does not read makes the edge hold all that it has not read until then,
//! and two pieces from then on, with its place among the calls: for a minute, after which its
//! connection is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use convoke_transport::parts::Mutex;
use http::Extensions;
use hyper::body::{Body as HttpBody, Frame};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::serve::Unread;

/// Largest piece.
const PIECE_BYTES: usize = 32 << 10;

/// Terms of an answer that may not be read at once. They travel in its extensions.
#[derive(Clone)]
pub(super) struct Terms(pub(super) Unread);

impl Terms {
    /// Adds them to what goes with an answer of this size. One that is a piece has no time of its
    /// own.
    pub(super) fn add_to(self, extensions: &mut Extensions, bytes: usize) {
        if bytes <= PIECE_BYTES {
            extensions.insert(self.0);
        } else {
            extensions.insert(self);
        }
    }
}

/// The body of an answer that may not be read at once.
pub(super) struct Answer {
    held: Arc<Mutex<Held>>,
    timer: JoinHandle<()>,
}

#[derive(Default)]
struct Held {
    content: Option<Content>,
    /// The answer was not read in time, which is to be said.
    is_late: bool,
    waker: Option<Waker>,
}

struct Content {
    body: Body,
    /// Data that the body has given and that has not left.
    rest: Bytes,
    _place: Arc<dyn Send + Sync>,
}

impl Answer {
    /// An answer of this edge, by its terms if it has any.
    pub(super) fn by_its_terms(mut response: http::Response<Body>) -> http::Response<Body> {
        let Some(Terms(unread)) = response.extensions_mut().remove() else { return response };
        response.extensions_mut().insert(unread.clone());
        response.map(|body| Body::new(Self::new(body, unread)))
    }

    fn new(body: Body, Unread { read_by, place }: Unread) -> Self {
        let content = Content { body, rest: Bytes::new(), _place: place };
        let held = Held { content: Some(content), ..Held::default() };
        let held = Arc::new(Mutex::new(held));
        let late = Arc::clone(&held);
        let timer = tokio::spawn(async move {
            sleep_until(read_by).await;
            let (content, waker) = {
                let mut held = late.lock();
                held.is_late = held.content.is_some();
                (held.content.take(), held.waker.take())
            };
            drop(content);
            waker.into_iter().for_each(Waker::wake);
        });
        Self { held, timer }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut held = self.held.lock();
        if std::mem::take(&mut held.is_late) {
            let late = Status::new(Code::DeadlineExceeded, "the answer was not read in time");
            let mut trailers = http::HeaderMap::new();
            let added = late.add_header(&mut trailers);
            return Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))));
        }
        let Some(content) = &mut held.content else { return Poll::Ready(None) };
        let polled = content.poll(cx);
        match &polled {
            Poll::Pending => held.waker = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => held.content = None,
        }
        polled
    }
}

impl Content {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        // A copy: a slice would keep all of the message.
        let piece = match self.rest.len() {
            0..=PIECE_BYTES => std::mem::take(&mut self.rest),
            _ => {
                let piece = Bytes::copy_from_slice(&self.rest[..PIECE_BYTES]);
                self.rest.advance(PIECE_BYTES);
                piece
            }
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
