//! Streamed replies: items reach the node several at a time, and nobody can tell but by the cost.

use std::sync::Arc;
use std::time::Duration;

use convoke::{
    Call, Cause, Code, Endpoint, Finish, Limits, Method, NodeId, Peer, SendError, Service, Status,
    Task,
};
use tokio::sync::{Notify, mpsc};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sends what its request says.
const SAY: Method<String, String> = Method::new("test.Streams/Say");

async fn server(service: Service) -> Endpoint {
    let builder = convoke::endpoint().node(NodeId::new(1)).listen("tcp://127.0.0.1:0");
    builder.serve(service).start().await.expect("loopback can be bound")
}

async fn open(server: &Endpoint, what: &str) -> Result<(Endpoint, Call<String>)> {
    let client = convoke::endpoint().start().await?;
    client.connect(server.addresses()).await?;
    let call = client.call(SAY, what.to_owned()).to(Peer::from(server.node())).open()?;
    Ok((client, call))
}

/// Reads a call to its end: "text", or "text version" with metadata, and what failed.
async fn told(call: Call<String>) -> Result<(Vec<String>, Vec<Cause>)> {
    let (replies, outcome) = call.collect().await?;
    let line = |reply: &convoke::Reply<String>| {
        let version = reply.metadata().text("version").unwrap_or_default();
        format!("{} {version}", reply.message()).trim_end().to_owned()
    };
    let failures = outcome.failures.iter().map(|failure| failure.cause).collect();
    Ok((replies.iter().map(line).collect(), failures))
}

/// In one poll: items of two streams in turn, metadata for one of them, a reply, and the end.
async fn say(what: String, task: Task<String>) -> std::result::Result<Finish, Status> {
    let mut stream = task.stream()?;
    match what.as_str() {
        "much" => {
            for number in 0..1_000 {
                stream.send(&format!("{number}")).await?;
            }
        }
        "mixed" => {
            let mut other = task.stream()?;
            for number in 0..4 {
                stream.send(&format!("a{number}")).await?;
                other.send(&format!("b{number}")).await?;
            }
            stream.send(&"a4".to_owned()).await?;
            task.context().reply_metadata("version", "7")?;
            stream.send(&"a5".to_owned()).await?;
            stream.send(&"a6".to_owned()).await?;
            task.reply(&"whole".to_owned())?;
        }
        "large" => {
            stream.send(&"small".to_owned()).await?;
            stream.send(&"x".repeat(100_000)).await?;
            stream.send(&"small".to_owned()).await?;
        }
        "panic" => {
            stream.send(&"before".to_owned()).await?;
            panic!("on purpose");
        }
        "fail" => {
            stream.send(&"before".to_owned()).await?;
            return Err(Status::new(Code::NotFound, "the rest"));
        }
        _ => {}
    }
    drop(stream);
    Ok(task.finish())
}

#[tokio::test]
async fn what_a_handler_says_in_one_poll_comes_in_its_order() -> Result {
    let server = server(Service::new().tree(SAY, say)).await;
    let (_client, call) = open(&server, "mixed").await?;
    let (all, failures) = told(call).await?;
    assert!(failures.is_empty());
    let of = |prefix: char| all.iter().filter(|text| text.starts_with(prefix)).collect::<Vec<_>>();
    assert_eq!(of('a'), ["a0", "a1", "a2", "a3", "a4", "a5 7", "a6"]);
    assert_eq!(of('b'), ["b0", "b1", "b2", "b3"]);
    assert_eq!(of('w'), ["whole"]);
    let (_client, call) = open(&server, "much").await?;
    let expected: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    assert_eq!(told(call).await?.0, expected);
    let (_client, call) = open(&server, "large").await?;
    let lengths: Vec<usize> = told(call).await?.0.iter().map(String::len).collect();
    assert_eq!(lengths, [5, 100_000, 5]);
    Ok(())
}

#[tokio::test]
async fn items_that_were_sent_before_a_handler_failed_come_before_its_failure() -> Result {
    let server = server(Service::new().tree(SAY, say)).await;
    for (what, cause) in [("panic", Cause::Panicked), ("fail", Cause::Application)] {
        let (_client, call) = open(&server, what).await?;
        let (texts, failures) = told(call).await?;
        assert_eq!((texts, failures), (vec!["before".to_owned()], vec![cause]));
    }
    Ok(())
}

/// No poll of the handler would let them go.
#[tokio::test]
async fn items_from_beside_the_handler_leave_at_once() -> Result {
    let service = Service::new().tree(SAY, |_, task: Task<String>| async move {
        let mut stream = task.stream()?;
        tokio::spawn(async move {
            for number in 0..5 {
                stream.send(&number.to_string()).await?;
            }
            std::future::pending::<()>().await;
            drop(stream);
            Ok::<_, SendError>(())
        });
        std::future::pending().await
    });
    let server = server(service).await;
    let (_client, mut call) = open(&server, "").await?;
    for number in 0..5 {
        let reply = call.next().await.expect("it does not end")?;
        assert_eq!(*reply.message(), number.to_string());
    }
    Ok(())
}

/// Items leave when the handler waits, not when there are many.
#[tokio::test]
async fn an_item_does_not_wait_for_the_next_while_its_handler_waits() -> Result {
    let gate = Arc::new(Notify::new());
    let waits = gate.clone();
    let service = Service::new().tree(SAY, move |_, task: Task<String>| {
        let gate = waits.clone();
        async move {
            let mut stream = task.stream()?;
            for number in 0..3 {
                stream.send(&number.to_string()).await?;
                gate.notified().await;
            }
            drop(stream);
            Ok(task.finish())
        }
    });
    let server = server(service).await;
    let (_client, mut call) = open(&server, "").await?;
    for number in 0..3 {
        let reply = call.next().await.expect("it goes on")?;
        assert_eq!(*reply.message(), number.to_string());
        gate.notify_one();
    }
    assert!(call.next().await.is_none());
    Ok(())
}

/// A stream that is not read gets no further than its credit, and its handler is told when nobody
/// wants the rest.
#[tokio::test]
async fn a_handler_that_sends_for_ever_waits_for_its_reader_and_is_stopped_with_the_call() -> Result
{
    let ended = Arc::new(Notify::new());
    let told = ended.clone();
    let service = Service::new().tree(SAY, move |_, task: Task<String>| {
        let guard = when_dropped(told.clone());
        async move {
            let _guard = guard;
            let mut stream = task.stream()?;
            for number in 0_u64.. {
                stream.send(&number.to_string()).await?;
            }
            Ok(task.finish())
        }
    });
    let server = server(service).await;
    let (_client, mut call) = open(&server, "").await?;
    for number in 0..10_000 {
        let reply = call.next().await.expect("it does not end")?;
        assert_eq!(*reply.message(), number.to_string());
    }
    drop(call);
    tokio::time::timeout(Duration::from_secs(60), ended.notified()).await?;
    Ok(())
}

/// The streams of a task end with its handler, and a part of it that goes on is told so, though
/// items that it sent before still wait for credit.
#[tokio::test]
async fn a_part_that_streams_after_its_handler_is_told_of_the_end() -> Result {
    const ITEM: usize = 600 << 10;
    let (sent, mut ends) = mpsc::unbounded_channel();
    let (go_on, goes_on) = tokio::sync::watch::channel(false);
    let service = Service::new().tree(SAY, move |_, task: Task<String>| {
        let (sent, mut goes_on) = (sent.clone(), goes_on.clone());
        async move {
            let mut stream = task.stream()?;
            let item = "x".repeat(ITEM);
            task.reply(&item)?; // Most of what the call may hold, and it is not read.
            stream.send(&item).await?; // Waits for credit, a part of it.
            tokio::spawn(async move {
                let _ = goes_on.wait_for(|go| *go).await;
                let _ = sent.send(stream.send(&item).await);
            });
            Ok(task.finish())
        }
    });
    let server = server(service).await;
    let mut limits = Limits::default();
    (limits.message_bytes_max, limits.reply_bytes_max) = (1 << 20, 1 << 20);
    let client = convoke::endpoint().limits(limits).start().await?;
    client.connect(server.addresses()).await?;
    let call = client.call(SAY, String::new()).to(Peer::from(server.node())).open()?;
    go_on.send(true)?;
    let told = tokio::time::timeout(Duration::from_secs(60), ends.recv()).await?;
    assert_eq!(told, Some(Err(SendError::Ended)));
    assert_eq!(server.load().waiting, 0, "{:?}", server.load());
    drop(call);
    Ok(())
}

/// Tells when it is dropped.
fn when_dropped(told: Arc<Notify>) -> impl Drop {
    struct Told(Arc<Notify>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    Told(told)
}
