//! Each rule of casts broken once: a test of this directory must fall.

use std::panic;
use std::thread;

use convoke_proto::mutant::{self, Mutant};

use crate::{floods, liars};

/// True when a test falls with this defect, and stands without it.
fn is_found(mutant: Mutant, test: fn()) -> bool {
    let run = |mutant| {
        let thread = thread::Builder::new().name(format!("with {mutant:?}"));
        let running = thread.spawn(move || {
            mutant::set(mutant);
            panic::catch_unwind(test).is_ok()
        });
        running.expect("there is room for a thread").join().expect("it was caught")
    };
    run(None) && !run(Some(mutant))
}

#[test]
fn every_broken_rule_of_casts_is_found() {
    let tests: [(Mutant, fn()); 5] = [
        (Mutant::DelegatedJoins, liars::only_the_initiator_begins_the_round_of_its_call),
        (
            Mutant::ClosedTagForgotten,
            liars::a_wrong_plan_uses_no_tag_up_and_a_round_without_votes_neither,
        ),
        (Mutant::ExpiryOfFirst, liars::votes_with_a_short_life_take_no_other_along),
        (Mutant::StrangersCast, liars::strangers_casts_leave_nothing_behind_and_take_no_room),
        (Mutant::CastsWithoutShares, floods::a_flood_of_one_member_fills_its_own_share_alone),
    ];
    for (mutant, test) in tests {
        assert!(is_found(mutant, test), "{mutant:?}");
    }
    // The last is of trees, and found by the test of liars in quorum calls.
    let of_trees = [Mutant::HearsayEndsBranch];
    let listed = tests.map(|(mutant, _)| mutant);
    assert!(Mutant::OF_QUORUMS.iter().all(|one| listed.contains(one) || of_trees.contains(one)));
}
