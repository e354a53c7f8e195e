//! Calls out of convoke, to a server that speaks gRPC: here an edge, which does.

#[path = "edge/echo.rs"]
#[allow(dead_code, reason = "the tests with tonic's client use more of it")]
mod echo;

use std::time::Duration;

use convoke_core::{Code, Context, Endpoint, Method, Payload, RawMessage, Service, Status};
use convoke_transport_grpc::ForeignServer;
use echo::{Number, Stage, Text};

const COUNT: Method<Number, Text> = Method::new("edge.test.Echo/Count");
const FAIL: Method<Number, Text> = Method::new("edge.test.Echo/Fail");
const METADATA: Method<Text, Text> = Method::new("edge.test.Echo/Metadata");
const SAY: Method<Text, Text> = Method::new("edge.test.Echo/Say");
const WAIT: Method<Text, Text> = Method::new("edge.test.Echo/Wait");

fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

fn server(stage: &Stage) -> ForeignServer {
    ForeignServer::new(stage.edge.local_addr().to_string())
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
