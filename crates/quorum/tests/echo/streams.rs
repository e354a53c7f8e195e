//! All votes of a space in one stream, and the gates on both sides of a vote.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Announce, CastBody, Digest, NodeId, Service};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{
    EchoCore, EchoPlan, EchoSpace, EchoStream, EchoVote, TaggedCast, digest_of,
};
use tokio::time::timeout;

use crate::support::{Cluster, node};

async fn cluster() -> Cluster {
    Cluster::start(7, 4, |_, _| Service::new()).await
}

fn stream(cluster: &Cluster, at: usize, members: &Configuration) -> EchoStream {
    let server = cluster.servers[at].as_ref().expect("it lives");
    EchoSpace::builder("log", members).verify(is_signed).stream(server).expect("once")
}

/// Stand-in for a signature: the name of the member.
fn is_signed(cast: &TaggedCast) -> Result<(), &'static str> {
    match cast.body.payload[..] == cast.from.get().to_le_bytes() {
        true => Ok(()),
        false => Err("signature"),
    }
}

/// A protocol of its own: a core for each tag, of which it says what it has stored and signed.
struct Log {
    me: NodeId,
    members: Configuration,
    slots: BTreeMap<(u64, u64), EchoCore>,
    stored: Vec<EchoVote>,
}

impl Log {
    fn new(me: NodeId, members: &Configuration) -> Self {
        let (members, slots, stored) = (members.clone(), BTreeMap::new(), Vec::new());
        Self { me, members, slots, stored }
    }

    fn slot(&mut self, tag: (u64, u64)) -> &mut EchoCore {
        let (me, members) = (self.me, &self.members);
        self.slots.entry(tag).or_insert_with(|| {
            let plan = EchoPlan::majority(4, 2).expect("it is a plan");
            EchoCore::new(me, members, plan).expect("a member")
        })
    }

    /// Stores what is to be said, and then says it.
    fn speak(&mut self, tag: (u64, u64), votes: &EchoStream) {
        while let Some(vote) = self.slot(tag).poll_transmit() {
            self.stored.push(vote);
            votes.cast(tag, vote, self.me.get().to_le_bytes().to_vec()).expect("it is small");
        }
    }

    /// Until all slots have both quorums.
    async fn run(mut self, mut votes: EchoStream, slots: u64) -> (Self, EchoStream) {
        for sequence in 0..slots {
            let digest = digest_of(&sequence.to_le_bytes());
            self.slot((0, sequence)).cast(0, digest).expect("it is the first");
            self.speak((0, sequence), &votes);
        }
        let is_over = |log: &Self| log.slots.values().all(|slot| slot.reached(1).is_some());
        while !is_over(&self) {
            let TaggedCast { tag, from, body, .. } = votes.next().await.expect("it lives");
            let heard = self.slot(tag).handle_cast(from, body);
            heard.expect("the stream gives members' own votes alone");
            self.speak(tag, &votes);
        }
        (self, votes)
    }
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_protocol_with_a_core_of_its_own_sees_every_vote_that_is_signed() {
    let cluster = cluster().await;
    let slots = 50;
    // The last member floods with votes that it has not signed, and then votes as it should.
    let liar = stream(&cluster, 3, &cluster.members);
    for sequence in 0..200 {
        let lie = EchoVote { phase: 0, digest: digest_of(b"a lie") };
        liar.cast((0, sequence), lie, "no signature").expect("it is small");
    }
    cluster.settle().await;
    let mut running = tokio::task::JoinSet::new();
    for at in 0..3 {
        let log = Log::new(node(at + 1), &cluster.members);
        let votes = stream(&cluster, usize::try_from(at).unwrap(), &cluster.members);
        running.spawn(log.run(votes, slots));
    }
    running.spawn(Log::new(node(4), &cluster.members).run(liar, slots));
    let mut ended = 0;
    let patience = Duration::from_secs(60);
    while let Some(run) = timeout(patience, running.join_next()).await.expect("all end") {
        let (log, votes) = run.expect("it does not panic");
        assert_eq!(log.stored.len() as u64, 2 * slots, "each vote is stored before it is said");
        for (tag, slot) in &log.slots {
            let expected = digest_of(&tag.1.to_le_bytes());
            assert_eq!(slot.reached(1).map(|reached| reached.digest), Some(expected));
            assert!(slot.evidence().is_empty(), "a vote that is not signed is none");
        }
        if log.me != node(4) {
            assert_eq!(votes.refused_by_cause().collect::<Vec<_>>(), [("signature", 200)]);
        }
        ended += 1;
    }
    assert_eq!(ended, 4);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn one_member_that_floods_a_stream_holds_up_no_other() {
    let cluster = cluster().await;
    let mut votes = stream(&cluster, 0, &cluster.members);
    let (flood, other) =
        (stream(&cluster, 1, &cluster.members), stream(&cluster, 2, &cluster.members));
    let vote = |sequence: u64| EchoVote { phase: 0, digest: digest_of(&sequence.to_le_bytes()) };
    for sequence in 0..5_000 {
        flood
            .cast((0, sequence), vote(sequence), 2_u64.to_le_bytes().to_vec())
            .expect("it is small");
    }
    other.cast((0, 1), vote(1), 3_u64.to_le_bytes().to_vec()).expect("it is small");
    cluster.settle().await;
    let mut before = 0;
    while votes.next().await.expect("it lives").from == node(2) {
        before += 1;
    }
    assert!(before <= 1, "{before}");
    let server = cluster.servers[0].as_ref().expect("it lives");
    assert_eq!(server.casts_dropped().over_limit, 5_000 - 1_024);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn members_change_by_epoch_and_votes_that_came_before_are_kept() {
    let cluster = cluster().await;
    let one = cluster.members.with_epoch(1);
    let two = cluster.members.without([node(4)]).with_epoch(2);
    let mut votes = stream(&cluster, 0, &one);
    let (mut early, late) = (stream(&cluster, 1, &one), stream(&cluster, 3, &one));
    early.change_members(&two).expect("it is one of them");
    let vote = EchoVote { phase: 0, digest: digest_of(b"heron") };
    let sign = |of: u64| of.to_le_bytes().to_vec();
    early.cast((0, 7), vote, sign(2)).expect("it is small");
    late.cast((0, 6), vote, sign(4)).expect("it is small");
    assert_eq!(votes.next().await.expect("it lives").tag, (0, 6), "that of the present epoch");
    assert!(timeout(Duration::from_secs(1), votes.next()).await.is_err());
    assert_eq!(votes.later().collect::<Vec<_>>(), [node(2)]);
    assert!(votes.change_members(&two.without([node(1)])).is_err());
    votes.change_members(&two).expect("it is one of them");
    let kept = votes.next().await.expect("it lives");
    assert_eq!((kept.tag, kept.from, kept.body.epoch), ((0, 7), node(2), 2));
    late.cast((0, 8), vote, sign(4)).expect("it is small");
    let own = stream(&cluster, 2, &one);
    own.cast((0, 8), vote, sign(3)).expect("it is small");
    assert!(timeout(Duration::from_secs(1), votes.next()).await.is_err(), "of the epoch before");
    assert_eq!(votes.refused().wrong_epoch, 1);
    let server = cluster.servers[0].as_ref().expect("it lives");
    assert_eq!(server.casts_dropped().strangers, 1, "who is no member any more");
}

/// Votes that a verifier has in its hands are of members that may be none by the time it is done.
#[tokio::test(start_paused = true)]
async fn votes_that_are_verified_while_the_members_change_are_judged_by_the_new_ones() {
    let cluster = cluster().await;
    let one = cluster.members.with_epoch(1);
    let two = cluster.members.without([node(4)]).with_epoch(2);
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let verify = move |_: &TaggedCast| {
        let _ = held.lock().expect("no panic").recv();
        Ok(())
    };
    let server = cluster.servers[0].as_ref().expect("it lives");
    let space = EchoSpace::builder("log", &one).verify(verify);
    let mut votes = space.stream(server).expect("once");
    let (mut stays, leaves) = (stream(&cluster, 1, &one), stream(&cluster, 3, &one));
    let vote = EchoVote { phase: 0, digest: digest_of(b"heron") };
    stays.cast((0, 7), vote, "").expect("it is small");
    leaves.cast((0, 7), vote, "").expect("it is small");
    cluster.settle().await;
    let is_looked_at = poll_fn(|cx| Poll::Ready(votes.poll_next(cx).is_pending())).await;
    assert!(is_looked_at);
    for votes in [&mut votes, &mut stays] {
        votes.change_members(&two).expect("it is one of them");
    }
    stays.cast((0, 8), vote, "").expect("it is small");
    drop(let_go);
    let next = timeout(Duration::from_secs(1), votes.next()).await.expect("it is of the new epoch");
    let next = next.expect("it lives");
    assert_eq!((next.from, next.tag, next.body.epoch), (node(2), (0, 8), 2));
    assert_eq!(votes.refused().wrong_epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn votes_of_a_later_epoch_are_kept_within_bounds_and_closed_as_any() {
    let cluster = cluster().await;
    let members = |epoch| cluster.members.with_epoch(epoch);
    let server = |at: usize| cluster.servers[at].as_ref().expect("it lives");
    let stream = |at, epoch| {
        let space = EchoSpace::builder("log", &members(epoch));
        space.stream(server(at)).expect("once")
    };
    let (mut votes, liar, early) = (stream(0, 1), stream(1, u64::MAX), stream(2, 2));
    let vote = EchoVote { phase: 0, digest: digest_of(b"heron") };
    for sequence in 0..64 {
        liar.cast((0, sequence), vote, vec![7; 100_000]).expect("it is small");
        assert!(timeout(Duration::from_millis(5), votes.next()).await.is_err(), "of no epoch here");
    }
    assert_eq!(votes.refused().wrong_epoch, 64 - 10, "1 MiB is kept");
    for sequence in 0..4 {
        early.cast((0, sequence), vote, "").expect("it is small");
    }
    assert!(timeout(Duration::from_secs(1), votes.next()).await.is_err());
    votes.close_below(0, 3);
    votes.change_members(&members(2)).expect("it is one of them");
    let next = timeout(Duration::from_secs(1), votes.next()).await.expect("it was kept");
    let next = next.expect("it lives");
    assert_eq!((next.from, next.tag), (node(3), (0, 3)));
    assert_eq!(votes.later().collect::<Vec<_>>(), [node(2)]);
    votes.change_members(&members(3).without([node(2)])).expect("it is one of them");
    votes.change_members(&members(4)).expect("it is one of them");
    assert_eq!(votes.later().count(), 0, "of who was no member nothing is kept");
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_vote_that_is_held_is_said_when_it_is_released_with_what_goes_along() {
    let cluster = cluster().await;
    let spaces: Vec<EchoSpace> = (0..2)
        .map(|at: usize| {
            let server = cluster.servers[at].as_ref().expect("it lives");
            EchoSpace::builder("log", &cluster.members).open(server).expect("once")
        })
        .collect();
    let plan = || EchoPlan::majority(4, 2).expect("it is a plan");
    let mut holding = spaces[0].join(0, 1, plan()).expect("it is new");
    let mut other = spaces[1].join(0, 1, plan()).expect("it is new");
    holding.hold();
    let digest = digest_of(b"heron");
    holding.cast(0, digest, "").expect("it is the first");
    cluster.settle().await;
    assert!(
        timeout(Duration::from_secs(1), other.until(|votes| votes.votes(0).next().map(drop)))
            .await
            .is_err()
    );
    let vote = timeout(Duration::from_secs(1), holding.held())
        .await
        .expect("it is there")
        .expect("it runs");
    assert_eq!(vote, EchoVote { phase: 0, digest });
    holding.release(vote, "signed").expect("it is small");
    let heard = |votes: &EchoCore| votes.payload(0, node(1)).cloned();
    let heard = timeout(Duration::from_secs(1), other.until(heard)).await.expect("it is said");
    assert_eq!(heard.expect("it runs"), "signed");
}

/// A member that joins votes before this one is told of its epoch: who is to come is heard of.
#[tokio::test(start_paused = true)]
async fn early_votes_of_a_member_that_joins_are_kept_for_who_expects_it() {
    for expects in [false, true] {
        let cluster = cluster().await;
        let old = cluster.members.without([node(4)]).with_epoch(1);
        let new = cluster.members.with_epoch(2);
        let server = |at: usize| cluster.servers[at].as_ref().expect("it lives");
        let stream =
            |at, members| EchoSpace::builder("log", members).stream(server(at)).expect("once");
        let mut votes = stream(0, &old);
        if expects {
            votes.hear_next(&new);
        }
        let vote = EchoVote { phase: 0, digest: digest_of(b"heron") };
        for joining in [stream(1, &new), stream(3, &new)] {
            joining.cast((0, 1), vote, "").expect("it is small");
        }
        assert!(timeout(Duration::from_secs(1), votes.next()).await.is_err(), "they are later");
        votes.change_members(&new).expect("it is one of them");
        let mut from = Vec::new();
        while let Ok(Some(vote)) = timeout(Duration::from_secs(1), votes.next()).await {
            from.push(vote.from.get());
        }
        from.sort_unstable();
        assert_eq!(from, if expects { vec![2, 4] } else { vec![2] });
    }
}

/// Nothing of it is given, and yet others have their turns.
#[tokio::test(start_paused = true)]
async fn votes_that_are_refused_do_not_hold_the_thread_of_their_reader() {
    let cluster = cluster().await;
    let server = |at: usize| cluster.servers[at].as_ref().expect("it lives");
    let space = EchoSpace::builder("log", &cluster.members);
    let announce = Announce { senders_min: usize::MAX, source: None };
    let liar = server(1).cast_space(space.id(), 1, announce, None).expect("once");
    let mut votes = space.stream(server(0)).expect("once");
    for sequence in 0..1_000 {
        let (digest, payload) = (Digest::ZERO, Bytes::new());
        let body = CastBody { phase: 0, sender: 2, epoch: 0, digest, payload };
        liar.send((0, sequence), Duration::from_secs(1), [node(1)], body);
    }
    cluster.settle().await;
    assert!(poll_fn(|cx| Poll::Ready(votes.poll_next(cx).is_pending())).await);
    let refused = votes.refused().wrong_index;
    assert!((1..500).contains(&refused), "{refused} in one turn");
    assert!(timeout(Duration::from_secs(1), votes.next()).await.is_err());
    assert_eq!(votes.refused().wrong_index, 1_000);
}
