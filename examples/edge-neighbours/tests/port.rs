//! Every neighbour of the edge asks at the one port, each with a client of its own kind.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{Request, Response, StatusCode};
use bytes::{Buf as _, Bytes, BytesMut};
use convoke::Code;
use convoke::grpc::ForeignServer;
use convoke::health::ServingState;
use edge_neighbours::{HELLO, LETTERS, Port, prometheus};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use metrics_exporter_prometheus::PrometheusHandle;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A process has one recorder of metrics, and these tests are one process.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| prometheus().unwrap());

/// Time for what is under way as a port ends.
const GRACE: Duration = Duration::from_secs(5);

async fn started() -> Port {
    Port::start(METRICS.clone()).await.unwrap()
}

/// The whole answer to one request over HTTP/1.1.
async fn http1(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Bytes> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let (head, body) = send.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    drop(send);
    connection.await.unwrap().unwrap();
    Response::from_parts(head, body)
}

/// The same over HTTP/2.
async fn http2(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Bytes> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let executor = TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let (head, body) = send.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    drop(send);
    connection.await.unwrap().unwrap();
    Response::from_parts(head, body)
}

fn get(address: SocketAddr, path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("host", address.to_string());
    request.body(Full::default()).unwrap()
}

/// A request of gRPC-Web: a frame with the message.
fn web(address: SocketAddr, uri: &str, name: &str) -> Request<Full<Bytes>> {
    let message = name.to_owned().encode_to_vec();
    let mut frame = BytesMut::from(&[0][..]);
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&message);
    Request::post(uri)
        .header("host", address.to_string())
        .header("content-type", "application/grpc-web+proto")
        .header("x-grpc-web", "1")
        .body(Full::new(frame.freeze()))
        .unwrap()
}

/// The frames of an answer of gRPC-Web: messages, then trailers.
fn frames(mut body: Bytes) -> (Vec<String>, String) {
    let (mut messages, mut trailers) = (Vec::new(), String::new());
    while body.has_remaining() {
        let flags = body.get_u8();
        let length = usize::try_from(body.get_u32()).unwrap();
        let frame = body.split_to(length);
        match flags {
            0 => messages.push(String::decode(frame).unwrap()),
            0x80 => trailers.push_str(std::str::from_utf8(&frame).unwrap()),
            other => panic!("a frame of kind {other}"),
        }
    }
    (messages, trailers)
}

#[tokio::test]
async fn pages_and_grpc_share_the_port() {
    let port = started().await;
    let address = port.address();
    let page = http1(address, get(address, "/")).await;
    assert_eq!(
        (page.status(), &page.body()[..]),
        (StatusCode::OK, &b"a page of the greeter\n"[..])
    );
    assert_eq!(http1(address, get(address, "/nothing")).await.status(), StatusCode::NOT_FOUND);
    let asked_wrongly = http1(address, get(address, "/greeter.Greeter/Hello")).await;
    assert_eq!(asked_wrongly.status(), StatusCode::METHOD_NOT_ALLOWED);

    let greeter = ForeignServer::new(address.to_string());
    assert_eq!(greeter.call(HELLO, &"Ada".into()).await.unwrap(), "hello, Ada");
    let mut replies = greeter.call(LETTERS, &"Ada".into()).stream().await.unwrap();
    let mut letters = Vec::new();
    while let Some(letter) = replies.next().await.unwrap() {
        letters.push(letter);
    }
    assert_eq!(letters, ["A", "d", "a"]);
    port.shutdown(GRACE).await.unwrap();
}

#[tokio::test]
async fn grpc_web_comes_in_over_both_versions_of_http() {
    let port = started().await;
    let address = port.address();
    let hello = http1(address, web(address, "/greeter.Greeter/Hello", "Ada")).await;
    assert_eq!(hello.status(), StatusCode::OK);
    assert_eq!(hello.headers()["content-type"], "application/grpc-web+proto");
    let (messages, trailers) = frames(hello.into_body());
    assert_eq!(messages, ["hello, Ada"]);
    assert!(trailers.contains("grpc-status:0"), "{trailers}");

    let uri = format!("http://{address}/greeter.Greeter/Letters");
    let letters = http2(address, web(address, &uri, "Ada")).await;
    let (messages, trailers) = frames(letters.into_body());
    assert_eq!(messages, ["A", "d", "a"]);
    assert!(trailers.contains("grpc-status:0"), "{trailers}");

    // A failure is told in the same way.
    let missing = http1(address, web(address, "/greeter.Greeter/Shout", "Ada")).await;
    let said = missing.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    let said = said.unwrap_or_else(|| frames(missing.into_body()).1);
    assert!(said.contains(&(Code::Unimplemented as i32).to_string()), "{said}");
    port.shutdown(GRACE).await.unwrap();
}

#[tokio::test]
async fn a_load_balancer_hears_the_health_of_the_node() {
    let port = started().await;
    let address = port.address();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await;
    let mut balancer = HealthClient::new(channel.unwrap());
    let whole = || HealthCheckRequest { service: String::new() };
    let checked = balancer.check(whole()).await.unwrap().into_inner().status();
    assert_eq!(checked, ServingStatus::Serving);
    assert_eq!(http1(address, get(address, "/healthz")).await.status(), StatusCode::OK);

    let mut watch = balancer.watch(whole()).await.unwrap().into_inner();
    let mut next = async || Some(watch.message().await.unwrap()?.status());
    assert_eq!(next().await, Some(ServingStatus::Serving));
    port.health().set("", ServingState::NotServing);
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    let by_http = http1(address, get(address, "/healthz")).await;
    assert_eq!(by_http.status(), StatusCode::SERVICE_UNAVAILABLE);
    port.health().set("", ServingState::Serving);
    assert_eq!(next().await, Some(ServingStatus::Serving));

    // The node stops: the watch says so and ends, so that it holds up nothing.
    port.health().stop();
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    drop(balancer);
    port.shutdown(GRACE).await.unwrap();
}

#[tokio::test]
async fn prometheus_scrapes_counters_and_buckets() {
    let port = started().await;
    let address = port.address();
    let greeter = ForeignServer::new(address.to_string());
    greeter.call(HELLO, &"Ada".into()).await.unwrap();
    let page = http1(address, get(address, "/metrics")).await.into_body();
    let page = std::str::from_utf8(&page).unwrap();
    let has = |name: &str, label: &str| {
        page.lines().any(|line| line.starts_with(name) && line.contains(label))
    };
    assert!(has("convoke_tasks_ended_total{", "method=\"greeter.Greeter/Hello\""), "{page}");
    for bound in ["0.001", "10", "+Inf"] {
        let label = format!("le=\"{bound}\"");
        assert!(has("convoke_task_duration_seconds_bucket{", &label), "{label}: {page}");
    }
    assert!(!page.contains("quantile="), "a summary cannot be added up over nodes: {page}");
    port.shutdown(GRACE).await.unwrap();
}

/// Of the connections that are open when the port ends, one has not got as far as a request.
#[tokio::test]
async fn no_connection_outlives_the_port() {
    let port = started().await;
    let address = port.address();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    // Connections are taken in order: when this one is answered, that one is there.
    http1(address, get(address, "/")).await;
    port.shutdown(Duration::from_millis(1)).await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(30), half.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "its connection is still there");
}

/// As a supervisor ends it.
#[cfg(unix)]
#[tokio::test]
async fn the_program_ends_in_good_order_at_sigterm() {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_edge-neighbours"));
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("it goes on").starts_with("by gRPC:") {}
    let asked = Command::new("kill").args(["-TERM", &child.id().unwrap().to_string()]).status();
    assert!(asked.unwrap().success());
    let ended = timeout(Duration::from_secs(30), child.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(0));
}

#[test]
fn the_program_runs() {
    let program = env!("CARGO_BIN_EXE_edge-neighbours");
    let output = Command::new(program).arg("--once").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("by gRPC:  hello, Ada"), "{text}");
}
