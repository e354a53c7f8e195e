//! Quorums over the leaves of a tree, and quorum calls among servers and back to their clients.

use std::time::Duration;

use convoke_core::{Context, Endpoint, Method, Peer, Service, Status, Task};
use convoke_quorum::{
    All, Byzantine, Configuration, Majority, MemberError, QuorumError, QuorumExt, Verdict,
};
use convoke_sim::transport::SimNetwork;
use tokio::time::Instant;

use crate::support::{self, ASK, Answer, Behaviour, Cluster, HOP, NOTE, STREAM, node, nodes};

#[tokio::test(start_paused = true)]
async fn giving_up_reaches_the_handlers_of_all_members_that_live_also_below_a_leader() {
    let mut cluster = Cluster::start(4).await;
    (2..=4).for_each(|id| cluster.will(id, Behaviour::Hang));
    cluster.crash(4);
    tokio::time::sleep(10 * HOP).await;
    let leader = cluster.members.members()[0];
    let lead = || cluster.client.call(support::LEAD, 1).to(leader);
    let acceptors = cluster.members.without([leader.node()]);
    let given_up = tokio::time::timeout(5 * HOP, lead().among(&acceptors).quorum(All)).await;
    // One that is down makes all of them impossible, and what was asked runs on.
    assert!(matches!(given_up, Ok(Err(QuorumError::Impossible(_)))), "{given_up:?}");
    assert_eq!((cluster.replica(2).stopped(), cluster.replica(3).stopped()), (0, 0));
    let given_up = tokio::time::timeout(5 * HOP, lead().among(&acceptors).quorum(Majority)).await;
    assert!(given_up.is_err());
    tokio::time::sleep(3 * HOP).await;
    assert_eq!((cluster.replica(2).stopped(), cluster.replica(3).stopped()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_the_leaves_takes_three_one_way_delays_and_through_the_leader_four() {
    let cluster = Cluster::start(4).await;
    let leader = cluster.members.members()[0];
    let acceptors = cluster.members.without([leader.node()]);
    let lead = |number| {
        let call = cluster.client.call(support::LEAD, number).to(leader);
        call.among(&acceptors)
    };
    let start = Instant::now();
    let answers = lead(7).quorum(Majority).await.unwrap();
    assert_eq!((answers.len(), start.elapsed()), (2, 3 * HOP));
    assert!(answers.iter().all(|(member, answer)| member.get() == answer.node));

    // One acceptor is down, one refuses: impossible as soon as both are known.
    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Refuse);
    cluster.will(4, Behaviour::Hang);
    let start = Instant::now();
    let error = lead(8).quorum(Majority).await.unwrap_err();
    assert_eq!(start.elapsed(), 3 * HOP);
    assert_eq!(error.failed(|_| true).collect::<Vec<_>>(), nodes([2, 3]));
}

#[tokio::test(start_paused = true)]
async fn acceptors_that_end_without_a_reply_are_lost_at_once() {
    let cluster = Cluster::start(4).await;
    let leader = cluster.members.members()[0];
    (2..=3).for_each(|id| cluster.will(id, Behaviour::Silent));
    cluster.will(4, Behaviour::Hang);
    let acceptors = cluster.members.without([leader.node()]);
    let lead = || cluster.client.call(support::LEAD, 7).to(leader).among(&acceptors);
    for error in [
        tokio::time::timeout(4 * HOP, lead().quorum(Majority)).await,
        // They say so themselves, so it holds also where a leader may lie.
        tokio::time::timeout(4 * HOP, lead().quorum(Byzantine { faulty: 0 })).await,
    ] {
        let error = error.expect("it is known at once").unwrap_err();
        assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
        let is_silent = |error: &MemberError| matches!(error, MemberError::Silent);
        assert_eq!(error.failed(is_silent).collect::<Vec<_>>(), nodes([2, 3]), "{error}");
    }
}

/// A rule that waits until streams are over hears of it of each leaf.
#[tokio::test(start_paused = true)]
async fn acceptors_that_end_their_streams_are_known_to_while_another_goes_on() {
    let cluster = Cluster::start(4).await;
    cluster.will(4, Behaviour::Hang);
    let acceptors = cluster.members.without([node(1)]);
    let others: Vec<_> = acceptors.nodes().collect();
    let service = Service::new().tree(support::LEAD, move |count, task: Task<Answer>| {
        let others = others.clone();
        async move { task.fan_out(others.into_iter().map(|to| (to, STREAM.request(count)))).await }
    });
    let leader = support::endpoint(&cluster.network, 50).serve(service);
    let leader = (2..=4).fold(leader, |leader, id| leader.peer(node(id), format!("sim://n{id}")));
    let _leader = leader.start().await.unwrap();
    cluster.client.connect("sim://n50").await.unwrap();
    let call = cluster.client.call(support::LEAD, 3).to(node(50)).among(&acceptors);
    let ended = call.quorum_by(|replies| match replies.len() - replies.streaming().len() {
        0 | 1 => Verdict::Continue,
        _ => Verdict::Done(replies.len()),
    });
    let ended = tokio::time::timeout(Duration::from_secs(1), ended).await;
    assert_eq!(ended.expect("two are over at once").unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_acceptor_counts_once_however_often_it_replies() {
    let cluster = Cluster::start(4).await;
    let leader = cluster.members.members()[0];
    cluster.will(2, Behaviour::Twice);
    cluster.will(3, Behaviour::Hang);
    cluster.will(4, Behaviour::After(100));
    let call = cluster.client.call(support::LEAD, 1).to(leader);
    let acceptors = cluster.members.without([leader.node()]);
    let start = Instant::now();
    let decided = call.among(&acceptors).quorum(Majority).detailed().await.unwrap();
    assert_eq!(start.elapsed(), 3 * HOP + Duration::from_millis(100));
    assert_eq!(decided.answered.nodes().collect::<Vec<_>>(), nodes([2, 4]));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_down_makes_it_impossible_at_once() {
    let mut cluster = Cluster::start(4).await;
    let leader = cluster.members.members()[0];
    cluster.crash(1);
    tokio::time::sleep(10 * HOP).await;
    let acceptors = cluster.members.without([leader.node()]);
    let call = cluster.client.call(support::LEAD, 1).to(leader);
    let start = Instant::now();
    let error = call.among(&acceptors).quorum(Majority).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((&short.silent, short.others.len()), (&nodes([2, 3, 4]), 1), "{error}");
}

/// Starts a leader that asks some acceptors, of which one may be elsewhere.
async fn start_leader(cluster: &Cluster, leader: u64, asked: &[(u64, &str)]) -> Endpoint {
    let acceptors = nodes(asked.iter().map(|(id, _)| *id));
    let service = Service::new().tree(support::LEAD, move |number, task: Task<Answer>| {
        let asked: Vec<_> = acceptors.iter().map(|to| (*to, ASK.request(number))).collect();
        async move { task.fan_out(asked).await }
    });
    let builder = support::endpoint(&cluster.network, leader).serve(service);
    let builder = asked.iter().fold(builder, |builder, (id, at)| builder.peer(node(*id), *at));
    let endpoint = builder.start().await.unwrap();
    cluster.client.connect(format!("sim://n{leader}")).await.unwrap();
    endpoint
}

/// One of two leaders finds nobody behind the name of an acceptor that the other reaches.
#[tokio::test(start_paused = true)]
async fn an_acceptor_that_one_leader_does_not_reach_may_be_reached_by_another() {
    let cluster = Cluster::start(3).await;
    let acceptors = cluster.members.without([node(1)]);
    let _first = start_leader(&cluster, 50, &[(2, "sim://n2"), (3, "sim://nobody")]).await;
    let _second = start_leader(&cluster, 51, &[(2, "sim://n2"), (3, "sim://n3")]).await;
    let lead = || {
        let requests = [50, 51].map(|leader| (node(leader), support::LEAD.request(1)));
        cluster.client.fan_out(requests).among(&acceptors).deadline(50 * HOP)
    };
    assert_eq!(lead().quorum(All).await.unwrap().len(), 2);
    assert_eq!(lead().hedge(1, Duration::MAX).quorum(All).await.unwrap().len(), 2);
    // One that fails below both is lost.
    cluster.will(2, Behaviour::Refuse);
    let error = lead().quorum(All).await.unwrap_err();
    let failed: Vec<_> = error.failed(|_| true).collect();
    assert!(matches!(error, QuorumError::Impossible(_)) && failed.contains(&node(2)), "{error}");
}

/// Of three leaders one asks, one refuses, and one ends without asking anybody.
#[tokio::test(start_paused = true)]
async fn an_acceptor_is_lost_that_has_failed_below_each_leader_that_asks() {
    let cluster = Cluster::start(5).await;
    let acceptors = cluster.members.without(nodes([1, 4, 5]));
    let _leader = start_leader(&cluster, 50, &[(2, "sim://n2"), (3, "sim://n3")]).await;
    cluster.will(2, Behaviour::Refuse);
    cluster.will(3, Behaviour::Hang);
    cluster.will(4, Behaviour::Refuse);
    cluster.will(5, Behaviour::Silent);
    let lead = support::LEAD.request(1);
    let requests = [(node(4), ASK.request(1)), (node(5), ASK.request(1)), (node(50), lead)];
    let call = cluster.client.fan_out(requests).among(&acceptors);
    let start = Instant::now();
    let error = call.quorum(All).await.unwrap_err();
    assert_eq!(start.elapsed(), 5 * HOP, "the leader dials first");
    let failed: Vec<_> = error.failed(|_| true).collect();
    assert!(matches!(error, QuorumError::Impossible(_)) && failed == nodes([2]), "{error}");
}

#[tokio::test(start_paused = true)]
async fn of_leaders_with_acceptors_of_their_own_each_failure_is_told() {
    let cluster = Cluster::start(4).await;
    let _first = start_leader(&cluster, 50, &[(1, "sim://n1"), (2, "sim://n2")]).await;
    let _second = start_leader(&cluster, 51, &[(3, "sim://n3"), (4, "sim://n4")]).await;
    [2, 4].into_iter().for_each(|id| cluster.will(id, Behaviour::Refuse));
    let requests = [50, 51].map(|leader| (node(leader), support::LEAD.request(1)));
    let mut call = cluster.client.fan_out(requests).among(&cluster.members).open().unwrap();
    let (mut replied, mut failed) = (Vec::new(), Vec::new());
    while let Some((member, answer)) = call.next().await {
        if answer.is_ok() { replied.push(member) } else { failed.push(member) }
    }
    assert_eq!((replied, failed), (nodes([1, 3]), nodes([2, 4])));
}

#[tokio::test(start_paused = true)]
async fn a_handler_asks_the_members_itself_included_and_none_times_out() {
    const OUTER: Method<u64, u64> = Method::new("test.Nested/Outer");
    const INNER: Method<u64, u64> = Method::new("test.Nested/Inner");

    let network = SimNetwork::new(7);
    let members = support::addressed(3);
    let mut replicas = Vec::new();
    for id in 1..=3 {
        let all = members.clone();
        let service = Service::new()
            .unary(INNER, |number, _: Context| async move { Ok::<_, Status>(number) })
            .unary(OUTER, move |number, context: Context| {
                let call = context.call(INNER, number).to_all(&all);
                async move { Ok::<_, Status>(call.quorum(All).await?.len() as u64) }
            });
        let builder = support::endpoint(&network, id).serve(service).peers(&members);
        replicas.push(builder.start().await.unwrap());
    }
    for endpoint in &replicas {
        let peers: Vec<Peer> = members.members().to_vec();
        let call = endpoint.call(OUTER, 1).to_all(&peers);
        let (replies, failed) = call.quorum_call().open().unwrap().collect().await;
        assert_eq!(
            (replies.iter().map(|(_, n)| *n).collect::<Vec<_>>(), failed.len()),
            (vec![3; 3], 0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_calls_back_clients_that_only_dialled_it() {
    let network = SimNetwork::new(7);
    let hub = support::endpoint(&network, 50).start().await.unwrap();
    let mut clients = Vec::new();
    for id in 1..=3 {
        let replica = support::Replica::new(id);
        let service = support::service(&replica, &support::addressed(1));
        let builder = Endpoint::builder().node(node(id)).transport(network.transport());
        let client = builder.serve(service).start().await.unwrap();
        client.connect("sim://n50").await.unwrap();
        clients.push((client, replica));
    }
    let members = Configuration::new(nodes(1..=3)).unwrap();
    let call = hub.call(ASK, 4).to_all(&members);
    assert_eq!(call.quorum(All).await.unwrap().len(), 3);
    hub.call(NOTE, 5).to_all(&members).send().await.unwrap();
    tokio::time::sleep(HOP).await;
    assert!(clients.iter().all(|(_, replica)| replica.asked() == [4, 5]));
}
