//! Rounds that can end no more, and that say so at once.

use std::time::Duration;

use std::sync::Mutex;

use convoke_core::{
    Call, CallError, Cause, Code, Context, Executed, Method, NodeId, Service, Status,
};
use convoke_quorum::Membership;
use convoke_quorum::echo::{
    EchoError, EchoExt, EchoMembers, EchoPlan, EchoRound, EchoSpace, Phase, Rule, byzantine_quorum,
    digest_of, echo_phases,
};
use tokio::time::{Instant, timeout};

use crate::support::{Cluster, WRITE, node};

/// Bracha's phases, of which the second is cast by its rule alone.
fn plan(n: usize, f: usize) -> EchoPlan {
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let echo = Phase::new("echo", byzantine_quorum(n, f));
    let phases = [echo, Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan").bearing(f)
}

/// A round of each member that lives, in this epoch.
fn rounds(cluster: &Cluster, epoch: u64, plan: &EchoPlan) -> Vec<(EchoSpace, EchoRound)> {
    let members = cluster.members.with_epoch(epoch);
    let joined = cluster.servers.iter().flatten().map(|server| {
        let space = EchoSpace::builder("log", &members).open(server).expect("once");
        let round = space.join(0, 1, plan.clone()).expect("it is new");
        (space, round)
    });
    joined.collect()
}

/// Time from `begun` until member 1 has failed, as the client of a call hears.
async fn told_at_1(mut call: Call<String>, begun: Instant) -> Duration {
    let mut told = None;
    while let Some(reply) = call.next().await {
        if let Err(error) = reply
            && error.to_string().contains("at n1")
        {
            told = Some(begun.elapsed());
        }
    }
    told.expect("member 1 has failed")
}

async fn at_once(round: &mut EchoRound, phase: u16) -> EchoError {
    let told = timeout(Duration::from_secs(1), round.quorum(phase)).await;
    told.expect("it is told at once").expect_err("there is no quorum")
}

#[tokio::test(start_paused = true)]
async fn votes_that_can_agree_no_more_end_the_phases_that_follow_too() {
    let cluster = Cluster::start(7, 7, |_, _| Service::new()).await;
    let mut all = rounds(&cluster, 0, &plan(7, 2));
    // 2, 2, 2 and 1: with two liars at most none of them gets 5 echoes anywhere.
    for (at, (_, round)) in all.iter_mut().enumerate() {
        let value = [b"a", b"b", b"c", b"d"][at % 4];
        round.cast(0, digest_of(value), "").expect("it is the first");
    }
    cluster.settle().await;
    for (_, round) in &mut all {
        for phase in [0, 1] {
            let error = at_once(round, phase).await;
            assert!(matches!(error, EchoError::QuorumNotReached(_)), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_split_that_only_members_who_are_down_could_mend_is_told() {
    let mut cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    cluster.crash(4);
    cluster.settle().await;
    let mut all = rounds(&cluster, 0, &plan(4, 1));
    all[0].1.cast(0, digest_of(b"a"), "").expect("it is the first");
    let waits = timeout(Duration::from_secs(1), all[0].1.quorum(0)).await;
    assert!(waits.is_err(), "the others are coming, and the one that is down may");
    all[1].1.cast(0, digest_of(b"b"), "").expect("it is the first");
    all[2].1.cast(0, digest_of(b"a"), "").expect("it is the first");
    cluster.settle().await;
    let EchoError::QuorumNotReached(short) = at_once(&mut all[0].1, 0).await else {
        panic!("it is split")
    };
    assert_eq!((short.votes, short.missing), (2, vec![node(4)]));
}

#[tokio::test(start_paused = true)]
async fn a_later_epoch_ends_the_rounds_of_the_one_before_at_once() {
    let cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    let mut old = rounds(&cluster, 1, &plan(4, 1));
    let digest = digest_of(b"heron");
    let (_, mine) = &mut old[0];
    mine.cast(0, digest, "").expect("it is the first");
    let server = cluster.servers[0].as_ref().expect("it lives");
    let raise = async {
        cluster.settle().await;
        server.set_epoch(2);
    };
    let (told, ()) = tokio::join!(at_once(mine, 0), raise);
    assert_eq!(told, EchoError::StaleEpoch { epoch: 1, later: vec![] });
    // Members that were told speak in the new epoch, from which the others learn of it.
    drop(old.drain(..3).collect::<Vec<_>>());
    let members = cluster.members.with_epoch(2);
    for server in cluster.servers[..3].iter().flatten() {
        let space = EchoSpace::builder("log", &members).open(server).expect("it was closed");
        let joined = space.restore(0, 1, plan(4, 1), []);
        joined.expect("another epoch").cast(0, digest, "").expect("the first");
    }
    cluster.settle().await;
    let (_, other) = &mut old[0];
    other.cast(0, digest, "").expect("it is the first");
    let told = at_once(other, 0).await;
    let EchoError::StaleEpoch { epoch: 1, mut later } = told else { panic!("{told}") };
    later.sort();
    assert_eq!(later, [node(1), node(2), node(3)]);
}

#[tokio::test(start_paused = true)]
async fn the_members_of_a_running_service_change_by_epoch() {
    let handles = Mutex::new(Vec::<EchoMembers>::new());
    let service = |_: NodeId, members: convoke_quorum::Configuration| {
        let handle = EchoMembers::new(&members.with_epoch(1));
        handles.lock().expect("nobody panics with it").push(handle.clone());
        Service::new().echo(WRITE, 1, &handle, |text: String, _: Context| async move {
            Ok::<_, Status>(text)
        })
    };
    let cluster = Cluster::start(7, 4, service).await;
    let handles = handles.lock().expect("nobody panics with it").clone();
    let (old, all) = (cluster.members.with_epoch(1), cluster.members.clone());
    let cluster = &cluster;
    let write = |peers: Vec<convoke_core::Peer>| async move {
        cluster.write_to("heron", &peers, Duration::from_secs(5)).await
    };
    assert_eq!(write(old.members().to_vec()).await.replies.len(), 4);

    // Two rounds of the old epoch that wait for votes, when the members become fewer.
    let next = all.without([node(4)]).with_epoch(2);
    let change = async {
        cluster.settle().await;
        for (at, handle) in handles[..3].iter().enumerate() {
            let server = cluster.servers[at].as_ref().expect("it lives");
            handle.change(server, &next).expect("it is later, and of this node");
            assert!(handle.change(server, &next).is_err(), "but no longer");
        }
        let last = cluster.servers[3].as_ref().expect("it lives");
        let refused = handles[3].change(last, &next);
        assert_eq!(refused, Err(EchoError::NotMember { node: node(4) }));
    };
    let two = old.members()[..2].to_vec();
    let begun = tokio::time::Instant::now();
    let (waiting, ()) = tokio::join!(write(two), change);
    assert!(begun.elapsed() < Duration::from_secs(1), "they end at once");
    assert_eq!(waiting.failures.len(), 2);
    for (failure, _) in &waiting.failures {
        assert_eq!(failure.code, Code::FailedPrecondition as u32);
        assert!(failure.text.contains("a later one has begun"), "{failure}");
    }
    // Who asks by the old members is told, and by the new ones three are all.
    let stale = write(old.members()[..3].to_vec()).await;
    assert!(stale.failures.iter().all(|(failure, _)| failure.cause == Cause::StaleEpoch));
    assert_eq!((stale.failures.len(), write(next.members().to_vec()).await.replies.len()), (3, 3));
    // The one that is still in the epoch before begins nothing of a later one.
    let early = write(all.with_epoch(2).members()[3..].to_vec()).await;
    let [(failure, _)] = &early.failures[..] else { panic!("{early:?}") };
    assert_eq!(failure.code, Code::FailedPrecondition as u32, "{failure}");
    assert_eq!(failure.executed, Executed::No, "{failure}");
}

/// Requests and votes of no epoch are taken in any, so nothing would end, and nothing be refused.
#[tokio::test(start_paused = true)]
async fn members_without_an_epoch_cannot_change() {
    let cluster = Cluster::start(7, 3, |_, _| Service::new()).await;
    let server = cluster.servers[0].as_ref().expect("it lives");
    let members = EchoMembers::new(&cluster.members);
    let refused = members.change(server, &cluster.members.with_epoch(1));
    assert_eq!(refused, Err(EchoError::NoEpoch));
    assert_eq!((members.current().epoch(), server.epoch()), (0, 0));
}

/// Of four, one is known to be down, two say different things one after the other, and the last
/// stays silent: whoever waits by then is told with the second vote.
#[tokio::test(start_paused = true)]
async fn a_split_beside_a_member_that_is_down_is_told_to_who_waits() {
    let mut cluster = Cluster::start(7, 4, |me, members| {
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                let value = match me.get() {
                    1 => "a",
                    2 => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        "b"
                    }
                    _ => std::future::pending().await,
                };
                echo_phases(&context, &members, 1, digest_of(value.as_bytes())).await?;
                Ok::<_, Status>(text)
            }
        })
    })
    .await;
    cluster.crash(4);
    cluster.settle().await;
    let to = cluster.members.without([node(4)]);
    let written = cluster.write_to("x", to.members(), Duration::from_secs(5)).await;
    for id in [1, 2] {
        let told = written.failures.iter().find(|(told, _)| told.node == Some(node(id)));
        let (_, after) = told.expect("it failed");
        assert!(*after < Duration::from_secs(1), "member {id} was told after {after:?}");
    }

    let plan = EchoPlan::majority(4, 1).expect("it is a plan");
    let mut all = rounds(&cluster, 0, &plan);
    all[0].1.cast(0, digest_of(b"a"), "").expect("it is the first");
    let (first, rest) = all.split_at_mut(1);
    let other = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rest[0].1.cast(0, digest_of(b"b"), "").expect("it is the first");
    };
    let (error, ()) = tokio::join!(at_once(&mut first[0].1, 0), other);
    assert!(matches!(error, EchoError::QuorumNotReached(_)), "{error}");
}

/// Members that are known to vote in a later epoch may not vote in this one either: the one that
/// makes it impossible is told to who waits.
#[tokio::test(start_paused = true)]
async fn the_last_of_too_many_members_of_a_later_epoch_is_told_to_who_waits() {
    let cluster = Cluster::start(7, 7, |_, _| Service::new()).await;
    let plan = EchoPlan::new(7, [Phase::new("echo", 5)]).expect("it is a plan");
    let mut old = rounds(&cluster, 1, &plan).swap_remove(0);
    old.1.cast(0, digest_of(b"a"), "").expect("it is the first");
    let members = cluster.members.with_epoch(2);
    let servers = cluster.servers[4..].iter().flatten();
    let mut new: Vec<(EchoSpace, EchoRound)> = servers
        .map(|server| {
            let space = EchoSpace::builder("log", &members).open(server).expect("once");
            let round = space.join(0, 1, plan.clone()).expect("it is new");
            (space, round)
        })
        .collect();
    for (_, round) in &mut new[..2] {
        round.cast(0, digest_of(b"a"), "").expect("it is the first");
        cluster.settle().await;
    }
    // Has the two counted.
    let waits = timeout(Duration::from_millis(1), old.1.until(|_| None::<()>)).await;
    assert!(waits.is_err() && old.1.core().later().len() == 2, "four may still come");
    let last = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        new[2].1.cast(0, digest_of(b"a"), "").expect("it is the first");
    };
    let (error, ()) = tokio::join!(at_once(&mut old.1, 0), last);
    assert!(matches!(error, EchoError::StaleEpoch { .. }), "{error}");
}

/// A member that starts anew has no part in a call any more, also where the round had cast before
/// it was connected.
#[tokio::test(start_paused = true)]
async fn a_member_that_starts_anew_counts_as_down_though_it_was_connected_late() {
    let mut cluster = Cluster::start(7, 4, |me, members| {
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                if me.get() > 2 {
                    return std::future::pending().await;
                }
                echo_phases(&context, &members, 1, digest_of(text.as_bytes())).await?;
                Ok::<_, Status>(text)
            }
        })
    })
    .await;
    cluster.network.partition(node(1), node(3));
    cluster.network.partition(node(3), node(1));
    cluster.network.cut(node(1), node(3));
    cluster.settle().await;
    let to: Vec<_> = cluster.members.members()[..3].to_vec();
    let begun = Instant::now();
    let request = WRITE.request("x".into()).deadline(Duration::from_secs(8));
    let call = cluster.client.invoke(request).to_all(&to[..]).open().expect("it opens");
    cluster.settle().await;
    cluster.network.heal_all();
    let one = cluster.servers[0].clone().expect("it lives");
    one.warm_up(node(3)).await.expect("it listens");
    cluster.settle().await;
    cluster.crash(3);
    cluster.settle().await;
    cluster.restart(3, Default::default()).await;
    cluster.settle().await;
    // Now 1 and 2 have voted, and neither the new life of 3 nor 4 ever will.
    cluster.crash(4);
    let told = told_at_1(call, begun).await;
    assert!(told < Duration::from_secs(4), "member 1 was told after {told:?}");
}

/// The same while the first vote is held, by a member that stores or signs it before it leaves.
#[tokio::test(start_paused = true)]
async fn members_that_start_anew_while_a_vote_is_held_count_as_down() {
    let mut cluster = Cluster::start(7, 3, |me, members| {
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                if me.get() > 1 {
                    return std::future::pending().await;
                }
                let plan = EchoPlan::majority(members.len(), 1).map_err(EchoError::from)?;
                let mut round = EchoRound::join(&context, &members, plan)?;
                round.hold();
                round.cast(0, digest_of(text.as_bytes()), Vec::new())?;
                let vote = round.held().await?;
                tokio::time::sleep(Duration::from_millis(500)).await;
                round.release(vote, Vec::new())?;
                round.quorum(0).await?;
                Ok::<_, Status>(text)
            }
        })
    })
    .await;
    let begun = Instant::now();
    let request = WRITE.request("x".into()).deadline(Duration::from_secs(8));
    let call = cluster.client.invoke(request).to_all(&cluster.members).open().expect("opens");
    tokio::time::sleep(Duration::from_millis(100)).await;
    for id in [2, 3] {
        cluster.crash(id);
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    for id in [2, 3] {
        cluster.restart(id, Default::default()).await;
    }
    let told = told_at_1(call, begun).await;
    assert!(told < Duration::from_secs(2), "member 1 was told after {told:?}");
}

/// A round about a tag, a space, a stream of votes and a membership outlive their endpoint as long
/// as somebody has them.
#[tokio::test(start_paused = true)]
async fn who_waits_at_an_endpoint_that_stops_is_told() {
    let cluster = Cluster::start(7, 4, |_, _| Service::new()).await;
    let server = cluster.servers[0].clone().expect("it lives");
    let members = cluster.members.clone();
    let plan = EchoPlan::majority(4, 1).expect("it is a plan");
    let space = EchoSpace::builder("log", &members).open(&server).expect("once");
    let mut round = space.join(0, 1, plan).expect("it is new");
    round.cast(0, digest_of(b"a"), "").expect("it is the first");
    let mut votes = EchoSpace::builder("votes", &members).stream(&server).expect("once");
    let mut membership = Membership::watch(&server, &members);
    let waits = async {
        let membership = async {
            loop {
                if let Err(stopped) = membership.changed().await {
                    return stopped;
                }
            }
        };
        tokio::join!(round.quorum(0), space.next(), votes.next(), membership)
    };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.clone().shutdown(Duration::from_secs(1)).await
    };
    let (told, _) = tokio::join!(timeout(Duration::from_secs(60), waits), stop);
    let (quorum, tag, vote, _stopped) = told.expect("all are told");
    assert_eq!(quorum.expect_err("no vote comes"), EchoError::Stopped);
    assert!(tag.is_none() && vote.is_none());
    assert_eq!(round.quorum(0).await.expect_err("nor later"), EchoError::Stopped);
    let never = timeout(Duration::from_secs(60), round.until(|_| None::<()>)).await;
    assert_eq!(never.expect("it is told"), Err(EchoError::Stopped));
    let held = timeout(Duration::from_secs(60), round.held()).await;
    assert_eq!(held.expect("it is told"), Err(EchoError::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_members_for_different_methods_with_one_message_is_told() {
    const REMOVE: Method<String, String> = Method::new("test.Storage/Remove");
    let cluster = Cluster::start(7, 3, |_, members| {
        let same = |text: String, _: Context| async move { Ok::<_, Status>(text) };
        Service::new().echo(WRITE, 1, &members, same).echo(REMOVE, 1, &members, same)
    })
    .await;
    let write = cluster.client.invoke(WRITE.request("heron".into()));
    let call = write.to_all([node(1), node(2)]).branch(node(3), REMOVE.request("heron".into()));
    let mut call = call.open().expect("one call");
    let (mut replies, mut failures) = (Vec::new(), Vec::new());
    while let Some(reply) = call.next().await {
        match reply {
            Ok(reply) => replies.push(reply.from()),
            Err(CallError::Branch(failure)) => failures.push((failure.node, failure.code)),
            Err(error) => panic!("{error}"),
        }
    }
    replies.sort();
    assert_eq!(replies, [node(1), node(2)]);
    assert_eq!(failures, [(Some(node(3)), Code::Aborted as u32)]);
}
