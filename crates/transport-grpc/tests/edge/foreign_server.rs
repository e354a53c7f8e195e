//! Calls out of convoke, to a server that speaks gRPC: here an edge, which does.

use std::future::IntoFuture;
use std::time::Duration;

use convoke_core::{Code, Context, Endpoint, Method, Payload, RawMessage, Service, Status};
use convoke_transport_grpc::{ForeignServer, GrpcEdge};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::echo::{Number, Stage, Text};
use crate::slow;

const COUNT: Method<Number, Text> = Method::new("edge.test.Echo/Count");
const FAIL: Method<Number, Text> = Method::new("edge.test.Echo/Fail");
const METADATA: Method<Text, Text> = Method::new("edge.test.Echo/Metadata");
const SAY: Method<Text, Text> = Method::new("edge.test.Echo/Say");
const WAIT: Method<Text, Text> = Method::new("edge.test.Echo/Wait");

fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

fn server(stage: &Stage) -> ForeignServer {
    ForeignServer::new(stage.edge.local_addr())
}

#[tokio::test]
async fn a_foreign_method_answers_once_or_streams() {
    let stage = Stage::new().await;
    let server = server(&stage);
    assert_eq!(server.call(SAY, &text("a")).await.unwrap(), text("A"));
    let mut replies = server.call(COUNT, &Number { number: 3 }).stream().await.unwrap();
    for count in ["1", "2", "3"] {
        assert_eq!(replies.next().await.unwrap(), Some(text(count)));
    }
    assert_eq!(replies.next().await.unwrap(), None);
    let several = server.call(COUNT, &Number { number: 2 }).await.unwrap_err();
    assert!(several.message().contains("second reply"), "{several}");
    stage.stop().await;
}

#[tokio::test]
async fn any_payload_is_sent_and_taken() {
    // A gateway has bytes and no types.
    const RAW: Method<RawMessage, RawMessage> = Method::new("edge.test.Echo/Say");
    let stage = Stage::new().await;
    let request = RawMessage::new(text("a").to_bytes());
    let reply = server(&stage).call(RAW, &request).await.unwrap();
    assert_eq!(reply.into_bytes(), text("A").to_bytes());
    // What does not decode is said to be the foreign reply.
    const NOT_TEXT: Method<RawMessage, Number> = Method::new("edge.test.Echo/Say");
    let status = server(&stage).call(NOT_TEXT, &request).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("foreign reply cannot be decoded"), "{status}");
    stage.stop().await;
}

#[tokio::test]
async fn a_foreign_status_arrives_with_its_details() {
    let stage = Stage::new().await;
    let status = server(&stage).call(FAIL, &Number { number: 7 }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "as you like — gern"));
    assert_eq!(&status.details()[..], b"\x08\x05");
    stage.stop().await;
}

#[tokio::test]
async fn a_deadline_ends_a_foreign_call() {
    let stage = Stage::new().await;
    let call = server(&stage).call(WAIT, &text("")).deadline(Duration::from_millis(50));
    assert_eq!(call.await.unwrap_err().code(), Code::DeadlineExceeded);
    tokio::time::timeout(Duration::from_secs(60), stage.told.cancelled.notified())
        .await
        .expect("the service hears of it");
    stage.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_found_once_it_is() {
    let stage = Stage::new().await;
    let server = server(&stage);
    assert!(server.call(SAY, &text("a")).await.is_ok());
    stage.stop().await;
    let status = server.call(SAY, &text("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let nowhere = ForeignServer::new("not an address");
    let status = nowhere.call(SAY, &text("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn a_server_that_is_not_grpc_is_asked_about() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // It takes what was said for something else.
            let _ = stream.read_exact(&mut [0; 24]).await;
        }
    });
    let status = ForeignServer::new(address.to_string()).call(SAY, &text("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let said = format!("the connection to {address} ended ");
    assert!(status.message().starts_with(&said), "{status}");
    assert!(status.message().ends_with("is it a gRPC server?"), "{status}");
}

#[tokio::test]
async fn a_task_passes_its_deadline_and_metadata_on() {
    const PROXY: Method<Text, Text> = Method::new("edge.test.Proxy/Metadata");
    let stage = Stage::new().await;
    let server = server(&stage);
    let proxy = Service::new().unary(PROXY, move |text: Text, context: Context| {
        let server = server.clone();
        async move { server.call(METADATA, &text).metadata("hop", b"1").within(&context).await }
    });
    let endpoint = Endpoint::builder().serve(proxy).start().await.unwrap();
    let request = PROXY.request(text("")).metadata("tenant", b"shop").metadata("Not A Header", b"");
    let seen = endpoint.invoke(request).to(endpoint.me()).await.unwrap().text;
    let mut lines: Vec<_> = seen.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["hop=1", "tenant=shop"]);

    let bad = ForeignServer::new("127.0.0.1:1").call(SAY, &text("")).metadata("Not A Header", b"");
    let status: Status = bad.await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    stage.stop().await;
}

/// A caller's own deadline and that of its task: neither undoes the other.
#[tokio::test]
async fn the_smaller_deadline_counts_in_either_order() {
    const PROXY: Method<Number, Text> = Method::new("edge.test.Proxy/Left");
    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_secs(60);
    let served = Endpoint::builder().serve(slow::service()).start().await.unwrap();
    let edge = GrpcEdge::builder(&served).start("127.0.0.1:0").await.unwrap();
    let server = ForeignServer::new(edge.local_addr());
    let proxy = Service::new().unary(PROXY, move |case: Number, context: Context| {
        let call = server.call(slow::LEFT, &text(""));
        async move {
            match case.number {
                0 => call.within(&context).await,
                1 => call.deadline(SHORT).within(&context).await,
                2 => call.within(&context).deadline(SHORT).await,
                _ => call.within(&context).deadline(LONG).await,
            }
        }
    });
    let endpoint = Endpoint::builder().serve(proxy).start().await.unwrap();
    let left = async |case: u32, deadline: Duration| {
        let request = PROXY.request(Number { number: case });
        let told = endpoint.invoke(request).to(endpoint.me()).deadline(deadline).await.unwrap();
        Duration::from_millis(told.text.parse().expect("it is a number"))
    };
    for (case, deadline) in [(0, SHORT), (1, LONG), (2, LONG), (3, SHORT)] {
        let left = left(case, deadline).await;
        assert!(left <= SHORT, "{left:?} are left in case {case}");
    }
    assert!(left(0, LONG).await > SHORT, "the default of a call is not its own word");
}

/// A server of HTTP/2 frames written by hand: each stream is answered by `say`.
async fn odd_server(say: impl Fn(u32) -> Vec<u8> + Send + 'static) -> ForeignServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let address = listener.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        begin(&mut stream).await?;
        loop {
            let (kind, flags, id, payload) = next_frame(&mut stream).await?;
            match (kind, flags & 1) {
                (1, _) => stream.write_all(&say(id)).await?,
                (4, 0) => stream.write_all(&frame(4, 1, 0, &[])).await?,
                (6, 0) => stream.write_all(&frame(6, 1, 0, &payload)).await?,
                _ => {}
            }
        }
        #[expect(unreachable_code, reason = "gives the type of the error")]
        Ok::<(), std::io::Error>(())
    });
    ForeignServer::new(address)
}

/// What a server reads and says first.
async fn begin(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    stream.write_all(&frame(4, 0, 0, &[])).await
}

/// The stream of the next call, once its request is here.
async fn next_call(stream: &mut TcpStream) -> std::io::Result<u32> {
    loop {
        let (kind, flags, id, _) = next_frame(stream).await?;
        match (kind, flags & 1) {
            (0, 1) => return Ok(id),
            (4, 0) => stream.write_all(&frame(4, 1, 0, &[])).await?,
            _ => {}
        }
    }
}

/// Kind, flags, stream and payload of a frame.
async fn next_frame(stream: &mut TcpStream) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Ok((head[3], head[4], id, payload))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("it is small").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn told(server: &ForeignServer) -> Code {
    server.call(SAY, &text("a")).await.expect_err("it has no answer").code()
}

/// gRPC over HTTP/2, "Errors".
#[tokio::test]
async fn streams_that_are_reset_or_refused_have_the_code_that_grpc_gives_them() {
    let cases = [
        (0, Code::Internal),
        (2, Code::Internal),
        (7, Code::Unavailable),
        (8, Code::Cancelled),
        (11, Code::ResourceExhausted),
    ];
    for (reason, code) in cases {
        let server = odd_server(move |id| frame(3, 0, id, &u32::to_be_bytes(reason))).await;
        assert_eq!(told(&server).await, code, "reset with {reason}");
    }
    // A server that goes takes no stream any more.
    let going = odd_server(|_| frame(7, 0, 0, &[0; 8])).await;
    assert_eq!(told(&going).await, Code::Unavailable);
    // One that breaks off in the middle of a frame.
    let broken = odd_server(|_| vec![0xff; 9]).await;
    let code = told(&broken).await;
    assert!(matches!(code, Code::Unavailable | Code::Internal), "{code:?}");
}

#[tokio::test]
async fn a_reply_above_the_limit_is_too_large() {
    let stage = Stage::new().await;
    let call = server(&stage).call(SAY, &text(&"a".repeat(1_000))).message_bytes_max(500);
    assert_eq!(call.await.unwrap_err().code(), Code::ResourceExhausted);
    stage.stop().await;
}

/// Whatever its words: those of this library about a large message are nobody's alone.
#[tokio::test]
async fn a_status_of_the_server_keeps_its_code() {
    let says = "Error, decoded message length too large: a message is above the limit";
    let status = [("grpc-status", "11"), ("grpc-message", says)];
    let first = odd_server(move |id| refusal(id, &status)).await;
    assert_eq!(told(&first).await, Code::OutOfRange);
    let last = odd_server(move |id| answer_of(id, &message(b""), &status)).await;
    assert_eq!(told(&last).await, Code::OutOfRange);
}

#[tokio::test]
async fn details_that_are_not_base64_leave_the_status_alone() {
    let status = [("grpc-status", "5"), ("grpc-status-details-bin", "!")];
    let first = odd_server(move |id| refusal(id, &status)).await;
    assert_eq!(told(&first).await, Code::NotFound);
    let last = odd_server(move |id| answer_of(id, &[], &status)).await;
    assert_eq!(told(&last).await, Code::NotFound);
}

/// A proxy before a server, or another in its place, does not speak gRPC ("HTTP to gRPC Status Code
/// Mapping").
#[tokio::test]
async fn an_answer_that_is_not_grpc_has_the_code_of_its_http_status() {
    // In the static table of HPACK, or not.
    let status = |indexed: u8, code: &str| match indexed {
        0 => [&[0x08, 3], code.as_bytes()].concat(),
        _ => vec![indexed],
    };
    let cases = [
        (0x8d, "404", Code::Unimplemented),
        (0, "503", Code::Unavailable),
        (0, "403", Code::PermissionDenied),
        (0x8e, "500", Code::Unknown),
        (0x88, "200", Code::Unknown),
    ];
    for (indexed, number, code) in cases {
        let headers = [status(indexed, number), header("content-type", "text/html")].concat();
        let page = b"<html>Upstream says no.</html>";
        let answer = move |id| [frame(1, 4, id, &headers), frame(0, 1, id, page)].concat();
        let server = odd_server(answer).await;
        let told = server.call(SAY, &text("a")).await.unwrap_err();
        assert_eq!(told.code(), code, "{number}: {told}");
    }
}

#[tokio::test]
async fn a_reply_with_a_flag_that_nobody_has_is_an_error_of_the_server() {
    for flag in [1, 2, 0xff] {
        let body = [flag, 0xff, 0xff, 0xff, 0xff];
        let server = odd_server(move |id| answer_of(id, &body, &[("grpc-status", "0")])).await;
        assert_eq!(told(&server).await, Code::Internal, "{flag}");
    }
}

/// A part of the replies is never taken for all of them.
#[tokio::test]
async fn replies_that_are_cut_short_are_an_error() {
    let whole = message(b"\x0a\x01A");
    let begun = [&whole[..], &[0, 0, 0, 0, 100]].concat();
    let cases = [
        (&begun[..], Some("0"), Code::Internal),
        (&begun[..begun.len() - 1], Some("0"), Code::Internal),
        (&begun, None, Code::Internal),
        (&whole, None, Code::Unknown),
        (&begun, Some("10"), Code::Aborted),
    ];
    for (body, status, code) in cases {
        let body = body.to_vec();
        let trailers: Vec<_> = status.map(|status| ("grpc-status", status)).into_iter().collect();
        let server = odd_server(move |id| answer_of(id, &body, &trailers)).await;
        let mut replies = server.call(SAY, &text("a")).stream().await.unwrap();
        assert_eq!(replies.next().await.unwrap(), Some(text("A")));
        assert_eq!(replies.next().await.unwrap_err().code(), code);
    }
}

/// A proxy resets so what it gives up. It says that the replies have ended nowhere but behind a
/// status, after which a server may have no use for more of the request.
#[tokio::test]
async fn replies_that_are_reset_without_an_error_have_not_ended_without_a_status() {
    let whole = message(b"\x0a\x01A");
    for (status, end) in [(None, Err(Code::Unknown)), (Some("0"), Ok(None))] {
        let body = whole.clone();
        let answer = move |id| {
            let start = [vec![0x88], header("content-type", "application/grpc")].concat();
            let start = [frame(1, 4, id, &start), frame(0, 0, id, &body)].concat();
            let last = status.map(|status| frame(1, 5, id, &header("grpc-status", status)));
            [start, last.unwrap_or_default(), frame(3, 0, id, &[0; 4])].concat()
        };
        let server = odd_server(answer).await;
        let mut replies = server.call(SAY, &text("a")).stream().await.unwrap();
        assert_eq!(replies.next().await.unwrap(), Some(text("A")));
        assert_eq!(replies.next().await.map_err(|status| status.code()), end, "{status:?}");
    }
}

/// A caller's metadata reaches the server as headers, but for those that would change the call.
#[tokio::test]
async fn metadata_that_is_passed_on_cannot_break_the_call() {
    const PROXY: Method<Text, Text> = Method::new("edge.test.Proxy/Metadata");
    let stage = Stage::new().await;
    let server = server(&stage);
    let own = server.call(SAY, &text("a")).metadata("grpc-timeout", "1n").await;
    assert_eq!(own.unwrap_err().code(), Code::InvalidArgument);
    let proxy = Service::new().unary(PROXY, move |text: Text, context: Context| {
        let server = server.clone();
        async move { server.call(METADATA, &text).within(&context).await }
    });
    let endpoint = Endpoint::builder().serve(proxy).start().await.unwrap();
    let own = [("grpc-timeout", "1n"), ("grpc-encoding", "gzip"), ("content-length", "5")];
    for (key, value) in own {
        let request = PROXY.request(text("")).metadata(key, value).metadata("tenant", "shop");
        let seen = endpoint.invoke(request).to(endpoint.me()).await.unwrap();
        assert_eq!(seen.text.trim(), "tenant=shop", "{key}");
    }
    stage.stop().await;
}

/// A server that takes one stream at a time and has a long one: what waits for its turn behind that
/// is given up, with its message, and later calls have another connection.
#[tokio::test]
async fn a_stream_that_goes_on_does_not_keep_all_other_calls_from_being_sent() {
    const RAW: Method<RawMessage, Text> = Method::new("edge.test.Echo/Say");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
    let server = ForeignServer::new(listener.local_addr().expect("it is bound").to_string());
    let (go_on, goes_on) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut busy, _) = listener.accept().await?;
        busy.read_exact(&mut [0; 24]).await?;
        let one_at_a_time = [0, 3, 0, 0, 0, 1];
        busy.write_all(&frame(4, 0, 0, &one_at_a_time)).await?;
        let long = next_call(&mut busy).await?;
        busy.write_all(&begun(long)).await?;
        let _ = goes_on.await;
        busy.write_all(&frame(0, 0, long, &message(b"\x0a\x01B"))).await?;
        let (mut other, _) = listener.accept().await?;
        begin(&mut other).await?;
        let next = next_call(&mut other).await?;
        other.write_all(&answer_of(next, &message(b""), &[("grpc-status", "0")])).await?;
        next_call(&mut other).await
    });
    let mut long = server.call(SAY, &text("a")).stream().await.expect("it begins");
    assert_eq!(long.next().await.expect("it goes on"), Some(text("A")));
    let request = RawMessage::new(vec![7; 1 << 20].into());
    let waits = server.call(RAW, &request).deadline(Duration::from_millis(300)).into_future();
    let waiting = tokio::spawn(waits);
    tokio::task::yield_now().await; // It has begun, and the connection is heard of afterwards.
    go_on.send(()).expect("the server is there");
    assert_eq!(long.next().await.expect("it goes on"), Some(text("B")));
    let late = waiting.await.expect("it does not panic").expect_err("it waits for its turn");
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    assert!(request.into_bytes().is_unique(), "the message is kept");
    assert_eq!(server.call(SAY, &text("a")).await.expect("it is sent"), text(""));
}

/// Many calls of a server that takes no connection wait for one attempt, and are told together.
#[tokio::test]
async fn calls_of_a_server_that_cannot_be_reached_wait_for_one_attempt() {
    // Its queue is full: a connection to it neither opens nor fails.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let filling: Vec<_> = (0..4).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    while filling.iter().filter(|task| task.is_finished()).count() < 2 {
        tokio::task::yield_now().await;
    }
    let server = ForeignServer::new(address.to_string());
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let server = server.clone();
        calls.spawn(async move { server.call(SAY, &text("a")).await });
    }
    // One that is dropped takes nothing from the others.
    calls.spawn(async move { server.call(SAY, &text("a")).deadline(Duration::ZERO).await });
    let codes = calls.join_all().await.into_iter().map(|told| told.unwrap_err().code());
    let late = codes.filter(|code| *code == Code::DeadlineExceeded).count();
    assert_eq!(late, 1, "the others are told that it cannot be reached");
    filling.iter().for_each(JoinHandle::abort);
}

/// A process that hangs keeps its connections, and nobody pings it for minutes. A call that ends at
/// its deadline leaves a connection that has brought nothing since it began: later calls open
/// another, and what still comes over the old one arrives.
#[tokio::test]
async fn a_server_that_hangs_is_called_over_another_connection_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (goes_on, may_go_on) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let (mut hanging, _) = listener.accept().await?;
        begin(&mut hanging).await?;
        let first = next_call(&mut hanging).await?;
        hanging.write_all(&begun(first)).await?;
        let (mut stream, _) = listener.accept().await?;
        begin(&mut stream).await?;
        let second = next_call(&mut stream).await?;
        stream.write_all(&answer(second)).await?;
        may_go_on.await.map_err(std::io::Error::other)?;
        hanging.write_all(&rest(first)).await?;
        next_call(&mut hanging).await // until the client has gone
    });
    let server = ForeignServer::new(address);
    let mut replies = server.call(SAY, &text("a")).stream().await.unwrap();
    assert_eq!(replies.next().await.unwrap(), Some(text("A")));
    let late = server.call(SAY, &text("a")).deadline(Duration::from_millis(50)).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(server.call(SAY, &text("a")).await.unwrap(), text("A"));
    goes_on.send(()).unwrap();
    assert_eq!(replies.next().await.unwrap(), Some(text("A")));
    assert_eq!(replies.next().await.unwrap(), None);
    serving.abort();
}

/// A server that closes its connection after each answer: the next call finds that out, or opens
/// another.
#[tokio::test]
async fn a_connection_that_was_closed_between_calls_costs_none_of_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closing = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await?;
            begin(&mut stream).await?;
            loop {
                let (kind, flags, id, _) = next_frame(&mut stream).await?;
                match (kind, flags & 1) {
                    (4, 0) => stream.write_all(&frame(4, 1, 0, &[])).await?,
                    (0, 1) => {
                        stream.write_all(&answer(id)).await?;
                        break stream.shutdown().await?;
                    }
                    _ => {}
                }
            }
        }
        #[expect(unreachable_code, reason = "gives the type of the error")]
        Ok::<(), std::io::Error>(())
    });
    let server = ForeignServer::new(address);
    for count in 0..300 {
        match server.call(SAY, &text("a")).await {
            Ok(reply) => assert_eq!(reply, text("A")),
            // It may have been sent when the connection closed: that is for the caller to repeat.
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{count}: {status}"),
        }
    }
    closing.abort();
}

/// A reply by hand.
fn answer(stream: u32) -> Vec<u8> {
    answer_of(stream, &message(b"\x0a\x01A"), &[("grpc-status", "0")])
}

fn message(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("it is small").to_be_bytes();
    [&[0], &len[..], bytes].concat()
}

/// An answer of this body and these trailers; without trailers it ends with the body.
fn answer_of(stream: u32, body: &[u8], trailers: &[(&str, &str)]) -> Vec<u8> {
    let start = [vec![0x88], header("content-type", "application/grpc")].concat();
    let start = frame(1, 4, stream, &start);
    if trailers.is_empty() {
        return [start, frame(0, 1, stream, body)].concat();
    }
    let trailers: Vec<u8> = trailers.iter().flat_map(|(name, value)| header(name, value)).collect();
    [start, frame(0, 0, stream, body), frame(1, 5, stream, &trailers)].concat()
}

/// The headers and the first message of an answer.
fn begun(stream: u32) -> Vec<u8> {
    let start = [vec![0x88], header("content-type", "application/grpc")].concat();
    let first = frame(0, 0, stream, &message(b"\x0a\x01A"));
    [frame(1, 4, stream, &start), first].concat()
}

/// Its second message and its end.
fn rest(stream: u32) -> Vec<u8> {
    let second = frame(0, 0, stream, &message(b"\x0a\x01A"));
    [second, frame(1, 5, stream, &header("grpc-status", "0"))].concat()
}

/// An answer of headers alone.
fn refusal(stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = headers.iter().flat_map(|(name, value)| header(name, value));
    let headers: Vec<u8> = [0x88]
        .into_iter()
        .chain(header("content-type", "application/grpc"))
        .chain(headers)
        .collect();
    frame(1, 5, stream, &headers)
}

/// A header in HPACK that is not indexed (RFC 7541, section 6.2.2).
fn header(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).ok().filter(|len| *len < 127).expect("short");
    [&[0, len(name)], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}
