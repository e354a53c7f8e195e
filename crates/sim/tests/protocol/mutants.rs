//! Each deliberate defect must be found by the swarm, within few seeds, and by a property that
//! speaks of it: a check of the checks.
//!
//! Of the defects that the models of `settlement.md` (section 9) and `trust.md` (section 7) find,
//! all are here, and of those of shares those that a node can have; the room for sending is the
//! transports'. The 18th of the model of trust, carried entries from who may not speak, is no
//! defect once entries are sealed: what does not count is dropped whole, which costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_proto::mutant::{self, Mutant};
use convoke_sim::scenario::{Fault, Injection, Kind, Scenario};
use convoke_sim::swarm;
use convoke_sim::trace::Trace;
use convoke_sim::world::World;

/// Most seeds that a mutant may survive.
const SEEDS: u64 = 400;

/// Scenario that finds each mutant, and the properties that do.
const FOUND: [(Mutant, Kind, &[&str]); Mutant::ALL.len()] = [
    (Mutant::ChildrenNotRegistered, Kind::Calm, &["I1", "I26"]),
    (Mutant::NoDedupe, Kind::AnyOrder, &["I8"]),
    (Mutant::HopIgnored, Kind::AnyOrder, &["I24"]),
    // A plain probe refuses a slow request.
    (Mutant::FenceOnPlainProbe, Kind::SlowParentLink, &["I3", "I12"]),
    // A STATUS on the control lane overtakes the reply it speaks of.
    (Mutant::StatusOvertakesReply, Kind::SlowParentLink, &["I3", "I12"]),
    (Mutant::CancelAfterDecision, Kind::Quorums, &["I13"]),
    // One node is taken for two.
    (Mutant::QuorumByPath, Kind::Quorums, &["I19"]),
    (Mutant::FailedOwes, Kind::Cuts, &["I16"]),
    (Mutant::DeadlineWakesNobody, Kind::Lossy, &["I4"]),
    (Mutant::TimeOfCall, Kind::Cancels, &["I14"]),
    (Mutant::LossIgnored, Kind::Crashes, &["I44"]),
    (Mutant::CopiesDelivered, Kind::AnyOrder, &["I5, I20"]),
    (Mutant::FailsAgain, Kind::AnyOrder, &["I9"]),
    // Settlement.
    (Mutant::FloorPassesCancelled, Kind::Load, &["I26"]),
    (Mutant::FloorPassesFailures, Kind::Load, &["I26"]),
    (Mutant::OnlyRootsNeedWord, Kind::Load, &["I26"]),
    (Mutant::AbortedForgotten, Kind::Load, &["I26"]),
    (Mutant::NobodyAsked, Kind::Cancels, &["I30"]),
    (Mutant::IntervalsGoWithLastRecord, Kind::LateCopies, &["I8"]),
    (Mutant::IntervalsLiveAsLastRecord, Kind::LateCopies, &["I8"]),
    (Mutant::StatementReplaces, Kind::LateCopies, &["I8"]),
    (Mutant::ExceptionsIgnored, Kind::LateCopies, &["I27"]),
    (Mutant::ExceptionsCut, Kind::LateCopies, &["I27"]),
    (Mutant::AnybodysFloor, Kind::Liars, &["I27", "I34"]),
    (Mutant::NoStubs, Kind::LateCopies, &["I8"]),
    (Mutant::GuessIsWord, Kind::Load, &["I26"]),
    // Early settlement stops what should run on.
    (Mutant::RunningDropped, Kind::Load, &["I13"]),
    (Mutant::MarkWithoutWord, Kind::Load, &["I26, I29"]),
    (Mutant::ExpiryWithoutWord, Kind::Load, &["I26, I29"]),
    (Mutant::TailIsWord, Kind::Load, &["I26"]),
    (Mutant::TasksNotNamed, Kind::Walks, &["I30"]),
    (Mutant::RefusalDropsInherited, Kind::Load, &["I26, I29"]),
    (Mutant::FenceNotKept, Kind::AnyOrder, &["I11"]),
    // The initiator has to ask for what it was told.
    (Mutant::GrowingForgetsInherited, Kind::Calm, &["I17"]),
    // A fence overtakes the request of a later hop.
    (Mutant::TailKeepsRootLink, Kind::SlowParentLink, &["I3", "I12"]),
    // Trust.
    (Mutant::NoKeys, Kind::Liars, &["I34"]),
    (Mutant::KeyNotInIdentity, Kind::Liars, &["I3", "I12"]),
    // What is forged says also where a branch is, and that it has failed.
    (Mutant::NoSeals, Kind::Liars, &["I34", "I26", "I1", "I3", "I12", "I24"]),
    (Mutant::SealWithoutContent, Kind::Liars, &["I34", "I26", "I1", "I3"]),
    (Mutant::OneKeyForCall, Kind::Liars, &["I24", "I34", "I40"]),
    (Mutant::OriginByLife, Kind::Liars, &["I34", "I27", "I40"]),
    (Mutant::LifeOfFirst, Kind::Liars, &["I3", "I12"]),
    (Mutant::CancelByLife, Kind::Liars, &["I34", "I13"]),
    (Mutant::CancelByPrefix, Kind::Liars, &["I34", "I13"]),
    (Mutant::FenceWithoutKey, Kind::Liars, &["I3", "I12"]),
    (Mutant::UnaskedFailsBranch, Kind::Liars, &["I34"]),
    // Replies and keys go to the squatter.
    (Mutant::RouteOfFirst, Kind::Liars, &["I37", "I40", "I3"]),
    (Mutant::NotRunFromAnyHolder, Kind::Liars, &["I11"]),
    (Mutant::AnyAskedSpeaksForRoots, Kind::Liars, &["I34"]),
    (Mutant::StatusWithoutKey, Kind::Liars, &["I34"]),
    (Mutant::BoundsShared, Kind::Liars, &["I3", "I12"]),
    (Mutant::ContradictionEndsCall, Kind::Liars, &["I3", "I12"]),
    // Shares.
    (Mutant::AlphaNotApplied, Kind::Overload, &["I41"]),
    (Mutant::PaidByOrigin, Kind::Calm, &["I42"]),
    (Mutant::GrownKeepsShare, Kind::Calm, &["I42"]),
    (Mutant::LostItemsAreComplete, Kind::Cuts, &["I51"]),
    (Mutant::ItemsWithoutGrants, Kind::Calm, &["I3"]),
    // Frames for a stream beyond the first are for nobody: calls there stay for ever.
    (Mutant::LifeWithStream, Kind::Calm, &["I18"]),
    (Mutant::CoresDoNotHear, Kind::Overload, &["I18", "I41"]),
    (Mutant::LeavingUnheard, Kind::Stops, &["I52"]),
    (Mutant::SentNotCounted, Kind::Stops, &["I52"]),
];

#[test]
fn every_mutant_is_found_by_a_property_that_speaks_of_it() {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let survivors: Vec<String> = std::thread::scope(|scope| {
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
}

/// Says what is wrong with how a mutant is found.
fn look_for((mutant, kind, invariants): (Mutant, Kind, &[&str])) -> Option<String> {
    mutant::set(Some(mutant));
    let found = (0..SEEDS).find_map(|seed| swarm::run(seed, Some(kind)).err());
    mutant::set(None);
    let Some(found) = found else {
        return Some(format!("{mutant:?} survived {SEEDS} seeds of {kind:?}"));
    };
    let name = &found.violation.invariant;
    let speaks = invariants.iter().any(|id| is_of(name, id));
    (!speaks).then(|| format!("{mutant:?} was found as {found}"))
}

/// True for the name of a property that begins with these numbers.
fn is_of(name: &str, id: &str) -> bool {
    name.strip_prefix(id).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[test]
fn a_pause_of_one_node_excuses_no_call_of_another() {
    mutant::set(Some(Mutant::DeadlineWakesNobody));
    let found = (0..SEEDS).find_map(|seed| {
        let (at, time) = (Duration::from_millis(2), Duration::from_millis(1));
        let faults = vec![Injection { at, fault: Fault::Pause(0, time) }];
        let scenario = Scenario { faults, ..Scenario::with_kind(Kind::Lossy, seed) };
        World::new(scenario, Trace::hash_only()).run().0.err()
    });
    mutant::set(None);
    let found = found.expect("some call is lost");
    assert!(found.message.contains("is past"), "{found}");
}

#[test]
fn a_property_is_not_taken_for_one_of_a_longer_number() {
    assert!(is_of("I3: each reply comes once", "I3") && is_of("I26, I29: settled", "I26"));
    assert!(!is_of("I30: what is settled is let go", "I3") && !is_of("I13", "I1"));
}

#[test]
fn every_mutant_is_looked_for() {
    for mutant in Mutant::ALL {
        assert!(FOUND.iter().any(|(found, ..)| *found == mutant), "{mutant:?} is not");
    }
}
