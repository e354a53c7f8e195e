//! Memory and allocations of echo rounds, counted.

use std::alloc::System;
use std::ops::Range;

use bytes::Bytes;
use convoke_core::{Digest, NodeId};
use convoke_proto::id::{CallId, Incarnation};
use convoke_proto::key::Secret;
use convoke_proto::limits::Limits;
use convoke_proto::mailbox::Announce;
use convoke_proto::node::{Identity, Node};
use convoke_proto::outbox::Queue;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{About, Cast};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoCore, EchoPlan, EchoVote};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn members() -> Configuration {
    Configuration::new((1..=4).map(NodeId::new)).expect("they differ")
}

/// Allocations of what is done, and bytes that it holds afterwards.
fn spent(act: impl FnOnce()) -> (u64, u64) {
    let region = Region::new(ALLOCATOR);
    act();
    let change = region.change();
    ((change.allocations + change.reallocations) as u64, held(&region))
}

fn held(region: &Region<'_, System>) -> u64 {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated) as u64
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

fn a_vote_allocates_less_than_once() {
    let (members, plan) = (members(), EchoPlan::majority(4, 2).expect("it is a plan"));
    let (rounds, votes) = (1_000_u64, 8);
    let (allocations, _) = spent(|| {
        for _ in 0..rounds {
            drop(run(&members, &plan));
        }
    });
    println!("{} allocations for {votes} votes", allocations / rounds);
    assert!(allocations <= rounds * votes, "{allocations}");
}

const CASTS: u64 = 10_000;

fn node() -> Node<Queue> {
    let identity = Identity { node: NodeId::new(1), incarnation: Incarnation::of_random(1 << 8) };
    let (limits, now) = (Limits::default(), Timestamp::ZERO);
    let node = Node::<Queue>::new(identity, Secret::new(1, 2), &limits, 7, now);
    let mut node = node.expect("these are the defaults");
    node.mailboxes_mut().know((2..=8).map(NodeId::new));
    node
}

/// Each of so many members casts about each of these tags.
fn casts(node: &mut Node<Queue>, members: u64, tags: Range<u64>, payload: &Bytes) {
    for seq in tags {
        for (from, sender) in (2..2 + members).zip(1..) {
            let (about, digest) = (About::Tag { view: 0 }, Digest([7; 32]));
            let (phase, epoch, budget_us, is_carried) = (0, 0, 1 << 40, false);
            let payload = payload.clone();
            let cast = Cast { about, phase, sender, epoch, budget_us, digest, is_carried, payload };
            let call = CallId { origin: Incarnation(SPACE), seq };
            node.handle_cast(Timestamp::ZERO, NodeId::new(from), call, cast);
        }
    }
}

const SPACE: u64 = 9;

fn what_waits_takes_what_is_accounted_for_it() {
    for (members, len) in [1, 2, 3, 4, 7].into_iter().flat_map(|of| [(of, 0), (of, 100)]) {
        let (mut node, payload) = (node(), Bytes::from(vec![7; len]));
        let tags = CASTS / members;
        let (_, bytes) = spent(|| casts(&mut node, members, 0..tags, &payload));
        assert_eq!(node.mailboxes().count() as u64, tags);
        check(&node, &format!("{members} members, {len} bytes"), bytes);
        assert!(members > 1 || len > 0 || bytes <= tags * 310, "{bytes} for {tags} tags");
    }
}

fn what_waits_in_a_stream_takes_what_is_accounted_for_it() {
    for (members, len) in [1, 3].into_iter().flat_map(|of| [(of, 0), (of, 100)]) {
        let (mut node, payload) = (node(), Bytes::from(vec![7; len]));
        let announce = Announce { senders_min: 1, source: None };
        node.mailboxes_mut().open_space(SPACE, 1, announce, None).expect("it is new");
        node.mailboxes_mut().stream_space(SPACE);
        let region = Region::new(ALLOCATOR);
        casts(&mut node, members, 0..CASTS / members, &payload);
        check(&node, &format!("a stream of {members} members, {len} bytes"), held(&region));
        // What was a long queue is no long one for ever.
        while node.mailboxes().held_bytes() > 30_000 {
            node.mailboxes_mut().poll_cast(SPACE).expect("it waits");
        }
        let (held, bytes) = (node.mailboxes().held_bytes() as u64, held(&region));
        assert!(bytes < 4 * held, "{bytes} for {held}");
    }
}

/// One after the other: what is counted is of the whole process.
#[test]
fn memory_and_allocations_are_as_said() {
    a_vote_allocates_less_than_once();
    what_waits_takes_what_is_accounted_for_it();
    what_waits_in_a_stream_takes_what_is_accounted_for_it();
}

fn check(node: &Node<Queue>, name: &str, bytes: u64) {
    let held = node.mailboxes().held_bytes() as u64;
    println!("{name}: {:.2} of what is accounted", bytes as f64 / held as f64);
    assert!(held * 6 / 5 >= bytes && bytes * 6 / 5 >= held, "{name}: {held} for {bytes}");
}
