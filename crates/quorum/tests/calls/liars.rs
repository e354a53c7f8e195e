//! Members that lie within an honest client's quorum call: what they lead others to say counts for
//! nothing.

use std::time::Duration;

use convoke_core::{Cause, Code, NodeId, Path, Service, Status, Task};
use convoke_proto::mutant::{self, Mutant};
use convoke_quorum::{
    Byzantine, Majority, MulticastError, QuorumError, QuorumExt, QuorumFunction, Retry, matching,
};

use crate::support::{self, ASK, Answer, Behaviour, CLIENT, Cluster, HOP, LEAD, node};

/// The number that the client asks, and the one that the liar has the others answer.
const TRUE: u64 = 1;
const FALSE: u64 = 666;

/// Four members, of whom the last lies. What the client asks the others comes late.
async fn cluster(liar: Behaviour, late: NodeId) -> Cluster {
    let cluster = Cluster::start(4).await;
    cluster.will(4, liar);
    (1..=3).filter(|id| node(*id) != late).for_each(|id| cluster.network.partition(late, node(id)));
    cluster
}

/// Lets the liar be the first, and then the others hear of the call.
async fn heal(cluster: &Cluster) {
    tokio::time::sleep(10 * HOP).await;
    for id in 1..=3 {
        assert!(cluster.replica(id).asked().iter().all(|number| *number == FALSE));
    }
    cluster.network.heal_all();
}

#[tokio::test(start_paused = true)]
async fn replies_to_what_a_member_asked_within_the_call_are_no_answers_to_it() {
    for liar in [Behaviour::Ask(FALSE), Behaviour::HandTo(2, FALSE)] {
        let cluster = cluster(liar, node(CLIENT)).await;
        let call = cluster.all(ASK, TRUE).quorum(Byzantine { faulty: 1 });
        let (decided, ()) = tokio::join!(call, heal(&cluster));
        let numbers: Vec<u64> = decided.unwrap().iter().map(|(_, answer)| answer.number).collect();
        assert_eq!(numbers, [TRUE; 3], "{liar:?}");
        assert!(cluster.replica(2).asked().contains(&FALSE), "the lie reached it: {liar:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_agree_on_what_the_client_asked_not_on_what_a_member_did() {
    let cluster = cluster(Behaviour::Ask(FALSE), node(CLIENT)).await;
    let agreed = matching(2).map(|answer: &Answer| answer.number);
    let call = cluster.all(ASK, TRUE).quorum(agreed);
    let (agreed, ()) = tokio::join!(call, heal(&cluster));
    assert_eq!(agreed.unwrap(), TRUE);
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_says_of_acceptors_ends_no_call_that_may_bear_liars() {
    // The leader finds nobody behind two of four names, though they live.
    let mut cluster = Cluster::start(4).await;
    let acceptors = cluster.members.without([node(1)]);
    let others: Vec<NodeId> = acceptors.nodes().collect();
    let leader = Service::new().tree(LEAD, move |number, task: Task<Answer>| {
        let others = others.clone();
        async move { task.fan_out(others.into_iter().map(|to| (to, ASK.request(number)))).await }
    });
    let leader = support::endpoint(&cluster.network, 50).serve(leader);
    let leader = leader.peer(node(2), "sim://n2").peer(node(3), "sim://nobody3");
    let leader = leader.peer(node(4), "sim://nobody4").start().await.expect("the name is free");
    cluster.client.connect("sim://n50").await.expect("it listens");
    cluster.endpoints.push(Some(leader));
    let lead = || cluster.client.call(LEAD, TRUE).to(node(50)).among(&acceptors);
    let lead = || lead().deadline(HOP * 100);
    let causes = |error: &QuorumError| -> Vec<Cause> {
        let failed = &error.shortfall().expect("nobody else failed").failed;
        failed.iter().filter_map(|(_, error)| error.cause()).collect()
    };
    let told = lead().quorum(Majority).await.unwrap_err();
    assert_eq!(causes(&told), [Cause::Unreachable; 2], "by the word of the leader");
    // Now the initiator asks them itself, and they say that they have heard of nothing.
    let asked = lead().quorum(Byzantine { faulty: 0 }).await.unwrap_err();
    assert_eq!(causes(&asked), [Cause::Lost; 2], "{asked}");
    let agreed = matching(2).map(|answer: &Answer| answer.number);
    assert_eq!(causes(&lead().quorum(agreed).await.unwrap_err()), [Cause::Lost; 2]);
    let agreed = matching(1).map(|answer: &Answer| answer.number);
    assert_eq!(lead().quorum(agreed).await.unwrap(), TRUE);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_says_it_has_given_its_acceptors_up_ends_no_call_that_may_bear_liars() {
    let mut cluster = Cluster::start(4).await;
    let acceptors = cluster.members.without([node(1)]);
    (2..=4).for_each(|id| cluster.will(id, Behaviour::After(100)));
    let (others, network): (Vec<NodeId>, _) =
        (acceptors.nodes().collect(), cluster.network.clone());
    let leader = Service::new().tree(LEAD, move |number, task: Task<Answer>| {
        let (others, network) = (others.clone(), network.clone());
        async move {
            for other in &others {
                task.delegate(*other, ASK.request(number)).await?;
            }
            tokio::time::sleep(3 * HOP).await;
            // It says so, and does not do it.
            others.iter().for_each(|other| network.partition(node(50), *other));
            Err(Status::new(Code::Aborted, "they are stopped").aborting_children())
        }
    });
    let leader = support::endpoint(&cluster.network, 50).serve(leader);
    let leader = (2..=4).fold(leader, |leader, id| leader.peer(node(id), format!("sim://n{id}")));
    let leader = leader.start().await.expect("the name is free");
    cluster.client.connect("sim://n50").await.expect("it listens");
    cluster.endpoints.push(Some(leader));
    let lead = || cluster.client.call(LEAD.idempotent(), TRUE).to(node(50)).among(&acceptors);
    let told = lead().quorum(Majority).await;
    assert!(told.is_err(), "by the word of the leader");
    cluster.network.heal_all();
    let agreed = matching(2).map(|answer: &Answer| answer.number);
    assert_eq!(lead().quorum(agreed).await.unwrap(), TRUE);
    cluster.network.heal_all();
    let rule = Byzantine { faulty: 0 };
    assert_eq!(lead().quorum(rule).await.unwrap().len(), 2);
    // However it is asked, and where the rule comes only after.
    cluster.network.heal_all();
    let retried = lead().retry(Retry::times(1)).quorum(rule).await;
    assert_eq!(retried.unwrap().len(), 2);
    cluster.network.heal_all();
    let hedged = lead().hedge(1, Duration::from_secs(1)).quorum(rule).await;
    assert_eq!(hedged.unwrap().len(), 2);
    cluster.network.heal_all();
    let opened = lead().open().unwrap().quorum(rule).await;
    assert_eq!(opened.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_asks_other_leaves_says_nothing_in_their_name() {
    for liar in [Behaviour::Ask(FALSE), Behaviour::HandTo(2, FALSE)] {
        // The leader reaches the liar first.
        let cluster = cluster(liar, node(1)).await;
        let acceptors = cluster.members.without([node(1)]);
        let order = acceptors.clone();
        let is_at = move |member: NodeId, path: &Path| {
            let index = order.index_of(member).map(u32::from);
            path.indices().eq([0].into_iter().chain(index))
        };
        let call = cluster.client.call(LEAD, TRUE).to(node(1)).among(&acceptors).leaves_at(is_at);
        let agreed = Majority.map(|answer: &Answer| answer.number);
        let (decided, ()) = tokio::join!(call.quorum(agreed), heal(&cluster));
        let numbers: Vec<u64> = decided.unwrap().into_iter().map(|(_, number)| number).collect();
        assert_eq!(numbers, [TRUE; 2], "{liar:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn branches_of_leaves_are_named_of_leaves_alone() {
    let cluster = cluster(Behaviour::Reply, node(1)).await;
    let call = cluster.all(ASK, TRUE).quorum_call().leaves_at(|_, _| true);
    let error = call.quorum(Majority).await.unwrap_err();
    assert!(matches!(error, QuorumError::NoLeaves), "{error}");
    let one_way = cluster.all(ASK, TRUE).quorum_call().leaves_at(|_, _| true).send_and_forget();
    assert!(matches!(one_way, Err(MulticastError::NotOneWay { setting: "leaves_at" })));
}

#[test]
fn a_call_that_believes_its_leader_is_found() {
    let run = std::thread::spawn(|| {
        mutant::set(Some(Mutant::HearsayEndsBranch));
        std::panic::catch_unwind(what_a_leader_says_of_acceptors_ends_no_call_that_may_bear_liars)
    });
    assert!(run.join().expect("it was caught").is_err());
}
