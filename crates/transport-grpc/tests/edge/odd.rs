//! Requests that no well-behaved client of gRPC makes, over HTTP/2 that is in order.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_transport_grpc::GrpcEdge;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::{Code, Request, Status};

use crate::client::{Client, text};
use crate::echo::{Stage, descriptor_set};
use crate::{in_time, serve_one};

/// A client of HTTP/2 that knows nothing of gRPC.
struct Odd(SendRequest<Body>);

/// The body of a request, frame by frame.
struct Frames(VecDeque<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

impl Odd {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the edge listens");
        let speaking = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (send, connection) = speaking.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        Self(send)
    }

    /// The answer to a request of these headers besides its own, and of these frames.
    async fn send<const N: usize>(
        &mut self,
        method: &str,
        headers: &[(&'static str, &str)],
        frames: [Frame<Bytes>; N],
    ) -> http::Response<Incoming> {
        let mut request = http::Request::post(format!("http://edge/edge.test.Echo/{method}"))
            .header("content-type", "application/grpc")
            .body(Body::new(Frames(frames.into())))
            .expect("it is a request");
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("it is a header");
            request.headers_mut().insert(*name, value);
        }
        in_time(self.0.send_request(request)).await.expect("it is answered")
    }

    /// The status of the answer.
    async fn ask<const N: usize>(
        &mut self,
        method: &str,
        headers: &[(&'static str, &str)],
        frames: [Frame<Bytes>; N],
    ) -> Status {
        let response = self.send(method, headers, frames).await;
        assert_eq!(response.status(), StatusCode::OK);
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let mut body = response.into_body();
        let mut trailers = HeaderMap::new();
        while let Some(frame) = in_time(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await {
            if let Ok(last) = frame.expect("it is in order").into_trailers() {
                trailers = last;
            }
        }
        Status::from_header_map(&trailers).expect("it ends with a status")
    }
}

/// A message behind its prefix, in a frame of its own.
fn message(text: &str) -> Frame<Bytes> {
    part(0, text.len() + 2, text)
}

/// The start of a message of so many bytes, with this flag.
fn part(flag: u8, bytes: usize, text: &str) -> Frame<Bytes> {
    let bytes = u32::try_from(bytes).expect("it is small").to_be_bytes();
    let len = u8::try_from(text.len()).ok().filter(|len| *len < 128).expect("it is short");
    Frame::data([&[flag], &bytes[..], &[10, len], text.as_bytes()].concat().into())
}

fn executed(status: &Status) -> &str {
    status.metadata().get("convoke-executed").map_or("", |said| said.to_str().expect("it is text"))
}

/// "Request cardinality violation" of gRPC's status codes.
#[tokio::test]
async fn another_number_of_messages_than_the_method_takes_is_unimplemented() {
    let with_descriptors = Stage::new().await;
    let without = Stage::with(|builder, _| builder).await;
    for stage in [with_descriptors, without] {
        let mut odd = Odd::connect(stage.edge.local_addr()).await;
        for method in ["Say", "Count"] {
            let none = odd.ask(method, &[], []).await;
            assert_eq!(none.code(), Code::Unimplemented, "{none}");
            assert_eq!(executed(&none), "no");
            let trailers = Frame::trailers(HeaderMap::new());
            let none = odd.ask(method, &[], [trailers]).await;
            assert_eq!(none.code(), Code::Unimplemented, "{none}");
            let two = odd.ask(method, &[], [message(""), message("")]).await;
            assert_eq!(two.code(), Code::Unimplemented, "{two}");
            assert_eq!(executed(&two), "no");
        }
        assert_eq!(odd.ask("Say", &[], [message("a")]).await.code(), Code::Ok);
        assert_eq!(odd.ask("Gather", &[], [message("a"), message("b")]).await.code(), Code::Ok);
        assert_eq!(odd.ask("Gather", &[], []).await.code(), Code::Ok);
        stage.stop().await;
    }
}

/// A node would take it for one that is packed, or that travels beside its request.
#[tokio::test]
async fn what_begins_as_no_message_does_is_none() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    for method in ["Say", "Count"] {
        for message in [&b"\0\x02x"[..], b"\0\x01\x80\x80\x01", b"\0"] {
            let len = u8::try_from(message.len()).expect("it is short");
            let frame = [&[0, 0, 0, 0, len], message].concat();
            let status = odd.ask(method, &[], [Frame::data(frame.into())]).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status}");
            assert_eq!(executed(&status), "no", "{status}");
        }
    }
    assert_eq!(odd.ask("Say", &[], [message("a")]).await.code(), Code::Ok);
    stage.stop().await;
}

#[tokio::test]
async fn a_message_that_is_cut_short_is_none() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    for method in ["Say", "Count", "Gather", "Talk"] {
        let status = odd.ask(method, &[], [part(0, 100, "a")]).await;
        assert_eq!(status.code(), Code::Internal, "{method}: {status}");
        let trailers = Frame::trailers(HeaderMap::new());
        let status = odd.ask(method, &[], [part(0, 100, "a"), trailers]).await;
        assert_eq!(status.code(), Code::Internal, "{method}: {status}");
        let status = odd.ask(method, &[], [Frame::data(Bytes::from_static(&[0, 0]))]).await;
        assert_eq!(status.code(), Code::Internal, "{method}: {status}");
    }
    stage.stop().await;
}

/// A proxy may reset so what its client has cancelled, and hyper gives it as the end of the body. A
/// part that passes for the whole has a handler commit it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_without_an_error_has_not_come_to_its_end() {
    let stage = Stage::new().await;
    let edge = GrpcEdge::builder(&stage.near).descriptor_set(descriptor_set()).into_service();
    // As the servers that are put around an edge have bodies.
    let edge = tower::ServiceBuilder::new()
        .map_request(|request: http::Request<Incoming>| request.map(Body::new))
        .service(edge.expect("it is legal"));
    let (within, server) = serve_one(edge).await;
    for address in [stage.edge.local_addr(), within] {
        let stream = TcpStream::connect(address).await.expect("the edge listens");
        let (mut h2, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let part = [message("a "), message("b ")].map(|frame| frame.into_data().expect("data"));
        for _ in 0..100 {
            h2 = in_time(h2.ready()).await.expect("there is room");
            let request = http::Request::post("http://edge/edge.test.Echo/Gather");
            let request = request.header("content-type", "application/grpc").body(());
            let sent = h2.send_request(request.expect("it is a request"), false);
            let (_answer, mut items) = sent.expect("it is sent");
            items.send_data(part.concat().into(), false).expect("it is sent");
            in_time(stage.told.gathering.notified()).await;
            items.send_reset(h2::Reason::NO_ERROR);
        }
        in_time(async {
            while stage.near.load().tasks + stage.near.load().calls > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let begun = stage.told.gathering_two.swap(0, Ordering::Relaxed);
        assert_eq!(begun, 100, "at {address}");
        assert_eq!(stage.told.gathered.load(Ordering::Relaxed), 0, "at {address}");
    }
    server.abort();
    stage.stop().await;
}

#[tokio::test]
async fn what_is_compressed_is_refused() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    for method in ["Say", "Count", "Gather", "Talk"] {
        let status = odd.ask(method, &[], [part(1, 3, "a")]).await;
        assert_eq!(status.code(), Code::Internal, "{method}: {status}");
        let status = odd.ask(method, &[], [part(2, u32::MAX as usize, "a")]).await;
        assert_eq!(status.code(), Code::Internal, "{method}: {status}");
        let status = odd.ask(method, &[("grpc-encoding", "gzip")], [part(1, 3, "a")]).await;
        assert_eq!(status.code(), Code::Unimplemented, "{method}: {status}");
        assert_eq!(executed(&status), "no", "{method}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn other_types_of_content_are_not_supported() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    for other in ["application/json", "application/grpc-web+proto", "application/grpcx", ""] {
        let response = odd.send("Say", &[("content-type", other)], [message("a")]).await;
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other}");
    }
    for grpc in ["application/grpc+proto", "application/grpc;a=b"] {
        let status = odd.ask("Say", &[("content-type", grpc)], [message("a")]).await;
        assert_eq!(status.code(), Code::Ok, "{grpc}: {status}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn the_shortest_and_the_longest_timeouts_are_kept() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    for method in ["Say", "Count", "Gather", "Talk"] {
        let status = odd.ask(method, &[("grpc-timeout", "0S")], [message("")]).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{method}: {status}");
        let status = odd.ask(method, &[("grpc-timeout", "99999999H")], [message("")]).await;
        let is_answered = matches!(status.code(), Code::Ok | Code::InvalidArgument);
        assert!(is_answered, "{method}: {status}");
        let status = odd.ask(method, &[("grpc-timeout", "100000000n")], [message("")]).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status}");
    }
    stage.stop().await;
}

/// Above what the edge takes, and above what its HTTP/2 reads: neither harms another call.
#[tokio::test]
async fn more_headers_than_the_edge_takes_are_refused_and_no_other_call_suffers() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut other = client.clone();
    let waiting = tokio::spawn(async move { other.unary("Wait", text("")).await });
    in_time(stage.told.waiting.notified()).await;
    for (count, code) in [
        (900, None),
        (1_000, Some(Code::ResourceExhausted)),
        (3_000, Some(Code::ResourceExhausted)),
        (5_000, Some(Code::Unknown)),
    ] {
        let mut request = Request::new(text(""));
        for _ in 0..count {
            request.metadata_mut().append("k", "v".parse().unwrap());
        }
        let answer = in_time(client.send("Metadata", request)).await;
        let told = answer.as_ref().err().map(Status::code);
        assert_eq!(told, code, "{count}: {answer:?}");
        if let Some(status) = answer.err().filter(|status| status.code() != Code::Unknown) {
            assert_eq!(executed(&status), "no");
        }
    }
    assert!(!waiting.is_finished(), "it is on the same connection");
    waiting.abort();
    stage.stop().await;
}

/// As proxies may join them: "Implementations must split Binary-Headers on ','".
#[tokio::test]
async fn binary_headers_in_one_line_are_several_values() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    let response = odd.send("Metadata", &[("id-bin", "YQ==,Yg, Yw==")], [message("")]).await;
    let text = first_data(response).await;
    for line in ["id-bin=a\n", "id-bin=b\n", "id-bin=c\n"] {
        assert!(text.contains(line), "{text}");
    }
    let status = odd.ask("Metadata", &[("id-bin", "YQ==,!")], [message("")]).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    stage.stop().await;
}

/// The first data of an answer, as text.
async fn first_data(response: http::Response<Incoming>) -> String {
    let mut body = response.into_body();
    let frame = in_time(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
    let data = frame.expect("it answers").expect("in order").into_data().expect("with a message");
    String::from_utf8_lossy(&data).into_owned()
}

/// No layer has seen them.
#[tokio::test]
async fn trailers_of_a_request_are_not_its_metadata() {
    let stage = Stage::new().await;
    let edge = GrpcEdge::builder(&stage.near).into_service().unwrap();
    let edge = tower::ServiceBuilder::new()
        .map_request(|mut request: http::Request<Incoming>| {
            request.headers_mut().insert("tenant", HeaderValue::from_static("shop"));
            request
        })
        .service(edge);
    let (address, server) = serve_one(edge).await;
    let mut odd = Odd::connect(address).await;
    let other = (HeaderName::from_static("tenant"), HeaderValue::from_static("other"));
    let trailers = Frame::trailers(HeaderMap::from_iter([other]));
    let response = odd.send("Metadata", &[], [message(""), trailers]).await;
    let text = first_data(response).await;
    assert!(text.ends_with("tenant=shop\n"), "{text}");
    server.abort();
    stage.stop().await;
}

/// Words of a client come back in the text of a status, as far as clients take them.
#[tokio::test]
async fn what_a_client_says_at_length_is_cut_in_the_status_about_it() {
    let stage = Stage::new().await;
    let mut odd = Odd::connect(stage.edge.local_addr()).await;
    let long = "%".repeat(20_000);
    let status = odd.ask("Say", &[("grpc-timeout", &long)], [message("a")]).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().len() < 8 << 10, "{} bytes", status.message().len());
    let status = odd.ask(&"x".repeat(20_000), &[], [message("a")]).await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().len() < 8 << 10, "{} bytes", status.message().len());
    stage.stop().await;
}
