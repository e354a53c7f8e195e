//! Metadata of replies and failures, over real loopback sockets and whatever way a reply takes.

use convoke::transport::TcpTransport;
use convoke::{
    Code, Context, Deferred, Endpoint, EndpointBuilder, Finish, Metadata, Method, NodeId,
    SendError, Service, Status, Task, Way,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A read of so many bytes at the last of these nodes.
#[derive(Clone, PartialEq, prost::Message)]
struct Walk {
    #[prost(uint64, repeated, tag = "1")]
    route: Vec<u64>,
    #[prost(uint64, tag = "2")]
    len: u64,
}

/// Answers with as many bytes and a version.
const READ: Method<u64, Vec<u8>> = Method::new("test.Store/Read");
/// The same without a version.
const PLAIN: Method<u64, Vec<u8>> = Method::new("test.Store/Plain");
/// Fails, and says when to ask again.
const BUSY: Method<u64, Vec<u8>> = Method::new("test.Store/Busy");
/// Streams as many items, every second with its number as metadata.
const LIST: Method<u64, Vec<u8>> = Method::new("test.Store/List");
/// Goes along a route by tail transfers; the last node reads.
const HOPS: Method<Walk, Vec<u8>> = Method::new("test.Store/Hops");
/// Sets too much metadata, and answers with the error.
const MUCH: Method<u64, String> = Method::new("test.Store/Much");
/// Answers when the test does.
const LATER: Method<u64, Vec<u8>> = Method::new("test.Store/Later");

async fn read(len: u64, context: Context) -> std::result::Result<Vec<u8>, Status> {
    context.reply_metadata("version", "7")?;
    context.reply_metadata("raw", [0, 255])?;
    Ok(vec![1; usize::try_from(len).expect("it is small")])
}

async fn busy(_: u64, context: Context) -> std::result::Result<Vec<u8>, Status> {
    context.reply_metadata("retry-after", "3")?;
    Err(Status::new(Code::Unavailable, "busy"))
}

async fn list(count: u64, task: Task<Vec<u8>>) -> std::result::Result<Finish, Status> {
    let mut items = task.stream()?;
    for item in 0..count {
        if item % 2 == 1 {
            task.context().reply_metadata("item", item.to_string())?;
        }
        items.send(&vec![0; 20_000]).await?;
    }
    drop(items);
    task.context().reply_metadata("nobody", "takes this")?;
    Ok(task.finish())
}

async fn hops(mut walk: Walk, task: Task<Vec<u8>>) -> std::result::Result<Finish, Status> {
    if walk.route.is_empty() {
        let answer = read(walk.len, task.context().clone()).await?;
        return task.answer(&answer);
    }
    task.context().reply_metadata("dropped", "with a task that does not reply")?;
    let next = NodeId::new(walk.route.remove(0));
    Ok(task.tail(next, HOPS.request(walk)).await?)
}

async fn much(_: u64, context: Context) -> std::result::Result<String, Status> {
    context.reply_metadata("little", "but taken")?;
    let refused = context.reply_metadata("much", vec![b'x'; 16_000]);
    assert!(matches!(refused, Err(SendError::MetadataTooLarge { limit: 16_000, .. })));
    assert!(context.reply_metadata(&"k".repeat(256), "").is_err());
    Ok("refused".to_owned())
}

fn store(later: UnboundedSender<Deferred<Vec<u8>>>) -> Service {
    Service::new()
        .unary(READ, read)
        .unary(PLAIN, |len, _| async move { Ok(vec![1; usize::try_from(len).expect("small")]) })
        .unary(BUSY, busy)
        .unary(MUCH, much)
        .tree(LIST, list)
        .tree(HOPS, hops)
        .tree(LATER, move |_, task: Task<Vec<u8>>| {
            let (deferred, finish) = task.defer();
            let _ = later.send(deferred);
            async { Ok(finish) }
        })
}

fn listening(node: u64) -> EndpointBuilder {
    let builder = Endpoint::builder().transport(TcpTransport::new()).node(NodeId::new(node));
    builder.listen("tcp://127.0.0.1:0")
}

fn builder(node: u64) -> EndpointBuilder {
    let (later, _) = unbounded_channel();
    listening(node).serve(store(later))
}

async fn pair() -> Result<(Endpoint, Endpoint)> {
    let client = Endpoint::builder().transport(TcpTransport::new()).start().await?;
    Ok((builder(1).start().await?, client))
}

fn pairs(metadata: Metadata<'_>) -> Vec<(&str, &[u8])> {
    metadata.iter().collect()
}

const VERSION: [(&str, &[u8]); 2] = [("version", b"7"), ("raw", &[0, 255])];

#[tokio::test]
async fn a_reply_has_the_metadata_that_its_handler_gave_it() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    // Whole, and in parts behind a credit.
    for len in [0, 100, 1 << 20] {
        let reply = client.call(READ, len).to(to).open()?.first().await?;
        assert_eq!(
            (pairs(reply.metadata()), reply.message().len()),
            (VERSION.to_vec(), usize::try_from(len)?)
        );
    }
    let local = server.call(READ, 1).to(server.me()).open()?.first().await?;
    assert_eq!((local.way(), local.metadata().text("version")), (Way::Local, Some("7")));
    Ok(())
}

#[tokio::test]
async fn a_failure_has_the_metadata_that_no_reply_took() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    let error = client.call(BUSY, 0).to(to).await.expect_err("it is busy");
    let failure = error.failure().ok_or("the service failed")?;
    assert_eq!(failure.metadata().text("retry-after"), Some("3"));
    Ok(())
}

#[tokio::test]
async fn each_item_of_a_stream_has_its_own() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    let (replies, outcome) = client.call(LIST, 40).to(to).open()?.collect().await?;
    assert!(outcome.is_complete());
    let numbers: Vec<_> = replies.iter().map(|reply| reply.metadata().text("item")).collect();
    let expected: Vec<_> = (0..40).map(|item| (item % 2 == 1).then(|| item.to_string())).collect();
    assert_eq!(numbers, expected.iter().map(Option::as_deref).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn it_comes_from_the_task_that_replies_directly_or_by_relays() -> Result {
    let (third, known) = (builder(3).start().await?, builder(9).start().await?);
    third.peer(known.node(), known.addresses())?;
    let second = builder(2).peer(third.node(), third.addresses()).start().await?;
    let first = builder(1).peer(second.node(), second.addresses()).start().await?;
    let unknown = pair().await?.1;
    for (initiator, way) in [(&known, Way::Direct), (&unknown, Way::Relayed)] {
        let to = initiator.connect(first.addresses()).await?;
        for len in [10, 100_000] {
            let walk = Walk { route: vec![2, 3], len };
            let reply = initiator.call(HOPS, walk).to(to).open()?.first().await?;
            assert_eq!((reply.way(), pairs(reply.metadata())), (way, VERSION.to_vec()));
        }
    }
    Ok(())
}

#[tokio::test]
async fn too_much_is_refused_and_what_was_taken_leaves() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    let reply = client.call(MUCH, 0).to(to).open()?.first().await?;
    assert_eq!(reply.message(), "refused");
    assert_eq!(pairs(reply.metadata()), [("little", &b"but taken"[..])]);
    Ok(())
}

#[tokio::test]
async fn a_deferred_answer_has_it_and_a_task_that_is_over_takes_none() -> Result {
    let (later, mut queue) = unbounded_channel();
    let server = listening(1).serve(store(later)).start().await?;
    let client = pair().await?.1;
    let to = client.connect(server.addresses()).await?;
    let call = client.call(LATER, 0).to(to).open()?;
    let deferred = queue.recv().await.ok_or("it was asked")?;
    let context = deferred.task().context().clone();
    context.reply_metadata("version", "7")?;
    deferred.answer(&Vec::new())?;
    assert_eq!(context.reply_metadata("late", ""), Err(SendError::Ended));
    assert_eq!(pairs(call.first().await?.metadata()), VERSION[..1]);
    Ok(())
}

#[tokio::test]
async fn metadata_costs_its_own_bytes_and_no_frame() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    let received = async |method: Method<u64, Vec<u8>>| -> Result<(u64, u64)> {
        client.call(method, 10).to(to).await?;
        let before = client.counters();
        client.call(method, 10).to(to).await?;
        let after = client.counters();
        let frames = after.frames_received - before.frames_received;
        Ok((frames, after.bytes_received - before.bytes_received))
    };
    let (plain, with) = (received(PLAIN).await?, received(READ).await?);
    let pair = |key: &str, value: &[u8]| (1 + 1 + 1 + key.len() + value.len()) as u64;
    let own = 1 + VERSION.iter().map(|(key, value)| pair(key, value)).sum::<u64>();
    assert_eq!(with, (plain.0, plain.1 + own));
    Ok(())
}
