//! The edge, called by a client of tonic; and foreign servers, of which it is one.

mod call_metrics;
mod client;
mod echo;
mod foreign_server;
mod odd;
mod slow;
mod unread;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::Endpoint;
use convoke_core::health::{Health, ServingState};
use convoke_transport::Principal;
use convoke_transport_grpc::{EdgeError, GrpcEdge, GrpcEdgeBuilder};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use client::{Client, messages, text};
use echo::{Number, Stage, descriptor_set};

/// Time that a test waits for what must happen: only a hang runs into it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens")
}

#[tokio::test]
async fn a_unary_call_passes_undecoded_through_the_edge() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let reply = client.unary("Say", text("hello")).await.unwrap();
    assert_eq!(reply.into_inner(), text("HELLO"));
    let empty = client.unary("Say", text("")).await.unwrap();
    assert_eq!(empty.into_inner(), text(""));
    let large = "x".repeat(1 << 20);
    let reply = client.unary("Say", text(&large)).await.unwrap();
    assert_eq!(reply.into_inner().text, large.to_uppercase());
    stage.stop().await;
}

#[tokio::test]
async fn headers_arrive_as_metadata_and_those_of_grpc_do_not() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut request = Request::new(text(""));
    let metadata = request.metadata_mut();
    metadata.insert("tenant", "shop".parse().unwrap());
    metadata.append("tenant", "two".parse().unwrap());
    metadata.insert_bin("token-bin", MetadataValue::from_bytes(b"\x00\xff"));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    metadata.insert("traceparent", trace.parse().unwrap());
    let seen = client.send("Metadata", request).await.unwrap().into_inner().text;
    let mut lines: Vec<_> = seen.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["tenant=shop", "tenant=two", r"token-bin=\x00\xff"]);

    let mut request = Request::new(text(""));
    request.metadata_mut().insert("much", "x".repeat(16_001).parse().unwrap());
    let status = client.send("Metadata", request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    stage.stop().await;
}

/// The values under a key of headers or trailers.
fn values<'a>(metadata: &'a MetadataMap, key: &str) -> Vec<&'a str> {
    metadata.get_all(key).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn metadata_of_a_reply_is_headers_as_far_as_it_can_be() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let reply = client.unary("Measure", text("abc")).await.unwrap();
    let headers = reply.metadata();
    assert_eq!(values(headers, "length"), ["3"]);
    assert_eq!(headers.get_bin("raw-bin").unwrap().to_bytes().unwrap(), &[0, 255][..]);
    assert_eq!(values(headers, "padded"), ["a b"], "of spaces at the ends HTTP/2 has none");
    assert_eq!(values(headers, "content-type"), ["application/grpc"]);
    for left_out in ["connection", "ctl", "long", "convoke-executed"] {
        assert!(headers.get(left_out).is_none(), "{left_out}");
    }
    assert_eq!(reply.into_inner(), text("ABC"));

    let status = client.unary("Measure", text("")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no text"));
    let ours = convoke_core::Status::new(convoke_core::Code::NotFound, "");
    let ours = ours.with_details(Bytes::copy_from_slice(status.details()));
    assert_eq!(ours.detail(), Some(echo::no_text()), "they are a google.rpc.Status");
    assert_eq!(values(status.metadata(), "length"), ["0"]);
    assert_eq!(values(status.metadata(), "convoke-executed"), ["yes"]);
    stage.stop().await;
}

#[tokio::test]
async fn metadata_of_later_replies_is_trailers() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let streaming = client.streaming("Numbered", Number { number: 3 }).await.unwrap();
    assert_eq!(values(streaming.metadata(), "number"), ["1"]);
    let mut stream = streaming.into_inner();
    while stream.message().await.unwrap().is_some() {}
    let trailers = stream.trailers().await.unwrap().unwrap_or_default();
    assert_eq!(values(&trailers, "number"), ["2", "3"]);

    // All of a long stream is more than an answer takes; what ended it has room.
    let mut stream = client.stream("Numbered", Number { number: 1_000 }).await.unwrap();
    let status = loop {
        match in_time(stream.message()).await {
            Ok(reply) => assert!(reply.is_some(), "it ends with a failure"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), status.message()), (Code::Aborted, "enough"));
    assert_eq!(values(status.metadata(), "last"), ["word"]);
    let numbers = values(status.metadata(), "number");
    assert!(numbers.starts_with(&["2", "3"]) && numbers.len() < 220, "{}", numbers.len());
    stage.stop().await;
}

#[tokio::test]
async fn a_tree_streams_its_replies() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut stream = client.stream("Count", Number { number: 500 }).await.unwrap();
    for count in 1..=500 {
        assert_eq!(stream.message().await.unwrap(), Some(text(&count.to_string())));
    }
    assert_eq!(stream.message().await.unwrap(), None);
    let mut none = client.stream("Count", Number { number: 0 }).await.unwrap();
    assert_eq!(none.message().await.unwrap(), None);
    stage.stop().await;
}

/// With a descriptor set, and without one by what the endpoint itself serves.
#[tokio::test]
async fn a_streamed_request_is_passed_on_item_by_item() {
    let with_descriptors = Stage::new().await;
    let without = Stage::with(|builder, _| builder).await;
    for stage in [with_descriptors, without] {
        let mut client = Client::connect(stage.edge.local_addr()).await;
        let (given, taken) = messages();
        let gives = async move {
            for n in 0..2_000 {
                given.send(text(&format!("{n} "))).await.expect("they are taken");
            }
        };
        let (answer, ()) =
            in_time(async { tokio::join!(client.gather("Gather", taken), gives) }).await;
        let answer = answer.unwrap();
        assert_eq!(answer.metadata().get("count").unwrap(), "2000");
        let all: String = (0..2_000).map(|n| format!("{n} ")).collect();
        assert_eq!(answer.into_inner(), text(&all));

        let (given, taken) = messages();
        let mut answers = in_time(client.talk("Talk", taken)).await.unwrap();
        for word in ["one", "two"] {
            given.send(text(word)).await.unwrap();
            let answer = in_time(answers.message()).await.unwrap();
            assert_eq!(answer, Some(text(&word.to_uppercase())));
        }
        drop(given);
        assert_eq!(in_time(answers.message()).await.unwrap(), None);
        stage.stop().await;
    }
}

#[tokio::test]
async fn a_handler_may_answer_before_it_has_read_all() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let (given, taken) = messages();
    let mut answers = in_time(client.talk("Talk", taken)).await.unwrap();
    given.send(text("")).await.unwrap();
    assert_eq!(in_time(answers.message()).await.unwrap(), None, "the client has not finished");

    let (given, taken) = messages();
    let gives = async move {
        for word in ["a", ""] {
            given.send(text(word)).await.expect("they are taken");
        }
        given.closed().await;
    };
    let (answer, ()) = in_time(async { tokio::join!(client.gather("Gather", taken), gives) }).await;
    let status = answer.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "after a"));
    stage.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_cancels_its_stream() {
    let stage = Stage::new().await;
    for method in ["Gather", "Ignore"] {
        let mut client = Client::connect(stage.edge.local_addr()).await;
        let (given, taken) = messages();
        let waiting = tokio::spawn(async move { client.gather(method, taken).await });
        given.send(text("a part")).await.unwrap();
        if method == "Ignore" {
            in_time(stage.told.waiting.notified()).await;
            waiting.abort();
            in_time(stage.told.cancelled.notified()).await;
        } else {
            waiting.abort();
        }
    }
    in_time(async {
        while stage.near.load().tasks + stage.near.load().calls > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.stop().await;
}

/// A handler that does not read holds back its client alone, who may give what the windows hold.
#[tokio::test]
async fn a_reader_that_never_reads_holds_its_client_back() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let (given, taken) = messages();
    let mut ignoring = client.clone();
    let waiting = tokio::spawn(async move { ignoring.gather("Ignore", taken).await });
    let mut bytes = 0;
    let message = text(&"x".repeat(10_000));
    // As long as any is taken within a second, another is given.
    while let Ok(sent) =
        tokio::time::timeout(Duration::from_secs(1), given.send(message.clone())).await
    {
        sent.unwrap();
        bytes += 10_000;
        assert!(bytes < 8 << 20, "nothing stops it");
        assert!(in_time(client.unary("Say", text("a"))).await.is_ok());
    }
    waiting.abort();
    in_time(stage.told.cancelled.notified()).await;
    stage.stop().await;
}

#[tokio::test]
async fn too_large_an_item_ends_its_call_alone() {
    let stage = Stage::with(|builder, _| {
        builder.descriptor_set(echo::descriptor_set()).message_bytes_max(1_000)
    })
    .await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let (given, taken) = messages();
    let gives = async move {
        given.send(text("small")).await.expect("it is taken");
        given.send(text(&"x".repeat(1_000))).await.expect("it is taken");
        given.closed().await;
    };
    let (answer, ()) = in_time(async { tokio::join!(client.gather("Gather", taken), gives) }).await;
    assert_eq!(answer.unwrap_err().code(), Code::ResourceExhausted);
    assert!(client.unary("Say", text("a")).await.is_ok());
    stage.stop().await;
}

#[tokio::test]
async fn a_tree_with_a_lost_branch_gives_the_other_replies_and_then_says_so() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut stream = client.stream("Spread", text("a")).await.unwrap();
    let mut replies = Vec::new();
    let status = loop {
        match in_time(stream.message()).await {
            Ok(Some(reply)) => replies.push(reply.text),
            Ok(None) => panic!("the call is not complete"),
            Err(status) => break status,
        }
    };
    replies.sort_unstable();
    assert_eq!(replies, ["A", "a"]);
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(status.metadata().get("convoke-executed").unwrap(), "yes");
    let failure = status.metadata().get("convoke-failure").unwrap().to_str().unwrap();
    assert!(failure.starts_with("branch /0/1"), "{failure}");
    stage.stop().await;
}

#[tokio::test]
async fn a_tree_without_a_stream_gives_the_one_reply_of_whoever_has_it() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let reply = client.unary("Hand", text("hello")).await.unwrap();
    assert_eq!(reply.into_inner(), text("HELLO"));
    stage.stop().await;
}

#[tokio::test]
async fn a_method_without_a_stream_that_answers_twice_is_an_error_and_its_call_is_cancelled() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let status = in_time(client.unary("Twice", text("a"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    let remedy = "edge.test.Echo/Twice answers more than once: write `returns (stream Text)`";
    assert_eq!(status.message(), remedy);
    assert_eq!(status.metadata().get("convoke-executed").unwrap(), "yes");
    in_time(stage.told.cancelled.notified()).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_method_without_a_stream_is_never_ok_with_a_failed_branch() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let status = in_time(client.unary("Half", text("a"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert!(status.message().contains("write `returns (stream Text)`"), "{status}");
    let failure = status.metadata().get("convoke-failure").unwrap().to_str().unwrap();
    assert!(failure.starts_with("branch /0 "), "{failure}");
    stage.stop().await;

    // Who says nothing of its shape gets the reply, and then the status of the branch.
    let stage = Stage::with(|builder, _| builder).await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut stream = client.stream("Half", text("a")).await.unwrap();
    assert_eq!(stream.message().await.unwrap(), Some(text("a")));
    let status = in_time(stream.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(status.metadata().get("convoke-executed").unwrap(), "yes");
    stage.stop().await;
}

#[tokio::test]
async fn every_status_of_a_service_passes_with_its_details() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    for number in 1..=16 {
        let status = client.unary("Fail", Number { number }).await.unwrap_err();
        assert_eq!(status.code() as u32, number);
        assert_eq!((status.message(), status.details()), ("as you like — gern", &b"\x08\x05"[..]));
        assert_eq!(status.metadata().get("convoke-executed").unwrap(), "yes");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_deadline_ends_the_call_at_the_edge_and_at_the_service() {
    let stage = Stage::new().await;
    let mut client = Client::bare(stage.edge.local_addr()).await;
    // On a host with too much to do a call may be over before its task has begun.
    for timeout in ["50m", "1S", "20S"] {
        let mut request = Request::new(text(""));
        request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        let status = in_time(client.send("Wait", request)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        let has_begun = stage.told.waiting.notified();
        if tokio::time::timeout(Duration::ZERO, has_begun).await.is_ok() {
            break;
        }
    }
    in_time(stage.told.cancelled.notified()).await;

    let mut request = Request::new(text(""));
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let status = client.send("Wait", request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    stage.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_cancels_its_call() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let waiting = tokio::spawn(async move { client.unary("Wait", text("")).await });
    in_time(stage.told.waiting.notified()).await;
    waiting.abort();
    in_time(stage.told.cancelled.notified()).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_method_nobody_has_is_unimplemented() {
    let closed = Stage::new().await;
    let open = Stage::with(|builder, _| builder).await;
    for stage in [closed, open] {
        let mut client = Client::connect(stage.edge.local_addr()).await;
        let status = client.unary("Shout", text("")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        assert_eq!(status.metadata().get("convoke-executed").unwrap(), "no");
        assert!(client.unary("Say", text("a")).await.is_ok());
        stage.stop().await;
    }
}

#[tokio::test]
async fn without_descriptors_a_unary_method_still_gives_its_one_reply() {
    let stage = Stage::with(|builder, _| builder).await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    assert_eq!(client.unary("Say", text("a")).await.unwrap().into_inner(), text("A"));
    let status = client.unary("Fail", Number { number: 5 }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    stage.stop().await;
}

#[tokio::test]
async fn too_large_a_message_is_refused_and_the_connection_lives_on() {
    let stage = Stage::with(|builder, _| builder.message_bytes_max(1_000)).await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let status = client.unary("Say", text(&"x".repeat(1_000))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("1000 bytes"), "{status}");
    assert!(client.unary("Say", text(&"x".repeat(900))).await.is_ok());
    stage.stop().await;
}

#[tokio::test]
async fn more_calls_than_allowed_are_refused_until_one_ends() {
    let stage = Stage::with(|builder, _| builder.calls_max(1)).await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let mut other = client.clone();
    let waiting = tokio::spawn(async move { other.unary("Wait", text("")).await });
    in_time(stage.told.waiting.notified()).await;
    let status = client.unary("Say", text("")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    waiting.abort();
    in_time(stage.told.cancelled.notified()).await;
    in_time(async {
        // The edge hears of the reset, and the permit comes back, at about the same time.
        while client.unary("Say", text("")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.stop().await;
}

#[tokio::test]
async fn a_route_sends_methods_to_other_nodes() {
    let stage = Stage::with(|builder, far| {
        builder.route(move |method| {
            assert_eq!(method, "edge.test.Echo/Say");
            far
        })
    })
    .await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let before = stage.far.counters().frames_received;
    assert_eq!(client.unary("Say", text("a")).await.unwrap().into_inner(), text("A"));
    assert!(stage.far.counters().frames_received > before, "the far node was asked");
    stage.stop().await;
}

#[tokio::test]
async fn health_says_what_it_was_told() {
    let stage = Stage::new().await;
    let mut health = HealthClient::new(Client::channel(stage.edge.local_addr()).await);
    let mut check = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.map(|reply| reply.into_inner().status())
    };
    assert_eq!(check("").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("edge.test.Echo").await.unwrap(), ServingStatus::Serving);
    stage.edge.set_serving("edge.test.Echo", false);
    assert_eq!(check("edge.test.Echo").await.unwrap(), ServingStatus::NotServing);
    assert_eq!(check("nobody").await.unwrap_err().code(), Code::NotFound);
    stage.stop().await;
}

#[tokio::test]
async fn a_client_that_watches_much_has_its_share_of_the_places_for_that() {
    let endpoint = Endpoint::builder().start().await.expect("it starts");
    let edge = GrpcEdge::builder(&endpoint).checks_max(8).into_service().expect("it is legal");
    let client = |name: &'static str| {
        HealthClient::with_interceptor(edge.clone(), move |mut request: Request<()>| {
            request.extensions_mut().insert(Principal::new(name));
            Ok(request)
        })
    };
    let (mut greedy, mut other) = (client("greedy"), client("other"));
    let mut watches = Vec::new();
    let refused = loop {
        match in_time(greedy.watch(HealthCheckRequest::default())).await {
            Ok(watch) => watches.push(watch.into_inner()),
            Err(refused) => break refused,
        }
        assert!(watches.len() < 100, "it has places without end");
    };
    assert_eq!((watches.len(), refused.code()), (4, Code::ResourceExhausted), "{refused}");
    let check = in_time(greedy.check(HealthCheckRequest::default())).await;
    assert_eq!(check.expect_err("it has its share").code(), Code::ResourceExhausted);
    for _ in 0..20 {
        in_time(other.check(HealthCheckRequest::default())).await.expect("there is room for it");
    }
    let first = in_time(watches[0].message()).await.expect("it goes on").expect("it says a state");
    assert_eq!(first.status(), ServingStatus::Serving);
    drop(watches.pop());
    watches.push(in_time(greedy.watch(HealthCheckRequest::default())).await.unwrap().into_inner());

    let mut headers = Request::new(HealthCheckRequest::default());
    headers.metadata_mut().insert("much", "x".repeat(40_000).parse().unwrap());
    let refused = in_time(other.check(headers)).await.expect_err("its headers are too large");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

#[tokio::test]
async fn an_edge_that_shares_the_health_of_a_node_drains_without_stopping_it() {
    let node = Health::new();
    let share =
        |builder: GrpcEdgeBuilder, _| builder.descriptor_set(descriptor_set()).health(&node);
    let stage = Stage::with(share).await;
    let mut health = HealthClient::new(Client::channel(stage.edge.local_addr()).await);
    let question = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let unsaid = health.check(question("edge.test.Echo")).await.unwrap_err();
    assert_eq!(unsaid.code(), Code::NotFound);

    let mut watch = health.watch(question("edge.test.Echo")).await.unwrap().into_inner();
    let mut next = async || Some(in_time(watch.message()).await.unwrap()?.status());
    assert_eq!(next().await, Some(ServingStatus::ServiceUnknown));
    node.set("edge.test.Echo", ServingState::NotServing);
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    stage.edge.set_serving("edge.test.Echo", true);
    assert_eq!(node.state("edge.test.Echo"), Some(ServingState::Serving));
    assert_eq!(next().await, Some(ServingStatus::Serving));

    // The watch ends, so the edge need not wait for its grace.
    let ending = tokio::spawn(stage.edge.shutdown(Duration::from_secs(3600)));
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    drop(health);
    in_time(ending).await.unwrap();
    assert_eq!(node.state("edge.test.Echo"), Some(ServingState::Serving));
    stage.near.shutdown(Duration::from_secs(5)).await;
    stage.far.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn reflection_knows_the_services_and_their_files() {
    let stage = Stage::new().await;
    let channel = Client::channel(stage.edge.local_addr()).await;
    let mut reflection = ServerReflectionClient::new(channel);
    let mut ask = async |message_request| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
        let replies = reflection.server_reflection_info(tokio_stream_of(request)).await.unwrap();
        let reply: Option<ServerReflectionResponse> = replies.into_inner().message().await.unwrap();
        reply.and_then(|reply| reply.message_response)
    };
    let services = ask(MessageRequest::ListServices(String::new())).await;
    let Some(MessageResponse::ListServicesResponse(services)) = services else {
        panic!("expected services, not {services:?}")
    };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"edge.test.Echo".to_owned()), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
    let file = ask(MessageRequest::FileContainingSymbol("edge.test.Echo".into())).await;
    assert!(matches!(file, Some(MessageResponse::FileDescriptorResponse(_))), "{file:?}");
    stage.stop().await;
}

/// A stream of one request.
fn tokio_stream_of<T: Send + 'static>(
    item: T,
) -> impl tonic::codegen::tokio_stream::Stream<Item = T> {
    tonic::codegen::tokio_stream::once(item)
}

#[tokio::test]
async fn the_edge_can_be_a_service_of_ones_own_server() {
    let stage = Stage::new().await;
    let edge = GrpcEdge::builder(&stage.near).into_service().unwrap();
    let (address, server) = serve_one(edge).await;
    let mut client = Client::connect(address).await;
    assert_eq!(client.unary("Say", text("a")).await.unwrap().into_inner(), text("A"));
    server.abort();
    stage.stop().await;
}

#[tokio::test]
async fn a_service_is_held_to_the_settings_that_are_its_own() {
    let endpoint = Endpoint::builder().start().await.expect("nothing is listened on");
    let of = |change: fn(GrpcEdgeBuilder) -> GrpcEdgeBuilder| {
        change(GrpcEdge::builder(&endpoint)).into_service().map(drop)
    };
    let refused = |message| Err(EdgeError::Settings { message });
    assert_eq!(of(|edge| edge.calls_max(0)), refused("calls_max is zero"));
    let message = "request_bytes_total_max is below four times message_bytes_max";
    assert_eq!(of(|edge| edge.message_bytes_max(1 << 30)), refused(message));
    assert_eq!(of(|edge| edge.streams_max(0)), Ok(()), "it is the server's");
}

#[tokio::test]
async fn a_layer_sees_every_request_before_it_becomes_a_call() {
    let stage = Stage::new().await;
    let edge = GrpcEdge::builder(&stage.near).into_service().unwrap();
    let edge = tower::ServiceBuilder::new()
        .map_request(|mut request: http::Request<Incoming>| {
            request.headers_mut().insert("tenant", http::HeaderValue::from_static("shop"));
            request
        })
        .service(edge);
    let (address, server) = serve_one(edge).await;
    let mut client = Client::connect(address).await;
    let mut request = Request::new(text(""));
    request.metadata_mut().insert("tenant", "somebody else".parse().unwrap());
    let seen = client.send("Metadata", request).await.unwrap().into_inner().text;
    assert_eq!(seen, "tenant=shop\n");
    server.abort();
    stage.stop().await;
}

/// Serves one connection over HTTP/2.
async fn serve_one<S>(service: S) -> (SocketAddr, JoinHandle<()>)
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(move |request| service.clone().call(request));
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    (address, server)
}

#[tokio::test]
async fn a_shutdown_waits_for_the_grace_and_no_longer() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    let waiting = tokio::spawn(async move { client.unary("Wait", text("")).await });
    in_time(stage.told.waiting.notified()).await;
    in_time(stage.edge.shutdown(Duration::from_millis(20))).await;
    assert!(in_time(waiting).await.unwrap().is_err());
    in_time(stage.told.cancelled.notified()).await;
}

#[tokio::test]
async fn an_edge_that_cannot_start_says_why() {
    let stage = Stage::new().await;
    let taken = stage.edge.local_addr();
    let builder = || GrpcEdge::builder(&stage.near);
    let error = builder().start(taken).await.unwrap_err();
    assert!(matches!(error, EdgeError::Bind { .. }), "{error}");
    assert!(error.to_string().contains("another socket has this port"), "{error}");
    let error = builder().start(format!("http://{taken}")).await.unwrap_err();
    assert!(error.to_string().contains("leave out `http://`"), "{error}");
    let error = builder().descriptor_set(&b"\xff\xff"[..]).start("127.0.0.1:0").await.unwrap_err();
    assert!(matches!(error, EdgeError::DescriptorSet { .. }), "{error}");
    let error = builder().streams_max(0).start("127.0.0.1:0").await.unwrap_err();
    assert!(error.to_string().contains("streams_max"), "{error}");
    let error = builder().request_bytes_total_max(1 << 20).start("127.0.0.1:0").await.unwrap_err();
    assert!(error.to_string().contains("four times message_bytes_max"), "{error}");
    stage.stop().await;
}
