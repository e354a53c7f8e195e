//! Answers that their clients do not read, and statuses that are too large for them.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{
    Code as OurCode, Context, Endpoint, Finish, Items, Method, Service, Status, Task,
};
use convoke_transport_grpc::{ForeignServer, GrpcEdge, GrpcEdgeBuilder};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::body::Body;

use crate::client::{Client, messages, text};
use crate::echo::{Number, Text};
use crate::in_time;

const SAY: Method<Text, Text> = Method::new("edge.test.Echo/Say");
/// So many replies of [`LARGE`].
const MUCH: Method<Number, Text> = Method::new("edge.test.Echo/Much");
/// So many replies of 10 KB.
const SMALL: Method<Number, Text> = Method::new("edge.test.Echo/Small");
/// One reply of [`LARGE`].
const ONE: Method<Number, Text> = Method::new("edge.test.Echo/One");
/// Fails with details of so many bytes.
const NOT: Method<Number, Text> = Method::new("edge.test.Echo/Not");
/// Replies with so many small pairs of metadata.
const MANY: Method<Number, Text> = Method::new("edge.test.Echo/Many");
/// Answers before it has read anything.
const EARLY: Method<Items<Text>, Text> = Method::new("edge.test.Echo/Early");
/// Reads nothing.
const GATHER: Method<Items<Text>, Text> = Method::new("edge.test.Echo/Gather");

const LARGE: usize = 2 << 20;

fn large() -> Text {
    Text { text: "x".repeat(LARGE) }
}

fn service() -> Service {
    Service::new()
        .unary(SAY, |text: Text, _: Context| async move { Ok::<_, Status>(text) })
        .unary(ONE, |_: Number, _: Context| async move { Ok::<_, Status>(large()) })
        .tree(MUCH, |number: Number, task: Task<Text>| async move {
            for _ in 0..number.number {
                task.reply(&large())?;
            }
            Ok::<Finish, Status>(task.finish())
        })
        .tree(SMALL, |number: Number, task: Task<Text>| async move {
            for _ in 0..number.number {
                task.reply(&Text { text: "x".repeat(10_000) })?;
            }
            Ok::<Finish, Status>(task.finish())
        })
        .unary(NOT, |number: Number, context: Context| async move {
            context.reply_metadata("much", "x".repeat(4_000))?;
            let status = Status::new(OurCode::NotFound, "ü".repeat(2_000));
            Err::<Text, _>(status.with_details(vec![8; number.number as usize]))
        })
        .unary(MANY, |number: Number, context: Context| async move {
            for _ in 0..number.number {
                context.reply_metadata("k", "v")?;
            }
            Ok::<_, Status>(Text::default())
        })
        .unary(EARLY, |_: Items<Text>, _: Context| async move { Ok::<_, Status>(Text::default()) })
        .unary(GATHER, |_: Items<Text>, _: Context| std::future::pending::<Result<Text, Status>>())
}

async fn edge(change: impl FnOnce(GrpcEdgeBuilder) -> GrpcEdgeBuilder) -> (Endpoint, GrpcEdge) {
    let endpoint = Endpoint::builder().serve(service()).start().await.expect("it starts");
    let edge = change(GrpcEdge::builder(&endpoint)).start("127.0.0.1:0").await;
    (endpoint, edge.expect("loopback can be bound"))
}

/// A client that gives its streams so many bytes of room.
async fn narrow(edge: &GrpcEdge, room: u32) -> http2::SendRequest<Body> {
    let stream = TcpStream::connect(edge.local_addr()).await.expect("the edge listens");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let builder = builder.initial_stream_window_size(room);
    let (send, connection) = builder.handshake(TokioIo::new(stream)).await.expect("it speaks");
    tokio::spawn(connection);
    send
}

/// The body of a request of one message.
struct One(Option<Bytes>);

impl hyper::body::Body for One {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn ask(method: &str, number: u32) -> http::Request<Body> {
    let message = Number { number }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("it is small").to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let request = http::Request::post(format!("http://edge/edge.test.Echo/{method}"));
    let request = request.header("content-type", "application/grpc").header("grpc-timeout", "30S");
    request.body(Body::new(One(Some(body.into())))).expect("it is a request")
}

/// Asserts that this address has its share of 8 places, which is a half.
async fn assert_all_are_taken(client: &mut Client) {
    let refused = in_time(client.unary("Say", text("a"))).await.expect_err("all are taken");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

async fn until_one_is_free(client: &mut Client) {
    let free = async {
        while client.unary("Say", text("a")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(free).await;
}

/// A client that does not read what it asks for is told so at the deadline of its calls, when all
/// but a few pieces of it is dropped. With these its places are free again.
#[tokio::test]
async fn answers_that_are_not_read_are_dropped_at_their_deadline_but_for_what_is_on_its_way() {
    for method in ["Much", "One"] {
        let (_endpoint, edge) = edge(|edge| edge.calls_max(8)).await;
        let mut send = narrow(&edge, 1_024).await;
        let mut unread = Vec::new();
        for _ in 0..4 {
            unread.push(in_time(send.send_request(ask(method, 10))).await.expect("it answers"));
        }
        let mut client = Client::connect(edge.local_addr()).await;
        assert_all_are_taken(&mut client).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(32)).await;
        tokio::time::resume();
        assert_all_are_taken(&mut client).await;
        for answer in unread {
            let mut body = answer.into_body();
            let mut bytes = 0;
            let trailers = loop {
                let frame = std::future::poll_fn(|cx| {
                    hyper::body::Body::poll_frame(Pin::new(&mut body), cx)
                });
                match in_time(frame).await.expect("it ends with trailers").expect("in good order") {
                    frame if frame.is_trailers() => break frame.into_trailers().expect("it is"),
                    frame => bytes += frame.into_data().expect("it is").len(),
                }
            };
            assert_eq!(trailers.get("grpc-status").expect("it has a status"), "4", "{trailers:?}");
            assert_eq!(trailers.get("convoke-executed").expect("it is said"), "yes");
            assert!(bytes < LARGE, "{bytes} bytes were kept of {method}");
        }
        until_one_is_free(&mut client).await;
    }
}

/// Answers are bounded in bytes, too, and half of the room is left to other clients.
#[tokio::test]
async fn answers_beyond_the_room_for_those_that_are_not_read_are_refused() {
    let (_endpoint, edge) = edge(|edge| edge.answer_bytes_total_max(10 * LARGE)).await;
    let mut send = narrow(&edge, 1_024).await;
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.push(in_time(send.send_request(ask("One", 1))).await.expect("it answers"));
    }
    let mut client = Client::connect(edge.local_addr()).await;
    let refused = in_time(client.unary("One", Number { number: 1 })).await;
    assert_eq!(refused.expect_err("there is no room").code(), Code::ResourceExhausted);
    let refused = in_time(client.stream("Much", Number { number: 1 })).await;
    let mut stream = refused.expect("it begins");
    let refused = in_time(stream.message()).await.expect_err("there is no room");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(client.unary("Say", text("a")).await.is_ok(), "small ones need none");
    drop(unread);
    let free = async {
        while client.unary("One", Number { number: 1 }).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(free).await;
}

/// However small they are, and also where HTTP/2 has taken all of them already, for which it needs
/// room for a byte.
#[tokio::test]
async fn answers_hold_their_places_until_they_are_taken() {
    let (_endpoint, edge) = edge(|edge| edge.calls_max(8)).await;
    let mut client = Client::connect(edge.local_addr()).await;
    for room in [0, 1] {
        let mut send = narrow(&edge, room).await;
        let mut unread = Vec::new();
        for _ in 0..4 {
            unread.push(in_time(send.send_request(ask("Many", 1))).await.expect("it answers"));
        }
        assert_all_are_taken(&mut client).await;
        drop(unread);
        until_one_is_free(&mut client).await;
    }
}

/// Details beyond what a client takes of trailers leave it code and text, and the other calls of
/// its connection alone.
#[tokio::test]
async fn a_status_that_is_too_large_keeps_its_code_and_harms_no_other_call() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    let mut client = Client::connect(edge.local_addr()).await;
    for number in [0, 100, 1_000, 12_000, 100_000, 1_000_000] {
        let status = in_time(client.unary("Not", Number { number })).await.expect_err("it fails");
        assert_eq!(status.code(), Code::NotFound, "{number}: {status}");
        assert!(status.message().starts_with("üü"), "{number}: {status}");
        // The node itself leaves out those beyond its `details_bytes_max`.
        let is_left_out = status.metadata().contains_key("convoke-left-out") || number > 64 << 10;
        assert_eq!(status.details().is_empty(), number == 0 || is_left_out);
        assert_eq!(status.metadata().get("convoke-executed").expect("it is said"), "yes");
    }
}

/// Small pairs of metadata cost a client 32 bytes each besides: as many leave as it takes.
#[tokio::test]
async fn many_small_pairs_of_a_reply_leave_as_far_as_clients_take_them() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    let mut client = Client::connect(edge.local_addr()).await;
    for (number, told) in [(100, 100), (1_000, 240), (5_000, 240)] {
        let reply = in_time(client.unary("Many", Number { number })).await.expect("it answers");
        assert_eq!(reply.metadata().get_all("k").iter().count(), told, "of {number}");
    }
    // Which is more than a reply takes, as the handler is told.
    let status = in_time(client.unary("Many", Number { number: 6_000 })).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

/// Streams that are not read hold back their clients, and no other call of their connection.
#[tokio::test]
async fn streams_that_are_not_read_stop_no_other_call_of_their_connection() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    let client = Client::connect(edge.local_addr()).await;
    let mut streams = Vec::new();
    for _ in 0..12 {
        let (sender, items) = messages();
        let mut client = client.clone();
        let call = tokio::spawn(async move { client.gather("Gather", items).await });
        streams.push((call, sender));
    }
    for _ in 0..4 {
        // All of them take as much, which together is more than a few windows.
        for (_, sender) in &streams {
            in_time(sender.send(text(&"x".repeat(60_000)))).await.expect("it is under way");
        }
    }
    let mut client = client;
    let told = in_time(client.unary("Say", text(&"a".repeat(20_000)))).await;
    assert_eq!(told.expect("it is answered").into_inner().text.len(), 20_000);
    streams.iter().for_each(|(call, _)| call.abort());
}

/// The same the other way round: replies of a foreign server that a task does not read.
#[tokio::test]
async fn foreign_replies_that_are_not_read_stop_no_other_call_of_their_server() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    let server = ForeignServer::new(edge.local_addr());
    let mut unread = Vec::new();
    for _ in 0..12 {
        let call = server.call(MUCH, &Number { number: 2 });
        unread.push(in_time(call.stream()).await.expect("it answers"));
    }
    let told = in_time(server.call(SAY, &text(&"a".repeat(20_000))).into_future()).await;
    assert_eq!(told.expect("it is answered").text.len(), 20_000);
    for replies in &mut unread {
        for _ in 0..2 {
            let reply = in_time(replies.next()).await.expect("it goes on");
            assert_eq!(reply.map(|reply| reply.text.len()), Some(LARGE));
        }
    }
}

/// Far more calls of one connection than HTTP/2 lets a server reset, of which each is answered, or
/// refused, while its client still sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answers_do_not_end_the_connection() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    answer_early(&edge, "Early", None).await;
}

/// The same of calls whose first message is above the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_messages_do_not_end_the_connection() {
    let (_endpoint, edge) = edge(|edge| edge.message_bytes_max(1_000)).await;
    answer_early(&edge, "Gather", Some(Code::ResourceExhausted)).await;
    answer_early(&edge, "Say", Some(Code::ResourceExhausted)).await;
}

async fn answer_early(edge: &GrpcEdge, method: &'static str, code: Option<Code>) {
    let client = Client::bare(edge.local_addr()).await;
    let large = text(&"x".repeat(4_000));
    for round in 0..60 {
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let (mut client, large) = (client.clone(), large.clone());
            calls.spawn(async move {
                let (sender, items) = messages();
                let sending = tokio::spawn(async move {
                    for _ in 0..40 {
                        if sender.send(large.clone()).await.is_err() {
                            return;
                        }
                    }
                });
                let told = in_time(client.gather(method, items)).await;
                sending.abort();
                told
            });
        }
        for told in calls.join_all().await {
            let found = told.as_ref().err().map(tonic::Status::code);
            assert_eq!(found, code, "in round {round}: {told:?}");
        }
    }
}

/// The same the other way round: a task that drops streams of replies before their end.
#[tokio::test]
async fn foreign_replies_that_are_dropped_early_do_not_end_the_connection() {
    let (_endpoint, edge) = edge(|edge| edge).await;
    let server = ForeignServer::new(edge.local_addr());
    for round in 0..2_000 {
        let mut replies = in_time(server.call(SMALL, &Number { number: 30 }).stream()).await;
        let replies = replies.as_mut().unwrap_or_else(|error| panic!("in round {round}: {error}"));
        assert!(in_time(replies.next()).await.expect("it goes on").is_some());
    }
}
