//! Trace context along a tree whose nodes record no spans: it is handed on as it came. Its own
//! program, so that no other test installs a subscriber.

#![cfg(feature = "tcp")]

use convoke::telemetry::TraceContext;
use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, Finish, Method, Peer, Service, Status, Task};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const HAND_ON: Method<String, String> = Method::new("test.Test/HandOn");
const TRACE: Method<String, String> = Method::new("test.Test/Trace");

async fn hand_on(request: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    let back = Peer::from(task.context().parent());
    Ok(task.tail(&back, TRACE.request(request)).await?)
}

async fn trace(_: String, context: Context) -> std::result::Result<String, Status> {
    Ok(context.trace_context().map(|trace| trace.to_string()).unwrap_or_default())
}

async fn node() -> Result<Endpoint> {
    let service = Service::new().tree(HAND_ON, hand_on).unary(TRACE, trace);
    let builder = Endpoint::builder().transport(TcpTransport::new());
    Ok(builder.listen("tcp://127.0.0.1:0").serve(service).start().await?)
}

#[tokio::test]
async fn it_goes_through_tasks_that_record_nothing() -> Result {
    let (client, server) = (node().await?, node().await?);
    let peer = client.connect(server.addresses()).await?;
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = HAND_ON.request(String::new()).trace_context(header.parse()?);
    assert_eq!(client.invoke(request).to(peer).await?, header);
    Ok(())
}

#[tokio::test]
async fn where_there_is_none_none_is_made_up() -> Result {
    let (client, server) = (node().await?, node().await?);
    let peer = client.connect(server.addresses()).await?;
    let request = HAND_ON.request(String::new());
    assert_eq!(client.invoke(request).to(peer).await?, "");
    Ok(())
}

#[tokio::test]
async fn a_branch_may_be_given_another() -> Result {
    let other = TraceContext::root();
    let service = Service::new().tree(HAND_ON, move |request, task: Task<String>| async move {
        let back = Peer::from(task.context().parent());
        Ok(task.tail(&back, TRACE.request(request).trace_context(other)).await?)
    });
    let builder = Endpoint::builder().transport(TcpTransport::new());
    let server = builder.listen("tcp://127.0.0.1:0").serve(service).start().await?;
    let client = node().await?;
    let peer = client.connect(server.addresses()).await?;
    let request = HAND_ON.request(String::new()).trace_context(TraceContext::root());
    let seen: TraceContext = client.invoke(request).to(peer).await?.parse()?;
    assert_eq!(seen, other);
    Ok(())
}
