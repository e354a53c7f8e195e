//! Members that lie about the name of a round, its time and their own place, and strangers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{
    Announce, CastBody, Code, Context, Digest, Finish, JoinRefusal, NodeId, Service, Status, Task,
};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{
    EchoError, EchoPlan, EchoRound, EchoSpace, Phase, Rule, byzantine_quorum, digest_of,
    echo_phases,
};
use tokio::time::sleep;

use crate::support::{CLIENT, Cluster, DELAY, WRITE, node};

/// Echo, and ready on enough echoes or on one correct member that is.
fn plan(members: &Configuration) -> EchoPlan {
    let (n, f) = (members.len(), (members.len() - 1) / 3);
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let echo = Phase::new("echo", byzantine_quorum(n, f));
    let phases = [echo, Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan")
}

/// Delivered, by member.
type Delivered = Arc<Mutex<Vec<(NodeId, String)>>>;

fn correct(members: Configuration, me: NodeId, delivered: Delivered) -> Service {
    Service::new().unary(WRITE, move |text: String, context: Context| {
        let (members, delivered) = (members.clone(), delivered.clone());
        async move {
            let mut round = EchoRound::join(&context, &members, plan(&members))?;
            round.cast(0, digest_of(text.as_bytes()), "")?;
            round.quorum(1).await?;
            delivered.lock().expect("nobody panics with it").push((me, text.clone()));
            Ok::<_, Status>(text)
        }
    })
}

/// Has the others write what it likes in the call that it was asked in, some time later.
fn liar(after: Duration) -> Service {
    Service::new().tree(WRITE, move |_, task: Task<String>| async move {
        sleep(after).await;
        let others = (1..=3).map(|id| (node(id), WRITE.request("a lie".into())));
        let finish: Result<Finish, Status> = task.fan_out(others).await;
        finish
    })
}

async fn delivered_with(after: Duration, is_first: bool) -> Vec<(NodeId, String)> {
    let delivered = Delivered::default();
    let log = delivered.clone();
    let service = move |me: NodeId, members| match me.get() {
        4 => liar(after),
        _ => correct(members, me, log.clone()),
    };
    let cluster = Cluster::start(7, 4, service).await;
    if is_first {
        (1..=3).for_each(|id| cluster.network.partition(node(CLIENT), node(id)));
    }
    let heal = async {
        sleep(Duration::from_millis(50)).await;
        cluster.network.heal_all();
    };
    let (written, ()) = tokio::join!(cluster.write("the truth"), heal);
    let refused = written.failures.iter().filter(|(failure, _)| {
        failure.code == Code::FailedPrecondition as u32 && failure.text.contains("initiator")
    });
    assert_eq!(refused.count(), 3, "{written:?}");
    sleep(Duration::from_secs(30)).await;
    let mut delivered = delivered.lock().expect("nobody panics with it").clone();
    delivered.sort();
    delivered
}

#[tokio::test(start_paused = true)]
pub(crate) async fn only_the_initiator_begins_the_round_of_its_call() {
    let truth: Vec<_> = (1..=3).map(|id| (node(id), "the truth".to_owned())).collect();
    for (after, is_first) in [(0, true), (0, false), (100, false), (3_000, false)] {
        let delivered = delivered_with(Duration::from_millis(after), is_first).await;
        assert_eq!(delivered, truth, "after {after} ms, {is_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_the_plan_names_begins_it_too() {
    let service = |me: NodeId, members: Configuration| match me.get() {
        4 => liar(Duration::ZERO),
        _ => Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                let plan = EchoPlan::majority(4, 1).map_err(EchoError::from)?;
                let plan = plan.asked_by([node(4)]);
                let mut round = EchoRound::join(&context, &members, plan)?;
                round.cast(0, digest_of(text.as_bytes()), "")?;
                round.quorum(0).await?;
                Ok::<_, Status>(text)
            }
        }),
    };
    let cluster = Cluster::start(7, 4, service).await;
    let written = cluster.write_to("x", &[node(4).into()], Duration::from_secs(5)).await;
    let from: Vec<u64> = written.replies.iter().map(|(from, _)| from.get()).collect();
    assert_eq!(from, [1, 2, 3], "{written:?}");
}

async fn spaces(cluster: &Cluster) -> Vec<EchoSpace> {
    let servers = cluster.servers.iter().flatten();
    servers
        .map(|server| EchoSpace::builder("log", &cluster.members).open(server).expect("once"))
        .collect()
}

#[tokio::test(start_paused = true)]
pub(crate) async fn votes_with_a_short_life_take_no_other_along() {
    let cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    let server = |at: usize| cluster.servers[at].as_ref().expect("it lives");
    let open = |at: usize, keep| {
        EchoSpace::builder("log", &cluster.members).keep(keep).open(server(at)).expect("once")
    };
    // The last one speaks first, of a tag that is not there for long.
    let hasty = open(3, Duration::from_millis(50));
    let mut hasty = hasty.join(0, 1, plan(&cluster.members)).expect("it is new");
    hasty.cast(0, digest_of(b"x"), "").expect("it is the first");
    sleep(2 * DELAY).await;
    let others: Vec<EchoSpace> = (0..3).map(|at| open(at, Duration::from_secs(10))).collect();
    let digest = digest_of(b"heron");
    let join = |at: usize| others[at].join(0, 1, plan(&cluster.members)).expect("it is new");
    let (mut one, mut two) = (join(0), join(1));
    one.cast(0, digest, "").expect("it is the first");
    two.cast(0, digest, "").expect("it is the first");
    sleep(Duration::from_secs(1)).await;
    let mut three = join(2);
    three.cast(0, digest, "").expect("it is the first");
    let all = async { tokio::join!(one.quorum(1), two.quorum(1), three.quorum(0)) };
    let all = tokio::time::timeout(Duration::from_secs(1), all).await.expect("three are enough");
    assert!([all.0, all.1, all.2].into_iter().all(|one| one.expect("no split").digest == digest));
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_wrong_plan_uses_no_tag_up_and_a_round_without_votes_neither() {
    let cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    let space = &spaces(&cluster).await[0];
    let wrong = EchoPlan::majority(3, 1).expect("it is a plan");
    assert!(matches!(space.join(0, 1, wrong), Err(EchoError::Members { .. })));
    let own = || plan(&cluster.members);
    drop(space.join(0, 1, own()).expect("it is not used up"));
    let mut round = space.join(0, 1, own()).expect("nothing was said");
    round.cast(0, digest_of(b"heron"), "").expect("it is the first");
    let said = convoke_quorum::echo::EchoVote { phase: 0, digest: digest_of(b"heron") };
    drop(round);
    let refused = space.join(0, 1, own());
    assert!(matches!(refused, Err(EchoError::Join(JoinRefusal::Closed))), "{refused:?}");
    let mut again = space.restore(0, 1, own(), [(said, Bytes::new())]).expect("it says the same");
    assert!(matches!(again.cast(0, digest_of(b"crane"), ""), Err(EchoError::Cast(_))));
    drop(again);
    space.close_below(0, 2);
    assert!(space.restore(0, 1, own(), [(said, Bytes::new())]).is_err());
    let later = EchoSpace::builder("other", &cluster.members).floor(3, 0);
    let later = later.open(cluster.servers[0].as_ref().expect("it lives")).expect("once");
    assert!(later.join(2, 9, own()).is_err() && later.join(3, 0, own()).is_ok());
}

#[tokio::test(start_paused = true)]
pub(crate) async fn strangers_casts_leave_nothing_behind_and_take_no_room() {
    let cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    let announce = Announce { senders_min: usize::MAX, source: None };
    let name = EchoSpace::builder("log", &cluster.members).id();
    let strange = cluster.client.cast_space(name, 1, announce, None).expect("once");
    let digest = Digest::ZERO;
    let body = || CastBody { phase: 0, sender: 0, epoch: 0, digest, payload: vec![7; 999].into() };
    for sequence in 0..500 {
        strange.send((0, sequence), Duration::from_secs(60), cluster.members.nodes(), body());
    }
    cluster.settle().await;
    for server in cluster.servers.iter().flatten() {
        assert_eq!((server.load().mailboxes, server.casts_dropped().strangers), (0, 500));
    }
}

#[tokio::test(start_paused = true)]
pub(crate) async fn votes_that_could_not_be_sent_are_told_of_and_sent_again_when_the_member_is_back()
 {
    let mut cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    cluster.crash(4);
    cluster.settle().await;
    let spaces = spaces(&cluster).await;
    let all = || EchoPlan::new(4, [Phase::new("all", 4)]).expect("it is a plan");
    let digest = digest_of(b"heron");
    let mut rounds = Vec::new();
    for space in &spaces {
        let mut round = space.join(0, 1, all()).expect("it is new");
        round.cast(0, digest, "").expect("it is the first");
        rounds.push(round);
    }
    cluster.settle().await;
    assert!(spaces.iter().all(|space| space.take_missed() == [node(4)]));
    let unsent = |at: usize| cluster.servers[at].as_ref().expect("it lives").casts_dropped().unsent;
    assert!((0..3).all(|at| unsent(at) == 1));
    let waiting = rounds.into_iter().map(|mut round| {
        tokio::spawn(async move { round.quorum(0).await.map(|reached| reached.count) })
    });
    let waiting: Vec<_> = waiting.collect();
    let again = Cluster::server(&cluster.network, 4, 4).seed(44);
    let again = again.start().await.expect("the name is free again");
    let space = EchoSpace::builder("log", &cluster.members).open(&again).expect("once");
    let mut late = space.join(0, 1, all()).expect("it is new");
    for other in 1..=3 {
        again.warm_up(node(other)).await.expect("it listens");
    }
    late.cast(0, digest, "").expect("it is the first");
    let reached = tokio::time::timeout(Duration::from_secs(1), late.quorum(0)).await;
    assert_eq!(reached.expect("all say it again").expect("no split").count, 4);
    for waits in waiting {
        assert_eq!(waits.await.expect("it does not panic"), Ok(4));
    }
}

/// Callers see no votes, whose payloads would be kept for as long as the phases last.
#[tokio::test(start_paused = true)]
async fn payloads_of_votes_that_echo_phases_count_are_not_kept() {
    let evidence = Arc::new(Mutex::new(Vec::new()));
    let found = evidence.clone();
    let cluster = Cluster::start(7, 4, move |me, members| {
        let found = found.clone();
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let (members, found) = (members.clone(), found.clone());
            async move {
                let digest = digest_of(text.as_bytes());
                if me == node(4) {
                    let port = context.casts().expect("it is the first");
                    for digest in [digest, Digest::ZERO] {
                        let payload = vec![7; 100].into();
                        let body = CastBody { phase: 0, sender: 3, epoch: 0, digest, payload };
                        port.send(members.nodes().filter(|node| *node != me), body);
                    }
                    return Ok::<_, Status>(text);
                }
                sleep(10 * DELAY).await;
                let outcome = echo_phases(&context, &members, 1, digest).await?;
                found.lock().expect("nobody panics with it").extend(outcome.evidence);
                Ok(text)
            }
        })
    })
    .await;
    let written = cluster.write("heron").await;
    assert_eq!(written.replies.len(), 4, "{written:?}");
    let evidence = evidence.lock().expect("nobody panics with it");
    assert_eq!(evidence.len(), 3, "{evidence:?}");
    for found in &*evidence {
        assert!(found.first.payload.is_empty() && found.second.payload.is_empty(), "{found:?}");
    }
}
