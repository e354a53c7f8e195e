//! Connected members, waiting for them, and the fast ones among them.

use std::time::Duration;

use convoke_core::Endpoint;
use convoke_quorum::{
    All, Configuration, First, Latencies, MemberChange, Membership, QuorumExt, Stopped,
};
use convoke_sim::transport::SimNetwork;

use crate::support::{self, ASK, Behaviour, Cluster, HOP, addressed, endpoint, node, nodes};

async fn start(network: &SimNetwork, id: u64, members: &Configuration) -> Endpoint {
    let started = endpoint(network, id).start().await.expect("the name is free");
    members.introduce(&started).expect("they are addresses");
    started
}

fn ids(configuration: &Configuration) -> Vec<u64> {
    configuration.nodes().map(|node| node.get()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_itself_is_in_at_once_and_members_join_and_leave_once_each() {
    let (network, members) = (SimNetwork::new(7), addressed(3));
    let one = start(&network, 1, &members).await;
    let mut membership = Membership::watch(&one, &members);
    assert_eq!(ids(&membership.connected()), [1]);
    // In reverse order, and a stranger that is never in.
    let three = start(&network, 3, &members).await;
    three.connect("sim://n1").await.unwrap();
    let stranger = start(&network, 9, &members).await;
    stranger.connect("sim://n1").await.unwrap();
    let two = start(&network, 2, &members).await;
    two.connect("sim://n1").await.unwrap();
    let mut joined = [membership.changed().await, membership.changed().await];
    joined.sort_by_key(|change| format!("{change:?}"));
    assert_eq!(joined, [2, 3].map(|id| Ok(MemberChange::Joined(node(id)))));
    assert_eq!(ids(&membership.connected()), [1, 2, 3]);

    network.crash(node(2));
    assert_eq!(membership.changed().await, Ok(MemberChange::Left(node(2))));
    assert_eq!(ids(&membership.connected()), [1, 3]);
    let nothing = tokio::time::timeout(Duration::from_secs(60), membership.changed()).await;
    assert!(nothing.is_err(), "one event for one change");
}

#[tokio::test(start_paused = true)]
async fn waiting_is_over_at_once_when_the_condition_holds_and_else_with_the_member_that_joins() {
    let (network, members) = (SimNetwork::new(7), addressed(3));
    let one = start(&network, 1, &members).await;
    let mut membership = Membership::keep_connected(&one, &members);
    assert_eq!(ids(&membership.wait_until(|_| true).await.unwrap()), [1]);
    let late = tokio::time::timeout(
        Duration::from_secs(1),
        membership.wait_until(|connected| connected.len() >= 2),
    );
    assert!(late.await.is_err());

    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let mut membership = Membership::watch(&one, &members);
            tokio::spawn(async move { membership.wait_until(|all| all.len() == 3).await })
        })
        .collect();
    let _two = start(&network, 2, &members).await;
    let _three = start(&network, 3, &members).await;
    for waiter in waiting {
        assert_eq!(ids(&waiter.await.unwrap().unwrap()), [1, 2, 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_when_the_endpoint_stops_is_told() {
    let (network, members) = (SimNetwork::new(7), addressed(2));
    let one = start(&network, 1, &members).await;
    let mut waiting = Membership::keep_connected(&one, &members);
    let mut watching = Membership::watch(&one, &members);
    let waiter = tokio::spawn(async move { waiting.wait_until(|all| all.len() == 2).await });
    let watcher = tokio::spawn(async move { watching.changed().await });
    tokio::time::sleep(HOP).await;
    one.shutdown(Duration::ZERO).await;
    assert_eq!(waiter.await.unwrap(), Err(Stopped));
    assert_eq!(watcher.await.unwrap(), Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_restarts_at_its_address_is_back_by_itself() {
    let mut cluster = Cluster::start(2).await;
    let mut membership = Membership::keep_connected(&cluster.client, &cluster.members);
    cluster.crash(2);
    membership.wait_until(|connected| connected.len() == 1).await.unwrap();
    let call = cluster.all(ASK, 1);
    assert!(call.quorum(All).await.is_err());
    let service = support::service(cluster.replica(2), &cluster.members);
    let back = endpoint(&cluster.network, 2).seed(22).serve(service).start().await.unwrap();
    membership.wait_until(|connected| connected.len() == 2).await.unwrap();
    cluster.all(ASK, 2).quorum(All).await.unwrap();
    drop(back);
}

#[tokio::test(start_paused = true)]
async fn latencies_are_those_of_the_members_and_say_whom_to_ask_first() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::After(50));
    let latencies = Latencies::new();
    let mut watcher = latencies.watch(&cluster.members);
    let order = |order: &[convoke_core::Peer]| {
        order.iter().map(|peer| peer.node().get()).collect::<Vec<_>>()
    };
    assert_eq!(watcher.next().await.map(order), Some(vec![1, 2, 3]));
    let measured = || cluster.all(ASK, 1).latencies(&latencies);
    measured().quorum(All).await.unwrap();
    let expected = [50, 0, 0].map(|ms| Some(2 * HOP + Duration::from_millis(ms)));
    assert_eq!([1, 2, 3].map(|id| latencies.of(node(id))), expected);
    assert_eq!(watcher.next().await.map(order), Some(vec![2, 3, 1]));
    measured().quorum(All).await.unwrap();
    let unchanged = tokio::time::timeout(Duration::from_secs(1), watcher.next()).await;
    assert!(unchanged.is_err(), "the order is the same");

    // A member that fails at once is not fast.
    cluster.will(2, Behaviour::Refuse);
    let before = latencies.of(node(2));
    measured().quorum(First).await.unwrap();
    assert_eq!(latencies.of(node(2)), before);
    // The fastest are asked first.
    let nearest = latencies.order(&cluster.members);
    let call = cluster.client.call(ASK, 5).to_all(&nearest);
    let hedged = call.hedge(2, Duration::from_secs(1));
    assert_eq!(hedged.acked_by(First).await.unwrap().node, 3);
    assert_eq!(latencies.nearest(2, &cluster.members).nodes().collect::<Vec<_>>(), nodes([2, 3]));
}
