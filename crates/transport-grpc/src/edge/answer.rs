//! The body of an answer: in small pieces, and there no longer than it may take to be read.
//!
//! HTTP/2 asks for a piece before its client has room for it, and for the next one when that has
//! left. So a client that does not read makes the edge hold all that it has not read until then,
//! and two pieces from then on, with its place among the calls: for a minute, after which its
//! connection is closed. All that is held is bounded, and an answer beyond that is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use convoke_core::wire::Executed;
use convoke_transport::PeerName;
use convoke_transport::parts::{Mutex, SendPool, SendShare};
use http::{Extensions, HeaderMap};
use hyper::body::{Body as HttpBody, Frame};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tonic::body::Body;
use tonic::{Code, Status};

use super::status;
use crate::serve::Unread;

/// Largest piece.
const PIECE_BYTES: usize = 32 << 10;

/// Terms of an answer that may not be read at once. They travel in its extensions.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) unread: Unread,
    /// Room for what is not read, and the client that has a share of it.
    pub(super) room: (Arc<SendPool>, PeerName),
}

impl Terms {
    /// Adds them to what goes with an answer of this size. One that is a piece has no time of its
    /// own.
    pub(super) fn add_to(self, extensions: &mut Extensions, bytes: usize) {
        if bytes <= PIECE_BYTES {
            extensions.insert(self.unread);
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
    /// Share of the room for it.
    share: SendShare,
    _place: Arc<dyn Send + Sync>,
}

impl Answer {
    /// An answer of this edge, by its terms if it has any.
    pub(super) fn by_its_terms(mut response: http::Response<Body>) -> http::Response<Body> {
        let Some(terms) = response.extensions_mut().remove::<Terms>() else { return response };
        response.extensions_mut().insert(terms.unread.clone());
        response.map(|body| Body::new(Self::new(body, terms)))
    }

    fn new(body: Body, Terms { unread, room: (pool, name) }: Terms) -> Self {
        let Unread { read_by, place } = unread;
        let content = Content { body, rest: Bytes::new(), share: pool.open(name), _place: place };
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
            return Poll::Ready(Some(end_with(&late)));
        }
        let Some(content) = &mut held.content else { return Poll::Ready(None) };
        let polled = content.poll(cx);
        match &polled {
            Poll::Pending => held.waker = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => {}
            Poll::Ready(_) => held.content = None,
        }
        polled
    }
}

impl Content {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !self.share.grow(data.len()) => {
                        let text = "its client has not read its share of what answers may hold";
                        let full = status::own(Code::ResourceExhausted, text, Executed::Maybe);
                        return Poll::Ready(Some(end_with(&full)));
                    }
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
        self.share.shrink(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// The frame that ends an answer with a status.
fn end_with(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
}
