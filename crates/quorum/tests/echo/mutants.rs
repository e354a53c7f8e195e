//! Each rule of casts and votes broken once: a test of this directory must fall, the swarm where it
//! can, by the property that speaks of it.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use convoke_proto::mutant::{self, Mutant};

use crate::swarm::{calls, tags};
use crate::{floods, liars, streams};

/// A test, and what it says when it falls.
type Finds = (fn(), &'static str);

const CALLS: fn() = calls::correct_members_agree_on_calls_whatever_the_others_do;
const TAGS: fn() = tags::correct_members_agree_on_tags_whatever_the_others_do;

/// By whom each is found: in the swarm by its property.
const FOUND: [(Mutant, Finds); 21] = [
    (Mutant::DelegatedJoins, (CALLS, "liveness")),
    (Mutant::ClosedCallForgotten, (CALLS, "once")),
    (Mutant::StrangersCast, (TAGS, "bounds")),
    (Mutant::CastsWithoutShares, (CALLS, "liveness")),
    (Mutant::ExpiryOfFirst, (TAGS, "liveness")),
    (Mutant::ClosedTagForgotten, (TAGS, "slander")),
    (Mutant::FloorForgotten, (TAGS, "slander")),
    (Mutant::WindowIgnored, (TAGS, "bounds")),
    (Mutant::AnnouncedByAnyone, (TAGS, "announced")),
    (Mutant::CopiesCount, (CALLS, "counts")),
    (Mutant::SecondVoteCounts, (CALLS, "counts")),
    (Mutant::PlaceBelieved, (TAGS, "slander")),
    (Mutant::VotesTwice, (TAGS, "slander")),
    (Mutant::DownForGood, (TAGS, "patience")),
    (Mutant::RulesWakeNobody, (CALLS, "liveness")),
    (
        Mutant::EpochIgnored,
        (floods::casts_of_an_older_epoch_are_dropped_and_of_another_refused, ""),
    ),
    (
        Mutant::HeldLeaves,
        (streams::a_vote_that_is_held_is_said_when_it_is_released_with_what_goes_along, ""),
    ),
    (
        Mutant::MissedForgotten,
        (
            liars::votes_that_could_not_be_sent_are_told_of_and_sent_again_when_the_member_is_back,
            "",
        ),
    ),
    (
        Mutant::RefusedCounts,
        (streams::a_protocol_with_a_core_of_its_own_sees_every_vote_that_is_signed, ""),
    ),
    (Mutant::TurnsIgnored, (streams::one_member_that_floods_a_stream_holds_up_no_other, "")),
    (
        Mutant::LaterDropped,
        (streams::members_change_by_epoch_and_votes_that_came_before_are_kept, ""),
    ),
];

/// Says what is wrong with how a mutant is found.
fn look_for((mutant, (test, property)): (Mutant, Finds)) -> Option<String> {
    mutant::set(Some(mutant));
    let found = panic::catch_unwind(test);
    mutant::set(None);
    let Err(found) = found else { return Some(format!("{mutant:?} survived")) };
    let said = found.downcast_ref::<String>().map_or("", String::as_str);
    println!("{mutant:?}: {}", said.chars().take(150).collect::<String>());
    (!said.contains(property)).then(|| format!("{mutant:?} was found as {said}"))
}

#[test]
fn every_broken_rule_of_votes_is_found() {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let survivors: Vec<String> = thread::scope(|scope| {
        let look = || {
            let mut wrong = Vec::new();
            while let Some(case) = FOUND.get(next.fetch_add(1, Ordering::Relaxed)) {
                wrong.extend(look_for(*case));
            }
            wrong
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it only looks")).collect()
    });
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
    // Found by the test of liars in quorum calls, and by that of what is hopeless.
    let elsewhere = [Mutant::HearsayEndsBranch, Mutant::HopeWithoutLiars];
    let listed = FOUND.map(|(mutant, _)| mutant);
    assert!(Mutant::OF_QUORUMS.iter().all(|one| listed.contains(one) || elsewhere.contains(one)));
}
