//! Ten faults that quorum-call libraries are known to have, each as a test that there is none of it
//! here.

use std::time::Duration;

use convoke_core::{Cause, Endpoint, Executed, Method, Peer};
use convoke_quorum::{
    All, Configuration, First, Majority, QuorumError, QuorumExt, Threshold, Unsuitable, Verdict,
};
use convoke_transport_tcp::TcpTransport;
use tokio::time::Instant;

use crate::support::{
    self, ASK, Answer, Behaviour, CLIENT, Cluster, HOP, NOTE, STREAM, node, nodes,
};

#[tokio::test(start_paused = true)]
async fn defect_1_a_lost_quorum_is_noticed_at_once_and_a_deadline_can_be_told_from_it() {
    let cluster = Cluster::start(3).await;
    [Behaviour::Refuse, Behaviour::Refuse, Behaviour::Hang]
        .into_iter()
        .zip(1..)
        .for_each(|(behaviour, id)| cluster.will(id, behaviour));
    let start = Instant::now();
    let error = cluster.all(ASK, 1).quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)) && start.elapsed() == 2 * HOP, "{error}");
    (1..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    let call = cluster.all(ASK, 1).deadline(Duration::from_millis(100));
    assert!(matches!(call.quorum(Majority).await, Err(QuorumError::Deadline(_))));
}

#[tokio::test(start_paused = true)]
async fn defect_2_a_member_that_takes_nothing_delays_no_call_to_the_others() {
    let cluster = Cluster::start(3).await;
    // Frames to the third member are kept in its connection until that is full to the brim.
    cluster.network.partition(node(CLIENT), node(3));
    let large = "x".repeat(1 << 20);
    const FILL: Method<String, Answer> = Method::new("test.Replica/Fill");
    let mut refused = None;
    for count in 0..40 {
        let call = cluster.client.call(FILL, large.clone());
        let call = call.deadline(Duration::from_secs(2)).to(cluster.members.members()[2]);
        let failed = call.send().await;
        if let Err(error) = failed {
            refused = Some((count, error.to_string()));
            break;
        }
    }
    let (count, error) = refused.expect("a connection does not take 40 MiB that nobody reads");
    assert!((10..20).contains(&count) && error.contains("no room"), "{count}: {error}");

    let start = Instant::now();
    cluster.all(ASK, 7).quorum(Majority).await.unwrap();
    assert_eq!(start.elapsed(), 2 * HOP);
    let start = Instant::now();
    let call = cluster.all(ASK, 8).deadline(Duration::from_millis(500));
    let error = call.quorum(All).await.unwrap_err();
    assert!(start.elapsed() <= Duration::from_millis(500));
    assert_eq!(error.missing().collect::<Vec<_>>(), nodes([3]));
    // The connection is the same one: once it is read again, all that was sent arrives.
    cluster.network.heal_all();
    cluster.settle().await;
    assert_eq!(cluster.client.load().connections, 3);
    cluster.all(ASK, 9).quorum(All).await.unwrap();
    assert!(cluster.replica(3).asked().ends_with(&[9]));
}

/// Somebody who accepts and never says a word.
struct Silent {
    address: String,
    accepting: tokio::task::JoinHandle<()>,
}

impl Silent {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("tcp://{}", listener.local_addr().expect("it is bound"));
        let accepting = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                kept.push(socket);
            }
        });
        Self { address, accepting }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[tokio::test]
async fn defect_2_over_tcp_a_peer_that_accepts_and_stays_silent_is_only_missing() {
    let silent = Silent::start().await;
    let mut members = vec![(node(1), silent.address.clone())];
    let mut servers = Vec::new();
    for id in 2..=3 {
        let service = support::service(&support::Replica::new(id), &support::addressed(1));
        let server = Endpoint::builder().node(node(id)).transport(TcpTransport::new());
        let server = server.serve(service).listen("tcp://127.0.0.1:0").start().await.unwrap();
        members.push((node(id), server.addresses()[0].to_string()));
        servers.push(server);
    }
    let members = Configuration::new(members).unwrap();
    let client = Endpoint::builder().transport(TcpTransport::new()).peers(&members);
    let client = client.start().await.unwrap();
    let ask = |number| client.call(ASK, number).to_all(&members);
    assert_eq!(ask(1).acked_by(Majority).await.unwrap().number, 1);
    let call = ask(2).deadline(Duration::from_millis(200));
    let error = call.quorum(All).await.unwrap_err();
    assert!(matches!(error, QuorumError::Deadline(_)), "{error}");
    assert_eq!(error.missing().collect::<Vec<_>>(), nodes([1]));
    assert_eq!(ask(3).acked_by(Majority).await.unwrap().number, 3);
    for endpoint in servers.into_iter().chain([client]) {
        endpoint.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn defect_3_a_slow_handler_on_the_callers_own_node_holds_up_no_other_call() {
    let cluster = Cluster::start(3).await;
    let me = cluster.endpoint(1);
    cluster.will(1, Behaviour::Hang);
    let ask = |number| me.call(ASK, number).to_all(&cluster.members);
    for number in 0..10 {
        let start = Instant::now();
        assert_eq!(ask(number).acked_by(Majority).await.unwrap().number, number);
        assert_eq!(start.elapsed(), 2 * HOP);
    }
    let call = ask(10).deadline(Duration::from_millis(100));
    assert!(matches!(call.quorum(All).await, Err(QuorumError::Deadline(_))));
}

#[tokio::test(start_paused = true)]
async fn defect_4_a_connection_that_is_cut_runs_nothing_twice() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::After(200));
    let call = cluster.all(ASK, 1);
    let asked = tokio::spawn(async move { call.quorum(All).await });
    tokio::time::sleep(5 * HOP).await;
    assert_eq!(cluster.network.cut(node(CLIENT), node(1)), 1);
    let error = asked.await.unwrap().unwrap_err();
    let failures: Vec<_> = error.shortfall().unwrap().failed.iter().collect();
    assert_eq!((failures.len(), failures[0].0), (1, node(1)));
    let failure = failures[0].1.failure().unwrap();
    assert_eq!((failure.cause, failure.executed), (Cause::NodeDown, Executed::Maybe));
    cluster.settle().await;
    cluster.will(1, Behaviour::Reply);
    cluster.all(ASK, 2).quorum(All).await.unwrap();
    assert_eq!(cluster.replica(1).asked(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn defect_4_a_call_that_is_given_up_while_it_is_sent_repeats_no_other() {
    let cluster = Cluster::start(3).await;
    for number in 0..200 {
        // Left as soon as the majority is in, as is usual; every other one is dropped right after
        // its start.
        let large = cluster.all(ASK, 1_000 + number).quorum_call().open().unwrap();
        cluster.all(NOTE, number).quorum(Majority).await.unwrap();
        drop(large);
    }
    cluster.settle().await;
    for id in 1..=3 {
        let noted = cluster.replica(id).asked();
        let noted: Vec<u64> = noted.into_iter().filter(|number| *number < 1_000).collect();
        assert_eq!(noted, (0..200).collect::<Vec<_>>(), "each once, in order");
    }
}

#[tokio::test(start_paused = true)]
async fn defect_5_skipped_members_are_no_successes() {
    let cluster = Cluster::start(3).await;
    cluster.will(3, Behaviour::Refuse);
    let only_third = |member: Peer| (member.node() == node(3)).then(|| ASK.request(1));
    let call = cluster.members.each(&cluster.client, only_third);
    let error = call.quorum(Majority).await.unwrap_err();
    assert_eq!(error.shortfall().unwrap().skipped, nodes([1, 2]));
}

#[tokio::test(start_paused = true)]
async fn defect_6_a_level_counts_members_not_messages() {
    let cluster = Cluster::start(3).await;
    (2..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    // Replica 1 streams a hundred items, the others one each.
    let call = cluster.all(STREAM, 100).deadline(Duration::from_secs(5));
    let correctable = call.correctable(|replies| {
        Verdict::Preliminary(replies.latest().map_or(0, |(_, item)| item.number))
    });
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(correctable.level(), 3);
    assert!(correctable.latest().unwrap() > 50, "most messages are of one member");
    assert!(tokio::time::timeout(HOP, correctable.watch(4)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn defect_7_calls_that_time_out_leave_nothing_behind() {
    let cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    for _ in 0..5 {
        let calls = (0..100).map(|number| {
            let call = cluster.all(ASK, number).deadline(Duration::from_millis(10));
            tokio::spawn(async move { call.quorum(Majority).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(matches!(call.await.unwrap(), Err(QuorumError::Deadline(_))));
        }
    }
    cluster.settle().await;
    for endpoint in cluster.endpoints.iter().flatten().chain([&cluster.client]) {
        let load = endpoint.load();
        let held = load.calls + load.unsettled + load.tasks + load.remembered + load.stubs;
        assert_eq!((held, load.waiting), (0, 0), "{load:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn defect_7_not_even_a_hundred_thousand_of_them_do() {
    let cluster = Cluster::start(1).await;
    cluster.will(1, Behaviour::Hang);
    for _ in 0..100 {
        let calls: Vec<_> = (0..1_000)
            .map(|number| {
                let call = cluster.all(ASK, number).deadline(Duration::from_millis(60));
                call.quorum_call().open().expect("there are few at once")
            })
            .collect();
        for call in calls {
            assert!(matches!(call.quorum(Majority).await, Err(QuorumError::Deadline(_))));
        }
    }
    cluster.settle().await;
    assert_eq!(cluster.replica(1).stopped(), 100_000);
    for endpoint in [cluster.endpoint(1), &cluster.client] {
        let load = endpoint.load();
        let held = load.calls + load.unsettled + load.tasks + load.remembered + load.stubs;
        assert_eq!((held, load.waiting), (0, 0), "{load:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn defect_8_deadline_and_cancellation_reach_the_handlers() {
    let cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    let call = cluster.all(ASK, 1).deadline(Duration::from_millis(100));
    call.quorum(Majority).await.unwrap_err();
    tokio::time::sleep(2 * HOP).await;
    assert!((1..=3).all(|id| cluster.replica(id).stopped() == 1));

    let call = tokio::time::timeout(3 * HOP, cluster.all(ASK, 2).quorum(Majority)).await;
    assert!(call.is_err(), "it was given up");
    tokio::time::sleep(2 * HOP).await;
    assert!((1..=3).all(|id| cluster.replica(id).stopped() == 2));
}

#[tokio::test(start_paused = true)]
async fn defect_9_thresholds_that_cannot_be_are_refused() {
    let cluster = Cluster::start(3).await;
    let zero = cluster.all(ASK, 1).quorum(Threshold(0)).await.unwrap_err();
    assert!(matches!(zero, QuorumError::Unsuitable(Unsuitable::ThresholdZero)));
    let four = cluster.all(ASK, 1).quorum(Threshold(4)).await.unwrap_err();
    assert!(matches!(four, QuorumError::Unsuitable(Unsuitable::ThresholdTooHigh { .. })));
    cluster.settle().await;
    assert!((1..=3).all(|id| cluster.replica(id).asked().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn defect_10_an_unknown_method_is_answered_and_a_majority_is_more_than_half() {
    const NOBODY: Method<u64, Answer> = Method::new("test.Replica/Nobody");
    let cluster = Cluster::start(4).await;
    let error = cluster.all(NOBODY, 1).quorum(First).await.unwrap_err();
    let unknown = error.failed(|error| error.cause() == Some(Cause::UnknownMethod));
    assert_eq!(unknown.count(), 4);
    (1..=2).for_each(|id| cluster.will(id, Behaviour::Refuse));
    let error = cluster.all(ASK, 1).quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "2 of 4 are no majority");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_does_not_keep_the_others_from_forgetting() {
    // Few may be remembered, and each call leaves one at each that lives.
    let mut limits = convoke_core::Limits::default();
    limits.remembered_max = 4_000;
    let mut cluster = Cluster::start_with(4, limits).await;
    cluster.crash(4);
    for number in 0..200 {
        let calls = (0..100).map(|at| {
            let call = cluster.all(ASK, 100 * number + at);
            tokio::spawn(async move { call.quorum(Threshold(3)).await.map(|all| all.len()) })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap().unwrap(), 3, "{number}");
        }
    }
    let remembered = (1..=3).map(|id| cluster.endpoint(id).load().remembered);
    assert!(remembered.max().unwrap() < 1_000);
}
