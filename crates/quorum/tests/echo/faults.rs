//! Members that crash, are slow, or never came; and what is left behind of calls.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Announce, CastBody, Cause, Code, Context, Digest, Service, Status};
use convoke_quorum::echo::{EchoError, EchoPlan, EchoRound, Phase, Rule, digest_of};

use crate::support::{CLIENT, Cluster, DELAY, WRITE, node, storage};

#[tokio::test(start_paused = true)]
async fn one_crashed_member_of_four_does_not_matter() {
    let mut cluster = Cluster::start(1, 4, storage(2)).await;
    cluster.crash(2);
    let written = cluster.write("heron").await;
    let from: Vec<_> = written.replies.iter().map(|(from, _)| from.get()).collect();
    assert_eq!(from, [1, 3, 4]);
    assert!(written.replies.iter().all(|(_, after)| *after == 4 * DELAY), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn when_a_majority_is_down_the_phase_fails_at_once_and_names_who_is_missing() {
    let mut cluster = Cluster::start(1, 4, storage(1)).await;
    cluster.crash(2);
    cluster.crash(3);
    cluster.settle().await;
    let alive = [1, 4].map(|id| node(id).into());
    let written = cluster.write_to("heron", &alive, Duration::from_secs(5)).await;
    assert!(written.replies.is_empty(), "{written:?}");
    for (failure, after) in written.failures {
        assert_eq!((failure.cause, failure.code), (Cause::Application, Code::Unavailable as u32));
        assert!(failure.text.contains("1 of the 3 equal votes"), "{}", failure.text);
        assert!(failure.text.ends_with("down are n2, n3"), "{}", failure.text);
        assert!(after <= 3 * DELAY, "{after:?}");
    }
}

/// All but the leader have nothing to say before they have heard it.
#[tokio::test(start_paused = true)]
async fn members_that_nobody_has_dialled_yet_are_not_down() {
    let mut cluster = Cluster::start_apart(1, 4, |_, members| {
        Service::new().unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                let phases = [
                    Phase::new("propose", 1),
                    Phase::new("accept", 3).cast_on(Rule::heard(0, node(1))),
                ];
                let plan = EchoPlan::new(members.len(), phases).map_err(EchoError::from)?;
                let mut round = EchoRound::join(&context, &members, plan)?;
                if context.node() == node(1) {
                    tokio::time::sleep(10 * DELAY).await;
                    round.cast(0, digest_of(text.as_bytes()), "")?;
                }
                round.quorum(1).await?;
                Ok::<_, Status>(text)
            }
        })
    })
    .await;
    // One that cannot be dialled is down, and the others are enough.
    cluster.crash(4);
    let live = [1, 2, 3].map(|id| node(id).into());
    let written = cluster.write_to("heron", &live, Duration::from_secs(5)).await;
    assert_eq!(written.replies.len(), 3, "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn members_that_crash_during_a_phase_fail_it_when_their_connections_end() {
    let mut cluster = Cluster::start(1, 4, storage(1)).await;
    // Members 2 and 3 hear nothing of the client, so they never cast.
    for id in [2, 3] {
        cluster.network.partition(node(CLIENT), node(id));
    }
    let crash_at = Duration::from_millis(500);
    let crash = async {
        tokio::time::sleep(crash_at).await;
        for id in [2, 3] {
            cluster.network.crash(node(id));
        }
    };
    let alive = [1, 4].map(|id| node(id).into());
    let write = cluster.write_to("heron", &alive, Duration::from_secs(5));
    let (written, ()) = tokio::join!(write, crash);
    assert_eq!(written.failures.len(), 2, "{written:?}");
    for (failure, after) in &written.failures {
        assert!(failure.text.ends_with("down are n2, n3"), "{failure}");
        let late = *after - crash_at;
        assert!(late <= 2 * DELAY, "{late:?} after the crash");
    }
    cluster.crash(2);
    cluster.crash(3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_delays_nobody() {
    let cluster = Cluster::start(1, 4, storage(2)).await;
    for other in [1, 2, 4] {
        cluster.network.partition(node(3), node(other));
        cluster.network.partition(node(other), node(3));
    }
    let others = [1, 2, 4].map(|id| node(id).into());
    for _ in 0..3 {
        let written = cluster.write_to("heron", &others, Duration::from_secs(5)).await;
        assert_eq!(written.replies.len(), 3);
        assert!(written.replies.iter().all(|(_, after)| *after == 4 * DELAY), "{written:?}");
    }
}

/// The two that have each other do not wait for the third; only their votes make it a quorum.
#[tokio::test(start_paused = true)]
async fn a_member_that_was_slow_is_told_also_by_members_that_have_replied() {
    let cluster = Cluster::start(1, 3, storage(1)).await;
    let announce = Announce { senders_min: usize::MAX, source: None };
    for server in [0, 2].map(|at| cluster.servers[at].as_ref().expect("it lives")) {
        cluster.network.partition(server.node(), node(2));
        let space = server.cast_space(7, 1, announce, None).expect("once");
        // Until not even a vote finds room.
        for bytes in [1 << 19, 1 << 12, 0] {
            let payload = Bytes::from(vec![7; bytes]);
            let body = CastBody { phase: 0, sender: 0, epoch: 0, digest: Digest::ZERO, payload };
            let before = server.casts_dropped().unsent;
            while server.casts_dropped().unsent == before {
                space.send((0, 0), Duration::ZERO, [node(2)], body.clone());
            }
        }
    }
    let healed = Duration::from_millis(500);
    let heal = async {
        tokio::time::sleep(healed).await;
        for server in [0, 2].map(|at| cluster.servers[at].as_ref().expect("it lives")) {
            assert_eq!(server.load().mailboxes, 1, "its votes are owed");
        }
        cluster.network.heal_all();
    };
    let (written, ()) = tokio::join!(cluster.write("heron"), heal);
    let [(_, first), (slow, last), (_, third)] = written.replies[..] else { panic!("{written:?}") };
    assert_eq!(slow, node(2));
    assert!(first < healed && third < healed && last > healed, "{written:?}");
    cluster.settle().await;
    for server in cluster.servers.iter().flatten() {
        assert_eq!(server.load().mailboxes, 0, "{:?}", server.load());
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_votes_again_in_later_calls() {
    let mut cluster = Cluster::start(1, 3, storage(1)).await;
    cluster.crash(2);
    cluster.crash(3);
    cluster.settle().await;
    let alone = [node(1).into()];
    let written = cluster.write_to("heron", &alone, Duration::from_secs(5)).await;
    assert_eq!(written.failures.len(), 1);
    let service = storage(1)(node(2), cluster.members.clone());
    let again = Cluster::server(&cluster.network, 2, 3).seed(22).serve(service);
    let again = again.start().await.expect("the name is free again");
    again.warm_up(node(1)).await.expect("it listens");
    cluster.client.warm_up(node(2)).await.expect("it listens again");
    cluster.servers[1] = Some(again);
    let two = [1, 2].map(|id| node(id).into());
    let written = cluster.write_to("heron", &two, Duration::from_secs(5)).await;
    assert_eq!(written.replies.len(), 2, "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_vote_in_vain_leave_nothing_behind() {
    let cluster = Cluster::start(1, 4, storage(1)).await;
    for id in [2, 3] {
        cluster.network.partition(node(CLIENT), node(id));
    }
    let some = [1, 4].map(|id| node(id).into());
    for _ in 0..50 {
        let written = cluster.write_to("heron", &some, Duration::from_millis(100)).await;
        assert!(written.replies.is_empty(), "{written:?}");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for server in cluster.servers.iter().flatten() {
        let load = server.load();
        assert_eq!((load.mailboxes, load.tasks, load.waiting), (0, 0, 0), "{load:?}");
    }
}

/// The third might still vote, so nobody gives up.
#[tokio::test(start_paused = true)]
async fn votes_that_a_broken_connection_took_are_said_again_in_the_same_call() {
    let cluster = Cluster::start(1, 3, storage(1)).await;
    cluster.network.partition(node(CLIENT), node(3));
    let ways = [(1, 2), (2, 1)].map(|(from, to)| (node(from), node(to)));
    ways.iter().for_each(|(from, to)| cluster.network.partition(*from, *to));
    let mend = async {
        cluster.settle().await;
        assert_eq!(cluster.network.cut(node(1), node(2)), 1);
        ways.iter().for_each(|(from, to)| cluster.network.heal(*from, *to));
        cluster.settle().await;
        let server = cluster.servers[0].as_ref().expect("it lives");
        server.warm_up(node(2)).await.expect("it listens");
    };
    let two = [1, 2].map(|id| node(id).into());
    let write = cluster.write_to("heron", &two, Duration::from_secs(5));
    let (written, ()) = tokio::join!(write, mend);
    assert_eq!(written.replies.len(), 2, "{written:?}");
    assert!(written.replies.iter().all(|(_, after)| *after < Duration::from_secs(1)));
}
