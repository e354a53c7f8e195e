//! Requests whose messages are long in coming.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Context, Endpoint, Method, Service, Status};
use convoke_transport::Principal;
use convoke_transport_grpc::{EdgeService, GrpcEdge, GrpcEdgeBuilder};
use hyper::body::{Body as _, Frame};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::{Code, Status as TonicStatus};

use crate::echo::Text;

/// Answers with the time that is left of the deadline, in milliseconds.
pub(crate) const LEFT: Method<Text, Text> = Method::new("edge.test.Echo/Left");

pub(crate) fn service() -> Service {
    Service::new().unary(LEFT, |_: Text, context: Context| async move {
        Ok::<_, Status>(Text { text: context.remaining().as_millis().to_string() })
    })
}

async fn edge(change: impl FnOnce(GrpcEdgeBuilder) -> GrpcEdgeBuilder) -> (Endpoint, EdgeService) {
    let endpoint = Endpoint::builder().serve(service()).start().await.expect("it starts");
    let edge = change(GrpcEdge::builder(&endpoint)).into_service().expect("it is legal");
    (endpoint, edge)
}

/// The body of a request, as a test gives it.
struct Coming(mpsc::UnboundedReceiver<Bytes>);

impl hyper::body::Body for Coming {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

/// A request of this client, whose body the sender gives.
fn ask(client: &str) -> (mpsc::UnboundedSender<Bytes>, http::Request<Coming>) {
    let (give, taken) = mpsc::unbounded_channel();
    let request = http::Request::post("http://edge/edge.test.Echo/Left");
    let request = request.header("content-type", "application/grpc").header("grpc-timeout", "10S");
    let request = request.extension(Principal::new(client));
    (give, request.body(Coming(taken)).expect("it is a request"))
}

/// The time that an answer says is left, in milliseconds.
async fn left(answer: http::Response<Body>) -> u64 {
    let mut body = answer.into_body();
    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    let data = frame.expect("it answers").expect("in order").into_data().expect("with a message");
    let text = Text::decode(&data[5..]).expect("it is a text").text;
    text.parse().expect("it is a number")
}

/// A client counts from when it begins to send.
#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_headers() {
    let (_endpoint, mut edge) = edge(|edge| edge).await;
    let (give, request) = ask("a client");
    let gives = async move {
        for byte in [0; 5] {
            sleep(Duration::from_millis(1_600)).await;
            give.send(Bytes::copy_from_slice(&[byte])).expect("it is awaited");
        }
    };
    let (answer, ()) = tokio::join!(edge.call(request), gives);
    let left = left(answer.expect("it is answered")).await;
    assert!(left <= 2_000, "{left} ms of 10 s are left after 8 s");
}

type Answer = BoxFuture<http::Response<Body>, Infallible>;
type Begun = (mpsc::UnboundedSender<Bytes>, Answer);

/// Begins a request whose body so far is this: the answer that it has at once, or its rest.
fn begin(edge: &mut EdgeService, client: &str, body: &[u8]) -> Result<http::Response<Body>, Begun> {
    let (give, request) = ask(client);
    give.send(Bytes::copy_from_slice(body)).expect("it is not read yet");
    let mut answer: Answer = edge.call(request);
    match answer.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(Ok(answer)) => Ok(answer),
        Poll::Pending => Err((give, answer)),
    }
}

async fn finish((give, answer): Begun, rest: &[u8]) -> http::Response<Body> {
    give.send(Bytes::copy_from_slice(rest)).expect("it is awaited");
    drop(give);
    answer.await.expect("it is answered")
}

/// By what their prefixes announce, of which little may ever come; and half of the room is left to
/// other clients.
#[tokio::test(start_paused = true)]
async fn messages_beyond_the_room_for_those_that_come_are_refused() {
    let (_endpoint, mut edge) = edge(|edge| edge.request_bytes_total_max(30 << 20)).await;
    let message = Text { text: "x".repeat((3 << 20) - 100) }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("it is small").to_be_bytes();
    let prefix = [&[0], &length[..]].concat();
    let mut coming = Vec::new();
    let refused = loop {
        match begin(&mut edge, "greedy", &prefix) {
            Ok(refused) => break refused,
            Err(begun) => coming.push(begun),
        }
        assert!(coming.len() < 100, "there is room without end");
    };
    let status = TonicStatus::from_header_map(refused.headers()).expect("it has a status");
    assert_eq!((coming.len(), status.code()), (5, Code::ResourceExhausted), "{status}");
    assert_eq!(status.metadata().get("convoke-executed").expect("it is said"), "no");

    let small = begin(&mut edge, "greedy", &[0; 5]).expect_err("it is not at its end");
    assert!(left(finish(small, &[]).await).await > 0, "small ones need no room");
    let other = begin(&mut edge, "other", &prefix).expect_err("there is room for it");
    assert!(left(finish(other, &message).await).await > 0);

    let whole = coming.pop().expect("it has begun");
    assert!(left(finish(whole, &message).await).await > 0);
    coming.push(begin(&mut edge, "greedy", &prefix).expect_err("one place is free again"));
    assert!(begin(&mut edge, "greedy", &prefix).is_ok(), "and one alone");
    drop(coming);
    assert!(begin(&mut edge, "greedy", &prefix).is_err(), "those that are given up hold none");
}
