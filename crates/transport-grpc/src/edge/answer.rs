//! The body of an answer: in small pieces, and there no longer than it may take to be read.
//!
//! HTTP/2 asks for a piece before its client has room for it, and for the next one when that has
//! left. So a client that does not read makes the edge hold all that it has not read until then,
//! and two pieces from then on, with its place among the calls: for a minute, after which its
//! connection is closed. All that is held is bounded, and an answer beyond that is refused.
//!
//! Pieces are copies, for a slice would keep all of its message. A message counts whole until the
//! last of it was copied, and then is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use convoke_core::wire::Executed;
use convoke_transport::PeerName;
use convoke_transport::parts::{Mutex, SendPool, SendShare};
use futures_core::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Version};
use hyper::body::{Body as HttpBody, Frame};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::status;
use crate::framing::PREFIX_BYTES;
use crate::serve::Unread;

/// Largest piece.
const PIECE_BYTES: usize = 32 << 10;

/// Terms of an answer that may not be read at once.
pub(super) struct Terms {
    pub(super) unread: Unread,
    /// Room for what is not read, and the client that has a share of it.
    pub(super) room: (Arc<SendPool>, PeerName),
}

/// An answer that is about to leave.
pub(super) struct Answer<S> {
    pub(super) headers: MetadataMap,
    /// The first reply, if there is one yet.
    pub(super) first: Option<Bytes>,
    /// The replies that follow, if any can.
    pub(super) replies: Option<S>,
    pub(super) terms: Terms,
}

impl<S> Answer<S>
where
    S: Stream<Item = Result<Bytes, Status>> + Send + Unpin + 'static,
{
    /// One that is a piece has no time of its own.
    pub(super) fn into_http(self) -> http::Response<Body> {
        let Self { headers, first, replies, terms: Terms { unread, room: (pool, name) } } = self;
        let bytes = first.as_ref().map_or(0, Bytes::len);
        let is_a_piece = replies.is_none() && PREFIX_BYTES + bytes <= PIECE_BYTES;
        let share = (!is_a_piece).then(|| pool.open(name));
        let data = Replying::new(first, replies, share);
        let body =
            if is_a_piece { Body::new(data) } else { Body::new(Timed::new(data, unread.clone())) };
        let mut response = http::Response::new(body);
        *response.version_mut() = Version::HTTP_2;
        *response.headers_mut() = headers.into_headers();
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, grpc);
        response.extensions_mut().insert(unread);
        response
    }
}

/// Replies as data, and the status of their call as trailers.
struct Replying<S> {
    piece: Vec<u8>,
    /// Part of the reply that has begun and that finds no room in the piece.
    rest: Bytes,
    /// Share of the room for that reply. An answer that is a piece needs none.
    share: Option<SendShare>,
    has_replied: bool,
    then: Then<S>,
}

/// Rest of an answer behind the data that is there.
enum Then<S> {
    Replies(S),
    Status(Status),
    Nothing,
}

impl<S> Replying<S> {
    fn new(first: Option<Bytes>, replies: Option<S>, share: Option<SendShare>) -> Self {
        let then = replies.map_or_else(|| Then::Status(Status::ok("")), Then::Replies);
        let mut this =
            Self { piece: Vec::new(), rest: Bytes::new(), share, has_replied: false, then };
        if let Some(Err(full)) = first.map(|first| this.begin(first)) {
            this.then = Then::Status(full);
        }
        this
    }

    /// Begins a reply in the piece, which has room for its prefix.
    fn begin(&mut self, reply: Bytes) -> Result<(), Status> {
        self.has_replied = true;
        let full = |text| status::own(Code::ResourceExhausted, text, Executed::Yes);
        let len = u32::try_from(reply.len()).map_err(|_| full("a reply is above 4 GiB"))?;
        let bytes = self.piece.len() + PREFIX_BYTES + reply.len();
        if let Some(share) = self.share.as_mut().filter(|_| bytes > PIECE_BYTES)
            && !share.grow(reply.len())
        {
            return Err(full("its client has not read its share of what answers may hold"));
        }
        self.reserve(bytes.min(PIECE_BYTES));
        self.piece.push(0);
        self.piece.extend_from_slice(&len.to_be_bytes());
        self.rest = reply;
        self.fill();
        Ok(())
    }

    /// Copies as much of the reply as the piece has room for.
    fn fill(&mut self) {
        let taken = self.rest.len().min(PIECE_BYTES - self.piece.len());
        self.reserve(self.piece.len() + taken);
        self.piece.extend_from_slice(&self.rest[..taken]);
        self.rest.advance(taken);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
            self.share.iter_mut().for_each(|share| share.shrink(0));
        }
    }

    /// Has the piece take so many bytes, and few beyond those: it may stay for long.
    fn reserve(&mut self, bytes: usize) {
        let capacity = self.piece.capacity();
        if bytes > capacity {
            let enough = bytes.max((2 * capacity).min(PIECE_BYTES));
            self.piece.reserve_exact(enough - self.piece.len());
        }
    }

    /// Execution of the call, which a reply proves.
    fn executed(&self) -> Executed {
        if self.has_replied { Executed::Yes } else { Executed::Maybe }
    }

    fn is_full(&self) -> bool {
        self.piece.len() + PREFIX_BYTES > PIECE_BYTES
    }
}

impl<S: Stream<Item = Result<Bytes, Status>> + Unpin> HttpBody for Replying<S> {
    type Data = Bytes;
    type Error = Status;

    /// A piece has as many replies as are there and find room.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        this.fill();
        while !this.is_full()
            && let Then::Replies(replies) = &mut this.then
        {
            match Pin::new(replies).poll_next(cx) {
                Poll::Ready(Some(Ok(reply))) => {
                    if let Err(full) = this.begin(reply) {
                        this.then = Then::Status(full);
                    }
                }
                Poll::Ready(Some(Err(status))) => this.then = Then::Status(status),
                Poll::Ready(None) => this.then = Then::Status(Status::ok("")),
                Poll::Pending if this.piece.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !this.piece.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.piece).into()))));
        }
        Poll::Ready(match std::mem::replace(&mut this.then, Then::Nothing) {
            Then::Status(status) => Some(end_with(&status)),
            Then::Nothing | Then::Replies(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && matches!(self.then, Then::Nothing)
    }
}

/// Replies that are dropped when they were not read in time.
struct Timed<S> {
    held: Arc<Mutex<Held<S>>>,
    timer: JoinHandle<()>,
}

struct Held<S> {
    content: Option<Content<S>>,
    /// Execution of the call whose answer was not read in time, which is to be said.
    late: Option<Executed>,
    waker: Option<Waker>,
}

struct Content<S> {
    data: Replying<S>,
    _place: Arc<dyn Send + Sync>,
}

impl<S: Send + 'static> Timed<S> {
    fn new(data: Replying<S>, Unread { read_by, place }: Unread) -> Self {
        let content = Some(Content { data, _place: place });
        let held = Arc::new(Mutex::new(Held { content, late: None, waker: None }));
        let late = Arc::clone(&held);
        let timer = tokio::spawn(async move {
            sleep_until(read_by).await;
            let (content, waker) = {
                let mut held = late.lock();
                let content = held.content.take();
                held.late = content.as_ref().map(|content| content.data.executed());
                (content, held.waker.take())
            };
            drop(content);
            waker.into_iter().for_each(Waker::wake);
        });
        Self { held, timer }
    }
}

impl<S> Drop for Timed<S> {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl<S: Stream<Item = Result<Bytes, Status>> + Unpin> HttpBody for Timed<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut held = self.held.lock();
        if let Some(executed) = held.late.take() {
            let text = "the answer was not read in time";
            let late = status::own(Code::DeadlineExceeded, text, executed);
            return Poll::Ready(Some(end_with(&late)));
        }
        let Some(content) = &mut held.content else { return Poll::Ready(None) };
        let polled = Pin::new(&mut content.data).poll_frame(cx);
        match &polled {
            Poll::Pending => held.waker = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => {}
            Poll::Ready(_) => held.content = None,
        }
        polled
    }
}

/// The frame that ends an answer with a status.
fn end_with(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    /// Bytes of a reply, and who keeps them.
    struct Kept {
        bytes: Vec<u8>,
        _by: Arc<()>,
    }

    impl AsRef<[u8]> for Kept {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// A reply of so many bytes, and a count of who has it.
    fn reply(len: usize) -> (Bytes, Arc<()>) {
        let kept = Arc::new(());
        (Bytes::from_owner(Kept { bytes: vec![7; len], _by: Arc::clone(&kept) }), kept)
    }

    fn is_gone(kept: &Arc<()>) -> bool {
        Arc::strong_count(kept) == 1
    }

    /// Replies as a test gives them.
    struct Given(mpsc::UnboundedReceiver<Result<Bytes, Status>>);

    impl Stream for Given {
        type Item = Result<Bytes, Status>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(cx)
        }
    }

    fn answer(pool: &Arc<SendPool>, first: Option<Bytes>, replies: Option<Given>) -> Body {
        let read_by = Instant::now() + Duration::from_secs(60);
        let unread = Unread { read_by, place: Arc::new(()) };
        let room = (Arc::clone(pool), PeerName::Place("a client".into()));
        let terms = Terms { unread, room };
        Answer { headers: MetadataMap::new(), first, replies, terms }.into_http().into_body()
    }

    async fn next(body: &mut Body) -> Option<Frame<Bytes>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        frame.map(|frame| frame.expect("it does not break off"))
    }

    /// Takes pieces until so many bytes have come; gives the last.
    async fn take(body: &mut Body, bytes: usize, mut check: impl FnMut(bool)) -> Bytes {
        let mut taken = 0;
        loop {
            let piece = next(body).await.expect("it goes on").into_data().expect("it is data");
            assert!(piece.len() <= PIECE_BYTES, "{} bytes are a piece", piece.len());
            taken += piece.len();
            check(taken >= bytes);
            if taken >= bytes {
                assert_eq!(taken, bytes);
                return piece;
            }
        }
    }

    /// Its code, and its word on the execution.
    async fn status(body: &mut Body) -> (Code, Option<String>) {
        let trailers = next(body).await.expect("it has a status").into_trailers();
        let status = Status::from_header_map(&trailers.expect("they are trailers"));
        assert!(next(body).await.is_none());
        let status = status.expect("it is one");
        let said = status.metadata().get(status::EXECUTED);
        (status.code(), said.map(|said| said.to_str().expect("it is text").to_owned()))
    }

    fn said(code: Code, executed: &str) -> (Code, Option<String>) {
        (code, Some(executed.to_owned()))
    }

    #[tokio::test]
    async fn a_reply_counts_whole_until_its_last_piece_which_keeps_none_of_it() {
        const LEN: usize = 100 << 10;
        let pool = SendPool::new(1 << 30);
        let (first, kept) = reply(LEN);
        let mut body = answer(&pool, Some(first), None);
        let counted = |is_last: bool| {
            assert_eq!(is_gone(&kept), is_last);
            assert_eq!(pool.used() >= LEN, !is_last, "{} count", pool.used());
        };
        counted(false);
        let last = take(&mut body, LEN + PREFIX_BYTES, counted).await;
        assert!(last.iter().all(|byte| *byte == 7));
        assert_eq!(status(&mut body).await, (Code::Ok, None));
    }

    /// One that begins with a snapshot may live for days.
    #[tokio::test]
    async fn a_stream_keeps_nothing_of_the_replies_that_were_taken() {
        let pool = SendPool::new(1 << 30);
        let (give, given) = mpsc::unbounded_channel();
        let (first, first_kept) = reply(4 << 20);
        let mut body = answer(&pool, Some(first), Some(Given(given)));
        take(&mut body, (4 << 20) + PREFIX_BYTES, |_| {}).await;
        assert!(is_gone(&first_kept) && pool.used() == 0);
        for len in [0, 10, 3 << 20] {
            let (reply, kept) = reply(len);
            give.send(Ok(reply)).expect("the stream goes on");
            take(&mut body, len + PREFIX_BYTES, |_| {}).await;
            assert!(is_gone(&kept) && pool.used() == 0, "{len} bytes are kept");
        }
        give.send(Err(Status::aborted("enough"))).expect("the stream goes on");
        assert_eq!(status(&mut body).await, (Code::Aborted, None));
    }

    #[tokio::test]
    async fn a_reply_beyond_the_room_ends_the_answer_behind_those_before_it() {
        let pool = SendPool::new(10 << 20);
        for (sizes, fits) in [(vec![11 << 20], 0), (vec![2 << 20, 10, 11 << 20], 2)] {
            let (give, given) = mpsc::unbounded_channel();
            let mut kept = Vec::new();
            for len in &sizes {
                let (reply, of_reply) = reply(*len);
                kept.push(of_reply);
                give.send(Ok(reply)).expect("it is not read yet");
            }
            let mut body = answer(&pool, None, Some(Given(given)));
            let bytes = sizes[..fits].iter().map(|len| len + PREFIX_BYTES).sum();
            if bytes > 0 {
                take(&mut body, bytes, |_| {}).await;
            }
            assert_eq!(status(&mut body).await, said(Code::ResourceExhausted, "yes"));
            assert!(kept.iter().all(is_gone) && pool.used() == 0);
        }
        let (first, _) = reply(11 << 20);
        let mut body = answer(&pool, Some(first), None);
        assert_eq!(status(&mut body).await, said(Code::ResourceExhausted, "yes"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_read_in_time_is_dropped_but_for_the_pieces_that_have_left() {
        let pool = SendPool::new(1 << 30);
        let (first, kept) = reply(4 << 20);
        let mut body = answer(&pool, Some(first), None);
        let pieces = [next(&mut body).await, next(&mut body).await];
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(is_gone(&kept) && pool.used() == 0);
        assert_eq!(status(&mut body).await, said(Code::DeadlineExceeded, "yes"));
        drop(pieces);

        let (_give, given) = mpsc::unbounded_channel();
        let mut body = answer(&pool, None, Some(Given(given)));
        assert_eq!(status(&mut body).await, said(Code::DeadlineExceeded, "maybe"));
    }

    proptest! {
        /// However long the replies are and whenever they come, the data is theirs with prefixes,
        /// in order.
        #[test]
        fn pieces_together_are_the_replies(
            sizes in proptest::collection::vec(
                prop_oneof![0..10_usize, 32_750..32_790_usize, 0..100_000_usize], 0..8),
            at_once in any::<u8>(),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            runtime.block_on(async {
                let pool = SendPool::new(1 << 30);
                let (give, given) = mpsc::unbounded_channel();
                let (mut expected, mut found) = (Vec::new(), Vec::new());
                let mut body = answer(&pool, None, Some(Given(given)));
                for (index, len) in sizes.iter().enumerate() {
                    let message = vec![u8::try_from(index).expect("few"); *len];
                    expected.push(0);
                    expected.extend(u32::try_from(*len).expect("small").to_be_bytes());
                    expected.extend(&message);
                    give.send(Ok(message.into())).expect("it is not read yet");
                    while at_once >> index & 1 == 0 && found.len() < expected.len() {
                        let piece = next(&mut body).await.expect("it goes on").into_data();
                        found.extend(piece.expect("it is data"));
                    }
                }
                drop(give);
                let mut frame = async || next(&mut body).await.expect("it ends with a status");
                while let Ok(piece) = frame().await.into_data() {
                    assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
                    found.extend(piece);
                }
                assert!(found == expected && pool.used() == 0);
            });
        }
    }
}
