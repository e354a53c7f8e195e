//! One-way requests: to one, to all, waited for or not.

use std::time::Duration;

use convoke_core::Limits;
use convoke_quorum::{Latencies, Majority, MulticastError, QuorumExt, Retry};
use tokio::time::Instant;

use crate::support::{self, ASK, Behaviour, Cluster, HOP, NOTE, node, nodes};

#[tokio::test(start_paused = true)]
async fn a_waiting_multicast_fails_when_a_member_is_stopped_and_a_forgotten_one_never() {
    for stopped in 0..=3_u64 {
        let mut cluster = Cluster::start(3).await;
        (1..=stopped).for_each(|id| cluster.crash(id));
        tokio::time::sleep(10 * HOP).await;
        let sent = cluster.all(NOTE, 1).send().await;
        assert_eq!(sent.is_ok(), stopped == 0);
        if let Err(error) = sent {
            let MulticastError::Unsent { members, failed } = &error else { panic!("{error}") };
            let missed: Vec<_> = failed.iter().map(|(member, _)| *member).collect();
            assert_eq!((*members, missed), (3, nodes(1..=stopped)), "{error}");
        }
        cluster.all(NOTE, 2).send_and_forget().unwrap();
        cluster.settle().await;
        for id in stopped + 1..=3 {
            assert_eq!(cluster.replica(id).asked(), [1, 2], "the others get theirs");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_multicast_waits_for_no_reply_and_the_members_run_on() {
    let cluster = Cluster::start(3).await;
    (1..=3).for_each(|id| cluster.will(id, Behaviour::After(300)));
    let start = Instant::now();
    cluster.all(ASK, 1).send().await.unwrap();
    cluster.all(ASK, 2).send_and_forget().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "they are on their way");
    cluster.settle().await;
    assert!((1..=3).all(|id| cluster.replica(id).asked() == [1, 2]));
    assert!((1..=3).all(|id| cluster.replica(id).stopped() == 0));
}

#[tokio::test(start_paused = true)]
async fn a_multicast_that_is_given_up_stays_sent() {
    let cluster = Cluster::start(3).await;
    // The third is not connected and takes long to dial.
    cluster.network.cut(node(support::CLIENT), node(3));
    tokio::time::sleep(HOP).await;
    cluster.network.partition(node(support::CLIENT), node(3));
    let sending = tokio::time::timeout(5 * HOP, cluster.all(NOTE, 1).send());
    assert!(sending.await.is_err());
    cluster.network.heal_all();
    cluster.settle().await;
    assert!((1..=2).all(|id| cluster.replica(id).asked() == [1]));
}

/// It has its request: who sent it again would have it run twice.
#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_hand_its_request_on_is_not_told_as_unsent() {
    let cluster = Cluster::start(2).await;
    cluster.will(1, Behaviour::HandOn); // To one that it does not know.
    // The other takes long to dial.
    cluster.network.cut(node(support::CLIENT), node(2));
    tokio::time::sleep(HOP).await;
    cluster.network.partition(node(support::CLIENT), node(2));
    let sent = cluster.all(ASK, 1).send().await;
    let Err(MulticastError::Unsent { members, failed }) = sent else { panic!("{sent:?}") };
    let missed: Vec<_> = failed.iter().map(|(member, _)| *member).collect();
    assert_eq!((members, missed), (2, vec![node(2)]), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_unicast_is_a_multicast_to_one_and_keeps_its_place_among_calls() {
    let cluster = Cluster::start(2).await;
    let member = cluster.members.members()[0];
    let note = |number| cluster.client.call(NOTE, number).to(member);
    note(1).send().await.unwrap();
    note(2).send_and_forget().unwrap();
    note(3).quorum(Majority).await.unwrap();
    note(4).send().await.unwrap();
    cluster.settle().await;
    assert_eq!(cluster.replica(1).asked(), [1, 2, 3, 4]);
    assert!(cluster.replica(2).asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn members_that_multicast_to_all_themselves_included_deliver_each_exactly_once() {
    let cluster = Cluster::start(3).await;
    for id in 1..=3 {
        let call = cluster.endpoint(id).call(NOTE, id).to_all(&cluster.members);
        call.send().await.unwrap();
    }
    cluster.settle().await;
    for id in 1..=3 {
        let mut noted = cluster.replica(id).asked();
        noted.sort_unstable();
        assert_eq!(noted, [1, 2, 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_opened_is_not_sent_at_all() {
    let mut limits = Limits::default();
    limits.calls_max = 1;
    let cluster = Cluster::start_with(2, limits).await;
    cluster.will(1, Behaviour::Hang);
    let _open = cluster.all(ASK, 1).quorum_call().open().unwrap();
    let refused = cluster.all(ASK, 2).send_and_forget();
    assert!(matches!(refused, Err(MulticastError::NotOpened(_))));
    assert!(matches!(cluster.all(ASK, 3).send().await, Err(MulticastError::NotOpened(_))));
    tokio::time::sleep(5 * HOP).await;
    assert_eq!(cluster.replica(2).asked(), [1]);
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_about_replies_are_refused_of_one_way_requests() {
    let cluster = Cluster::start(2).await;
    let refused = |sent: Result<(), MulticastError>| match sent {
        Err(MulticastError::NotOneWay { setting }) => setting,
        sent => panic!("{sent:?}"),
    };
    let note = || cluster.all(NOTE, 1);
    assert_eq!(refused(note().retry(Retry::times(1)).send().await), "retry");
    assert_eq!(refused(note().hedge(1, HOP).send_and_forget()), "hedge");
    assert_eq!(refused(note().cancel_late().send().await), "cancel_late");
    assert_eq!(refused(note().late(|_, _| {}).send().await), "late");
    assert_eq!(refused(note().latencies(&Latencies::new()).send_and_forget()), "latencies");
    assert_eq!(refused(note().among(&cluster.members).send().await), "among");
    cluster.settle().await;
    assert!((1..=2).all(|id| cluster.replica(id).asked().is_empty()));
    let call = cluster.members.each(&cluster.client, |_| Some(NOTE.request(2)));
    call.deadline(Duration::from_secs(1)).send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_leave_nothing_behind() {
    let cluster = Cluster::start(1).await;
    for round in 0..100_u64 {
        for number in 0..1_000 {
            cluster.all(NOTE, round * 1_000 + number).send_and_forget().unwrap();
        }
        tokio::time::sleep(2 * HOP).await;
        assert!(cluster.client.load().calls <= 1_000, "what is answered is forgotten");
    }
    assert_eq!(cluster.replica(1).asked().len(), 100_000);
    cluster.settle().await;
    for endpoint in cluster.endpoints.iter().flatten().chain([&cluster.client]) {
        let load = endpoint.load();
        let held = load.calls + load.unsettled + load.tasks + load.remembered + load.stubs;
        assert_eq!((held, load.waiting), (0, 0), "{load:?}");
        // Nodes are known by their address, and no more of them than there are.
        assert!(load.nodes <= 3 && load.connections <= 3, "{load:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn forgotten_requests_to_a_member_that_is_down_leave_nothing_behind() {
    let mut cluster = Cluster::start(2).await;
    cluster.crash(2);
    tokio::time::sleep(10 * HOP).await;
    for number in 0..1_000 {
        cluster.all(NOTE, number).send_and_forget().unwrap();
    }
    cluster.settle().await;
    let load = cluster.client.load();
    assert_eq!((load.calls, load.unsettled, load.waiting), (0, 0, 0), "{load:?}");
    assert_eq!(cluster.replica(1).asked().len(), 1_000);
}
