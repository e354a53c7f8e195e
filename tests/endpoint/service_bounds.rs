//! Bounds that a service developer counts on: deadlines, message sizes and the end of a node are
//! bounded, and who meets a bound is told which.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{
    CallError, Cause, Context, Endpoint, Executed, Limits, Method, Peer, Service, Status,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const SIZE: Method<Vec<u8>, String> = Method::new("test.Test/Size");
const FILL: Method<u64, Vec<u8>> = Method::new("test.Test/Fill");
const REMAINING: Method<(), u64> = Method::new("test.Test/Remaining");
const NEVER: Method<(), ()> = Method::new("test.Test/Never");
const BUSY: Method<(), ()> = Method::new("test.Test/Busy");

fn service() -> Service {
    Service::new()
        .unary(SIZE, |bytes: Vec<u8>, _: Context| async move {
            Ok::<_, Status>(bytes.len().to_string())
        })
        .unary(FILL, |size: u64, _| async move {
            let size = usize::try_from(size).expect("it is small");
            Ok::<_, Status>(vec![7; size])
        })
        .unary(REMAINING, |(), context: Context| async move {
            let remaining = context.remaining().as_micros();
            Ok::<_, Status>(u64::try_from(remaining).expect("it is finite"))
        })
        .unary(NEVER, |(), _| std::future::pending::<std::result::Result<(), Status>>())
}

async fn pair(at_server: Limits, at_client: Limits) -> Result<(Endpoint, Endpoint, Peer)> {
    let builder = || Endpoint::builder().transport(TcpTransport::new());
    let server = builder().listen("tcp://127.0.0.1:0").limits(at_server).serve(service());
    let server = server.start().await?;
    let client = builder().limits(at_client).start().await?;
    let peer = client.connect(server.addresses()).await?;
    Ok((server, client, peer))
}

fn messages_up_to(bytes: usize) -> Limits {
    let mut limits = Limits::default();
    limits.message_bytes_max = bytes;
    limits
}

#[tokio::test]
async fn a_request_above_the_senders_limit_is_an_error_that_names_size_limit_and_setting() -> Result
{
    let (_server, client, peer) = pair(Limits::default(), messages_up_to(100_000)).await?;
    let request = SIZE.request(vec![0; 200_000]);
    let error = client.invoke(request).to(peer).await.expect_err("it is too large");
    assert!(matches!(error, CallError::TooLarge { size: 200_004, limit: 100_000 }), "{error}");
    let text = error.to_string();
    assert!(text.contains("100000") && text.contains("message_bytes_max"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_request_above_the_receivers_limit_fails_its_branch_alone_and_says_why() -> Result {
    let (_server, client, peer) = pair(messages_up_to(100_000), Limits::default()).await?;
    let beside = client.call(NEVER, ()).to(peer).open()?;
    let request = SIZE.request(vec![0; 200_000]);
    let error = client.invoke(request).to(peer).await.expect_err("it is too large");
    let failure = error.failure().expect("the branch failed");
    assert_eq!(failure.executed, Executed::No);
    assert!(failure.text.contains("message_bytes_max"), "{failure}");
    assert!(failure.text.contains("200") && failure.text.contains("limit of 165536"), "{failure}");
    // The connection and what else runs over it are as before.
    let request = SIZE.request(vec![0; 90_000]);
    assert_eq!(client.invoke(request).to(peer).await?, "90000");
    drop(beside);
    Ok(())
}

/// The headroom of frames is for what goes with a message.
#[tokio::test]
async fn a_request_just_above_the_receivers_limit_does_not_run() -> Result {
    let (_server, client, peer) = pair(messages_up_to(100_000), Limits::default()).await?;
    let at_limit = SIZE.request(vec![0; 100_000 - 4]);
    assert_eq!(client.invoke(at_limit).to(peer).await?, "99996");
    let above = SIZE.request(vec![0; 100_000 - 3]);
    let error = client.invoke(above).to(peer).await.expect_err("it is too large");
    let failure = error.failure().expect("the branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::BadRequest, Executed::No));
    assert!(failure.text.contains("100001") && failure.text.contains("is 100000"), "{failure}");
    Ok(())
}

#[tokio::test]
async fn a_larger_message_limit_at_both_ends_is_enough() -> Result {
    let limits = || messages_up_to(16 << 20);
    let (_server, client, peer) = pair(limits(), limits()).await?;
    let request = SIZE.request(vec![0; 10 << 20]);
    assert_eq!(client.invoke(request).to(peer).await?, (10 << 20).to_string());
    assert_eq!(client.call(FILL, 10 << 20).to(peer).await?.len(), 10 << 20);
    Ok(())
}

#[tokio::test]
async fn a_frame_limit_that_was_set_is_named_at_the_end_that_has_it() -> Result {
    let limits = || messages_up_to(16 << 20);
    let small = || TcpTransport::builder().frame_bytes_max(5 << 20).build();
    for (at_server, at_client, said) in [
        (TcpTransport::new(), small()?, "of the tcp transport at this end: raise its frame_bytes"),
        (small()?, TcpTransport::new(), "that the peer has told: raise Limits::message_bytes_max"),
    ] {
        let server = Endpoint::builder().transport(at_server).listen("tcp://127.0.0.1:0");
        let server = server.limits(limits()).serve(service()).start().await?;
        let client = Endpoint::builder().transport(at_client).limits(limits()).start().await?;
        let peer = client.connect(server.addresses()).await?;
        let request = SIZE.request(vec![0; 10 << 20]);
        let error = client.invoke(request).to(peer).await.expect_err("it is too large");
        let failure = error.failure().expect("the branch failed");
        assert_eq!(failure.executed, Executed::No);
        let limit = format!("larger than the limit of {} {said}", 5 << 20);
        assert!(failure.text.contains(&limit), "{failure}");
    }
    Ok(())
}

#[tokio::test]
async fn a_reply_above_the_senders_limit_is_an_error_of_the_task_that_names_it() -> Result {
    let (_server, client, peer) = pair(messages_up_to(100_000), Limits::default()).await?;
    let error = client.call(FILL, 200_000).to(peer).await;
    let error = error.expect_err("it is too large");
    let status = error.status().expect("it is the service's doing");
    assert!(status.message().contains("message_bytes_max, 100000"), "{status}");
    assert_eq!(client.call(FILL, 90_000).to(peer).await?.len(), 90_000);
    Ok(())
}

#[tokio::test]
async fn a_reply_above_the_receivers_limit_fails_its_branch_alone_and_says_why() -> Result {
    let (_server, client, peer) = pair(Limits::default(), messages_up_to(100_000)).await?;
    let error = client.call(FILL, 200_000).to(peer).await;
    let error = error.expect_err("it is too large");
    let failure = error.failure().expect("the branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::ResourceExhausted, Executed::Yes));
    assert!(failure.text.contains("message_bytes_max, 100000"), "{failure}");
    assert_eq!(client.call(FILL, 90_000).to(peer).await?.len(), 90_000);
    Ok(())
}

#[tokio::test]
async fn a_call_that_names_no_deadline_has_the_default_one() -> Result {
    let (_server, client, peer) = pair(Limits::default(), Limits::default()).await?;
    let ten_seconds = 10_000_000;
    let remaining = client.call(REMAINING, ()).to(peer).await?;
    assert!(remaining > 0 && remaining <= ten_seconds, "{remaining}");
    let mut limits = Limits::default();
    limits.deadline_default = Duration::from_secs(3600);
    limits.deadline_max = Duration::from_secs(3600);
    let (_server, client, peer) = pair(Limits::default(), limits).await?;
    let remaining = client.call(REMAINING, ()).to(peer).await?;
    assert!(remaining > ten_seconds, "{remaining}");
    Ok(())
}

#[tokio::test]
async fn a_server_cuts_deadlines_to_what_it_allows() -> Result {
    let mut limits = Limits::default();
    limits.deadline_max = Duration::from_millis(200);
    limits.deadline_default = Duration::from_millis(200);
    let (server, client, peer) = pair(limits, Limits::default()).await?;
    let long = Duration::from_secs(3600);
    let call = client.call(REMAINING, ()).deadline(long).to(peer);
    assert!(call.await? <= 200_000);
    // The handler is stopped when the server's time is up, long before the caller's.
    let call = client.call(NEVER, ()).deadline(long).to(peer);
    let error = call.await.expect_err("it never ends by itself");
    let failure = error.failure().expect("the branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::Deadline, Executed::Maybe));
    assert!(server.shutdown(Duration::from_secs(60)).await, "nothing runs any more");
    Ok(())
}

#[tokio::test]
async fn a_node_that_drains_refuses_new_work_as_safe_to_repeat_and_ends_in_its_bound() -> Result {
    let (server, client, peer) = pair(Limits::default(), Limits::default()).await?;
    let held = client.call(NEVER, ()).to(peer).open()?;
    client.call(REMAINING, ()).to(peer).await?; // behind it: it has begun
    let draining = tokio::spawn(server.clone().shutdown(Duration::from_millis(500)));
    // Until it drains it answers; from then on it refuses, and says that nothing ran.
    let refused = loop {
        let answer = client.call(REMAINING, ()).to(peer).await;
        match answer {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.failure().map(|failure| failure.cause), Some(Cause::ShuttingDown));
    assert!(refused.is_safe_to_repeat());
    assert!(!draining.await?, "one handler never ends");
    let outcome = held.outcome().await;
    assert_eq!(outcome.failures[0].cause, Cause::ShuttingDown);
    assert_eq!(outcome.failures[0].executed, Executed::Maybe);
    Ok(())
}

/// Callers at full load that go on whatever they are told: what was under way as the node began to
/// stop is refused, and of nothing that failed it is in doubt whether it ran.
#[tokio::test]
async fn nothing_is_left_in_doubt_when_a_node_drains_at_full_load() -> Result {
    let (server, client, peer) = pair(Limits::default(), Limits::default()).await?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let caller = || {
        let (client, stopped) = (client.clone(), stopped.clone());
        tokio::spawn(async move {
            let mut errors = Vec::new();
            while !*stopped.borrow() {
                if let Err(error) = client.call(REMAINING, ()).to(peer).await {
                    errors.push(error);
                    tokio::task::yield_now().await;
                }
            }
            errors
        })
    };
    let callers: Vec<_> = std::iter::repeat_with(caller).take(64).collect();
    for _ in 0..100 {
        client.call(REMAINING, ()).to(peer).await?;
    }
    assert!(server.shutdown(Duration::from_secs(5)).await);
    stop.send(true)?;
    let mut failed = 0;
    for caller in callers {
        for error in caller.await? {
            assert!(error.is_safe_to_repeat(), "{error}");
            failed += 1;
        }
    }
    assert!(failed >= 64, "all were at it: {failed}");
    Ok(())
}

#[tokio::test]
async fn a_handler_that_never_waits_for_long_does_not_hold_up_a_shutdown() -> Result {
    let busy = service().unary(BUSY, |(), _: Context| async {
        while std::hint::black_box(true) {
            tokio::task::yield_now().await;
        }
        Ok::<_, Status>(())
    });
    let builder = || Endpoint::builder().transport(TcpTransport::new());
    let server = builder().listen("tcp://127.0.0.1:0").serve(busy).start().await?;
    let client = builder().start().await?;
    let peer = client.connect(server.addresses()).await?;
    let call = client.call(BUSY, ()).to(peer).open()?;
    client.call(REMAINING, ()).to(peer).await?; // behind it: it has begun
    assert!(!server.shutdown(Duration::from_millis(1)).await);
    let outcome = call.outcome().await;
    assert_eq!(outcome.failures[0].cause, Cause::ShuttingDown);
    Ok(())
}

/// Names are free where nothing proves them, so the share is that of the host: who is refused for
/// what others there have taken is not told that it has taken it.
#[tokio::test]
async fn who_is_refused_for_the_share_of_its_host_is_told_so() -> Result {
    let mut limits = Limits::default();
    limits.tasks_max = 4;
    let (server, greedy, peer) = pair(limits, Limits::default()).await?;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(greedy.call(NEVER, ()).to(peer).open()?);
    }
    // It comes behind them.
    greedy.call(REMAINING, ()).to(peer).await.expect_err("they have the share");

    let other = Endpoint::builder().transport(TcpTransport::new()).start().await?;
    let peer = other.connect(server.addresses()).await?;
    let error = other.call(REMAINING, ()).to(peer).await.expect_err("the share is that of both");
    let text = error.to_string();
    assert!(text.contains("and 127.0.0.1 has its share of tasks_max, 4: nodes that do"), "{text}");
    assert!(!text.contains(&other.node().to_string()), "{text}");
    Ok(())
}
