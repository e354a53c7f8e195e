//! Calls among endpoints over real loopback sockets.

use std::pin::pin;
use std::time::Duration;

use convoke::{CallError, Cause, Code, End, Executed, Limits, Way};
use tokio::time::Instant;

use crate::support::{
    self, Ask, ECHO, ECHO_PHASE, FAIL, HOPS, LARGE, NEST, ORDERED, SPREAD, STREAM, ask, builder,
    client, peer, server, stop,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::test]
async fn a_unary_call_is_answered() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = client.connect(server.addresses()).await?;
    let answer = client.call(ECHO, ask("hello")).to(to).await?;
    assert_eq!((answer.text.as_str(), answer.node), ("hello", 1));
    Ok(())
}

#[tokio::test]
async fn the_last_of_a_chain_answers_the_initiator_directly() -> Result {
    let nodes = [server(1).await, server(2).await, server(3).await];
    let initiator = server(9).await;
    let request = Ask { route: vec![stop(&nodes[1]), stop(&nodes[2])], ..ask("far") };
    for _ in 0..2 {
        let first = peer(&initiator, &nodes[0]);
        // The nodes reply to whom they know: as members of one cluster do.
        peer(&nodes[2], &initiator);
        let call = initiator.call(HOPS, request.clone()).to(first).open()?;
        let (replies, outcome) = call.collect().await?;
        assert_eq!((replies.len(), outcome.end), (1, End::Complete));
        assert_eq!(replies[0].message().node, 3);
        assert_eq!(replies[0].way(), Way::Direct);
    }
    let frames: u64 = nodes.iter().chain([&initiator]).map(|n| n.counters().frames_sent).sum();
    assert_eq!(frames, 2 * 4, "three requests and one reply for each call, nothing else");
    Ok(())
}

#[tokio::test]
async fn an_initiator_that_cannot_be_dialled_gets_its_replies_through_the_parents() -> Result {
    let nodes = [server(1).await, server(2).await, server(3).await];
    let client = client().await;
    let request = Ask { route: vec![stop(&nodes[1]), stop(&nodes[2])], ..ask("far") };
    let first = peer(&client, &nodes[0]);
    let call = client.call(HOPS, request).to(first).open()?;
    let (replies, outcome) = call.collect().await?;
    assert_eq!((replies.len(), outcome.end), (1, End::Complete));
    assert_eq!(replies[0].from().get(), 3);
    assert_eq!(replies[0].way(), Way::Relayed, "it came through node 1");
    assert_eq!(client.counters().frames_sent, 1);
    Ok(())
}

#[tokio::test]
async fn a_stream_through_relays_gets_its_credit() -> Result {
    let nodes = [server(1).await, server(2).await, server(3).await];
    let client = client().await;
    let route = vec![stop(&nodes[1]), stop(&nodes[2])];
    let request = Ask { route, number: 1500, ..ask("x") };
    let first = peer(&client, &nodes[0]);
    let call = client.call(HOPS, request).to(first).open()?;
    let (replies, outcome) = call.collect().await?;
    assert_eq!((replies.len(), outcome.end), (1500, End::Complete));
    assert!(replies.iter().zip(0..).all(|(reply, item)| reply.item() == Some(item)));
    Ok(())
}

#[tokio::test]
async fn handlers_of_an_ordered_method_run_one_at_a_time_for_each_peer() -> Result {
    let server = server(1).await;
    let (one, two) = (client().await, client().await);
    let run = async |client: &convoke::Endpoint, text: &str, numbers: std::ops::Range<u64>| {
        let to = peer(client, &server);
        let requests = numbers.map(|number| ORDERED.request(Ask { number, ..ask(text) }));
        let call = client.fan_out(requests.map(|request| (to, request)));
        let (replies, _) = call.open()?.collect().await?;
        Ok::<_, CallError>(
            replies.last().map(|reply| reply.message().text.clone()).unwrap_or_default(),
        )
    };
    assert_eq!(run(&one, "", 0..3).await?, "+0-0+1-1+2-2");
    let (_, both) = tokio::try_join!(run(&one, "", 3..5), run(&two, "", 5..7))?;
    let begun = both.find("+5").ok_or("5 ran")?;
    assert!(begun < both.find("-3").ok_or("3 ran")?, "another peer does not wait: {both}");
    let released = run(&one, "release", 7..9).await?;
    let next = released.find("+8").ok_or("8 ran")?;
    assert!(next < released.find("-7").ok_or("7 ran")?, "the next one begins early: {released}");
    Ok(())
}

#[tokio::test]
async fn casts_reach_every_participant_also_before_its_request() -> Result {
    let nodes = [server(1).await, server(2).await, server(3).await];
    let initiator = server(9).await;
    let route: Vec<support::Stop> = nodes.iter().map(stop).collect();
    let call = initiator.fan_out(nodes.iter().map(|node| {
        let request = ECHO_PHASE.request(Ask { route: route.clone(), ..ask("v") });
        (peer(&initiator, node), request)
    }));
    let (replies, outcome) = call.open()?.collect().await?;
    assert_eq!((replies.len(), outcome.end), (3, End::Complete));
    assert!(replies.iter().all(|reply| reply.message().text == "vvv"));
    Ok(())
}

#[tokio::test]
async fn everybody_in_a_fan_out_replies_to_the_initiator() -> Result {
    let nodes = [server(1).await, server(2).await, server(3).await, server(4).await];
    let initiator = server(9).await;
    for node in &nodes {
        peer(node, &initiator);
    }
    let request = Ask { route: nodes[1..].iter().map(stop).collect(), ..ask("all") };
    let first = peer(&initiator, &nodes[0]);
    let call = initiator.call(SPREAD, request).to(first).open()?;
    let (replies, outcome) = call.collect().await?;
    let mut from: Vec<u64> = replies.iter().map(|reply| reply.from().get()).collect();
    from.sort_unstable();
    assert_eq!((from, outcome.end), (vec![1, 2, 3, 4], End::Complete));
    Ok(())
}

#[tokio::test]
async fn a_dead_node_is_a_failure_that_names_it_and_the_others_go_on() -> Result {
    let nodes = [server(1).await, server(2).await];
    let initiator = server(9).await;
    let gone = server(3).await;
    let dead = stop(&gone);
    gone.shutdown(Duration::ZERO).await;
    for node in &nodes {
        peer(node, &initiator);
    }
    let request = Ask { route: vec![dead, stop(&nodes[1])], ..ask("all") };
    let first = peer(&initiator, &nodes[0]);
    let call = initiator.call(SPREAD, request).to(first).open()?;
    let (replies, outcome) = call.collect().await?;
    assert_eq!((replies.len(), outcome.end), (2, End::Partial));
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert_eq!(failure.node.map(convoke::NodeId::get), Some(3));
    assert_eq!((failure.cause, failure.executed), (Cause::Unreachable, Executed::No));
    assert_eq!(failure.task.to_string(), "/0/0");
    assert!(failure.text.contains("cannot reach tcp://127.0.0.1"), "{failure}");
    Ok(())
}

#[tokio::test]
async fn a_stream_arrives_in_order_and_whole() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let request = STREAM.request(Ask { number: 2000, ..Ask::default() });
    let mut call = client.invoke(request).to(to).open()?;
    let mut next = 0;
    while let Some(reply) = call.next().await {
        let reply = reply?;
        assert_eq!(reply.item(), Some(next));
        assert_eq!(reply.into_inner().text, next.to_string());
        next += 1;
    }
    assert_eq!(next, 2000);
    Ok(())
}

#[tokio::test]
async fn a_reply_above_the_unscheduled_bytes_arrives() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    for number in [0, 16_000, 17_000, 300_000, 4_000_000] {
        let request = LARGE.request(Ask { number, ..Ask::default() });
        let answer = client.invoke(request).to(to).await?;
        assert_eq!(answer.filling.len() as u64, number);
    }
    Ok(())
}

#[tokio::test]
async fn errors_panics_and_unknown_methods_are_failures_of_their_branch() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let failure = async |text: &str| {
        let error = client.call(FAIL, ask(text)).to(to).await;
        error.expect_err("it fails")
    };
    let status = failure("status").await.status().expect("the service's own");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "nothing here"));
    assert_eq!(&status.details()[..], b"why");
    for text in ["panic", "late"] {
        let error = failure(text).await;
        let panicked = error.failure().expect("a branch failed");
        assert_eq!(panicked.cause, Cause::Panicked);
        assert!(panicked.text.starts_with("on purpose"));
    }
    const NOWHERE: convoke::Method<Ask, support::Answer> =
        convoke::Method::new("test.Test/Nowhere");
    let error = client.call(NOWHERE, ask("")).to(to).await.unwrap_err();
    let failure = error.failure().expect("a branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::UnknownMethod, Executed::No));
    assert_eq!(failure.node.map(convoke::NodeId::get), Some(1));
    Ok(())
}

#[tokio::test]
async fn the_deadline_names_what_is_missing() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let (good, bad) = (ECHO.request(ask("a")), FAIL.request(ask("never")));
    let call = client.fan_out([(&to, good), (&to, bad)]);
    let call = call.deadline(Duration::from_millis(100)).open()?;
    let (replies, outcome) = call.collect().await?;
    assert_eq!((replies.len(), outcome.end), (1, End::Partial));
    assert_eq!(outcome.failures[0].cause, Cause::Deadline);
    assert_eq!(outcome.failures[0].task.to_string(), "/1");
    Ok(())
}

#[tokio::test]
async fn a_decision_ends_the_call_while_others_still_run() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let call = client.fan_out([
        (&to, FAIL.request(ask("never"))),
        (&to, ECHO.request(ask("a"))),
        (&to, ECHO.request(ask("b"))),
    ]);
    let mut call = call.open()?;
    for _ in 0..2 {
        call.next().await.expect("two answer")?;
    }
    call.let_run();
    let load = client.load();
    assert_eq!((load.calls, load.unsettled), (0, 1), "it is over, and one may still answer");
    Ok(())
}

#[tokio::test]
async fn too_large_a_request_is_refused_before_it_is_sent() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let request = ECHO.request(ask(&"x".repeat(5 << 20)));
    let error = client.invoke(request).to(to).await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge { limit, .. } if limit == 4 << 20), "{error}");
    assert_eq!(client.counters().frames_sent, 0);
    Ok(())
}

#[tokio::test]
async fn an_endpoint_asks_itself_in_process() -> Result {
    let server = server(1).await;
    let answer = server.call(ECHO, ask("me")).to(server.me()).await?;
    assert_eq!(answer.node, 1);
    assert_eq!(server.counters().frames_sent, 0);
    Ok(())
}

#[tokio::test]
async fn a_restarted_server_answers_again() -> Result {
    let first = server(1).await;
    let address = first.addresses()[0].to_string();
    let client = client().await;
    let to = client.connect(&address).await?;
    client.call(ECHO, ask("a")).to(to).await?;
    first.shutdown(Duration::ZERO).await;
    let _again = support::start(builder(1).listen(address)).await;
    // Until the backoff of a failed dial has passed, calls fail at once.
    let answered = async {
        loop {
            match client.call(ECHO, ask("b")).to(to).await {
                Ok(answer) => return answer.text,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), answered).await?, "b");
    Ok(())
}

#[tokio::test]
async fn shutdown_lets_running_handlers_end_and_is_bounded() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let never = client.call(FAIL, ask("never")).to(to).open()?;
    let answer = client.call(ECHO, ask("a")).to(to).await?;
    assert_eq!(answer.text, "a");
    assert!(!server.shutdown(Duration::from_millis(50)).await, "one handler never ends");
    let outcome = never.outcome().await;
    assert_eq!(outcome.failures[0].cause, Cause::ShuttingDown, "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_tree_that_grows_too_deep_or_too_wide_fails_in_that_branch() -> Result {
    let mut limits = Limits::default();
    limits.children_max = 8;
    let server = support::start(builder(1).listen("tcp://127.0.0.1:0").limits(limits)).await;
    let client = client().await;
    let to = peer(&client, &server);
    for (number, cause, branch) in
        [(1, Cause::PathTooDeep, "/0".repeat(32)), (9, Cause::TooManyBranches, "/0".to_owned())]
    {
        let request = NEST.request(Ask { number, ..Ask::default() });
        let call = client.invoke(request).to(to).open()?;
        let (_, outcome) = call.collect().await?;
        let failure = outcome.failures.iter().find(|failure| failure.cause == cause);
        let failure = failure.ok_or_else(|| format!("no {cause:?} in {outcome:?}"))?;
        assert_eq!(failure.task.to_string(), branch);
        assert_eq!(outcome.end, End::Partial);
    }
    Ok(())
}

#[tokio::test]
async fn a_call_with_too_many_branches_is_exhausted() -> Result {
    let mut limits = Limits::default();
    limits.branches_max = 20;
    let server = server(1).await;
    let builder = convoke::Endpoint::builder()
        .transport(convoke::transport::TcpTransport::new())
        .limits(limits);
    let client = support::start(builder).await;
    let to = peer(&client, &server);
    let request = NEST.request(Ask { number: 5, ..Ask::default() });
    let call = client.invoke(request).to(to).open()?;
    assert_eq!(call.outcome().await.end, End::Exhausted);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_decoded_never_ran() -> Result {
    /// Its first field is a number, where the service expects a text.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Other {
        #[prost(uint64, tag = "1")]
        number: u64,
    }
    const ECHO_OTHER: convoke::Method<Other, support::Answer> =
        convoke::Method::new("test.Test/Echo");
    const ECHO_BACK: convoke::Method<Ask, Other> = convoke::Method::new("test.Test/Echo");
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let error = client.call(ECHO_OTHER, Other { number: 7 }).to(to).await;
    let error = error.unwrap_err();
    let failure = error.failure().expect("a branch failed");
    assert_eq!((failure.cause, failure.executed), (Cause::BadRequest, Executed::No));
    let error = client.call(ECHO_BACK, ask("text")).to(to).await.unwrap_err();
    assert!(matches!(&error, CallError::Decode { from, .. } if from.get() == 1), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_budget_of_nothing_is_over_at_once() -> Result {
    let (server, client) = (server(1).await, client().await);
    let to = peer(&client, &server);
    let call = client.call(ECHO, ask("a")).deadline(Duration::ZERO).to(to);
    let error = call.await.unwrap_err();
    assert_eq!(error.failure().map(|failure| failure.cause), Some(Cause::Deadline));
    Ok(())
}

#[tokio::test]
async fn metadata_reaches_the_whole_tree_or_is_refused() -> Result {
    let (server, other, client) = (server(1).await, server(2).await, client().await);
    let to = peer(&client, &server);
    let route = vec![stop(&other)];
    let request = SPREAD.request(Ask { route, ..ask("metadata") }).metadata("key", b"value");
    let call = client.invoke(request).to(to).open()?;
    let (replies, _) = call.collect().await?;
    let from_other = replies.iter().find(|reply| reply.from() == other.node());
    assert_eq!(from_other.map(|reply| reply.message().text.as_str()), Some("key=5"));

    let large = ECHO.request(ask("a")).metadata("key", [0; 20_000]);
    let error = client.invoke(large).to(to).await.unwrap_err();
    assert!(matches!(error, CallError::MetadataTooLarge { limit: 16_000, .. }), "{error}");
    assert!(error.to_string().contains("no limit raises that"), "{error}");
    Ok(())
}

#[tokio::test]
async fn two_that_dial_each_other_at_once_drop_no_call() -> Result {
    // Short, so that a second connection is closed while calls go on.
    let keep_alive = Duration::from_millis(500);
    let (mut rounds, mut stalls) = (0, 0);
    while rounds < 3 {
        let (called, stall) = with_stall(call_each_other(keep_alive)).await;
        match called {
            Ok(()) => rounds += 1,
            // Who stands still for so long, after the third between two heartbeats, may lose its
            // connections, and calls with them.
            Err(_) if stall >= keep_alive / 2 && stalls < 30 => stalls += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Two new endpoints call each other until some connections were closed for being idle.
async fn call_each_other(keep_alive: Duration) -> Result {
    let mut limits = Limits::default();
    limits.keep_alive_timeout = keep_alive;
    let start = |node| {
        let builder = builder(node).listen("tcp://127.0.0.1:0").limits(limits.clone());
        support::start(builder)
    };
    let (one, two) = (start(1).await, start(2).await);
    let (to_two, to_one) = (peer(&one, &two), peer(&two, &one));
    let until = Instant::now() + keep_alive * 3;
    let ask_often = async |from: &convoke::Endpoint, to: &convoke::Peer| {
        while Instant::now() < until {
            from.call(ECHO, ask("a")).to(to).await?;
        }
        Ok::<_, CallError>(())
    };
    tokio::try_join!(ask_often(&one, &to_two), ask_often(&two, &to_one))?;
    Ok(())
}

/// The longest time for which the runtime stood still meanwhile.
async fn with_stall<T>(act: impl Future<Output = T>) -> (T, Duration) {
    let (mut act, mut longest) = (pin!(act), Duration::ZERO);
    loop {
        let begun = Instant::now();
        let done = tokio::time::timeout(Duration::from_millis(10), &mut act).await;
        longest = longest.max(begun.elapsed());
        if let Ok(done) = done {
            return (done, longest);
        }
    }
}

#[tokio::test]
async fn tiny_limits_refuse_and_recover() -> Result {
    let mut limits = Limits::default();
    limits.tasks_max = 1;
    let server = support::start(builder(1).listen("tcp://127.0.0.1:0").limits(limits)).await;
    let client = client().await;
    let to = peer(&client, &server);
    let first = client.call(FAIL, ask("never")).to(to).open()?;
    let error = client.call(ECHO, ask("a")).to(to).await.unwrap_err();
    let failure = error.failure().expect("refused");
    assert_eq!((failure.cause, failure.executed), (Cause::Overloaded, Executed::No));
    drop(first);
    let answered = async { while client.call(ECHO, ask("a")).to(to).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(10), answered).await?;
    Ok(())
}
