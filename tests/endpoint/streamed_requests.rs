//! Streamed requests over every transport: client streaming, both directions, and every way they
//! end early.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{
    CallError, Cause, Code, Context, End, Endpoint, EndpointBuilder, Executed, Finish, Items,
    ItemsError, Limits, Method, NodeId, Peer, SendError, Service, Status, Task,
};
use tokio::sync::{Semaphore, mpsc};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
type Handled<T> = std::result::Result<T, Status>;

/// Adds up the bytes.
const COUNT: Method<Items<Vec<u8>>, u64> = Method::new("stream.Test/Count");
/// Gives each item back as it comes.
const CHAT: Method<Items<String>, String> = Method::new("stream.Test/Chat");
/// Reads so many items and answers with their number.
const FIRST: Method<Items<Vec<u8>>, u64> = Method::new("stream.Test/First");
/// Answers what it has read once it is let, an item after the other.
const HELD: Method<Items<Vec<u8>>, u64> = Method::new("stream.Test/Held");
/// Reads to the end elsewhere than in the handler, and says how that was.
const APART: Method<Items<Vec<u8>>, u64> = Method::new("stream.Test/Apart");
/// Returns while a part of it that was spawned still reads.
const LEFT: Method<Items<Vec<u8>>, u64> = Method::new("stream.Test/Left");
/// Streams until it would have to wait, then tries an item that is too large.
const FILL: Method<u64, Vec<u8>> = Method::new("stream.Test/Fill");
/// Doubles a number.
const DOUBLE: Method<u64, u64> = Method::new("stream.Test/Double");

struct Streams {
    /// Items that HELD may read.
    may_read: Semaphore,
    read: AtomicU64,
    ends: mpsc::UnboundedSender<std::result::Result<u64, ItemsError>>,
}

impl Streams {
    async fn count(&self, mut items: Items<Vec<u8>>, context: Context) -> Handled<u64> {
        let mut count = 0;
        while let Some(item) = items.next().await {
            count += item?.len() as u64;
        }
        if context.metadata().get("fail").is_some() {
            return Err(Status::new(Code::Aborted, format!("{count} bytes")));
        }
        Ok(count)
    }

    async fn chat(&self, mut lines: Items<String>, task: Task<String>) -> Handled<Finish> {
        let mut answers = task.stream()?;
        while let Some(line) = lines.next().await {
            answers.send(&line?.to_uppercase()).await?;
        }
        drop(answers);
        Ok(task.finish())
    }

    async fn first(&self, mut items: Items<Vec<u8>>, context: Context) -> Handled<u64> {
        let wanted = context.metadata().text("items").and_then(|n| n.parse().ok()).unwrap_or(1);
        let mut count = 0;
        while count < wanted
            && let Some(item) = items.next().await
        {
            item?;
            count += 1;
        }
        Ok(count)
    }

    async fn held(&self, mut items: Items<Vec<u8>>, _: Context) -> Handled<u64> {
        loop {
            self.may_read.acquire().await.expect("it is never closed").forget();
            let Some(item) = items.next().await else { break };
            item?;
            self.read.fetch_add(1, Ordering::SeqCst);
        }
        Ok(self.read.load(Ordering::SeqCst))
    }

    async fn left(&self, mut items: Items<Vec<u8>>, task: Task<u64>) -> Handled<Finish> {
        let (ends, reads) = (self.ends.clone(), Arc::new(tokio::sync::Notify::new()));
        let reading = reads.clone();
        tokio::spawn(async move {
            let mut end = pin!(items.next());
            assert!(once(end.as_mut()).await.is_pending(), "nothing was sent");
            reading.notify_one();
            ends.send(end.await.map_or(Ok(0), |item| item.map(|_| 1)))
        });
        reads.notified().await;
        Ok(task.finish())
    }

    async fn apart(&self, mut items: Items<Vec<u8>>, task: Task<u64>) -> Handled<Finish> {
        let (later, finish) = task.defer();
        let ends = self.ends.clone();
        tokio::spawn(async move {
            let mut count = 0;
            let end = loop {
                match items.next().await {
                    Some(Ok(_)) => count += 1,
                    Some(Err(error)) => break Err(error),
                    None => break Ok(count),
                }
            };
            let _ = later.answer(&count);
            ends.send(end)
        });
        Ok(finish)
    }
}

/// Polls a future once.
async fn once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

async fn fill(_: u64, task: Task<Vec<u8>>) -> Handled<Finish> {
    let mut items = task.stream()?;
    while let Poll::Ready(sent) = once(items.send(&vec![0; 10_000])).await {
        sent?;
    }
    let refused = once(items.send(&vec![0; Limits::default().message_bytes_max])).await;
    assert!(matches!(refused, Poll::Ready(Err(SendError::TooLarge { .. }))), "{refused:?}");
    drop(items);
    Ok(task.finish())
}

type Ends = mpsc::UnboundedReceiver<std::result::Result<u64, ItemsError>>;

fn service() -> (Service, Arc<Streams>, Ends) {
    let (ends, ended) = mpsc::unbounded_channel();
    let (may_read, read) = (Semaphore::new(0), AtomicU64::new(0));
    let streams = Arc::new(Streams { may_read, read, ends });
    let service = Service::with_arc(streams.clone())
        .unary(COUNT, Streams::count)
        .tree(CHAT, Streams::chat)
        .unary(FIRST, Streams::first)
        .unary(HELD, Streams::held)
        .tree(APART, Streams::apart)
        .tree(LEFT, Streams::left)
        .and(|service| {
            service
                .tree(FILL, fill)
                .unary(DOUBLE, |n: u64, _: Context| async move { Ok::<_, Status>(2 * n) })
        });
    (convoke::IntoService::into_service(service), streams, ended)
}

/// A server and a client of it.
struct Pair {
    server: Endpoint,
    client: Endpoint,
    to: Peer,
    streams: Arc<Streams>,
    ends: Ends,
}

impl Pair {
    async fn over(scheme: &str, server: EndpointBuilder, client: EndpointBuilder) -> Result<Self> {
        let (service, streams, ends) = service();
        let server =
            server.listen(format!("{scheme}://127.0.0.1:0")).serve(service).start().await?;
        let client = client.start().await?;
        let to = client.connect(server.addresses()).await?;
        Ok(Self { server, client, to, streams, ends })
    }

    async fn tcp() -> Result<Self> {
        let builder = |node| tcp(node, Limits::default());
        Self::over("tcp", builder(1), builder(2)).await
    }
}

fn tcp(node: u64, limits: Limits) -> EndpointBuilder {
    let builder = Endpoint::builder().transport(TcpTransport::new());
    builder.node(NodeId::new(node)).limits(limits)
}

/// The kinds of streams that must work over any transport.
async fn serves_streams(pair: Pair) -> Result {
    let Pair { server, client, to, streams, .. } = pair;
    // Client streaming: small items, an empty one, one beyond the window.
    let (mut items, call) = client.call_stream(COUNT).to(to).open()?;
    let sizes = [1, 0, 1_000, 600_000].into_iter().chain([100; 2_000]);
    let mut sum = 0;
    for size in sizes {
        items.send(&vec![7; size]).await?;
        sum += size as u64;
    }
    items.finish();
    assert_eq!(call.first().await?.into_inner(), sum);

    // Both directions, in turn.
    let (mut lines, mut call) = client.call_stream(CHAT).to(to).open()?;
    for text in ["one", "two", "three"] {
        lines.send(&text.to_owned()).await?;
        let reply = call.next().await.expect("it is answered")?;
        assert_eq!(*reply.message(), text.to_uppercase());
    }
    // And both at once.
    let sending = async {
        for n in 0..3_000 {
            lines.send(&format!("line {n}")).await?;
        }
        lines.finish();
        Ok::<_, SendError>(())
    };
    let reading = async {
        let mut count = 0;
        while let Some(reply) = call.next().await {
            assert_eq!(*reply?.message(), format!("LINE {count}"));
            count += 1;
        }
        Ok::<_, CallError>(count)
    };
    let (sent, read) = tokio::join!(sending, reading);
    sent?;
    assert_eq!((read?, call.end()), (3_000, Some(End::Complete)));

    // A reader that does not read holds its caller back.
    let (mut items, call) = client.call_stream(HELD).to(to).open()?;
    let mut sent = 0;
    let full = loop {
        let item = vec![0; 10_000];
        let mut sending = pin!(items.send(&item));
        match tokio::time::timeout(Duration::from_millis(200), &mut sending).await {
            Ok(done) => done?,
            Err(_) => break sent,
        }
        sent += 1;
    };
    let window = Limits::default().stream_window_bytes / 10_000;
    assert!((1..=window + 2).contains(&full), "{full} items wait, of {window}");
    streams.may_read.add_permits(1_000);
    for _ in 0..100 {
        items.send(&vec![0; 10_000]).await?;
    }
    items.finish();
    let read = call.first().await?.into_inner();
    assert_eq!(read, full + 100);
    for endpoint in [client, server] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn tcp_serves_streamed_requests() -> Result {
    serves_streams(Pair::tcp().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_threads_serve_streamed_requests() -> Result {
    serves_streams(Pair::tcp().await?).await
}

/// Reading makes room, of which the server is told, while another thread sends items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_read_on_one_thread_and_sent_to_on_another() -> Result {
    const LINES: usize = 20_000;
    let mut limits = Limits::default();
    // So small that every other line that is read makes room.
    (limits.unscheduled_bytes, limits.stream_window_bytes) = (64, 64);
    let pair = Pair::over("tcp", tcp(1, limits.clone()), tcp(2, limits)).await?;
    let chat = pair.client.call_stream(CHAT).deadline(Duration::from_secs(300));
    let (mut lines, mut call) = chat.to(pair.to).open()?;
    let sending = tokio::spawn(async move {
        for _ in 0..LINES {
            lines.send(&"line".to_owned()).await?;
        }
        lines.finish();
        Ok::<_, SendError>(())
    });
    let mut count = 0;
    while let Some(reply) = call.next().await {
        assert_eq!(*reply?.message(), "LINE");
        count += 1;
    }
    sending.await??;
    assert_eq!((count, call.end()), (LINES, Some(End::Complete)));
    Ok(())
}

/// By defaults, more than a connection queues, from callers whose items are all granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_items_at_once_reach_who_reads_them() -> Result {
    let Pair { server: _server, client, to, .. } = Pair::tcp().await?;
    for (calls, bytes) in [(8, 4_000_000), (40, 1_000_000), (300, 300_000)] {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..calls {
            let count = client.call_stream(COUNT).deadline(Duration::from_secs(60));
            let (mut items, call) = count.to(to).open()?;
            tasks.spawn(async move {
                items.send(&vec![7; bytes]).await?;
                items.finish();
                Ok::<_, Status>(call.first().await?.into_inner())
            });
        }
        for counted in tasks.join_all().await {
            assert_eq!(counted?, bytes as u64);
        }
    }
    Ok(())
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_serves_streamed_requests() -> Result {
    let authority = crate::certificates::Authority::new();
    let builder =
        |node| Endpoint::builder().transport(TcpTransport::tls(identity(&authority, node)));
    serves_streams(Pair::over("tls", builder(1), builder(2)).await?).await
}

#[cfg(feature = "quic")]
#[tokio::test]
async fn quic_serves_streamed_requests() -> Result {
    use convoke::transport::QuicTransport;
    let authority = crate::certificates::Authority::new();
    let builder =
        |node| Endpoint::builder().transport(QuicTransport::new(identity(&authority, node)));
    serves_streams(Pair::over("quic", builder(1), builder(2)).await?).await
}

#[cfg(any(feature = "quic", feature = "tls"))]
fn identity(authority: &crate::certificates::Authority, node: u64) -> convoke::transport::Identity {
    let issued = authority.issue([node]);
    convoke::transport::Identity::from_pem(issued.certificate, issued.key, authority.pem())
        .expect("it is good")
}

#[cfg(feature = "grpc")]
#[tokio::test]
async fn grpc_serves_streamed_requests() -> Result {
    use convoke::transport::GrpcTransport;
    let builder = || Endpoint::builder().transport(GrpcTransport::new());
    serves_streams(Pair::over("grpc", builder(), builder()).await?).await
}

#[cfg(feature = "rdma-simulated")]
#[tokio::test]
async fn rdma_serves_streamed_requests() -> Result {
    use convoke::rdma::provider::simulated::Fabric;
    use convoke::transport::RdmaTransport;
    let fabric = Fabric::new();
    let builder = || Endpoint::builder().transport(RdmaTransport::new(fabric.device()));
    serves_streams(Pair::over("rdma", builder(), builder()).await?).await
}

#[tokio::test]
async fn a_node_streams_to_itself() -> Result {
    let (service, streams, ends) = service();
    let server = tcp(1, Limits::default()).serve(service).start().await?;
    let (client, to) = (server.clone(), server.me());
    serves_streams(Pair { server, client, to, streams, ends }).await
}

/// Items of a sender share their writes, and cost a frame each.
#[tokio::test]
async fn an_item_costs_one_frame_and_credit_comes_for_half_a_window() -> Result {
    let mut patient = Limits::default();
    (patient.worry_min, patient.worry_max) = (Duration::from_secs(9), Duration::from_secs(9));
    let pair = Pair::over("tcp", tcp(1, patient.clone()), tcp(2, patient));
    let Pair { server, client, to, .. } = pair.await?;
    let (mut items, call) = client.call_stream(COUNT).to(to).open()?;
    items.send(&vec![0; 100]).await?;
    let before = (client.counters(), server.counters());
    for _ in 0..10_000 {
        items.send(&vec![0; 100]).await?;
    }
    items.finish();
    assert_eq!(call.first().await?.into_inner(), 1_000_100);
    let after = (client.counters(), server.counters());
    let credits = after.1.frames_sent - before.1.frames_sent - 1;
    // An item that has credit for a part of it is two.
    let frames = after.0.frames_sent - before.0.frames_sent;
    assert!((10_001..=10_001 + credits).contains(&frames), "{frames} frames, {credits} credits");
    // 1,030,000 bytes at half a window each, and the first.
    assert!((7..=10).contains(&credits), "{credits} credits");
    let writes = after.0.writes - before.0.writes;
    assert!(writes <= 10_001 / 20, "{writes} writes");
    Ok(())
}

#[tokio::test]
async fn a_task_may_end_before_its_items() -> Result {
    let Pair { server: _server, client, to, .. } = Pair::tcp().await?;
    let call = client.call_stream(FIRST).metadata("items", "3").to(to);
    let (mut items, call) = call.open()?;
    let ended = loop {
        if let Err(error) = items.send(&vec![1; 1_000]).await {
            break error;
        }
    };
    assert_eq!(ended, SendError::Ended);
    assert_eq!(items.send(&vec![1]).await, Err(SendError::Ended));
    assert_eq!(call.first().await?.into_inner(), 3);
    // A failure comes by the call.
    let (mut items, call) = client.call_stream(COUNT).metadata("fail", "1").to(to).open()?;
    items.send(&vec![1; 50]).await?;
    items.finish();
    let error = call.first().await.unwrap_err();
    assert_eq!(error.status().map(|status| status.message().to_owned()), Some("50 bytes".into()));
    Ok(())
}

#[tokio::test]
async fn settings_may_follow_the_peer_as_in_other_calls() -> Result {
    let Pair { server: _server, client, to, .. } = Pair::tcp().await?;
    let call = client.call_stream(FIRST).to(to).metadata("items", "2").trace();
    let call = call.deadline(Duration::from_secs(3));
    assert_eq!(call.budget(), Duration::from_secs(3));
    let (mut items, mut call) = call.open()?;
    for _ in 0..2 {
        items.send(&vec![1]).await?;
    }
    assert_eq!(call.next().await.expect("it answers")?.into_inner(), 2);
    assert!(!call.trace().is_empty());
    Ok(())
}

/// A task never takes a part for the whole.
#[tokio::test]
async fn an_unfinished_stream_ends_with_an_error() -> Result {
    let Pair { server, client, to, mut ends, .. } = Pair::tcp().await?;
    let (mut items, call) = client.call_stream(APART).to(to).open()?;
    items.send(&vec![1]).await?;
    drop(items);
    assert_eq!(call.outcome().await.end, End::Cancelled);
    assert!(ends.recv().await.expect("it ended").is_err());

    // So does one whose call is dropped, but not one that is let run.
    let (mut items, call) = client.call_stream(APART).to(to).open()?;
    items.send(&vec![1]).await?;
    drop(call);
    assert_eq!(items.send(&vec![1]).await, Err(SendError::Ended));
    assert!(ends.recv().await.expect("it ended").is_err());

    let (mut items, call) = client.call_stream(APART).to(to).open()?;
    call.let_run();
    items.send(&vec![1]).await?;
    items.finish();
    assert_eq!(ends.recv().await.expect("it ended"), Ok(1));

    let (mut items, call) = client.call_stream(APART).to(to).open()?;
    call.let_run();
    items.send(&vec![1]).await?;
    drop(items);
    assert!(ends.recv().await.expect("it ended").is_err(), "finishing is what was left out");

    // And one that comes from a node that is gone.
    let other = tcp(3, Limits::default()).start().await?;
    let to = other.connect(server.addresses()).await?;
    let (mut items, call) = other.call_stream(APART).to(to).open()?;
    items.send(&vec![1]).await?;
    call.let_run();
    other.shutdown(Duration::ZERO).await;
    drop(items);
    assert!(ends.recv().await.expect("it ended").is_err());
    Ok(())
}

/// Its handler is gone, so nothing was dropped that would have told it.
#[tokio::test]
async fn a_part_that_still_reads_is_told_that_its_endpoint_has_closed() -> Result {
    let Pair { server, client, to, mut ends, .. } = Pair::tcp().await?;
    let (mut items, _call) = client.call_stream(APART).to(to).open()?;
    items.send(&vec![1]).await?;
    // The part waits for an item, and the token for its end.
    while server.load().waiting < 2 {
        tokio::task::yield_now().await;
    }
    server.shutdown(Duration::ZERO).await;
    let end = tokio::time::timeout(Duration::from_secs(30), ends.recv()).await?;
    assert!(end.expect("it ended").is_err());
    Ok(())
}

/// Its waker was dropped with the task, and nobody called it any more.
#[tokio::test]
async fn a_part_that_still_reads_is_told_that_its_task_is_over() -> Result {
    let Pair { server: _server, client, to, mut ends, .. } = Pair::tcp().await?;
    let (_items, call) = client.call_stream(LEFT).to(to).open()?;
    let end = tokio::time::timeout(Duration::from_secs(30), ends.recv()).await?;
    assert!(end.expect("it ended").is_err());
    assert!(call.outcome().await.is_complete());
    Ok(())
}

#[tokio::test]
async fn a_stream_lives_within_its_deadline() -> Result {
    let Pair { server: _server, client, to, mut ends, .. } = Pair::tcp().await?;
    let call = client.call_stream(APART).deadline(Duration::from_millis(50)).to(to);
    let (mut items, call) = call.open()?;
    items.send(&vec![1]).await?;
    let outcome = call.outcome().await;
    assert_eq!(outcome.failures.first().map(|failure| failure.cause), Some(Cause::Deadline));
    assert_eq!(items.send(&vec![1]).await, Err(SendError::Ended));
    assert!(ends.recv().await.expect("it ended").is_err());
    Ok(())
}

#[tokio::test]
async fn a_server_that_goes_away_ends_its_streams() -> Result {
    let Pair { server, client, to, .. } = Pair::tcp().await?;
    let (mut items, call) = client.call_stream(HELD).to(to).open()?;
    items.send(&vec![1]).await?;
    server.shutdown(Duration::ZERO).await;
    let ended = loop {
        if let Err(error) = items.send(&vec![1; 1_000]).await {
            break error;
        }
    };
    assert!(matches!(ended, SendError::Lost | SendError::Ended), "{ended:?}");
    assert!(!call.outcome().await.is_complete());
    Ok(())
}

#[tokio::test]
async fn a_method_is_called_as_it_is() -> Result {
    const DOUBLE_STREAMED: Method<Items<u64>, u64> = Method::new("stream.Test/Double");
    const COUNT_PLAIN: Method<Vec<u8>, u64> = Method::new("stream.Test/Count");
    const NOWHERE: Method<Items<u64>, u64> = Method::new("stream.Test/Nowhere");
    let Pair { server: _server, client, to, .. } = Pair::tcp().await?;
    let refused = |error: CallError| {
        let failure = error.failure().expect("its branch failed").clone();
        assert_eq!(failure.executed, Executed::No);
        (failure.cause, failure.text)
    };
    let (mut items, call) = client.call_stream(DOUBLE_STREAMED).to(to).open()?;
    let (cause, text) = refused(call.first().await.unwrap_err());
    assert_eq!(cause, Cause::BadRequest);
    assert!(text.contains("one request"), "{text}");
    assert_eq!(items.send(&1).await, Err(SendError::Ended));
    let (cause, text) = refused(client.call(COUNT_PLAIN, vec![1]).to(to).await.unwrap_err());
    assert_eq!(cause, Cause::BadRequest);
    assert!(text.contains("call_stream"), "{text}");
    let (_items, call) = client.call_stream(NOWHERE).to(to).open()?;
    assert_eq!(refused(call.first().await.unwrap_err()).0, Cause::UnknownMethod);
    Ok(())
}

#[tokio::test]
async fn an_item_that_is_too_large_or_no_message_is_an_error_of_this_call_alone() -> Result {
    const COUNT_TEXT: Method<Items<String>, u64> = Method::new("stream.Test/Count");
    let Pair { server: _server, client, to, .. } = Pair::tcp().await?;
    let (mut items, call) = client.call_stream(COUNT).to(to).open()?;
    let limit = Limits::default().message_bytes_max;
    let error = items.send(&vec![0; limit]).await.unwrap_err();
    assert!(matches!(error, SendError::TooLarge { .. }), "{error:?}");
    items.send(&vec![0; 10]).await?;
    items.finish();
    assert_eq!(call.first().await?.into_inner(), 10);
    // A type that says other fields: bytes where text is meant do not decode the other way round.
    let (mut items, call) = client.call_stream(CHAT_BYTES).to(to).open()?;
    items.send(&vec![0xff]).await?;
    let status = call.first().await.unwrap_err().status().expect("the handler failed");
    assert_eq!(status.code(), Code::InvalidArgument);
    let (mut items, call) = client.call_stream(COUNT_TEXT).to(to).open()?;
    items.send(&"text is bytes, too".to_owned()).await?;
    items.finish();
    assert_eq!(call.first().await?.into_inner(), 18);
    Ok(())
}

/// It would not fit later either.
#[tokio::test]
async fn an_item_that_is_too_large_is_refused_at_once_where_others_wait_for_credit() -> Result {
    let Pair { server: _server, client, to, streams, .. } = Pair::tcp().await?;
    let (mut items, call) = client.call_stream(HELD).to(to).open()?;
    let mut count = 0;
    while let Poll::Ready(sent) = once(items.send(&vec![0; 10_000])).await {
        sent?;
        count += 1;
    }
    let refused = once(items.send(&vec![0; Limits::default().message_bytes_max])).await;
    assert!(matches!(refused, Poll::Ready(Err(SendError::TooLarge { .. }))), "{refused:?}");
    items.finish();
    streams.may_read.add_permits(count + 1);
    assert_eq!(call.first().await?.into_inner(), count as u64);

    let mut call = client.call(FILL, 0).to(to).open()?;
    while let Some(item) = call.next().await {
        item?;
    }
    assert!(call.outcome().await.is_complete());
    Ok(())
}

const CHAT_BYTES: Method<Items<Vec<u8>>, String> = Method::new("stream.Test/Chat");

/// Many slow readers at once: each call goes on in small steps, and none fails.
#[tokio::test]
async fn streams_share_what_room_there_is() -> Result {
    let mut limits = Limits::default();
    limits.waiting_item_bytes_max = 100_000;
    let pair = Pair::over("tcp", tcp(1, limits), tcp(2, Limits::default())).await?;
    let Pair { server: _server, client, to, streams, .. } = pair;
    streams.may_read.add_permits(Semaphore::MAX_PERMITS / 2);
    let calls = (0..50).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let (mut items, call) = client.call_stream(COUNT).to(to).open()?;
            for _ in 0..100 {
                items.send(&vec![0; 4_000]).await?;
            }
            items.finish();
            Ok::<_, Status>(call.first().await?.into_inner())
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await?, Ok(400_000));
    }
    Ok(())
}
