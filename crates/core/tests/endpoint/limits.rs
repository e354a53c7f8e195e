//! Limits at both ends of what their types hold: calls work, or are refused in words.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::{
    CallError, Code, Context, Endpoint, Limits, Method, NodeId, RawMessage, Service, StartError,
    Status,
};
use convoke_sim::transport::SimNetwork;
use tokio::time::timeout;

/// Answers with what it was asked.
const ECHO: Method<RawMessage, RawMessage> = Method::new("test.Test/Echo");

/// Fails with so many bytes of details.
const FAIL: Method<u64, ()> = Method::new("test.Test/Fail");

/// Sets limits.
type Set = fn(&mut Limits);

/// The longest that times may be.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

fn service() -> Service {
    Service::new()
        .unary(ECHO, |message: RawMessage, _: Context| async { Ok::<_, Status>(message) })
        .unary(FAIL, |len: u64, _: Context| async move {
            let details = vec![7; usize::try_from(len).expect("a few bytes")];
            let failed = Status::new(Code::Unavailable, "x".repeat(4_000)).with_details(details);
            Err::<(), _>(failed.without_effect())
        })
}

async fn pair(limits: Limits) -> Result<(Endpoint, Endpoint), StartError> {
    pair_of(limits.clone(), limits).await
}

/// A server and a client.
async fn pair_of(of_server: Limits, of_client: Limits) -> Result<(Endpoint, Endpoint), StartError> {
    let network = SimNetwork::new(7);
    network.default_latency(Duration::from_millis(1));
    let builder = |node| Endpoint::builder().node(NodeId::new(node)).transport(network.transport());
    let server = builder(1).listen("sim://server:0").limits(of_server).serve(service());
    let server = server.start().await?;
    let client = builder(2).limits(of_client).start().await?;
    client.connect(&server.addresses()[0].to_string()).await.expect("the server listens");
    Ok((server, client))
}

async fn echo(client: &Endpoint, len: usize) -> Result<usize, CallError> {
    let request = ECHO.request(RawMessage::from(Bytes::from(vec![7; len])));
    let reply = client.invoke(request).to(NodeId::new(1)).deadline(Duration::MAX).into_future();
    let reply = timeout(Duration::from_secs(3_600), reply).await.expect("it ends");
    reply.map(|reply| reply.into_bytes().len())
}

#[tokio::test(start_paused = true)]
async fn limits_that_mean_none_are_taken() {
    let mut limits = Limits::default();
    limits.deadline_default = YEAR;
    limits.deadline_max = YEAR;
    limits.message_bytes_max = usize::MAX;
    limits.calls_max = usize::MAX;
    limits.branches_max = u32::MAX;
    limits.reply_bytes_max = u64::MAX;
    limits.waiting_reply_bytes_max = usize::MAX;
    limits.waiting_item_bytes_max = usize::MAX;
    limits.running_request_bytes_max = usize::MAX;
    limits.stream_window_bytes = u64::MAX;
    limits.tasks_max = usize::MAX;
    limits.remembered_max = usize::MAX;
    limits.winding_max = usize::MAX;
    limits.casts_max = usize::MAX;
    limits.cast_bytes_max = usize::MAX;
    limits.cast_bytes_total_max = usize::MAX;
    limits.dial_queue_bytes_max = usize::MAX;
    limits.dial_bytes_total_max = usize::MAX;
    limits.grace = YEAR;
    limits.worry_max = YEAR;
    limits.keep_alive_timeout = YEAR;
    limits.reply_dial_timeout = YEAR;
    limits.backoff_max = YEAR;
    limits.ask_every = YEAR;
    let (server, client) = pair(limits).await.expect("they agree with each other");
    for len in [0, 100, 1 << 20] {
        assert_eq!(echo(&client, len).await.expect("there is room"), len);
    }
    drop((server, client));
}

#[tokio::test(start_paused = true)]
async fn a_message_has_its_bytes_and_not_one_more() {
    let mut limits = Limits::default();
    limits.message_bytes_max = 100_000;
    let (server, client) = pair(limits).await.expect("they agree with each other");
    assert_eq!(echo(&client, 100_000).await.expect("it may have as many"), 100_000);
    let refused = echo(&client, 100_001).await;
    let is_told = matches!(refused, Err(CallError::TooLarge { size: 100_001, limit: 100_000 }));
    assert!(is_told, "{refused:?}");
    drop((server, client));
}

/// Together they are more than the call may hold: as many as fit come before anything is read, and
/// the rest behind them.
#[tokio::test(start_paused = true)]
async fn large_replies_of_many_servers_come_whole_to_a_late_reader() {
    let mut limits = Limits::default();
    (limits.message_bytes_max, limits.reply_bytes_max) = (300 << 10, 2 << 20);
    let network = SimNetwork::new(7);
    let endpoint = |id| Endpoint::builder().node(NodeId::new(id)).transport(network.transport());
    let client = endpoint(100).limits(limits).start().await.expect("its limits agree");
    let mut servers = Vec::new();
    for id in 1..=20 {
        let server = endpoint(id).listen(format!("sim://n{id}")).serve(service()).start().await;
        servers.push(server.expect("it is free"));
        client.connect(format!("sim://n{id}")).await.expect("the server listens");
    }
    let message = RawMessage::from(Bytes::from(vec![7; 200 << 10]));
    let call = client.call(ECHO, message).to_all((1..=20).map(NodeId::new));
    let call = call.deadline(Duration::from_secs(5)).open().expect("there is room");
    tokio::time::sleep(Duration::from_secs(1)).await; // What has credit comes.
    let (replies, outcome) = call.collect().await.expect("replies are bytes");
    assert!(outcome.is_complete(), "{outcome:?}");
    assert_eq!(replies.len(), 20);
}

/// Whatever is zero, a call ends in good time, and an idle node does nothing for ever so often: the
/// paused clock would not come to the end of an hour.
#[tokio::test(start_paused = true)]
async fn no_limit_of_zero_keeps_a_node_busy_or_a_call_open() {
    let all: [(&str, Set); 12] = [
        ("calls_max", |limits| limits.calls_max = 0),
        ("message_bytes_max", |limits| limits.message_bytes_max = 0),
        ("tasks_max", |limits| limits.tasks_max = 0),
        ("remembered_max", |limits| limits.remembered_max = 0),
        ("winding_max", |limits| limits.winding_max = 0),
        ("ask_min", |limits| limits.ask_min = 0),
        ("grace", |limits| limits.grace = Duration::ZERO),
        ("backoff_min and backoff_max", |limits| {
            (limits.backoff_min, limits.backoff_max) = (Duration::ZERO, Duration::ZERO);
        }),
        ("reply_dial_timeout", |limits| limits.reply_dial_timeout = Duration::ZERO),
        ("waiting_reply_bytes_max", |limits| limits.waiting_reply_bytes_max = 0),
        ("running_request_bytes_max", |limits| limits.running_request_bytes_max = 0),
        ("dial_bytes_total_max", |limits| limits.dial_bytes_total_max = 0),
    ];
    let refuses = ["calls_max", "message_bytes_max", "tasks_max", "remembered_max"];
    for (name, set) in all {
        let mut limits = Limits::default();
        set(&mut limits);
        let (server, client) = pair(limits).await.expect("zero is a limit");
        let outcome = echo(&client, 10).await;
        assert_eq!(outcome.is_err(), refuses.contains(&name), "{name}: {outcome:?}");
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(client.load().calls, 0, "{name}");
        drop((server, client));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_refused_in_words() {
    let refused: [(&str, Set); 9] = [
        ("keep_alive_timeout is below 100 ms", |limits| {
            limits.keep_alive_timeout = Duration::from_nanos(1);
        }),
        ("keep_alive_timeout is below 100 ms", |limits| {
            limits.keep_alive_timeout = Duration::from_millis(99);
        }),
        ("deadline_max is zero", |limits| {
            (limits.deadline_default, limits.deadline_max) = (Duration::ZERO, Duration::ZERO);
        }),
        ("deadline_default is zero", |limits| limits.deadline_default = Duration::ZERO),
        ("reply_bytes_max is below 128", |limits| {
            (limits.message_bytes_max, limits.reply_bytes_max) = (100, 100);
            (limits.unscheduled_bytes, limits.stream_window_bytes) = (1, 1);
        }),
        ("ask_every is zero", |limits| limits.ask_every = Duration::ZERO),
        ("worry_min is zero", |limits| limits.worry_min = Duration::ZERO),
        ("grace is above a year", |limits| limits.grace = Duration::MAX),
        ("backoff_max is above a year", |limits| limits.backoff_max = Duration::MAX),
    ];
    for (words, set) in refused {
        let mut limits = Limits::default();
        set(&mut limits);
        let error = pair(limits).await.map(drop).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// The other way round nobody can tell: the reply waits for its deadline.
#[tokio::test(start_paused = true)]
async fn a_reply_of_who_has_a_larger_unscheduled_part_is_refused_with_its_name() {
    let mut smaller = Limits::default();
    smaller.unscheduled_bytes /= 2;
    let (server, client) = pair_of(Limits::default(), smaller).await.expect("each is valid");
    let error = echo(&client, 100_000).await.expect_err("the server sends more than it may");
    assert!(error.to_string().contains("unscheduled_bytes"), "{error}");
    drop((server, client));
}

/// Nothing of it came, and its caller had to think that the task had run.
#[tokio::test(start_paused = true)]
async fn an_error_whose_details_are_too_long_comes_without_them() {
    let default = Limits::default();
    let mut small = Limits::default();
    small.message_bytes_max = 100;
    // Its details are within the limit of the server, and above what the client takes.
    let of_small = (63_000, 0);
    for (of_client, given) in [
        (default.clone(), vec![(64 << 10, 64 << 10), (70_000, 0), (20 << 20, 0)]),
        (small, vec![of_small, (30_000, 30_000)]),
    ] {
        let (server, client) = pair_of(default.clone(), of_client).await.expect("it starts");
        for (given, told) in given {
            let failed = client.call(FAIL, given).to(NodeId::new(1)).await.expect_err("it fails");
            let status = failed.status().unwrap_or_else(|| panic!("{given}: {failed}"));
            assert_eq!((status.code(), status.message().len()), (Code::Unavailable, 4_000));
            assert_eq!(status.details().len(), told, "{given}");
            assert!(failed.is_safe_to_repeat(), "{given}");
        }
        client.shutdown(Duration::ZERO).await;
        server.shutdown(Duration::ZERO).await;
    }
}
