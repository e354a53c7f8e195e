//! A member that casts without end, and what others notice of it: nothing.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::{CastBody, Digest, Limits, Service};
use convoke_quorum::echo::{EchoPlan, EchoSpace, digest_of};

use crate::support::{Cluster, node, storage};

#[tokio::test(start_paused = true)]
pub(crate) async fn a_flood_of_one_member_fills_its_own_share_alone() {
    let cluster = Cluster::start(1, 4, storage(2)).await;
    let limits = Limits::default();
    // What members cast about tags that nobody else joins.
    let flooder = cluster.servers[3].as_ref().expect("it lives");
    let space = EchoSpace::builder("flood", &cluster.members);
    let casts = flooder.cast_space(
        space.id(),
        1,
        convoke_core::Announce { senders_min: usize::MAX, source: None },
        None,
    );
    let casts = casts.expect("it is not open");
    let payload = Bytes::from(vec![7; 200_000]);
    for sequence in 0..200 {
        let port = casts.open(0, sequence, Duration::from_secs(30)).expect("it is new");
        let (digest, payload) = (Digest::ZERO, payload.clone());
        let body = CastBody { phase: 0, sender: 3, epoch: 0, digest, payload };
        port.send([node(1), node(2), node(3)], body);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for id in 1..=3 {
        let server = cluster.servers[id - 1].as_ref().expect("it lives");
        // Half of what there is, as nobody else has anything.
        let kept = server.load().mailboxes;
        let bytes = kept * 200_000;
        let half = limits.cast_bytes_total_max / 2;
        assert!((half - 500_000..=half).contains(&bytes), "n{id}: {kept}");
        let dropped = server.casts_dropped();
        assert_eq!(dropped.over_limit, 200 - kept as u64, "n{id}: {dropped:?}");
    }
    let written = cluster.write("heron").await;
    let from: Vec<_> = written.replies.iter().map(|(from, _)| from.get()).collect();
    assert!(from.starts_with(&[1, 2, 3]), "{written:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let server = cluster.servers[0].as_ref().expect("it lives");
    assert_eq!(server.load().mailboxes, 0, "{:?}", server.load());
}

#[tokio::test(start_paused = true)]
pub(crate) async fn casts_of_an_older_epoch_are_dropped_and_of_another_refused() {
    let cluster = Cluster::start(1, 3, |_, _| Service::new()).await;
    let joined = |at: usize, epoch| {
        let server = cluster.servers[at].as_ref().expect("it lives");
        let members = cluster.members.with_epoch(epoch);
        let space = EchoSpace::builder("log", &members).open(server).expect("once");
        let plan = EchoPlan::majority(3, 1).expect("it is a plan");
        let round = space.join(0, 0, plan).expect("it is new");
        (space, round)
    };
    let server = cluster.servers[0].as_ref().expect("it lives");
    server.set_epoch(5);
    let ((_one, mut one), (_two, mut two), (_three, mut three)) =
        (joined(0, 5), joined(1, 4), joined(2, 6));
    let digest = digest_of(b"heron");
    for round in [&mut two, &mut three] {
        round.cast(0, digest, "").expect("it is the first");
    }
    cluster.settle().await;
    assert_eq!(server.casts_dropped().stale_epoch, 1);
    one.cast(0, digest, "").expect("it is the first");
    let waits = tokio::time::timeout(Duration::from_secs(1), one.quorum(0)).await;
    assert!(waits.is_err(), "a vote of a later epoch is none of this one");
    // It is looked at once two wait, or the round is looked into.
    let _ = tokio::time::timeout(Duration::ZERO, one.until(|_| None::<()>)).await;
    assert_eq!(one.refused().wrong_epoch, 1, "{:?}", one.refused());
}

#[tokio::test(start_paused = true)]
async fn who_is_no_member_announces_no_tag() {
    let cluster = Cluster::start(1, 3, storage(1)).await;
    let builder = EchoSpace::builder("log", &cluster.members);
    let name = builder.id();
    let server = cluster.servers[0].as_ref().expect("it lives");
    let space = builder.open(server).expect("it is not open");
    let announce = convoke_core::Announce { senders_min: 1, source: None };
    let stranger = cluster.client.cast_space(name, 8, announce, None).expect("it is not open");
    let port = stranger.open(0, 7, Duration::from_secs(5)).expect("it is new");
    let payload = Bytes::new();
    port.send([node(1)], CastBody { phase: 0, sender: 0, epoch: 0, digest: Digest::ZERO, payload });
    let told = tokio::time::timeout(Duration::from_secs(1), space.next()).await;
    assert!(told.is_err(), "{told:?}, and no member has cast");
    assert_eq!(server.casts_dropped().strangers, 1);
}
