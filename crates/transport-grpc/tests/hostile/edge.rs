//! At the edge.

use std::time::Duration;

use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::echo::{Stage, Text};
use crate::http2::{
    DATA, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PREFACE, Raw, SETTINGS, call, frame, frames, headers,
    reset,
};
use crate::in_time;
use crate::over::{Over, over_both};

over_both! {
    other_protocols_are_refused,
    a_flood_of_resets_ends_the_connection_that_sends_it_and_no_other,
    http_2_that_is_not_grpc_is_refused,
    a_client_that_does_not_read_holds_up_nobody,
    a_client_that_never_ends_its_requests_has_its_share_of_the_calls_and_for_a_time,
    health_waits_for_no_request_for_ever_and_takes_no_large_one,
}

/// Asserts that an honest client is answered.
async fn answers(over: &Over, stage: &Stage) {
    let mut grpc = Grpc::new(over.channel(stage.edge.local_addr(), |to| to).await);
    in_time(grpc.ready()).await.expect("the channel is open");
    let path = http::uri::PathAndQuery::from_static("/edge.test.Echo/Say");
    let request = tonic::Request::new(Text { text: "alive?".into() });
    let reply = in_time(grpc.unary(request, path, ProstCodec::<Text, Text>::default())).await;
    assert_eq!(reply.expect("the edge answers").into_inner().text, "ALIVE?");
}

async fn lives_on(over: &Over, stage: Stage) {
    answers(over, &stage).await;
    stage.stop().await;
}

async fn other_protocols_are_refused(over: Over) {
    let stage = Stage::with(|builder, _| over.edge(builder)).await;
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    raw.send(b"POST /edge.test.Echo/Say HTTP/1.1\r\nContent-Length: 0\r\n\r\n").await;
    let answer = String::from_utf8(raw.read_to_end().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    raw.send(&[0; 100]).await;
    raw.read_to_end().await;
    lives_on(&over, stage).await;
}

async fn a_flood_of_resets_ends_the_connection_that_sends_it_and_no_other(over: Over) {
    let stage = Stage::with(|builder, _| over.edge(builder).resets_max(10)).await;
    let mut flood = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    for stream in (1..2_000).step_by(2) {
        flood.extend(headers(stream));
        flood.extend(reset(stream));
    }
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    raw.send(&flood).await;
    let answer = raw.read_to_end().await;
    let away = frames(&answer).into_iter().find(|(kind, _)| *kind == GOAWAY);
    let (_, payload) = away.expect("it is told to go away");
    let code = u32::from_be_bytes(*payload[4..].first_chunk().expect("an error code"));
    assert_eq!(code, ENHANCE_YOUR_CALM);
    lives_on(&over, stage).await;
}

async fn http_2_that_is_not_grpc_is_refused(over: Over) {
    let stage =
        Stage::with(|builder, _| over.edge(builder).idle_timeout(Duration::from_millis(100))).await;
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    let request = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..], &headers(1), &reset(1)].concat();
    raw.send(&request).await;
    // Nothing comes of it, so the connection is idle and ends.
    raw.read_to_end().await;
    lives_on(&over, stage).await;
}

async fn a_client_that_does_not_read_holds_up_nobody(over: Over) {
    let stage = Stage::with(|builder, _| over.edge(builder)).await;
    let narrow = |to: Endpoint| to.initial_stream_window_size(1_024);
    let mut grpc = Grpc::new(over.channel(stage.edge.local_addr(), narrow).await);
    let mut unread = Vec::new();
    for _ in 0..20 {
        in_time(grpc.ready()).await.expect("the channel is open");
        let path = http::uri::PathAndQuery::from_static("/edge.test.Echo/Count");
        let request = tonic::Request::new(crate::echo::Number { number: 5_000 });
        let codec = ProstCodec::<crate::echo::Number, Text>::default();
        unread.push(in_time(grpc.server_streaming(request, path, codec)).await.expect("it begins"));
    }
    answers(&over, &stage).await;
    drop((unread, grpc));
    lives_on(&over, stage).await;
}

async fn a_client_that_never_ends_its_requests_has_its_share_of_the_calls_and_for_a_time(
    over: Over,
) {
    let stage = Stage::with(|builder, _| over.edge(builder).calls_max(8)).await;
    let mut begun = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    for stream in (1..).step_by(2).take(8) {
        begun.extend(call(stream, "/edge.test.Echo/Say", "1S"));
        begun.extend(frame(DATA, 0, stream, &[0, 0, 0, 1]));
    }
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    raw.send(&begun).await;
    let mut told = Vec::new();
    // Four are refused, and four end by their deadline, though nothing more comes of them.
    while frames(&told).iter().filter(|(kind, _)| *kind == HEADERS).count() < 8 {
        raw.read_some(&mut told).await;
    }
    answers(&over, &stage).await;
    lives_on(&over, stage).await;
}

async fn health_waits_for_no_request_for_ever_and_takes_no_large_one(over: Over) {
    let stage = Stage::with(|builder, _| over.edge(builder)).await;
    let mut begun = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    let cases = [("1S", &[0, 0, 0, 1][..]), ("9M", &[0, 0, 1, 0, 0])];
    let cases = cases.into_iter().flat_map(|case| [("Check", case), ("Watch", case)]);
    for (stream, (method, (timeout, part))) in (1..).step_by(2).zip(cases) {
        begun.extend(call(stream, &format!("/grpc.health.v1.Health/{method}"), timeout));
        begun.extend(frame(DATA, 0, stream, part));
    }
    let mut raw = Raw::connect(&over, stage.edge.local_addr()).await;
    raw.send(&begun).await;
    let mut told = Vec::new();
    while frames(&told).iter().filter(|(kind, _)| *kind == HEADERS).count() < 4 {
        raw.read_some(&mut told).await;
    }
    lives_on(&over, stage).await;
}
