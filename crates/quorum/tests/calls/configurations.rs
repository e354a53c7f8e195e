//! Members whose replies count, and the epoch that is taken.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{
    Cause, Endpoint, Executed, Finish, Limits, Method, Peer, PeerState, ReplyDial, Service, Status,
    Task, Way,
};
use convoke_quorum::{All, Configuration, Majority, MemberError, QuorumError, QuorumExt};
use convoke_sim::transport::SimNetwork;
use parking_lot::Mutex;

use crate::support::{self, ASK, Behaviour, Cluster, node, nodes};

#[tokio::test(start_paused = true)]
async fn a_stale_epoch_is_refused_with_the_present_one_and_nothing_runs() {
    let cluster = Cluster::start(3).await;
    let ask = |epoch| {
        let members = cluster.members.with_epoch(epoch);
        cluster.client.call(ASK, epoch).to_all(&members).quorum(Majority)
    };
    (1..=2).for_each(|id| cluster.endpoint(id).set_epoch(5));
    let error = ask(4).await.unwrap_err();
    assert_eq!(error.current_epoch(), Some(5), "{error}");
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    for (_, failed) in &short.failed {
        let failure = failed.failure().expect("a branch failed");
        assert_eq!((failure.cause, failure.executed), (Cause::StaleEpoch, Executed::No));
    }
    let stale = error.failed(|error| error.cause() == Some(Cause::StaleEpoch));
    assert_eq!(stale.collect::<Vec<_>>(), nodes([1, 2]));
    assert!(cluster.replica(1).asked().is_empty() && cluster.replica(2).asked().is_empty());

    ask(5).await.expect("it is the present one");
    ask(6).await.expect("a member may hear of a new one late");
    ask(0).await.expect("no epoch is never stale");
    // Epochs do not go back.
    cluster.endpoint(1).set_epoch(3);
    assert_eq!(cluster.endpoint(1).epoch(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_epoch_follows_a_request_down_the_tree() {
    let cluster = Cluster::start(4).await;
    let members = cluster.members.with_epoch(4);
    cluster.endpoint(3).set_epoch(5);
    cluster.endpoint(4).set_epoch(5);
    let leader = members.members()[0];
    let call = cluster.client.call(support::LEAD, 1).to(leader);
    let error = call.among(&members.without([leader.node()])).quorum(Majority).await.unwrap_err();
    assert_eq!(error.current_epoch(), Some(5), "{error}");
    assert_eq!(error.failed(|_| true).collect::<Vec<_>>(), nodes([3, 4]));
}

#[tokio::test(start_paused = true)]
async fn the_reply_of_a_stranger_is_no_reply_of_the_member() {
    let mut cluster = Cluster::start(3).await;
    let stranger = support::Replica::new(9);
    let service = support::service(&stranger, &cluster.members);
    let ninth = support::endpoint(&cluster.network, 9).serve(service).start().await.unwrap();
    ninth.peer(node(support::CLIENT), [format!("sim://n{}", support::CLIENT)]).unwrap();
    for endpoint in cluster.endpoints.iter().flatten() {
        endpoint.peer(node(9), ["sim://n9"]).unwrap();
    }
    cluster.endpoints.push(Some(ninth));
    cluster.will(1, Behaviour::HandOn);
    cluster.will(2, Behaviour::HandOn);
    let error = cluster.all(ASK, 1).quorum(Majority).await.unwrap_err();
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    let not_itself = MemberError::NotItself { from: node(9), way: Way::Direct };
    assert_eq!(short.failed, [(node(1), not_itself.clone()), (node(2), not_itself)]);
    assert_eq!(stranger.asked(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_through_a_relay_does_not_count_whoever_it_is_said_to_be_from() {
    let network = SimNetwork::new(7);
    let members = support::addressed(3);
    let limits = || {
        let mut limits = Limits::default();
        limits.reply_dial = ReplyDial::Never;
        limits
    };
    let mut endpoints = Vec::new();
    for id in 1..=3 {
        let service = support::service(&support::Replica::new(id), &members);
        let builder = support::endpoint(&network, id).serve(service).limits(limits());
        let endpoint = builder.start().await.unwrap();
        members.introduce(&endpoint).unwrap();
        endpoints.push(endpoint);
    }
    // It only dials out, and only to the leader: the acceptors' replies come through the leader.
    let client = Endpoint::builder().transport(network.transport()).start().await.unwrap();
    let leader = client.connect("sim://n1").await.unwrap();
    let acceptors = members.without([node(1)]);
    let call = || client.call(support::LEAD, 1).to(leader);
    let (replies, _) = call().open().unwrap().collect().await.unwrap();
    assert_eq!(replies.iter().filter(|reply| reply.way() == Way::Relayed).count(), 2);
    let error = call().among(&acceptors).quorum(Majority).await.unwrap_err();
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((short.replied.len(), short.silent.len()), (0, 2));

    // Nor is a member lost by one that cannot be decoded.
    const LEAD_OTHER: Method<u64, Other> = Method::new("test.Replica/Lead");
    let call = client.call(LEAD_OTHER, 1).to(leader).among(&acceptors);
    let error = call.quorum(Majority).await.unwrap_err();
    let QuorumError::Impossible(short) = &error else { panic!("{error}") };
    assert_eq!((short.failed.len(), short.silent.len()), (0, 2), "{error}");
}

/// No answer of a replica decodes as this.
#[derive(Clone, PartialEq, prost::Message)]
struct Other {
    #[prost(string, tag = "1")]
    text: String,
}

#[tokio::test(start_paused = true)]
async fn a_node_with_another_id_is_not_taken_for_the_member_at_its_address() {
    let cluster = Cluster::start(2).await;
    let impostor = support::Replica::new(7);
    let service = support::service(&impostor, &cluster.members);
    let _seventh = support::endpoint(&cluster.network, 7).serve(service).start().await.unwrap();
    let third = Configuration::new([(3, "sim://n7")]).unwrap();
    let members = cluster.members.union(&third);
    members.introduce(&cluster.client).unwrap();
    let call = cluster.client.call(ASK, 1).to_all(&members);
    let (replies, failed) = call.quorum_call().open().unwrap().collect().await;
    assert_eq!(replies.len(), 2);
    assert_eq!(failed[0].0, node(3));
    assert_eq!(failed[0].1.cause(), Some(Cause::Unreachable));
    assert!(impostor.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn five_endpoints_and_many_configurations_share_one_pool_of_connections() {
    let cluster = Cluster::start(4).await;
    let calls = (0..5_u64).map(|round| {
        let members = cluster.members.subset(|member| member.node().get() != round);
        let call = cluster.client.call(ASK, round).to_all(&members);
        tokio::spawn(async move { call.acked_by(All).await.unwrap().number })
    });
    for (round, call) in (0..5).zip(calls.collect::<Vec<_>>()) {
        assert_eq!(call.await.unwrap(), round);
    }
    assert_eq!(cluster.client.load().connections, 4);
}

/// Answers with the epoch it was asked in.
const EPOCH: Method<u64, u64> = Method::new("test.Epoch/Which");

#[tokio::test(start_paused = true)]
async fn a_handler_knows_the_epoch_and_one_of_its_own_replaces_it_for_a_branch() {
    let network = SimNetwork::new(7);
    let heard: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = heard.clone();
    let service = Service::new().tree(EPOCH, move |hops: u64, task: Task<u64>| {
        let epoch = task.context().epoch();
        seen.lock().push(epoch);
        async move {
            let me = Peer::from(node(1));
            match hops {
                0 => task.answer(&epoch),
                1 => Ok::<Finish, Status>(task.tail(&me.at_epoch(9), EPOCH.request(0)).await?),
                _ => Ok(task.tail(&me, EPOCH.request(hops - 1)).await?),
            }
        }
    });
    let _one = support::endpoint(&network, 1).serve(service).epoch(4).start().await.unwrap();
    let client = support::endpoint(&network, 2).start().await.unwrap();
    let peer = client.peer(node(1), ["sim://n1"]).unwrap();
    let call = client.call(EPOCH, 2).to(peer.at_epoch(6));
    assert_eq!(call.deadline(Duration::from_secs(5)).await.unwrap(), 9);
    assert_eq!(*heard.lock(), [6, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_told_of_its_members_before_it_starts() {
    let cluster = Cluster::start(3).await;
    // One more member, of whom no address is known, and the endpoint itself.
    let nobody = Configuration::new([node(9)]).unwrap();
    let me = Configuration::new([(4, "sim://n4")]).unwrap();
    let members = cluster.members.union(&nobody).union(&me);
    let builder = support::endpoint(&cluster.network, 4).peers(&members).keep_connected();
    let endpoint = builder.start().await.unwrap();
    let connected = |id| *endpoint.watch_peer(node(id)).borrow() == PeerState::Connected;
    assert_eq!([1, 2, 3, 4, 9].map(connected), [true, true, true, true, false]);
    let answers = endpoint.call(ASK, 1).to_all(&cluster.members).quorum(All).await.unwrap();
    assert_eq!(answers.len(), 3);

    // A configuration of endpoints knows where they listen.
    let servers: Vec<&Endpoint> = cluster.endpoints.iter().flatten().collect();
    assert_eq!(Configuration::new(servers).unwrap(), cluster.members);
}
