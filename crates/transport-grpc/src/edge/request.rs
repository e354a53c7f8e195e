//! The body of a request, whose messages are measured, counted and timed before any is kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::wire::Executed;
use convoke_transport::parts::SendShare;
use http::Version;
use hyper::body::{Body, Frame};
use tokio::time::{Sleep, sleep};
use tonic::codegen::StdError;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status, Streaming};

use super::status;
use crate::codec::BytesCodec;
use crate::framing::{Breach, Framing};

/// A body that breaks off with a status where its client breaks a rule.
pub(super) struct Checked<B> {
    body: B,
    framing: Framing,
    /// The method takes one message.
    is_of_one: bool,
    /// The messages have ended only where the body says so.
    says_its_end: bool,
    /// Room for the message that comes, or has come and was not taken: of several until more is
    /// asked for, of one until the drop. `None` where all are small.
    room: Option<SendShare>,
    /// End of the time for the message that has begun, once it was waited for.
    late: Option<Pin<Box<Sleep>>>,
}

/// Longest time for the message of a request to come whole, whatever its deadline: so that who
/// sends but a part of many holds no places for ever.
pub(super) const MESSAGE_TIME_MAX: Duration = Duration::from_secs(60);

impl<B> Checked<B> {
    pub(super) fn new(
        body: B,
        message_bytes_max: usize,
        is_of_one: bool,
        room: Option<SendShare>,
    ) -> Self {
        let framing = Framing::new(message_bytes_max);
        Self { body, framing, is_of_one, says_its_end: false, room, late: None }
    }

    /// Of a request in this version of HTTP. In HTTP/2 a body that gives nothing more may have been
    /// reset: hyper fails it for any reason but NO_ERROR, which proxies give for a client that
    /// cancels. Of several messages a part would pass for the whole; the length of one says more.
    pub(super) fn over(mut self, version: Version) -> Self {
        self.says_its_end = version == Version::HTTP_2 && !self.is_of_one;
        self
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Status> {
        let whole = self.framing.whole();
        self.framing.handle_data(data).map_err(breach)?;
        if self.framing.whole() > whole {
            self.late = None;
        }
        if self.is_of_one && self.framing.begun() > 1 {
            return Err(not_one("more than one message"));
        }
        // Before tonic sees the prefix, for it makes room for what that announces.
        let bytes = self.framing.announced();
        if self.room.as_mut().is_some_and(|room| !room.grow(bytes)) {
            return Err(no_room(bytes));
        }
        Ok(())
    }

    /// Gives back the room of messages that were taken: their reader asks for more.
    fn give_back(&mut self) {
        let is_between = self.framing.whole() == self.framing.begun();
        if is_between && !self.is_of_one {
            self.room.iter_mut().for_each(|room| room.shrink(0));
        }
    }

    /// Resolves when a message that has begun did not come whole in time. Between two, and while
    /// nobody reads, its client has any.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if !self.framing.is_within() {
            return Poll::Pending;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(MESSAGE_TIME_MAX)));
        late.as_mut().poll(cx).map(|()| not_whole(MESSAGE_TIME_MAX))
    }

    fn check_end(&self) -> Result<(), Status> {
        self.framing.handle_end().map_err(breach)?;
        if self.is_of_one && self.framing.begun() == 0 {
            return Err(not_one("no message"));
        }
        Ok(())
    }
}

impl<B> Body for Checked<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.give_back();
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return Poll::Ready(Some(Err(ready!(self.poll_late(cx)))));
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(self.check(&data).map(|()| Frame::data(data))),
                // tonic would put trailers in the place of headers, which layers have set or seen.
                Err(_) => self.check_end().err().map(Err),
            },
            Some(Err(error)) => Some(Err(broken(error))),
            None if self.says_its_end && !self.body.is_end_stream() => Some(Err(reset())),
            None => self.check_end().err().map(Err),
        })
    }
}

/// A request of one message.
pub(super) struct Whole {
    pub(super) headers: MetadataMap,
    pub(super) message: Bytes,
    /// The end of its body, which has the room of the message.
    pub(super) room: Streaming<Bytes>,
}

/// The headers of a request and its messages as they come.
pub(super) type Several = (MetadataMap, Streaming<Bytes>);

/// Reads a request of one message to its end.
pub(super) async fn whole<B>(request: http::Request<Checked<B>>) -> Result<Whole, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    let (headers, mut messages) = messages(request)?;
    let message = messages.message().await?.ok_or_else(|| not_one("no message"))?;
    while messages.message().await?.is_some() {}
    if message.first() == Some(&0) {
        return Err(no_message());
    }
    Ok(Whole { headers, message, room: messages })
}

/// Begins to read a request of several messages.
pub(super) fn messages<B>(request: http::Request<Checked<B>>) -> Result<Several, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    let (head, body) = request.into_parts();
    if let Some(encoding) = head.headers.get(ENCODING).filter(|value| *value != IDENTITY) {
        return Err(compressed(encoding.as_bytes()));
    }
    let messages = Streaming::new_request(BytesCodec::of_a_call(), body, None, Some(usize::MAX));
    Ok((MetadataMap::from_headers(head.headers), messages))
}

const ENCODING: &str = "grpc-encoding";
const IDENTITY: &str = "identity";

/// Status of a request that is compressed, with what is not ("Compression" of gRPC).
fn compressed(encoding: &[u8]) -> Status {
    let text = format!("messages in \"{}\", where none are compressed", encoding.escape_ascii());
    let mut status = status::own(Code::Unimplemented, text, Executed::No);
    let taken = MetadataValue::from_static(IDENTITY);
    status.metadata_mut().insert("grpc-accept-encoding", taken);
    status
}

fn breach(breach: Breach) -> Status {
    status::own(breach.code(), breach.to_string(), Executed::No)
}

/// Status of a request whose message is of so many bytes, for which there is no room.
fn no_room(bytes: usize) -> Status {
    let text = format!(
        "a message of {bytes} bytes finds no room: its client has its share of what requests may \
         hold"
    );
    status::own(Code::ResourceExhausted, text, Executed::No)
}

/// Status of a request whose message begins with the byte 0. To a node that would say that it is
/// packed, or elsewhere ([`Payload`](convoke_core::Payload)): of what clients say nothing is.
fn no_message() -> Status {
    let text = "the message of the request begins with the byte 0, as none does";
    status::own(Code::InvalidArgument, text, Executed::No)
}

/// Status of a request whose message did not come whole within this time.
pub(super) fn not_whole(time: Duration) -> Status {
    let text = format!("the message of the request did not come whole within {time:?}");
    status::own(Code::DeadlineExceeded, text, Executed::No)
}

/// "Request cardinality violation" of gRPC's status codes.
fn not_one(found: &str) -> Status {
    let text = format!("{found} in the request of a method that takes one");
    status::own(Code::Unimplemented, text, Executed::No)
}

/// Status of a body that has failed.
fn broken(error: impl Into<StdError>) -> Status {
    let status = Status::from_error(error.into());
    match status.code() {
        // Which tonic takes for the end of the messages, so that a part would pass for the whole.
        Code::Cancelled => reset(),
        _ => status,
    }
}

fn reset() -> Status {
    Status::aborted("the client has reset its stream")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use convoke_transport::PeerName;
    use convoke_transport::parts::SendPool;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::edge::drain::Drained;

    /// A message and then a reset by its client, as tonic's own bodies tell of it.
    struct Reset(Option<Bytes>);

    impl Body for Reset {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let message = self.0.take().map(Frame::data);
            Poll::Ready(Some(message.ok_or_else(|| Status::cancelled("it was reset"))))
        }
    }

    #[tokio::test]
    async fn a_reset_is_not_the_end_of_the_messages() {
        let body = Checked::new(Reset(Some(Bytes::from_static(&[0; 5]))), 10, false, None);
        let codec = BytesCodec::of_a_call();
        let mut messages = Streaming::new_request(codec, body, None, None);
        assert_eq!(messages.message().await.unwrap(), Some(Bytes::new()));
        let status = messages.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }

    /// Messages, and then nothing: the end, if it says so.
    struct Ends {
        message: Option<Bytes>,
        says_so: bool,
    }

    impl Body for Ends {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.message.take().map(Frame::data).map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.says_so && self.message.is_none()
        }
    }

    #[tokio::test]
    async fn messages_over_http2_end_where_their_body_says_so() {
        let ended = async |version, says_so, is_of_one| {
            let body = Drained::new(Ends { message: Some(Bytes::from_static(&[0; 5])), says_so });
            let body = Checked::new(body, 10, is_of_one, None).over(version);
            let codec = BytesCodec::of_a_call();
            let mut messages = Streaming::new_request(codec, body, None, None);
            assert_eq!(messages.message().await.expect("it is whole"), Some(Bytes::new()));
            messages.message().await.map_err(|status| status.code())
        };
        assert_eq!(ended(Version::HTTP_2, true, false).await, Ok(None));
        assert_eq!(ended(Version::HTTP_2, false, false).await, Err(Code::Aborted));
        // One message is whole by its length, and HTTP/1.1 tells a body that is cut off.
        assert_eq!(ended(Version::HTTP_2, false, true).await, Ok(None));
        assert_eq!(ended(Version::HTTP_11, false, false).await, Ok(None));
    }

    /// Data as a test gives it.
    struct Given(mpsc::Receiver<Bytes>);

    impl Body for Given {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
        }
    }

    fn given() -> (mpsc::Sender<Bytes>, Streaming<Bytes>) {
        given_within(100, None)
    }

    fn given_within(
        bytes_max: usize,
        room: Option<SendShare>,
    ) -> (mpsc::Sender<Bytes>, Streaming<Bytes>) {
        let (give, taken) = mpsc::channel(8);
        let body = Checked::new(Given(taken), bytes_max, false, room);
        (give, Streaming::new_request(BytesCodec::of_a_call(), body, None, Some(usize::MAX)))
    }

    fn is_pending<T>(future: impl Future<Output = T>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Of a stream, whose messages are taken one by one.
    #[tokio::test]
    async fn a_message_has_room_from_its_prefix_on_until_the_next_one_is_asked_for() {
        const LEN: usize = 1 << 20;
        let pool = SendPool::new(10 * LEN);
        let room = pool.open(PeerName::Place("a client".into()));
        let (give, mut messages) = given_within(20 * LEN, Some(room));
        let prefix = |len: usize| {
            let len = u32::try_from(len).expect("it is small").to_be_bytes();
            Bytes::from([&[0], &len[..]].concat())
        };
        for _ in 0..3 {
            give.send(prefix(LEN)).await.expect("it is taken");
            assert!(is_pending(messages.message()) && pool.used() == LEN);
            give.send(vec![7; LEN].into()).await.expect("it is taken");
            let message = messages.message().await.expect("there is room").expect("it is whole");
            assert_eq!((message.len(), pool.used()), (LEN, LEN), "its reader may keep it");
            assert!(is_pending(messages.message()) && pool.used() == 0);
        }
        give.send(prefix(11 * LEN)).await.expect("it is taken");
        let refused = messages.message().await.expect_err("there is no room");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert_eq!(refused.metadata().get(status::EXECUTED).expect("it is said"), "no");
        drop(messages);
        assert_eq!(pool.used(), 0);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// However far it has come, and though some of it comes again and again.
    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_comes_whole_in_time_or_ends_the_stream() {
        let whole = [&[0, 0, 0, 0, 90][..], &[7; 90]].concat();
        for part in [1, 4, 5, 6, 94] {
            let (give, mut messages) = given();
            let dribbles = tokio::spawn({
                let whole = whole.clone();
                async move {
                    give.send([&whole[..], &whole[..part]].concat().into()).await.expect("first");
                    for byte in &whole[part..94] {
                        sleep(30 * SECOND).await;
                        if give.send(vec![*byte].into()).await.is_err() {
                            return;
                        }
                    }
                    std::future::pending().await
                }
            });
            assert_eq!(messages.message().await.expect("it is whole").expect("it is").len(), 90);
            let began = Instant::now();
            let late = timeout(3_600 * SECOND, messages.message()).await.expect("it ends");
            let late = late.expect_err("it is late");
            assert_eq!(late.code(), Code::DeadlineExceeded, "{part}: {late}");
            assert_eq!(began.elapsed().as_secs(), 60, "{part}");
            dribbles.abort();
        }
    }

    /// Time in which nobody waits for a message is not its client's, nor is that between two.
    #[tokio::test(start_paused = true)]
    async fn clients_may_pause_between_messages_and_handlers_within_them() {
        let (give, mut messages) = given();
        let message = Bytes::from_static(&[0, 0, 0, 0, 2, 7, 7]);
        let gives = async {
            for _ in 0..3 {
                sleep(600 * SECOND).await;
                give.send(message.slice(..6)).await.expect("it is taken");
                sleep(59 * SECOND).await;
                give.send(message.slice(6..)).await.expect("it is taken");
            }
            // The half of one more comes with the last, before the handler reads on.
            give.send([&message[..], &message[..6]].concat().into()).await.expect("it is taken");
            sleep(1_000 * SECOND).await;
            give.send(message.slice(6..)).await.expect("it is taken");
        };
        let takes = async {
            for _ in 0..4 {
                assert_eq!(messages.message().await.expect("in time").expect("one").len(), 2);
            }
            sleep(990 * SECOND).await;
            assert_eq!(messages.message().await.expect("in time").expect("one").len(), 2);
        };
        tokio::join!(gives, takes);
    }
}
