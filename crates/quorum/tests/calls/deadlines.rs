//! Every way to set a deadline, against handlers that take longer, in virtual time.

use std::pin::Pin;
use std::time::Duration;

use convoke_core::{CallBuilder, CallError, Cause, End};
use convoke_quorum::{Majority, QuorumError, QuorumExt, Threshold};
use tokio::time::Instant;

use crate::support::{ASK, Behaviour, Cluster, HOP, node};

const DEADLINE: Duration = Duration::from_millis(200);

/// All of them answer after 1.5 s.
async fn slow_cluster() -> Cluster {
    let cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::After(1_500)));
    // The first request dials; the second finds connections, so that its call can begin flat.
    cluster.all(ASK, 0).open().expect("there is room").outcome().await;
    cluster
}

fn cause_of(error: &CallError) -> Option<Cause> {
    error.failure().map(|failure| failure.cause)
}

fn causes_of(error: &QuorumError) -> Vec<Option<Cause>> {
    let shortfall = error.shortfall().expect("it was opened");
    shortfall.failed.iter().map(|(_, error)| error.cause()).collect()
}

type Way<'a> = (&'static str, Pin<Box<dyn Future<Output = Vec<Option<Cause>>> + 'a>>);

#[tokio::test(start_paused = true)]
async fn whichever_way_a_deadline_is_set_it_is_kept() {
    let cluster = slow_cluster().await;
    let (client, peer) = (&cluster.client, cluster.members.members()[0]);
    let all = || cluster.all(ASK, 1);
    let call = async |call: CallBuilder<_>| vec![cause_of(&call.await.expect_err("it is late"))];
    let short = || ASK.request(1).deadline(DEADLINE);
    let ways: [Way<'_>; 7] = [
        ("an invocation", {
            let invocation = client.call(ASK, 1).deadline(DEADLINE);
            Box::pin(call(invocation.to(peer)))
        }),
        ("the request of an invocation", { Box::pin(call(client.invoke(short()).to(peer))) }),
        ("a call", {
            let asked = client.call(ASK, 1).to(peer);
            Box::pin(call(asked.deadline(DEADLINE)))
        }),
        ("the request of a branch", { Box::pin(call(client.invoke(short()).to(peer))) }),
        ("a quorum call", {
            let quorum = all().quorum_call().deadline(DEADLINE).quorum(Majority);
            Box::pin(async { causes_of(&quorum.await.expect_err("they are late")) })
        }),
        ("the request to each member", {
            let quorum = cluster.members.each(client, |_| Some(short())).quorum(Majority);
            Box::pin(async { causes_of(&quorum.await.expect_err("they are late")) })
        }),
        ("the request to each member, beside a longer one of the call", {
            let quorum = cluster.members.each(client, |_| Some(short()));
            let quorum = quorum.deadline(DEADLINE * 2).quorum(Majority);
            Box::pin(async { causes_of(&quorum.await.expect_err("they are late")) })
        }),
    ];
    for (way, asked) in ways {
        let start = Instant::now();
        let causes = asked.await;
        assert_eq!(start.elapsed(), DEADLINE, "{way}");
        assert!(!causes.is_empty() && causes.iter().all(|cause| *cause == Some(Cause::Deadline)));
    }
    // The requests left with that deadline, so the handlers were stopped with it.
    cluster.settle().await;
    assert_eq!(cluster.replica(1).stopped(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_is_late_ends_alone() {
    let cluster = slow_cluster().await;
    let [one, two, three] = *cluster.members.members() else { panic!("three were started") };
    let start = Instant::now();
    let mut call = cluster
        .client
        .fan_out([
            (&one, ASK.request(1).deadline(DEADLINE)),
            (&two, ASK.request(2)),
            (&three, ASK.request(3).deadline(Duration::from_secs(60))),
        ])
        .deadline(Duration::from_secs(3))
        .open()
        .expect("there is room");
    let late = call.next().await.expect("a failure").expect_err("it is late");
    assert_eq!((cause_of(&late), start.elapsed()), (Some(Cause::Deadline), DEADLINE));
    let (replies, outcome) = call.collect().await.expect("they decode");
    assert_eq!((replies.len(), outcome.end), (2, End::Partial));
    assert_eq!(start.elapsed(), Duration::from_millis(1_500) + 2 * HOP);
}

/// The request of one member has a deadline of its own: that of the call has not passed by then.
#[tokio::test(start_paused = true)]
async fn the_deadline_of_one_member_is_not_that_of_the_call() {
    let mut cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::Hang));
    let call = cluster.members.each(&cluster.client, |peer| {
        let request = ASK.request(1);
        Some(match peer.node() == node(1) {
            true => request.deadline(Duration::from_millis(100)),
            false => request,
        })
    });
    let call = tokio::spawn(async move { call.quorum(Threshold(2)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.crash(2);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
}
