//! Compression of large messages between endpoints that were told to, and nobody else.

#![cfg(all(feature = "tcp", feature = "zstd"))]

use convoke::transport::TcpTransport;
use convoke::{
    CallError, Compression, Context, Endpoint, EndpointBuilder, Finish, Limits, Method, NodeId,
    Peer, Service, Status, Task,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ECHO: Method<String, String> = Method::new("test.Test/Echo");
const HAND_ON: Method<String, String> = Method::new("test.Test/HandOn");
const NEVER: Method<String, String> = Method::new("test.Test/Never");
const STREAM: Method<String, String> = Method::new("test.Test/Stream");

/// Delegates to the node 3, which everybody here knows.
async fn hand_on(text: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    let third = Peer::from(NodeId::new(3));
    Ok(task.tail(&third, ECHO.request(text)).await?)
}

async fn stream(text: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    let mut stream = task.stream()?;
    for _ in 0..3 {
        stream.send(&text).await?;
    }
    drop(stream);
    Ok(task.finish())
}

fn node(number: u64, compression: Option<Compression>) -> EndpointBuilder {
    let service = Service::new()
        .unary(ECHO, |text: String, context: Context| async move {
            context.reply_metadata("length", text.len().to_string())?;
            Ok::<_, Status>(text)
        })
        .tree(HAND_ON, hand_on)
        .unary(NEVER, |_: String, _| std::future::pending::<std::result::Result<String, _>>())
        .tree(STREAM, stream);
    let node = NodeId::new(number);
    let builder = Endpoint::builder().transport(TcpTransport::new()).node(node).serve(service);
    let builder = builder.listen("tcp://127.0.0.1:0");
    compression.into_iter().fold(builder, EndpointBuilder::compression)
}

fn text() -> String {
    "the same again and again, ".repeat(8_000)
}

/// A client and a server that know each other well enough: their FEATURES have come.
async fn pair(
    at_client: Option<Compression>,
    at_server: Option<Compression>,
) -> Result<(Endpoint, Endpoint, Peer)> {
    let (server, client) = (node(2, at_server).start().await?, node(1, at_client).start().await?);
    let peer = client.connect(server.addresses()).await?;
    client.call(ECHO, "first".into()).to(peer).await?;
    Ok((client, server, peer))
}

/// Bytes that an exchange takes on the wire, there and back.
async fn exchange(client: &Endpoint, peer: &Peer) -> Result<(u64, u64)> {
    let before = client.counters();
    let answer = client.call(ECHO, text()).to(peer).await?;
    assert_eq!(answer, text());
    let after = client.counters();
    Ok((after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received))
}

#[tokio::test]
async fn two_endpoints_that_were_told_to_compress_in_both_directions() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let (client, _server, peer) = pair(how, how).await?;
    let (sent, received) = exchange(&client, &peer).await?;
    assert!(sent < 2_000 && received < 2_000, "{sent} sent, {received} received");
    let reply = client.call(ECHO, text()).to(peer).open()?.first().await?;
    let length = text().len().to_string();
    assert_eq!(reply.metadata().text("length"), Some(&length[..]), "it is beside what is packed");
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_was_not_told_to_is_sent_nothing_compressed() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let size = text().len() as u64;
    for (at_client, at_server) in [(how, None), (None, how), (None, None)] {
        let (client, _server, peer) = pair(at_client, at_server).await?;
        let (sent, received) = exchange(&client, &peer).await?;
        assert!(sent > size && received > size, "{sent} sent, {received} received");
    }
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_only_accepts_sends_plain_and_is_sent_compressed() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let (client, _server, peer) = pair(Some(Compression::accept_only()), how).await?;
    let (sent, received) = exchange(&client, &peer).await?;
    assert!(sent > text().len() as u64 && received < 2_000, "{sent} sent, {received} received");
    Ok(())
}

#[tokio::test]
async fn what_is_below_the_threshold_is_sent_as_it_is() -> Result {
    let how = Some(Compression::zstd_from(1_000_000));
    let (client, _server, peer) = pair(how, how).await?;
    let (sent, received) = exchange(&client, &peer).await?;
    assert!(sent > text().len() as u64 && received > text().len() as u64);
    Ok(())
}

#[tokio::test]
async fn a_reply_is_compressed_for_the_initiator_however_far_its_task_is() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    // The second node, in the middle, was not told to: what it hands on is plain, and the third
    // replies to the initiator, which takes it compressed.
    let third = node(3, how).start().await?;
    let address = third.addresses()[0].to_string();
    let second = node(2, None).peer(third.node(), [&address]).start().await?;
    let client = node(1, how).start().await?;
    let peer = client.connect(second.addresses()).await?;
    client.connect(&address).await?;
    let before = client.counters();
    let answer = client.call(HAND_ON, text()).to(peer).await?;
    assert_eq!(answer, text());
    let after = client.counters();
    assert!(after.bytes_received - before.bytes_received < 2_000);
    assert!(after.bytes_sent - before.bytes_sent > text().len() as u64);
    Ok(())
}

#[tokio::test]
async fn items_of_a_stream_are_compressed_each() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let (client, _server, peer) = pair(how, how).await?;
    let before = client.counters();
    let call = client.call(STREAM, text()).to(peer).open()?;
    let (replies, outcome) = call.collect().await?;
    assert!(outcome.is_complete());
    let items: Vec<&str> = replies.iter().map(|reply| reply.message().as_str()).collect();
    assert_eq!(items, [text(), text(), text()]);
    assert!(client.counters().bytes_received - before.bytes_received < 4_000);
    Ok(())
}

#[tokio::test]
async fn the_limit_counts_what_a_message_is_and_not_what_it_was_packed_to() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let mut small = Limits::default();
    small.message_bytes_max = 100_000;
    let server = node(2, how).limits(small.clone()).start().await?;
    let client = node(1, how).start().await?;
    let peer = client.connect(server.addresses()).await?;
    client.call(ECHO, "first".into()).to(peer).await?;
    // 208 KB, packed to some bytes: a bomb for the server, which alone refuses it.
    let error = client.call(ECHO, text()).to(peer).await;
    let error = error.expect_err("it is too large for the server");
    let failure = error.failure().expect("the branch failed");
    assert_eq!(failure.cause, convoke::Cause::BadRequest);
    assert!(failure.text.contains("message_bytes_max, 100000"), "{failure}");
    assert!(error.is_safe_to_repeat());
    let call = client.call(ECHO, "after it".into()).to(peer);
    assert_eq!(call.await?, "after it");

    // And the other way round: a reply too large for its initiator.
    let big = Service::new().unary(STREAM, |_, _: Context| async { Ok::<_, Status>(text()) });
    let server = Endpoint::builder().transport(TcpTransport::new()).listen("tcp://127.0.0.1:0");
    let server = server.serve(big).compression(Compression::zstd_from(1_000)).start().await?;
    let client = node(4, how).limits(small).start().await?;
    let peer = client.connect(server.addresses()).await?;
    let error = client.call(STREAM, "a".into()).to(peer).await;
    let error = error.expect_err("it is too large for the client");
    assert!(matches!(error, CallError::Decode { .. }), "{error}");
    assert!(error.to_string().contains("message_bytes_max, 100000"), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_packed_requests_take_while_their_tasks_run_is_bounded() -> Result {
    let how = Some(Compression::zstd_from(1_000));
    let mut limits = Limits::default();
    limits.running_request_bytes_max = 40 * 208_000; // of which the client has twenty texts
    let server = node(2, how).limits(limits).start().await?;
    let client = node(1, how).start().await?;
    let peer = client.connect(server.addresses()).await?;
    client.call(ECHO, "first".into()).to(peer).await?;
    let ask = || client.call(ECHO, text()).to(peer);
    let never = || client.call(NEVER, text()).to(peer).open();
    let mut held: Vec<_> = (0..19).map(|_| never()).collect::<std::result::Result<_, _>>()?;
    assert_eq!(ask().await?, text(), "there is room for one more");
    held.push(never()?);
    let error = ask().await.expect_err("there is none");
    assert_eq!(error.failure().map(|failure| failure.cause), Some(convoke::Cause::Overloaded));
    assert!(error.is_safe_to_repeat());
    drop(held);
    while ask().await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(())
}
