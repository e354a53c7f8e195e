//! Memory and allocations of echo rounds, counted.

use alloc_tracker::{Allocator, Session};
use convoke_core::{Digest, NodeId};
use convoke_proto::id::{CallId, Incarnation};
use convoke_proto::key::Secret;
use convoke_proto::limits::Limits;
use convoke_proto::node::{Identity, Node};
use convoke_proto::outbox::Queue;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{About, Cast};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoCore, EchoPlan, EchoVote};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

fn members() -> Configuration {
    Configuration::new((1..=4).map(NodeId::new)).expect("they differ")
}

/// Allocations and bytes of what is done.
fn spent(act: impl FnOnce()) -> (u64, u64) {
    let session = Session::new();
    let span = session.operation("it").measure_thread();
    act();
    drop(span);
    let report = session.to_report();
    let all = report
        .operations()
        .map(|(_, spent)| (spent.total_allocations_count(), spent.total_bytes_allocated()));
    all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn vote(phase: u16) -> EchoVote {
    EchoVote { phase, digest: Digest([7; 32]) }
}

/// A round of two phases among four members.
fn run(members: &Configuration, plan: &EchoPlan) -> EchoCore {
    let mut core = EchoCore::new(NodeId::new(1), members, plan.clone()).expect("a member");
    core.cast(0, vote(0).digest).expect("it is the first");
    for phase in [0, 1] {
        for id in 2..=4 {
            core.handle_vote(NodeId::new(id), vote(phase)).expect("a member");
        }
    }
    while core.poll_transmit().is_some() {}
    core
}

#[test]
fn a_vote_allocates_less_than_once() {
    let (members, plan) = (members(), EchoPlan::majority(4, 2).expect("it is a plan"));
    let (rounds, votes) = (1_000_u64, 8);
    let (allocations, bytes) = spent(|| {
        for _ in 0..rounds {
            drop(run(&members, &plan));
        }
    });
    let own = size_of::<EchoCore>() as u64;
    let (a_round, bytes) = (allocations / rounds, bytes / rounds);
    println!("{a_round} allocations for {votes} votes, {bytes} bytes and {own} of the core itself");
    assert!(allocations <= rounds * votes, "{allocations}");
}

#[test]
fn what_waits_takes_what_is_accounted_for_it() {
    let now = Timestamp::ZERO;
    for len in [0_u16, 100] {
        let life = Incarnation::of_random(1 << 8);
        let identity = Identity { node: NodeId::new(1), incarnation: life };
        let limits = Limits::default();
        let node = Node::<Queue>::new(identity, Secret::new(1, 2), &limits, 7, now);
        let mut node = node.expect("these are the defaults");
        node.mailboxes_mut().know([NodeId::new(2)]);
        let buffer = bytes::Bytes::from(vec![7; len.into()]);
        let casts = 10_000;
        let (_, bytes) = spent(|| {
            for seq in 0..casts {
                let about = About::Tag { view: 0 };
                let (digest, payload) = (Digest([7; 32]), buffer.clone());
                let (phase, sender, epoch, budget_us, is_carried) = (0, 1, 0, 1 << 40, false);
                let cast =
                    Cast { about, phase, sender, epoch, budget_us, digest, is_carried, payload };
                let call = CallId { origin: Incarnation(9), seq };
                node.handle_cast(now, NodeId::new(2), call, cast);
            }
        });
        assert_eq!(node.mailboxes().count() as u64, casts);
        let held = node.mailboxes().held_bytes() as u64;
        println!("{len}: {} bytes taken, {} accounted, each", bytes / casts, held / casts);
        assert!(held * 6 / 5 >= bytes && bytes * 6 / 5 >= held, "{held} for {bytes}");
        assert!(len > 0 || bytes <= casts * 300, "{bytes} for {casts} tags");
    }
}
