//! Rounds about tags: before anybody joins, across crashes, after they are over.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Announce, CastBody, Digest, Endpoint, Limits, Service};
use convoke_proto::wire::{Frame, Message};
use convoke_quorum::echo::{
    CastRefused, EchoError, EchoPlan, EchoRound, EchoSpace, EchoSpaceBuilder, EchoVote, TaggedCast,
    byzantine_quorum, digest_of,
};
use convoke_quorum::{Configuration, echo::Phase, echo::Rule};
use convoke_sim::transport::Action;

use crate::support::{Cluster, DELAY, node};

async fn cluster(members: u64) -> Cluster {
    Cluster::start(members, members, |_, _| Service::new()).await
}

fn spaces(cluster: &Cluster) -> Vec<EchoSpace> {
    cluster.servers.iter().flatten().map(|server| open(cluster, server, |space| space)).collect()
}

fn open(
    cluster: &Cluster,
    server: &Endpoint,
    with: impl FnOnce(EchoSpaceBuilder) -> EchoSpaceBuilder,
) -> EchoSpace {
    with(EchoSpace::builder("log", &cluster.members)).open(server).expect("once")
}

/// Echo by hand, ready on enough echoes or on enough that are.
fn plan(members: &Configuration) -> EchoPlan {
    let (n, f) = (members.len(), (members.len() - 1) / 3);
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let phases =
        [Phase::new("echo", byzantine_quorum(n, f)), Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan")
}

async fn agree(mut round: EchoRound, digest: Digest) -> Digest {
    round.cast(0, digest, "").expect("it is the first");
    round.quorum(1).await.expect("nobody lies").digest
}

/// Awaits all at once: a round counts, and casts what follows, while it is awaited.
async fn all_reach(rounds: Vec<EchoRound>, digest: Digest) -> Vec<EchoRound> {
    let tasks = rounds.into_iter().map(|mut round| {
        tokio::spawn(async move {
            assert_eq!(round.quorum(1).await.expect("enough agree").digest, digest);
            round
        })
    });
    let mut reached = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let round = tokio::time::timeout(Duration::from_secs(5), task).await;
        reached.push(round.expect("they are connected").expect("it does not panic"));
    }
    reached
}

#[tokio::test(start_paused = true)]
async fn members_agree_on_tags_of_their_own_in_any_order_of_joining() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    for sequence in 0..5_u64 {
        let digest = digest_of(&sequence.to_le_bytes());
        let mut rounds = tokio::task::JoinSet::new();
        for (at, space) in (0..).zip(&spaces) {
            // The last joins long after all others have cast.
            let round = space.join(3, sequence, plan(space.members())).expect("it is new");
            let late = DELAY * at * 7;
            rounds.spawn(async move {
                tokio::time::sleep(late).await;
                agree(round, digest).await
            });
        }
        assert_eq!(rounds.join_all().await, [digest; 4]);
    }
    let again = spaces[0].join(3, 2, plan(&cluster.members));
    assert!(matches!(again, Err(EchoError::Join(_))), "nobody votes twice");
    spaces.iter().for_each(|space| space.close_below(3, 5));
    cluster.settle().await;
    let load = cluster.servers[0].as_ref().map(Endpoint::load).expect("it lives");
    assert_eq!(load.mailboxes, 0, "{load:?}");
    assert!(spaces[0].join(3, 4, plan(&cluster.members)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_round_that_runs_goes_on_below_the_floor() {
    let cluster = cluster(4).await;
    let mut spaces = spaces(&cluster);
    let digest = digest_of(b"heron");
    let join = |space: &EchoSpace| space.join(0, 1, plan(space.members())).expect("it is new");
    let mut rounds: Vec<EchoRound> = spaces.iter().map(join).collect();
    spaces[0].close_below(0, 2);
    // Of a space that nobody has open any more, too.
    spaces[1].close_below(0, 2);
    drop(spaces.remove(1));
    for round in &mut rounds {
        round.cast(0, digest, "").expect("it is the first");
    }
    all_reach(rounds, digest).await;
}

#[tokio::test(start_paused = true)]
async fn a_tag_is_announced_to_those_who_have_not_joined_when_enough_speak_of_it() {
    let cluster = cluster(4).await;
    let others = spaces(&cluster);
    let [first, second, ..] = &others[..] else { panic!("four members") };
    let server = cluster.servers[3].clone().expect("it lives");
    let taken = EchoSpace::builder("log", &cluster.members).open(&server);
    assert!(matches!(taken, Err(EchoError::Space(_))));

    let mut one = first.join(0, 9, plan(&cluster.members)).expect("it is new");
    let listener = EchoSpace::builder("quiet", &cluster.members).announce_at(2);
    let quiet = listener.open(&server).expect("another name");
    one.cast(0, Digest::ZERO, "").expect("it is the first");
    assert_eq!(others[3].next().await, Some((0, 9)), "one is enough by default");
    drop(second.join(0, 9, plan(&cluster.members)).expect("it is new"));
    let waits = tokio::time::timeout(Duration::from_secs(1), quiet.next()).await;
    assert!(waits.is_err(), "another space");
}

#[tokio::test(start_paused = true)]
async fn of_several_who_wait_for_tags_each_is_told_of_another() {
    let cluster = cluster(2).await;
    let mut spaces = spaces(&cluster);
    let (reader, writer) = (Arc::new(spaces.remove(0)), spaces.remove(0));
    let waiting = [(); 2].map(|()| {
        let reader = reader.clone();
        tokio::spawn(async move { reader.next().await })
    });
    cluster.settle().await;
    let mut told = Vec::new();
    let mut rounds = Vec::new();
    for (sequence, waiting) in (1..).zip(waiting) {
        let mut round = writer.join(0, sequence, plan(&cluster.members)).expect("it is new");
        round.cast(0, Digest::ZERO, "").expect("it is the first");
        rounds.push(round);
        cluster.settle().await;
        told.push(waiting);
    }
    let mut tags = Vec::new();
    for told in told {
        let tag = tokio::time::timeout(Duration::from_secs(1), told).await;
        tags.push(tag.expect("it is woken").expect("it does not panic"));
    }
    tags.sort_unstable();
    assert_eq!(tags, [Some((0, 1)), Some((0, 2))]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_cut_off_catches_up_when_votes_are_repeated() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let digest = digest_of(b"heron");
    let mut rounds: Vec<EchoRound> = spaces
        .iter()
        .map(|space| space.join(0, 1, plan(space.members())).expect("it is new"))
        .collect();
    let cut_off = rounds.pop().expect("four");
    // What is on its way is lost with the connections, and the way back is closed for now.
    for other in 1..=3 {
        cluster.network.partition(node(other), node(4));
    }
    for round in &mut rounds {
        round.cast(0, digest, "").expect("it is the first");
    }
    let rounds = all_reach(rounds, digest).await;
    for other in 1..=3 {
        assert_eq!(cluster.network.cut(node(other), node(4)), 1);
    }
    cluster.network.heal_all();
    cluster.settle().await;
    for (at, server) in cluster.servers[..3].iter().flatten().enumerate() {
        server.warm_up(node(4)).await.expect("it listens");
        rounds[at].repeat_to(node(4));
    }
    let agreed = tokio::time::timeout(Duration::from_secs(1), agree(cut_off, digest)).await;
    assert_eq!(agreed, Ok(digest));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_member_says_what_it_said_before() {
    let mut cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let mut first = spaces[1].join(0, 1, plan(&cluster.members)).expect("it is new");
    first.cast(0, digest_of(b"heron"), "").expect("it is the first");
    let said: Vec<EchoVote> = (0..2)
        .filter_map(|phase| Some(EchoVote { phase, digest: first.core().cast_in(phase)? }))
        .collect();
    cluster.crash(2);
    drop(first);
    let again = Cluster::server(&cluster.network, 2, 4).seed(22);
    let again = again.start().await.expect("the name is free again");
    for other in [1, 3, 4] {
        again.warm_up(node(other)).await.expect("it listens");
    }
    let space = open(&cluster, &again, |space| space);
    let mut second = space.join(0, 1, plan(&cluster.members)).expect("new in this life");
    second.restore(said.into_iter().map(|vote| (vote, Bytes::new()))).expect("nothing was cast");
    let refused = second.cast(0, digest_of(b"crane"), "");
    assert!(matches!(refused, Err(EchoError::Cast(_))), "{refused:?}");
    let mut others: Vec<EchoRound> = [0, 2]
        .map(|at: usize| spaces[at].join(0, 1, plan(&cluster.members)).expect("it is new"))
        .into();
    for round in &mut others {
        round.cast(0, digest_of(b"heron"), "").expect("it is the first");
    }
    others.push(second);
    for round in all_reach(others, digest_of(b"heron")).await {
        assert!(round.evidence().is_empty(), "{:?}", round.evidence());
    }
}

/// Until it is released, a vote may be neither stored nor signed.
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_held_is_repeated_to_nobody() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let digest = digest_of(b"heron");
    let mut rounds = spaces
        .iter()
        .map(|space| space.join(0, 1, plan(space.members())).expect("it is new"))
        .collect::<Vec<EchoRound>>();
    let mut listener = rounds.pop().expect("four");
    rounds[0].hold();
    for round in &mut rounds {
        round.cast(0, digest, "").expect("it is the first");
    }
    let vote = rounds[0].held().await.expect("it runs");
    rounds[0].release(vote, "").expect("it is small");
    rounds[0].quorum(0).await.expect("nobody lies");
    assert_eq!(rounds[0].core().cast_in(1), Some(digest), "by the rule, and held");
    rounds[0].repeat_to(node(4));
    cluster.settle().await;
    let has = |round: &EchoRound, phase| round.core().votes(phase).any(|(from, _)| from == node(1));
    listener.quorum(0).await.expect("nobody lies");
    assert!(has(&listener, 0) && !has(&listener, 1));
    let vote = rounds[0].held().await.expect("it runs");
    assert_eq!(vote.phase, 1);
    rounds[0].release(vote, "").expect("it is small");
    cluster.settle().await;
    let heard = listener.until(|core| core.votes(1).find(|(from, _)| *from == node(1)));
    let heard = tokio::time::timeout(Duration::from_secs(1), heard).await;
    assert_eq!(heard.expect("it is said").expect("it runs"), (node(1), digest));
}

#[tokio::test(start_paused = true)]
async fn a_vote_of_another_round_is_not_released() {
    let cluster = cluster(4).await;
    let space = &spaces(&cluster)[0];
    let [one, other] = [b"heron", b"egret"].map(|value| digest_of(value));
    let join = |tag| space.join(tag, 1, plan(space.members())).expect("it is new");
    let mut rounds = [join(0), join(1), join(2)];
    rounds.iter_mut().for_each(EchoRound::hold);
    rounds[0].cast(0, one, "").expect("it is the first");
    rounds[1].cast(0, other, "").expect("it is the first");
    let vote = rounds[0].held().await.expect("it runs");
    let refused = CastRefused::AlreadyCast { phase: 0, digest: other };
    assert_eq!(rounds[1].release(vote, ""), Err(refused.into()));
    let refused = CastRefused::NotCast { phase: 0, digest: one };
    assert_eq!(rounds[2].release(vote, ""), Err(refused.into()));
    assert_eq!(rounds[0].release(vote, ""), Ok(()));
}

#[tokio::test]
async fn a_verifier_that_panics_at_a_vote_refuses_that_one_alone() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let digest = digest_of(b"heron");
    let parse = |cast: &TaggedCast| match &cast.body.payload[..] {
        b"bad" => panic!("no parser of mine takes that"),
        _ => Ok(()),
    };
    let round = |at: usize| spaces[at].join(0, 1, plan(&cluster.members)).expect("it is new");
    let mut first = round(0).verify(parse);
    let mut others = [round(1), round(2), round(3)];
    for (round, payload) in others.iter_mut().zip(["good", "good", "bad"]) {
        round.cast(0, digest, payload).expect("it is the first");
    }
    first.cast(0, digest, "good").expect("it is the first");
    first.quorum(0).await.expect("three are good");
    first.until(|core| (core.votes(0).count() == 3).then_some(())).await.expect("it runs");
    let refused = async {
        while first.refused_by_cause().next().is_none() {
            let more = first.until(|_| None::<()>);
            let _ = tokio::time::timeout(Duration::from_millis(1), more).await;
        }
        first.refused_by_cause().collect::<Vec<_>>()
    };
    let refused = tokio::time::timeout(Duration::from_secs(10), refused).await;
    assert_eq!(refused.expect("it is judged"), [("panicked", 1)]);
}

/// A round of three who have cast one digest, whose verifier looks at their votes until the sender
/// goes, and the rounds of the other two.
async fn looked_at(
    cluster: &Cluster,
    spaces: &[EchoSpace],
) -> (EchoRound, std::sync::mpsc::Sender<()>, [EchoRound; 2]) {
    let digest = digest_of(b"heron");
    let (looks, mut is_looking) = tokio::sync::mpsc::unbounded_channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let slow = move |_: &TaggedCast| {
        let _ = looks.send(());
        // Ends with its sender.
        let _ = may_go.lock().expect("nobody panics").recv();
        Ok(())
    };
    let round = |at: usize| spaces[at].join(0, 1, plan(&cluster.members)).expect("it is new");
    let mut first = round(0).verify(slow);
    first.cast(0, digest, "").expect("it is the first");
    let mut others = [round(1), round(2)];
    for round in &mut others {
        round.cast(0, digest, "").expect("it is the first");
    }
    tokio::select! {
        reached = first.quorum(0) => panic!("{reached:?}, though nothing is judged"),
        looks = is_looking.recv() => looks.expect("it lives"),
    }
    (first, go, others)
}

#[tokio::test]
async fn another_verifier_loses_no_vote_that_one_looks_at() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let (first, go, _others) = looked_at(&cluster, &spaces).await;
    let mut first = first.verify(|_: &TaggedCast| Ok(()));
    drop(go);
    first.quorum(0).await.expect("three have cast it");
}

#[tokio::test]
async fn votes_that_a_verifier_holds_count_once_the_endpoint_has_stopped() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let (mut first, go, _others) = looked_at(&cluster, &spaces).await;
    let server = cluster.servers[0].clone().expect("it lives");
    server.shutdown(Duration::ZERO).await;
    let mut reached = std::pin::pin!(first.quorum(0));
    let told = poll_fn(|cx| Poll::Ready(reached.as_mut().poll(cx))).await;
    assert!(told.is_pending(), "{told:?}");
    drop(go);
    assert_eq!(reached.await.expect("three have cast it").count, 3);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_no_member_would_keep_is_refused() {
    let cluster = cluster(2).await;
    let spaces = spaces(&cluster);
    let digest = digest_of(b"heron");
    let all = || EchoPlan::new(2, [Phase::new("echo", 2)]).expect("it is a plan");
    let join = |space: &EchoSpace| space.join(0, 1, all()).expect("it is new");
    let [mut one, mut two] = [join(&spaces[0]), join(&spaces[1])];
    let bytes_max = Limits::default().cast_payload_bytes_max();
    let payload = |bytes| Bytes::from(vec![7; bytes]);
    let refused = CastRefused::TooLarge { bytes: 1 << 20, bytes_max };
    assert_eq!(one.cast(0, digest, payload(1 << 20)), Err(refused.into()));
    assert_eq!(one.core().cast_in(0), None, "nothing was cast");
    one.hold();
    one.cast(0, digest, "").expect("it is the first");
    let vote = one.held().await.expect("it runs");
    assert_eq!(one.release(vote, payload(1 << 20)), Err(refused.into()));
    one.release(vote, payload(bytes_max)).expect("no more than is kept");
    two.cast(0, digest, payload(bytes_max)).expect("no more than is kept");
    for mut round in [one, two] {
        let reached = tokio::time::timeout(Duration::from_secs(5), round.quorum(0)).await;
        assert_eq!(reached.expect("they are kept").expect("it runs").count, 2);
    }
    drop(spaces);
    let server = cluster.servers[0].as_ref().expect("it lives");
    let restored = open(&cluster, server, |space| space).restore(
        0,
        2,
        all(),
        [(EchoVote { phase: 0, digest }, payload(1 << 20))],
    );
    assert_eq!(restored.map(drop), Err(refused.into()));
    let votes = EchoSpace::builder("votes", &cluster.members).stream(server).expect("once");
    let vote = EchoVote { phase: 0, digest };
    assert_eq!(votes.cast((0, 1), vote, payload(1 << 20)), Err(refused));
    assert_eq!(votes.cast((0, 1), vote, payload(bytes_max)), Ok(()));
}

/// Nothing tells that it is slow but that its connection takes no more; it was never lost.
#[tokio::test(start_paused = true)]
async fn a_member_that_was_slow_is_told_what_found_no_room_on_its_connection() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    cluster.network.partition(node(1), node(4));
    let server = cluster.servers[0].as_ref().expect("it lives");
    let announce = Announce { senders_min: usize::MAX, source: None };
    let other = server.cast_space(7, 1, announce, None).expect("once");
    let payload = Bytes::from(vec![7; 1 << 19]);
    let body = CastBody { phase: 0, sender: 0, epoch: 0, digest: Digest::ZERO, payload };
    for sequence in 0..40 {
        other.send((0, sequence), Duration::ZERO, [node(4)], body.clone());
    }
    // Nobody can do without anybody, so that none ends before the others.
    let phases = || [Phase::new("echo", 4), Phase::new("ready", 4).cast_on(Rule::on(0, 4))];
    let all = || EchoPlan::new(4, phases()).expect("it is a plan");
    let mut rounds = tokio::task::JoinSet::new();
    for (at, space) in spaces.iter().enumerate() {
        let mut round = space.join(0, 1, all()).expect("it is new");
        // A payload that no rest of the room takes.
        round.cast(0, digest_of(b"heron"), vec![7; 1 << 19]).expect("it is the first");
        assert_eq!(round.missed().len(), usize::from(at == 0), "only there is no room");
        rounds.spawn(async move { round.quorum(1).await.map(|reached| reached.count) });
    }
    cluster.settle().await;
    cluster.network.heal_all();
    let reached = tokio::time::timeout(Duration::from_secs(5), rounds.join_all()).await;
    assert_eq!(reached.expect("it is said again"), [const { Ok(4) }; 4]);
}

/// It is to be a member next, and has cast before it is one.
#[tokio::test(start_paused = true)]
async fn who_waits_for_tags_is_told_of_those_that_a_change_of_members_makes_worth_it() {
    let cluster = cluster(2).await;
    let announce = Announce { senders_min: 1, source: None };
    let of = |at: usize| cluster.servers[at].as_ref().expect("it lives");
    let space = of(0).cast_space(7, 10, announce, Some(&[node(1)])).expect("once");
    space.hear_next([node(2)]);
    let theirs = of(1).cast_space(7, 10, announce, None).expect("once");
    let port = theirs.open(0, 5, Duration::from_secs(60)).expect("it is new");
    let (digest, payload) = (digest_of(b"a"), Bytes::new());
    port.send([node(1)], CastBody { phase: 0, sender: 0, epoch: 0, digest, payload });
    cluster.settle().await;
    let space = Arc::new(space);
    let waiting = Arc::clone(&space);
    let told = tokio::spawn(async move { poll_fn(|cx| waiting.poll_announced(cx)).await });
    cluster.settle().await;
    assert!(!told.is_finished());
    space.change_members([node(2)]);
    let told = tokio::time::timeout(Duration::from_secs(1), told).await;
    assert_eq!(told.expect("it is woken").expect("it does not panic"), Some((0, 5)));
}

#[tokio::test(start_paused = true)]
async fn votes_that_a_broken_connection_took_are_said_again_once_there_is_another() {
    let cluster = cluster(4).await;
    let spaces = spaces(&cluster);
    let all = || EchoPlan::new(4, [Phase::new("echo", 4)]).expect("it is a plan");
    (1..=3).for_each(|other| cluster.network.partition(node(other), node(4)));
    let mut rounds = tokio::task::JoinSet::new();
    for space in &spaces {
        let mut round = space.join(0, 1, all()).expect("it is new");
        round.cast(0, digest_of(b"heron"), "").expect("it is the first");
        rounds.spawn(async move {
            let reached = round.quorum(0).await.map(|reached| reached.count);
            // A member that has all may be the one that another waits for.
            let _ = tokio::time::timeout(Duration::from_secs(5), round.until(|_| None::<()>)).await;
            reached
        });
    }
    cluster.settle().await;
    for other in 1..=3 {
        assert_eq!(cluster.network.cut(node(other), node(4)), 1);
    }
    cluster.network.heal_all();
    let reached = tokio::time::timeout(Duration::from_secs(20), rounds.join_all()).await;
    assert_eq!(reached.expect("it is said again"), [const { Ok(4) }; 4]);
}

/// Phases that both of two members vote in.
fn of_both(phases: u16) -> EchoPlan {
    EchoPlan::new(2, (0..phases).map(|_| Phase::new("echo", 2))).expect("it is a plan")
}

/// The spaces of two members, and a round of the first.
fn of_two(cluster: &Cluster, phases: u16) -> (Vec<EchoSpace>, EchoRound) {
    let spaces = spaces(cluster);
    let round = spaces[0].join(0, 1, of_both(phases)).expect("it is new");
    (spaces, round)
}

/// The round is not awaited meanwhile, and so never finds the member without a connection.
#[tokio::test(start_paused = true)]
async fn votes_are_said_again_to_a_member_that_is_back_before_its_loss_was_looked_at() {
    let cluster = cluster(2).await;
    let (spaces, mut first) = of_two(&cluster, 1);
    let digest = digest_of(b"heron");
    cluster.network.partition(node(1), node(2));
    first.cast(0, digest, "").expect("it is the first");
    cluster.settle().await;
    assert_eq!(cluster.network.cut(node(1), node(2)), 1);
    cluster.network.heal_all();
    cluster.settle().await;
    let server = cluster.servers[0].as_ref().expect("it lives");
    server.warm_up(node(2)).await.expect("it listens");

    let mut second = spaces[1].join(0, 1, of_both(1)).expect("it is new");
    second.cast(0, digest, "").expect("it is the first");
    tokio::spawn(async move { first.until(|_| None::<()>).await });
    let reached = tokio::time::timeout(Duration::from_secs(10), second.quorum(0)).await;
    assert_eq!(reached.expect("it is said again").map(|reached| reached.count), Ok(2));
}

/// Votes said since the connection was lost have waited for the next one, and were not lost.
#[tokio::test(start_paused = true)]
async fn votes_that_a_broken_connection_did_not_take_are_said_once() {
    let cluster = cluster(2).await;
    let (_spaces, mut first) = of_two(&cluster, 2);
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let hook = cluster.network.hook_all(move |frame| {
        if let Ok(Frame { message: Message::Cast(cast), .. }) = frame.decode() {
            heard.lock().expect("nobody panics with it").push(cast.phase);
        }
        Action::Pass
    });
    let digest = digest_of(b"heron");
    first.cast(0, digest, "").expect("it is the first");
    let waited = tokio::time::timeout(10 * DELAY, first.quorum(0)).await;
    assert!(waited.is_err(), "nobody else votes");
    assert_eq!(cluster.network.cut(node(1), node(2)), 1);
    // It sees that, and dials.
    let waited = tokio::time::timeout(DELAY / 2, first.quorum(0)).await;
    assert!(waited.is_err() && first.missed() == [node(2)], "{:?}", first.missed());
    first.cast(1, digest, "").expect("it is the first");
    let waited = tokio::time::timeout(Duration::from_secs(5), first.quorum(0)).await;
    assert!(waited.is_err() && first.missed().is_empty(), "{:?}", first.missed());
    drop(hook);
    let mut said = said.lock().expect("nobody panics with it").clone();
    said.sort_unstable();
    assert_eq!(said, [0, 0, 1], "only what was said before the loss may be lost");
}

/// Others come and go all the time at an endpoint that they share.
#[tokio::test(start_paused = true)]
async fn connections_of_nodes_that_are_no_members_do_not_wake_a_round() {
    let cluster = cluster(3).await;
    let server = cluster.servers[0].as_ref().expect("it lives");
    let two = Configuration::new([1, 2].map(node)).expect("they differ");
    let space = EchoSpace::builder("pair", &two).open(server).expect("once");
    let mut round = space.join(0, 1, of_both(1)).expect("it is new");
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let waiting = tokio::spawn(async move {
        let mut reached = pin!(round.quorum(0));
        poll_fn(|cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            reached.as_mut().poll(cx)
        })
        .await
    });
    cluster.settle().await;
    let before = polls.load(Ordering::Relaxed);
    assert_eq!(cluster.network.cut(node(1), node(3)), 1);
    cluster.settle().await;
    server.warm_up(node(3)).await.expect("it listens");
    cluster.settle().await;
    assert_eq!(polls.load(Ordering::Relaxed), before, "it has slept");
    assert_eq!(cluster.network.cut(node(1), node(2)), 1);
    cluster.settle().await;
    assert!(polls.load(Ordering::Relaxed) > before, "a member is gone");
    waiting.abort();
}

/// It was down when the vote was cast, has heard of nothing since, and so dials nobody.
#[tokio::test(start_paused = true)]
async fn a_member_that_missed_a_vote_is_dialled_until_it_is_there() {
    let mut cluster = Cluster::start_apart(3, 3, |_, _| Service::new()).await;
    cluster.crash(2);
    cluster.crash(3);
    let plan = || EchoPlan::majority(3, 1).expect("it is a plan");
    let digest = digest_of(b"heron");
    let space = open(&cluster, cluster.servers[0].as_ref().expect("it lives"), |space| space);
    let mut first = space.join(0, 1, plan()).expect("it is new");
    first.cast(0, digest, "").expect("it is the first");
    let waiting = tokio::spawn(async move { first.quorum(0).await.map(|reached| reached.count) });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let again = Cluster::server(&cluster.network, 2, 3).seed(22).start().await;
    let again = again.expect("the name is free again");
    let second = open(&cluster, &again, |space| space);
    let told = tokio::time::timeout(Duration::from_secs(10), second.next()).await;
    assert_eq!(told.expect("it is dialled"), Some((0, 1)));
    let mut second = second.join(0, 1, plan()).expect("it is new");
    second.cast(0, digest, "").expect("it is the first");
    let reached = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert_eq!(reached.expect("it hears of it").expect("it does not panic"), Ok(2));
}
