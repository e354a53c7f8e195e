//! Requests whose messages are long in coming.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Context, Endpoint, Method, Service, Status};
use convoke_transport_grpc::{EdgeService, GrpcEdge};
use hyper::body::{Body as _, Frame};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::codegen::Service as _;

use crate::echo::Text;

/// Answers with the time that is left of the deadline, in milliseconds.
pub(crate) const LEFT: Method<Text, Text> = Method::new("edge.test.Echo/Left");

pub(crate) fn service() -> Service {
    Service::new().unary(LEFT, |_: Text, context: Context| async move {
        Ok::<_, Status>(Text { text: context.remaining().as_millis().to_string() })
    })
}

async fn edge() -> (Endpoint, EdgeService) {
    let endpoint = Endpoint::builder().serve(service()).start().await.expect("it starts");
    let edge = GrpcEdge::builder(&endpoint).into_service().expect("it is legal");
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

/// A request whose body the sender gives.
fn ask() -> (mpsc::UnboundedSender<Bytes>, http::Request<Coming>) {
    let (give, taken) = mpsc::unbounded_channel();
    let request = http::Request::post("http://edge/edge.test.Echo/Left");
    let request = request.header("content-type", "application/grpc").header("grpc-timeout", "10S");
    (give, request.body(Coming(taken)).expect("it is a request"))
}

/// The text of an answer.
async fn told(answer: http::Response<Body>) -> String {
    let mut body = answer.into_body();
    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    let data = frame.expect("it answers").expect("in order").into_data().expect("with a message");
    Text::decode(&data[5..]).expect("it is a text").text
}

/// A client counts from when it begins to send.
#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_headers() {
    let (_endpoint, mut edge) = edge().await;
    let (give, request) = ask();
    let gives = async move {
        for byte in [0; 5] {
            sleep(Duration::from_millis(1_600)).await;
            give.send(Bytes::copy_from_slice(&[byte])).expect("it is awaited");
        }
    };
    let (answer, ()) = tokio::join!(edge.call(request), gives);
    let left: u64 = told(answer.expect("it is answered")).await.parse().expect("it is a number");
    assert!(left <= 2_000, "{left} ms of 10 s are left after 8 s");
}
