//! Large replies: their room at the node that sends them, and many of them at once.

use std::time::Duration;

use convoke::{
    Call, Context, Deferred, Endpoint, Limits, Method, NodeId, Peer, SendError, Service, Status,
    Task,
};
use tokio::sync::mpsc;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Answers with so many bytes.
const SIZED: Method<u64, Vec<u8>> = Method::new("test.Large/Sized");
/// Gives its token to the test.
const LATER: Method<u64, Vec<u8>> = Method::new("test.Large/Later");

const REPLY: usize = 256 << 10;

struct World {
    server: Endpoint,
    client: Endpoint,
    to: Peer,
    tokens: mpsc::UnboundedReceiver<Deferred<Vec<u8>>>,
}

async fn world(limits: Limits) -> Result<World> {
    let (given, tokens) = mpsc::unbounded_channel();
    let service: Service = Service::new()
        .unary(SIZED, |bytes: u64, _: Context| async move {
            Ok::<_, Status>(vec![7; usize::try_from(bytes).expect("it is small")])
        })
        .tree(LATER, move |_, task: Task<Vec<u8>>| {
            let (later, finish) = task.defer();
            let _ = given.send(later);
            std::future::ready(Ok::<_, Status>(finish))
        });
    let server = convoke::endpoint().node(NodeId::new(1)).limits(limits);
    let server = server.listen("tcp://127.0.0.1:0").serve(service).start().await?;
    let client = convoke::endpoint().node(NodeId::new(2)).start().await?;
    let to = client.connect(server.addresses()).await?;
    Ok(World { server, client, to, tokens })
}

/// A peer may have 2 MiB of replies wait: eight of [`REPLY`].
fn small_share() -> Limits {
    let mut limits = Limits::default();
    limits.waiting_reply_bytes_max = 4 << 20;
    limits
}

impl World {
    /// A call whose task has begun, and the token of that.
    async fn later(&mut self) -> Result<(Call<Vec<u8>>, Deferred<Vec<u8>>)> {
        let call = self.client.call(LATER, 1).to(self.to).open()?;
        Ok((call, self.tokens.recv().await.ok_or("its handler has run")?))
    }

    /// All that the peer has in the pool of waiting replies is there again.
    async fn assert_has_room(&self) -> Result {
        let reply = self.client.call(SIZED, REPLY as u64).to(self.to).await?;
        assert_eq!(reply.len(), REPLY);
        Ok(())
    }
}

/// Request and cancel come in one read, and the handler starts behind both.
#[tokio::test]
async fn replies_to_calls_that_are_dropped_at_once_keep_no_room() -> Result {
    let world = world(small_share()).await?;
    for _ in 0..20 {
        drop(world.client.call(SIZED, REPLY as u64).to(world.to).open()?);
        world.client.call(SIZED, 1).to(world.to).await?;
    }
    while world.server.load().tasks > 0 {
        tokio::task::yield_now().await;
    }
    world.assert_has_room().await
}

#[tokio::test]
async fn late_answers_of_cancelled_calls_keep_no_room() -> Result {
    let mut world = world(small_share()).await?;
    for _ in 0..20 {
        let (call, mut later) = world.later().await?;
        drop(call);
        later.stopped().await;
        assert_eq!(later.task().reply(&vec![7; REPLY]), Err(SendError::Ended));
        assert_eq!(later.answer(&vec![7; REPLY]), Err(SendError::Ended));
    }
    world.assert_has_room().await
}
/// By defaults, more than a connection queues, from a server whose replies are all granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_replies_at_once_reach_who_reads_them() -> Result {
    let World { server: _server, client, to, .. } = world(Limits::default()).await?;
    for (calls, bytes) in [(8, 4_000_000), (40, 1_000_000), (1_200, 100_000)] {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..calls {
            let call = client.call(SIZED, bytes).deadline(Duration::from_secs(60)).to(to);
            tasks.spawn(async move { call.await });
        }
        for reply in tasks.join_all().await {
            assert_eq!(reply?.len() as u64, bytes);
        }
    }
    Ok(())
}

/// Sizes of all that a call is answered with.
async fn sizes(call: Call<Vec<u8>>) -> Result<Vec<usize>> {
    let (replies, outcome) = call.collect().await?;
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    Ok(replies.iter().map(|reply| reply.message().len()).collect())
}

/// As many calls that wait for their answers, which are to be said at once.
async fn three_thousand(world: &mut World) -> Result<(Vec<Call<Vec<u8>>>, Vec<Deferred<Vec<u8>>>)> {
    let (mut calls, mut tokens) = (Vec::new(), Vec::new());
    for _ in 0..3_000 {
        let (call, later) = world.later().await?;
        calls.push(call);
        tokens.push(later);
    }
    Ok((calls, tokens))
}

/// Replies that need no credit, too: together they are more than a connection queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_replies_at_once_reach_who_reads_them() -> Result {
    let mut world = world(Limits::default()).await?;
    let (calls, tokens) = three_thousand(&mut world).await?;
    for later in tokens {
        later.answer(&vec![7; 16_000])?;
    }
    for call in calls {
        assert_eq!(sizes(call).await?, [16_000]);
    }
    Ok(())
}

/// The same of first items of streams, that nobody need grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_items_at_once_reach_who_reads_them() -> Result {
    let mut world = world(Limits::default()).await?;
    let (calls, tokens) = three_thousand(&mut world).await?;
    for later in tokens {
        tokio::spawn(async move {
            let mut items = later.task().stream()?;
            items.send(&vec![7; 16_000]).await?;
            items.send(&vec![8; 1_000]).await?;
            drop(items);
            later.finish();
            Ok::<_, SendError>(())
        });
    }
    for call in calls {
        assert_eq!(sizes(call).await?, [16_000, 1_000]);
    }
    Ok(())
}
