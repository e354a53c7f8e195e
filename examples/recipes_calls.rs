//! Recipes for callers, one in each function: several servers, time, tries, many calls at once.
//!
//! ```sh
//! cargo run --example recipes_calls
//! ```

use std::error::Error;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::details::RetryInfo;
use convoke::quorum::{Configuration, QuorumExt, Threshold};
use convoke::{CallError, Client, Code, Context, Endpoint, Method, NodeId, Peer, Service, Status};
use tokio::task::JoinSet;

const READ: Method<String, String> = Method::new("shelf.Shelf/Read").read_only();
const SIZE: Method<(), String> = Method::new("shelf.Shelf/Size").read_only();
const WRITE: Method<String, u64> = Method::new("shelf.Shelf/Write");

/// A server that keeps others waiting where it has been told to.
struct Shelf {
    is_slow: bool,
    /// Writes that it was asked for.
    asked: AtomicU64,
}

impl Shelf {
    async fn read(&self, key: String, _: Context) -> Result<String, Status> {
        if self.is_slow {
            std::future::pending::<()>().await;
        }
        Ok(format!("{key}, read"))
    }

    async fn size(&self, (): (), _: Context) -> Result<String, Status> {
        Ok("3 items".to_owned())
    }

    /// Has no room for the first two.
    async fn write(&self, _: String, _: Context) -> Result<u64, Status> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(Status::new(Code::Unavailable, "no room yet").without_effect()),
            asked => Ok(asked),
        }
    }
}

async fn start(node: u64, is_slow: bool) -> Result<Endpoint, Box<dyn Error>> {
    let shelf = Service::with(Shelf { is_slow, asked: AtomicU64::new(0) })
        .unary(READ, Shelf::read)
        .unary(SIZE, Shelf::size)
        .unary(WRITE, Shelf::write);
    let server = convoke::endpoint().node(NodeId::new(node)).listen("tcp://127.0.0.1:0");
    Ok(server.serve(shelf).start().await?)
}

/// The first answer of several.
async fn first(client: &Client, servers: &[Peer], key: &str) -> Result<String, CallError> {
    // The others are cancelled when it is here.
    client.call(READ, key.into()).to_all(servers).await
}

/// All replies that have come when the time is up, and who is missing.
async fn what_comes(
    client: &Client,
    servers: &[Peer],
    key: &str,
) -> Result<(Vec<String>, Vec<NodeId>), CallError> {
    let call = client.call(READ, key.into()).deadline(Duration::from_secs(1)).to_all(servers);
    let (replies, outcome) = call.open()?.collect().await?;
    let texts = replies.into_iter().map(|reply| reply.into_inner()).collect();
    Ok((texts, outcome.failures.iter().filter_map(|failure| failure.node).collect()))
}

/// One server after another, each for as long as it deserves.
async fn in_turn(client: &Client, servers: &[Peer], key: &str) -> Result<String, CallError> {
    let (last, others) = servers.split_last().expect("there is a server");
    for server in others {
        let call = client.call(READ, key.into()).deadline(Duration::from_millis(100));
        if let Ok(text) = call.to(server).await {
            return Ok(text);
        }
    }
    client.call(READ, key.into()).to(last).await
}

/// Less time for one branch than for the rest of a call.
async fn impatient(client: &Client, slow: Peer, fast: Peer) -> Result<Vec<NodeId>, CallError> {
    let at_most = READ.request("wren".into()).deadline(Duration::from_millis(100));
    let call = client.fan_out([(slow, at_most), (fast, READ.request("heron".into()))]).open()?;
    let (replies, _) = call.collect().await?;
    Ok(replies.iter().map(|reply| reply.from()).collect())
}

/// Different questions in one call.
async fn both(client: &Client, one: Peer, two: Peer) -> Result<Vec<String>, CallError> {
    let questions = [(one, READ.request("wren".into())), (two, SIZE.request(()))];
    let (replies, _) = client.fan_out(questions).open()?.collect().await?;
    let said = |from: Peer| replies.iter().find(move |reply| reply.from() == from.node());
    Ok([one, two].into_iter().filter_map(said).map(|reply| reply.message().clone()).collect())
}

/// Again, but only what has not run, and may end otherwise.
async fn persistent(client: &Client, server: Peer, text: &str) -> Result<u64, CallError> {
    let mut pause = Duration::from_millis(1);
    loop {
        let result = client.call(WRITE, text.into()).to(server).await;
        match result.as_ref().err().and_then(|error| wait_after(error, pause)) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return result,
        }
        pause *= 2;
    }
}

/// Pause before the next try: as long as the service says, and `pause` at least. `None` where it
/// may have run, where it would end the same again, and where the pause is above a second.
fn wait_after(error: &CallError, pause: Duration) -> Option<Duration> {
    // Failures of the runtime have codes, too: a node that cannot be reached is `Unavailable`.
    let status = Status::from(error.clone());
    let may_pass = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
    let asked = status.detail::<RetryInfo>().and_then(|later| later.delay());
    let wait = pause.max(asked.unwrap_or_default());
    (error.is_safe_to_repeat() && may_pass && wait <= Duration::from_secs(1)).then_some(wait)
}

/// Many calls, of which so many are under way at a time.
async fn eight_at_a_time(
    client: &Client,
    server: Peer,
    keys: impl IntoIterator<Item = String>,
) -> Result<Vec<String>, Box<dyn Error>> {
    let (mut keys, mut running, mut texts) = (keys.into_iter(), JoinSet::new(), Vec::new());
    loop {
        while running.len() < 8
            && let Some(key) = keys.next()
        {
            running.spawn(client.call(READ, key).to(server).into_future());
        }
        let Some(done) = running.join_next().await else { return Ok(texts) };
        // The first error is that of a task that panicked, the second one that of its call.
        texts.push(done??);
    }
}

/// A second server, should the first be slow.
async fn hedged(client: &Client, servers: &Configuration) -> Result<String, Box<dyn Error>> {
    let call = client.call(READ, "wren".into()).to_all(servers);
    let pause = Duration::from_millis(20);
    // Without `cancel_late` the slow one would go on until the deadline.
    let mut replies = call.hedge(1, pause).cancel_late().quorum(Threshold(1)).await?;
    let (_, text) = replies.pop().ok_or("it waits for one")?;
    Ok(text)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (slow, fast, third) =
        (start(1, true).await?, start(2, false).await?, start(3, false).await?);
    let all = Configuration::new([&slow, &fast, &third])?;
    let endpoint = convoke::endpoint().peers(&all).keep_connected().start().await?;
    let client = endpoint.client().deadline(Duration::from_secs(5));
    let [one, two, three] = [&slow, &fast, &third].map(|server| Peer::from(server.node()));

    assert_eq!(first(&client, &[one, two], "wren").await?, "wren, read");
    let (texts, missing) = what_comes(&client, &[one, two, three], "wren").await?;
    println!("{} answers, and {missing:?} is missing", texts.len());
    assert_eq!((texts.len(), missing), (2, vec![slow.node()]));
    assert_eq!(in_turn(&client, &[one, two], "heron").await?, "heron, read");
    assert_eq!(impatient(&client, one, two).await?, [fast.node()]);
    assert_eq!(both(&client, two, three).await?, ["wren, read", "3 items"]);
    assert_eq!(persistent(&client, two, "a wren").await?, 2);
    let keys = (0..20).map(|number| format!("item {number}"));
    assert_eq!(eight_at_a_time(&client, three, keys).await?.len(), 20);
    println!("hedged: {}", hedged(&client, &all).await?);

    // No waiting for who is slow: its tasks were cancelled.
    for server in [slow, fast, third] {
        assert!(server.shutdown(Duration::from_secs(5)).await);
    }
    Ok(())
}
